"""Figure 8. As training begins, the C-NFA is that of the mean tangent kernel.

Networks with two hidden layers, at initialisation, on Gaussian inputs with covariance eigenvalues 1/(1+k^alpha). The
observed value is the first layer's derivative correlation rho(Wdot'Wdot, Wdot'K Wdot), averaged over a few networks;
the prediction replaces the tangent kernel by its mean over others. A seed stands for a draw of the data. Targets: the
chain monomial of rank 5, and y = sum_i (Qx)_i^2. Quadratic activations in (a), ReLU in (b).
"""

from typing import Any, Literal

from featurelab.pipelines import (
    CATEGORIES, Config, Cost, Experiment, Field, Grid, Missing, Recorder, above, at_least, at_most, choice, data,
    evaluate, learners, measures, nets, points, theory, torch, uniform,
)


class MeanKernelConfig(Config):
    precision: Literal["64-true", "32-true"] = Field("64-true", description="Lightning precision")
    n_train: int = Field(128, ge=2, description="samples")
    dim: int = Field(128, ge=5, description="input coordinates")
    width: int = Field(128, ge=1, description="units of each of the two hidden layers")
    activation: Literal["quadratic", "relu"] = Field("relu", description="activation")
    target: Literal["chain", "high_rank"] = Field("chain", description="chain monomial of rank 5, or sum of (Qx)_i^2")
    decay: float = Field(0.0, ge=0, description="alpha: the covariance of the inputs has eigenvalues 1/(1+k^alpha)")
    init_scale: float = Field(1.0, gt=0, description="variance multiplier of all initial weights")
    networks: int = Field(10, ge=1, description="networks over which the tangent kernel is averaged")
    observed: int = Field(3, ge=1, description="other networks over which the observed value is averaged")


ALPHAS = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]
TARGETS = {"chain": "chain monomial, rank 5", "high_rank": "high-rank polynomial"}
GRID: Grid = {"target": list(TARGETS), "width": [128, 512], "decay": ALPHAS, "seed": [0, 1, 2, 3, 4, 5]}
PRESET = MeanKernelConfig(activation="quadratic")

quadratic = Experiment(
    name="neural_feature_ansatz/mean_kernel_quadratic", trains=False, figures=("Fig. 8a",),
    title="Derivative alignment and the mean tangent kernel, quadratic activations",
    caption="Marks are observed, lines predicted from the mean kernel; means and ranges over seeds.", laptop=PRESET,
    paper=PRESET, grid=GRID, paper_grid={**GRID, "width": [128, 1024]},
    sweep_axes={"decay": uniform(0.0, 6.0), "width": choice(64, 128, 256, 512, 1024),
        "activation": choice("relu", "quadratic")}, metric="derivative_correlation/observed", mode="max", minutes=0.6,
    small={"n_train": 8, "dim": 6, "width": [4, 8], "networks": 2, "observed": 2},
)
relu = quadratic.variant(
    "mean_kernel_relu", figures=("Fig. 8b",), title="Derivative alignment and the mean tangent kernel, ReLU",
    activation="relu",
)


@quadratic.trial
def run(config: MeanKernelConfig, recorder: Recorder) -> None:
    c = config
    task = (data.ChainMonomials(c.n_train, 1, c.dim, 5, decay=c.decay, seed=c.streams.data, dtype=c.dtype) if c.target
        == "chain" else data.HighRankPolynomial(c.n_train, 1, c.dim, decay=c.decay, seed=c.streams.data, dtype=c.dtype))

    def compare(net, x, y):
        more = [network(config, config.streams.init + i).to(x) for i in range(1, config.observed + config.networks)]
        seen, averaged = [net, *more[: config.observed - 1]], more[config.observed - 1 :]
        scores = [theory.neural_feature_ansatz.derivative_correlation(tangents(one, x), x, y) for one in seen]
        mean_ptk = torch.stack([measures.ptk(tangents(one, x)) for one in averaged]).mean(0)
        return {
            "derivative_correlation/observed": torch.stack(scores).mean().item(),
            "derivative_correlation/observed_one": scores[0].item(),
            "derivative_correlation/mean_kernel": theory.neural_feature_ansatz.mean_ptk_correlation(
                mean_ptk, x, y[:, 0]
            ).item(),
        }

    evaluate(learners.Measurement(network(config, config.streams.init), compare), task, config, recorder)


