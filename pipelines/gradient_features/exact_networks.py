"""Lemmas B.34, B.41, B.51 and B.64. Small networks of gradient features have little or no hinge loss.

Parities of r groups of k coordinates have a network of 3 r (k + 1) neurons with hinge loss 0, a bump at each value of
<D_j, x>. Mixtures have a network of r neurons, g*(x) = sum_j (y_j/s) max(<D_j, x> - 2 s, 0), s = sqrt(tau log d) std,
whose loss is at most 3/d^tau + 4/(d^(0.9 tau - 1) sqrt(tau log d)). For tau = 1 this is about 3; theorem
B.42 takes a tau of the order of d/(std^2 log d).
"""

import math
from typing import Any, Literal

from featurelab.pipelines import (
    CATEGORIES, Config, Cost, Experiment, Field, Recorder, at_least, at_most, choice, data, evaluate, learners, nets,
    torch,
)


class SolutionConfig(Config):
    precision: Literal["64-true"] = Field("64-true", description="a loss of 0 holds to rounding")
    problem: Literal["parity", "uniform", "xor"] = Field("parity", description="structured or uniform parity, or XOR")
    n_train: int = Field(8000, ge=4, multiple_of=4, description="samples on which the loss is measured")
    dim: int = Field(40, ge=4, description="input coordinates")
    groups: int = Field(1, ge=1, description="parity: groups r")
    size: int = Field(5, ge=1, description="parities: coordinates k of a group")
    tau: float = Field(1.0, gt=0, description="xor: tau of the network")


ROWS = {
    ("parity", 40, 1, 5): "parity, r = 1, k = 5",
    ("parity", 40, 3, 3): "parity, r = 3, k = 3",
    ("uniform", 41, 1, 4): "uniform parity, k = 4",
    ("xor", 100, 4, 1): "XOR, d = 100",
    ("xor", 400, 4, 1): "XOR, d = 400",
}
PRESET = SolutionConfig()

figure = Experiment(
    name="gradient_features/exact_networks", trains=False,
    figures=("Lemma B.34", "Lemma B.41", "Lemma B.51", "Lemma B.64"),
    title="Hinge loss of explicit networks of gradient features",
    caption="Means over seeds. Bars at 1e-17 stand for 0. The bound of lemma B.41 exceeds 1 at these sizes.",
    laptop=PRESET, paper=PRESET.but(n_train=200_000),
    grid={("problem", "dim", "groups", "size"): list(ROWS), "seed": range(6)},
    sweep_axes={"dim": choice(40, 80, 160), "n_train": choice(1000, 2000, 4000, 8000)}, metric="loss/train",
    minutes=0.1, small={"n_train": 200},
)


@figure.trial
def run(config: SolutionConfig, recorder: Recorder) -> None:
    c, seed = config, config.streams.data
    task: Any
    if c.problem == "xor":
        means = data.opposite_pairs(data.orthogonal_means(2, c.dim, c.dim**0.5, seed=seed))
        labels = torch.tensor([1.0, 1.0, -1.0, -1.0], dtype=torch.float64)
        task = data.GaussianClusters(means, labels, c.n_train, seed=seed)
        net = nets.mixture_solution(means / c.dim**0.5, labels, (c.tau * math.log(c.dim)) ** 0.5)
    else:
        if c.problem == "uniform":
            task = data.UniformParity(c.n_train, 0, c.dim, c.size, seed=seed)
        else:
            task = data.StructuredParity(c.n_train, 0, c.dim, groups=c.groups, size=c.size, aligned=0.1, noise=0.1,
                seed=seed)
        net = nets.parity_solution(task.directions, c.size)

    def measure(net, x, y):
        right = (net(x) * y > 0).double().mean()
        return {"loss/train": learners.hinge(net, (x, y)).item(), "accuracy/train": right.item()}

    evaluate(learners.Measurement(net, measure), task, config, recorder)


@figure.cost
def cost(config: SolutionConfig):
    neurons = 3 * config.groups * (config.size + 1)
    flops = 2.0 * config.n_train * config.dim * neurons
    return Cost(neurons * config.dim, flops, 8.0 * config.n_train * (config.dim + neurons))


def of(runs, metric, problem):
    """Return a metric of every row of this problem."""
    rows = [dict(zip(("problem", "dim", "groups", "size"), row, strict=True)) for row in ROWS if row[0] == problem]
    return [runs.final(metric, **row) for row in rows]


@figure.claim("c15_parities_have_exact_networks",
    says="the networks of lemmas B.51 and B.64 compute parities exactly (hinge loss 0, accuracy 1)", paper="0",
    kind="identity", expect={"loss": at_most(1e-10), "accuracy": at_least(1)})
def parities(runs):
    return {"loss": max(of(runs, "loss/train", "parity") + of(runs, "loss/train", "uniform")),
        "accuracy": min(of(runs, "accuracy/train", "parity") + of(runs, "accuracy/train", "uniform"))}


@figure.claim("c15b_xor_has_a_small_network",
    says="the four neurons of lemma B.41 with tau = 1 have nearly no hinge loss on the XOR for d >= 100 (largest loss)",
    paper="≤ 3/d^τ + 4/(d^(0.9τ - 1) √(τ log d))", kind="identity", expect=at_most(1e-3))
def xor(runs):
    return max(of(runs, "loss/train", "xor"))


def bound(dim, tau):
    return 3 / dim**tau + 4 / (dim ** (0.9 * tau - 1) * (tau * math.log(dim)) ** 0.5)


@figure.draw(size=(8, 3.2))
def panel(runs, axes):
    axis = axes[0, 0]
    names = ("problem", "dim", "groups", "size")
    values = [runs.final("loss/train", **dict(zip(names, row, strict=True))) for row in ROWS]
    axis.barh(list(ROWS.values()), [max(v, 1e-17) for v in values], color=CATEGORIES[0], label="measured")
    xor_rows = [i for i, row in enumerate(ROWS) if row[0] == "xor"]
    axis.plot([bound(row[1], 1.0) for row in ROWS if row[0] == "xor"], xor_rows, "|", markersize=16,
        color=CATEGORIES[1], label="bound of lemma B.41, τ = 1")
    axis.set(xscale="log", xlabel="hinge loss", xlim=(1e-17, 100))
    axis.invert_yaxis()
    axis.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)
