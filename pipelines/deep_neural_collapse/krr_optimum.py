"""Theorem 4.4. Among kernels with unit diagonal, the collapsed kernel explains the labels best.

    value(k) = (1/K) sum_c y_c' (k + mu)^-1 k y_c  <=  n / (n + mu)

with y_c the normalised indicator of class c and n samples a class; equality holds only for k = I_K (x) 11'. We test the
bound on random kernels of the theorem's family (Laplace and Gaussian in random Mahalanobis metrics), and along segments
from them to the optimum, where the concave value must rise. We also follow the value of a Laplace kernel on the
features of each layer of Deep RFM, which the paper does not do.
"""

from typing import Literal

from featurelab.pipelines import (
    CATEGORIES, Config, Cost, Experiment, Field, Recorder, above, at_least, at_most, band, bound_level, choice, data,
    evaluate, learners, legend_below, loguniform, measures, np, theory, torch,
)
from featurelab.pipelines.deep_neural_collapse.deep_rfm import PUBLIC, SEEDS, relu
from featurelab.pipelines.deep_neural_collapse.rfm import RFMConfig, build


class KernelConfig(Config):
    precision: Literal["64-true"] = Field("64-true", description="the bound holds to 1e-9")
    classes: int = Field(5, ge=2, description="classes of the Gaussian mixture")
    n_train: int = Field(100, ge=4, description="samples, equally many of each class")
    dim: int = Field(20, ge=1, description="input coordinates")
    separation: float = Field(2.0, gt=0, description="length of the class means")
    kernels: int = Field(200, ge=2, description="random kernels; half are Laplace, half Gaussian")
    ridge: float = Field(1.0, gt=0, description="mu")


PRESET = KernelConfig()
RIDGES = [0.01, 0.1, 1.0, 10.0]
SHARES = 11  # points on the segment from a kernel to the optimum

optimum = Experiment(
    name="deep_neural_collapse/krr_optimum", trains=False, figures=("Thm. 4.4",),
    title="The collapsed kernel is the optimal one for ridge regression",
    caption="One seed. Left: distance of random kernels below the bound. Right: segments to the collapsed kernel.",
    laptop=PRESET, paper=PRESET, grid={"ridge": RIDGES, "seed": range(6)},
    sweep_axes={"ridge": loguniform(1e-2, 10.0), "n_train": choice(50, 100, 200)}, metric="krr_value/best", mode="max",
    minutes=0.4, small={"n_train": 20, "kernels": 4},
)


@optimum.trial
def run(config, recorder: Recorder) -> None:
    if config.n_train % config.classes:
        raise ValueError(f"n_train must be a multiple of the {config.classes} classes, got {config.n_train}")
    of_each = config.n_train // config.classes
    task = data.ClassMixture(config.classes, of_each, config.dim, config.separation, seed=config.streams.data)

    def measure(_, x, y):
        best = y @ y.T
        shares = torch.linspace(0, 1, SHARES).to(x)[:, None, None]
        segments = (k + shares * (best - k) for k in random_kernels(config, x))
        values = torch.stack([theory.deep_neural_collapse.krr_explained(segment, y, config.ridge)
            for segment in segments])
        recorder.array("values", segments=values.cpu().numpy())
        bound = of_each / (of_each + config.ridge)
        return {
            "krr_value/best": values[:, 0].max().item(),
            "krr_value/excess": values[:, :-1].max().item() - bound,
            "krr_value/optimum_error": abs(
                theory.deep_neural_collapse.krr_explained(best, y, config.ridge).item() - bound
            ),
            "krr_value/least_rise": values.diff(dim=1).min().item(),
        }

    evaluate(learners.Measurement(torch.nn.Identity(), measure), task, config, recorder)


def random_kernels(config, x):
    """Yield Laplace and Gaussian kernels k(x, z) = phi(|A (x - z)|), with Gaussian A of random height and bandwidth."""
    for index in range(config.kernels):
        draw = data.stream(config.streams.init, f"kernel {index}")
        height = int(draw.integers(1, config.dim + 1))
        A = torch.from_numpy(draw.standard_normal((height, config.dim))).to(x) / config.dim**0.5
        bandwidth = float(10 ** draw.uniform(-1, 1))
        yield measures.radial_kernel(("laplace", "gaussian")[index % 2], bandwidth)(x @ A.T)


@optimum.cost
def cost(config):
    n = float(config.n_train)
    return Cost(config.n_train**2, config.kernels * SHARES * n**3, 8.0 * SHARES * n * n * 4)


