"""What the figures on synthetic data share: two-layer networks that take one gradient step, and unseen classes.

A trial is one draw of the data. Alignment and Elasticity are expectations over initial networks too (Definitions 1.1
and 1.2), so `networks` of them take the step on the same data, and their scores are averaged; the paper takes 30.
Neither the activation nor the length |v| of the class means is given in the paper: "5 r^2" with an r that is never
defined. Here they are tanh and |v| = 5 unless a figure says otherwise.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from featurelab.pipelines import (
    CATEGORIES,
    Config,
    Cost,
    Field,
    choice,
    data,
    fit,
    learners,
    loguniform,
    measures,
    nets,
    probes,
    stats,
    torch,
    uniform,
)

if TYPE_CHECKING:
    from featurelab.modules.learners import OneStep
    from featurelab.modules.measures import UnseenMeans


class OneStepConfig(Config):
    precision: Literal["64-true", "32-true"] = Field("64-true", description="Lightning precision")
    n_train: int = Field(256, ge=2, description="training samples, all in the one step")
    dim: int = Field(256, ge=2, description="input coordinates")
    width: int = Field(256, ge=1, description="neurons")
    networks: int = Field(5, ge=1, description="initial networks over which scores are averaged")
    activation: Literal["tanh", "tanh_squared", "erf", "sigmoid", "sin", "relu"] = Field(
        "tanh", description="activation; relu is outside the assumptions"
    )
    distribution: Literal["ball", "truncated", "sphere"] = Field("sphere", description="Data 1, 2 and 3")
    mean_norm: float = Field(5.0, gt=0, description="|v|, the length of the class means, for constant growth")
    mean_growth: Literal["constant", "sqrt_dim", "dim"] = Field(
        "constant", description="what |v| / mean_norm is: 1, sqrt(dim) or dim"
    )
    lr_exponent: float = Field(0.25, description="a in the learning rate n_train^a")
    weight_decay: float = Field(0.0, ge=0, description="weight decay of the first layer")


class UnseenConfig(OneStepConfig):
    n_test: int = Field(400, ge=2, description="samples of each unseen class")
    projection: Literal["orthogonal", "literal"] = Field(
        "orthogonal", description="z less its part along the mean, or the printed formula, which divides by |nu|^4"
    )


PAPER: dict[str, Any] = {"n_train": 2048, "dim": 2048, "width": 2048, "networks": 30}
SWEEP_AXES = {
    "lr_exponent": uniform(-0.25, 0.5),
    "width": choice(128, 256, 512),
    "mean_norm": loguniform(0.5, 50.0),
    "weight_decay": loguniform(1e-6, 1e-3),
}
DATA = {"ball": "Data 1", "truncated": "Data 2", "sphere": "Data 3"}
COLOURS = dict(zip(DATA, CATEGORIES, strict=False))


def training_data(config: Any, **options: Any) -> Any:
    """The two training classes that the config names."""
    return data.SubGaussianClasses(
        config.n_train,
        config.dim,
        config.distribution,
        length=data.mean_length(config.mean_norm, config.mean_growth, config.dim),
        seed=config.streams.data,
        dtype=config.dtype,
        **options,
    )


def step(
    config: Any,
    recorder: Any,
    task: Any,
    measure: "Callable[[OneStep], None]",
    *,
    before: "Callable[[OneStep], None] | None" = None,
    lr: float | None = None,
) -> "OneStep":
    """Take the step on the task, and `measure` the learner `before` and right after it, on the step's own device."""
    networks = [
        nets.two_layer(
            config.dim,
            config.width,
            heads=task.train[1].shape[1],
            activation=config.activation,
            seed=config.streams.init + index,
            dtype=config.dtype,
        )
        for index in range(config.networks)
    ]
    rate = config.n_train**config.lr_exponent if lr is None else lr
    learner = learners.OneStep(networks, lr=rate, weight_decay=config.weight_decay)

    def watched(module: Any, x: Any) -> dict[str, Any]:
        with torch.no_grad():
            y = task.train[1].to(x)
            outputs = module(x)
            if module.trainer.global_step:
                measure(module)
            elif before is not None:
                before(module)
            return {"loss/train": (outputs - y).square().sum((1, 2)).mean() / (2 * len(x))}

    fit(learner, task, config, recorder, steps=1, probes=[probes.Measure(watched, name="training")])
    return learner


def averaged_scores(
    config: Any,
    learner: "OneStep",
    task: Any,
    means: "UnseenMeans",
    *,
    recall: Sequence[Literal["cosine", "inner"]] = (),
) -> "dict[str, torch.Tensor]":
    """The scores of these unseen classes, averaged over the learner's networks; and what theory says governs them."""
    x, y = (t.to(learner.device) for t in task.train)
    beta = measures.train_direction(x, y, config.width)
    means = means.to(x)
    z, other = (
        data.gaussian(config.n_test, config.dim, config.streams.data, name).to(x) for name in ("unseen", "opposite")
    )
    found = [
        measures.unseen_scores(
            z, means, before, after, net.activation, opposite=other if recall else None, recall=recall
        )
        for net, before, after in learner.weights()
    ]
    scores = {name: torch.stack([each[name] for each in found]).mean(0) for name in found[0]}
    return scores | {"similarity/unseen": means.similarity(beta), "spread/unseen": means.spread(beta)}


def along_the_axis(task: Any, shares: Sequence[float], projection: Literal["orthogonal", "literal"]) -> "UnseenMeans":
    """Setup 1: the means e v for every e."""
    lengths = task.length * torch.tensor(shares, dtype=torch.float64)
    axes = task.axis.expand(len(lengths), -1)
    return measures.UnseenMeans(axes, lengths, data.shrinkage(lengths, projection))


def record_curves(recorder: Any, curves: "dict[str, torch.Tensor]", **grid: Any) -> None:
    """Log every curve with the index of its point as the step, and keep the points' own values beside them."""
    values = {name: curve.tolist() for name, curve in curves.items()}
    for index in range(len(next(iter(values.values())))):
        recorder.log({name: curve[index] for name, curve in values.items()}, step=index)
    recorder.array("grid", **grid)


def spearman(first: Any, second: Any) -> float:
    """Spearman's rank correlation, ties given their average rank."""
    return float(stats.spearmanr(first, second).statistic)


def cost(config: Any, classes: int, *, recall: int = 0) -> Cost:
    """One step of every network, and the scores of `classes` unseen classes, `recall` kinds of retrieval included."""
    n, d, N, m = config.n_train, config.dim, config.width, getattr(config, "n_test", config.n_train)
    training = 6.0 * n * d * N
    scoring = 8.0 * m * d * N + classes * m * N * (60.0 + 16.0 * m * recall)
    numbers = n * d + 2 * m * d + 3 * config.networks * d * N + 8 * m * N + (12 * m * m if recall else 0)
    return Cost(config.networks * d * N, config.networks * (training + scoring), 8.0 * numbers)
