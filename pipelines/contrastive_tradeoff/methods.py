"""Figures F.2 and F.9 to F.13. The trade-off with MoCo v2, SimSiam and NNCLR.

Each method on the target's set alone and on the whole union; and, as a union is larger and trained for longer, on the
target's set with as many pictures of noise and in as many updates, and on the union in as few. The paper has curves for
three groups of sets and five shares of labels; in several panels the average falls at the last union, and in those of
Fer2013 the target's accuracy first rises.

At laptop scale hidden layers have batch normalisation, without which MoCo collapses, and queues hold a quarter
of the target's pictures: of a longer one each picture would be its own negative.
"""

from featurelab.pipelines import CATEGORIES, above, at_least, np
from featurelab.pipelines.contrastive_tradeoff import unions
from featurelab.pipelines.contrastive_tradeoff.pretraining import METHODS
from featurelab.pipelines.contrastive_tradeoff.unions import (
    FIRST,
    NOISY,
    PAIR,
    WHOLE,
    cell,
    cells,
    few_and_many,
    steps_of,
)

ALL = ["moco", "simsiam", "nnclr"]
figure = unions.figure.variant(
    "methods", figures=("Fig. F.2", "Fig. F.9", "Fig. F.10", "Fig. F.11", "Fig. F.12", "Fig. F.13"),
    title="The trade-off with other ways of pre-training",
    caption="Accuracy on the target against the weighted average over all sets. Small: seeds; large: their mean. From "
    "circle (target's set) to star (union), which are held against the set with as many pictures of noise, and in as "
    "many updates, and the union in as few.", laptop=unions.LAPTOP.but(normalised=True, queue=256),
    grid={"method": ALL, PAIR: cells([FIRST, WHOLE], NOISY), "seed": [0, 1, 2]},
    paper_grid={"method": ALL, PAIR: cells(unions.PAPER_STEPS, unions.PAPER_STEPS[0] + "+noise"), "seed": [0, 1, 2]},
    minutes=3.3, stand_in="generated pictures of 8 x 8 pixels and an MLP in place of public sets and a ResNet-18",
    small=unions.TINY | {"queue": 30},
)


def of_each(runs, measure):
    """A measurement of a method's trials, for each method by name."""
    return {METHODS[method]: measure(runs.where(method=method)) for method in ALL}


@figure.claim("f2_trade_off_of_each", paper="curves of all three", where="Fig. F.2",
    says="with each method the target's accuracy with few labels falls from its own set to the union (falls)",
    expect={METHODS[method]: above(0) for method in ALL})
def falls(runs):
    return {name: found["target falls"] for name, found in of_each(runs, unions.trade_off).items()}


@figure.claim("f2b_average_of_each", paper="curves of all three", where="Fig. F.2",
    says="and the weighted average rises (rises)", expect={METHODS[method]: above(0) for method in ALL})
def rises(runs):
    return {name: found["average rises"] for name, found in of_each(runs, unions.trade_off).items()}


@figure.claim("f2c_beyond_noise", origin="ours", where="Fig. F.2",
    says="the union is worse on the target than its set with as many pictures of noise (differences)",
    expect={METHODS[method]: above(0) for method in ALL})
def beyond_noise(runs):
    return of_each(runs, unions.beyond_noise)


@figure.claim("f2e_beyond_length", origin="ours", where="Fig. F.2",
    says="it is worse than the target's set in equally many updates: those of the union, and those of the set "
    "(differences)", expect={f"{METHODS[method]}, {what}": above(0) for method in ALL for what in unions.BEYOND[1:]})
def beyond_length(runs):
    found = of_each(runs, unions.beyond_length)
    return {f"{name}, {what}": value for name, parts in found.items() for what, value in parts.items()}


@figure.claim("f2d_each_learns", origin="ours", where="Fig. F.2", controls=("permuted_labels", "untrained"),
    says="each method's probe on the target, pre-trained on it alone, is right with few labels (accuracies)",
    expect={METHODS[method]: at_least(0.65) for method in ALL})
def learns(runs):
    few, _ = few_and_many(runs)
    return of_each(runs, lambda some: cell(some, few, steps_of(some)[0]))


@figure.draw(cols=2, size=(10, 4))
def panels(runs, axes):
    for axis, metric in zip(axes[0], few_and_many(runs), strict=True):
        for method, tint in zip(ALL, CATEGORIES, strict=False):
            some = runs.where(method=method)
            steps = steps_of(some)
            marks = {(union, "own"): "." for union in steps} | {(steps[0], "own"): "o", (steps[-1], "own"): "*"}
            marks |= dict(zip(unions.held_against(steps, unions.noisy(some)), "s+x", strict=True))
            line = []
            for (union, length), mark in marks.items():
                pair = [some.finals(name, union=union, length=length) for name in ("average", metric)]
                axis.scatter(*pair, color=tint, s=8, marker=mark, alpha=0.5)
                mean = [float(np.mean(part)) for part in pair]
                axis.scatter(*mean, color=tint, s=60, marker=mark)
                line += [mean] * (length == "own" and union in steps)
            axis.plot(*zip(*line, strict=True), color=tint, linewidth=1, label=METHODS[method])
        axis.set(xlabel="weighted average accuracy of all sets",
            ylabel=f"accuracy on the target, {metric.removeprefix('target/')} labels")
        axis.margins(0.12)
    axes[0][0].legend()
    for mark, name in zip("o*s+x", ("target's set", "union", "set and noise", "set for as long", "union as briefly"),
            strict=True):
        axes[0][1].scatter([], [], color="#666666", marker=mark, label=name)
    axes[0][1].legend()