def network(config: MeanKernelConfig, seed):
    law = {"activation": config.activation, "init_scale": config.init_scale, "seed": seed, "dtype": config.dtype}
    return nets.mlp(config.dim, config.width, 2, **law)


def tangents(net, x):
    """Tangent features of the first layer: (n, 1, width)."""
    return measures.tangent_features(net, x, layers=["0"])["0"]


@quadratic.cost
def cost(config: MeanKernelConfig):
    parameters = config.width * (config.dim + config.width + 1)
    each = 4.0 * config.n_train * parameters + 2.0 * config.n_train**2 * config.width
    return Cost(parameters=parameters, flops=(config.networks + config.observed) * each + 6.0 * config.n_train**3,
        memory_bytes=8.0 * (4 * parameters + 8 * config.n_train * config.width + config.networks * config.n_train**2))


def of_width(runs, which):
    """The trials of the smaller (0) or the larger (1) width; raises `Missing` where there is one width alone."""
    widths = sorted(runs.values("width"))
    if len(widths) < 2:
        raise Missing("only one width")
    return runs.where(width=widths[which])


def misses(runs, which=1, metric="observed"):
    """Distances of the mean kernel's prediction from what is measured at one width, over targets and decays."""
    runs = of_width(runs, which)
    names = [f"derivative_correlation/{name}" for name in (metric, "mean_kernel")]
    pairs = [[runs.final(name, target=t, decay=a) for name in names] for t in TARGETS for a in ALPHAS]
    return [abs(measured - predicted) for measured, predicted in pairs]


@relu.claim("c23_dip", says="ReLU: the alignment dips at intermediate decay of the data (depth, for each target)",
    paper="curves, no number", expect={target: at_least(0.1) for target in TARGETS})
@quadratic.claim("c24_dip",
    says="quadratic: the alignment dips at intermediate decay of the data (depth, for each target)",
    paper="curves, no number", expect={target: at_least(0.1) for target in TARGETS})
def dips(runs):
    """How far the least value at alpha in [0.5, 1.5] lies below the values at alpha = 0 and at alpha >= 3."""
    runs, depths = of_width(runs, 1), {}
    for target in TARGETS:
        at = {a: runs.final("derivative_correlation/observed", target=target, decay=a) for a in ALPHAS}
        ends = min(at[a] for a in ALPHAS if a == 0 or a >= 3)
        depths[target] = ends - min(at[a] for a in ALPHAS if 0.5 <= a <= 1.5)
    return depths


@relu.claim("c25_mean_kernel_predicts", also=[quadratic],
    says="at the larger width the mean kernel predicts the alignment (largest distance over decays and targets)",
    paper="approximately", expect=at_most(0.05))
def predicts(runs):
    return max(misses(runs))


@relu.claim("c25b_predicts_one_network", also=[quadratic], says="at the larger width the mean kernel predicts the "
    "alignment of a single network (largest distance over decays and targets)", origin="ours", expect=at_most(0.05))
def predicts_one(runs):
    return max(misses(runs, metric="observed_one"))


@quadratic.claim("c26_better_at_large_width",
    says="quadratic: the mean kernel predicts better at large width (mean distance at 128 minus that at the larger)",
    paper="curves, no number", expect=above(0))
def width_helps(runs):
    small, large = (misses(runs, which) for which in (0, 1))
    return sum(small) / len(small) - sum(large) / len(large)


@quadratic.draw(cols=2, size=(9, 3.6))
def panels(runs, axes):
    looks: dict[str, Any] = {"observed": {"linestyle": ""}, "mean kernel": {"marker": "", "capsize": 0}}
    for axis, (target, title) in zip(axes[0], TARGETS.items(), strict=True):
        for width, colour in zip(runs.values("width"), CATEGORIES, strict=False):
            for name, look in looks.items():
                metric, here = f"derivative_correlation/{name.replace(' ', '_')}", {"target": target, "width": width}
                points(axis, runs, metric, "decay", where=here, color=colour, label=f"{name}, k = {width}", **look)
        axis.set(title=title, xlabel="decay α of the data", ylabel="derivative correlation", ylim=(0, 1.05))
    axes[0, 0].legend(loc="lower right")
