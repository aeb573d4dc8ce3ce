"""Figure 3, controls. Deep RFM needs the AGOP and a non-linear feature map to collapse.

The paper implies both controls but does not show them. Without multiplication by the AGOP's square root, random ReLU
features should raise NC1 from layer to layer. With it, but with linear random features or none, NC1 should stall:
linearised layers (Theorem 4.3) contract only as far as the feature map is non-linear.
"""

from featurelab.pipelines import CATEGORIES, at_least, band, below, legend_below
from featurelab.pipelines.deep_neural_collapse.deep_rfm import PUBLIC, SEEDS, relu
from featurelab.pipelines.deep_neural_collapse.rfm import RFMConfig, trusted

PRESET = RFMConfig(width=256, depth=6)
RUNS = {
    ("relu", 0.5): "ReLU",
    ("relu", 0.0): "ReLU, no AGOP",
    ("linear", 0.5): "linear random features",
    ("identity", 0.5): "no feature map",
}

figure = relu.variant(
    "deep_rfm_controls", figures=("Fig. 3",), part="controls",
    title="Deep RFM without the AGOP, and without a non-linear feature map",
    caption="After M^(1/2) (without AGOP: on the layer's input). Lines are means over seeds, bands their range.",
    laptop=PRESET, paper=PRESET.but(**PUBLIC, width=1024),
    grid={("feature_map", "power"): list(RUNS), "seed": range(6)}, paper_grid=None, minutes=0.1, needs=("cifar10",),
    desktop=PRESET.but(dataset="cifar10", n_train=1000, width=1024), desktop_minutes=2,
    desktop_grid={("feature_map", "power"): list(RUNS), "seed": SEEDS},
    reduced="1,000 images of CIFAR-10 in place of 50,000, 6 layers in place of 20",
    stand_in="scikit-learn's 8x8 digits in place of CIFAR-10 (same code path)",
)


def values(runs, feature_map, power, metric="nc1/projected"):
    return trusted(runs, metric, feature_map=feature_map, power=power)


def end_over_start(runs, power):
    return float(values(runs, "relu", power)[-1] / values(runs, "relu", power, "nc1/input")[0])


@figure.claim("c07_no_collapse_without_agop",
    says="without the AGOP, NC1 does not fall with depth; with the AGOP, it falls to less than a tenth (last layer "
    "over the first input)", origin="ours", expect={"without": at_least(1), "with": below(0.1)})
def without_agop(runs):
    return {"without": end_over_start(runs, 0.0), "with": end_over_start(runs, 0.5)}


@figure.claim("c08_no_collapse_without_nonlinearity",
    says="with linear features or none, NC1 in the last layer is at least five times that with ReLU features (ratios)",
    origin="ours", expect={"linear": at_least(5), "identity": at_least(5)})
def linear(runs):
    relu = values(runs, "relu", 0.5)[-1]
    return {kind: float(values(runs, kind, 0.5)[-1] / relu) for kind in ("linear", "identity")}


@figure.draw(cols=2, size=(9, 3.6))
def panels(runs, axes):
    for axis, (metric, name) in zip(axes[0], {"nc1": "NC1", "nc2_cosines": "NC2"}.items(), strict=True):
        for ((kind, power), label), colour in zip(RUNS.items(), CATEGORIES, strict=False):
            table = runs.curves(f"{metric}/projected", feature_map=kind, power=power)
            dashed = "--" if kind == "identity" else "-"  # it covers the line of linear features
            band(axis, table, color=colour, label=label, linestyle=dashed)
        axis.set(title=f"{name} after $M^{{1/2}}$", yscale="log", xlabel="layer", ylabel=name)
    legend_below([axes[0, 0]], 4)