@optimum.claim("c13_collapsed_kernel_is_optimal",
    says="no random kernel exceeds n/(n + mu), the collapsed kernel reaches it, and the value rises towards the "
    "collapsed kernel (excess, error at the optimum, smallest rise)", paper="optimal, and uniquely so", kind="identity",
    expect={"excess": at_most(1e-9), "error at the optimum": at_most(1e-9), "least rise": at_least(-1e-9)})
def optimal(runs):
    parts = {
        "excess": ("excess", max),
        "error at the optimum": ("optimum_error", max),
        "least rise": ("least_rise", min),
    }
    return {part: worst(runs.final(f"krr_value/{name}", ridge=ridge) for ridge in RIDGES)
        for part, (name, worst) in parts.items()}


@optimum.draw(cols=2, size=(9, 3.8))
def panels(runs, axes):
    left, right = axes[0]
    for colour, ridge in zip(CATEGORIES, RIDGES, strict=False):
        values = runs.arrays("values", ridge=ridge)[0]["segments"]
        below = values[0, -1] - values[:, 0]
        left.hist(below, bins=np.geomspace(1e-5, 1, 41), histtype="step", color=colour, label=f"μ = {ridge:g}")
        right.plot([i / (SHARES - 1) for i in range(SHARES)], values[:8].T, color=colour, linewidth=0.8)
    left.set(xlabel="n/(n + μ) - value(k)", ylabel="kernels", xscale="log", title="random kernels")
    right.set(xlabel="share of the collapsed kernel", ylabel="value", title="segments to the collapsed kernel")
    legend_below([left], 4)


class LayersConfig(RFMConfig):
    value_ridge: float = Field(1.0, gt=0, description="mu in the value of a layer's kernel")


LAYERS = LayersConfig(depth=6)

layers = relu.variant(
    "krr_value_of_layers", figures=("Thm. 4.4",), part="in Deep RFM",
    title="The layers of Deep RFM approach the optimal kernel",
    caption="Value of a Laplace kernel on normalised features; lines are means over seeds, bands their range.",
    laptop=LAYERS, paper=LAYERS.but(**PUBLIC, width=1024), grid={"seed": range(6)}, paper_grid=None,
    metric="krr_value/projected", mode="max", minutes=0.1, needs=("cifar10",),
    desktop=LAYERS.but(dataset="cifar10", n_train=1000, width=1024), desktop_minutes=1, desktop_grid={"seed": SEEDS},
    reduced="1,000 images of CIFAR-10 in place of 50,000, 6 layers in place of 20",
    stand_in="scikit-learn's 8x8 digits in place of CIFAR-10 (same code path)",
)


@layers.trial
def run_layers(config, recorder: Recorder) -> None:
    kernel = measures.radial_kernel("laplace", config.bandwidth)

    def values(layer, stages, labels):
        one_hot = torch.nn.functional.one_hot(labels).to(stages["input"])
        kernels = {stage: kernel(torch.nn.functional.normalize(x, dim=1)) for stage, x in stages.items()}
        scores = {stage: theory.deep_neural_collapse.krr_explained(k, one_hot, config.value_ridge).item()
            for stage, k in kernels.items()}
        return {f"krr_value/{stage}": score for stage, score in scores.items()}

    build(config, recorder, values)


def bound(runs):
    trial = runs.trials.iloc[0]
    of_each = trial.n_train / 10  # of digits and CIFAR-10
    return of_each / (of_each + trial.value_ridge)


@layers.claim("c13b_layers_approach_the_optimum", says="the value of the features' kernel rises with every layer and "
    "at every AGOP, and stays below n/(n + mu) (smallest differences)", origin="ours",
    expect={"rise with depth": above(0), "rise at the AGOP": above(0), "room to the bound": at_least(0)})
def approach(runs):
    before, after = (runs.curve(f"krr_value/{stage}").to_numpy() for stage in ("input", "projected"))
    return {
        "rise with depth": float((before[1:] - before[:-1]).min()),
        "rise at the AGOP": float((after - before).min()),
        "room to the bound": float(bound(runs) - after.max()),
    }


@layers.draw(size=(6, 4))
def layer_panel(runs, axes):
    axis = axes[0, 0]
    names = {"input": "X", "projected": "$M^{1/2}X$", "features": "Φ($M^{1/2}X$)"}
    for (stage, label), colour in zip(names.items(), CATEGORIES, strict=False):
        band(axis, runs.curves(f"krr_value/{stage}"), color=colour, label=label, marker=".")
    bound_level(axis, bound(runs), "n/(n + μ)", color=CATEGORIES[5])
    axis.set(xlabel="layer", ylabel="value")
    legend_below([axis], 4)
