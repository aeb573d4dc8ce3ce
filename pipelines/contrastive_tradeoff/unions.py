"""Figures 7.1, 7.3, F.2 and F.9 to F.13. Growing unions of pre-training sets: universality against label efficiency.

A network is pre-trained on the set nearest to the target, then, anew, with one unrelated set after the other added.
Linear probes find its accuracy on the target, with few labels and many, and on all of the sets, averaged with the
numbers of classes as weights. The paper: the target's accuracy falls (CIFAR-10: 88.5 to 76.4 percent) while the average
rises (18.3 to 20.1).

A larger union also takes more updates and has more pictures. So the target's set stands there with as many pictures of
noise, and with as many updates alone; and the whole union with the updates of the target's set. That the average rises
is nearly by construction: the sets that are added are those that are averaged.

The laptop preset has digits as target and generated shapes, gratings and patches of two photographs, 8 x 8 pixels, and
NT-Xent in place of MoCo v2, with which this trade-off was seen before. Its trials are read by the figures on CKA
(`similarity`) and on fine-tuning (`regularised`).
"""

from featurelab.pipelines import (
    CATEGORIES,
    Experiment,
    above,
    at_least,
    at_most,
    band,
    choice,
    loguniform,
    measures,
    np,
    torch,
)
from featurelab.pipelines.contrastive_tradeoff.pretraining import CONTROLS, UnionConfig, cost
from featurelab.pipelines.contrastive_tradeoff.printed_pictures import ALL_LABELS, INTRODUCTION
from featurelab.pipelines.contrastive_tradeoff.transfer import train

STEPS = ["digits", "digits+shapes", "digits+shapes+gratings", "digits+shapes+gratings+photos"]
NAMES = ["D", "DS", "DSG", "DSGN"]  # as they are drawn: N, photos, stands for natural pictures
FIRST, WHOLE, NOISY = STEPS[0], STEPS[-1], "digits+noise+noise+noise"
LAPTOP = UnionConfig()
PAPER = UnionConfig(
    union="cinic10", target="cifar10", tasks="cinic10+svhn+gtsrb+imagenet32", n_train=500_000, edge=32, method="moco",
    net="resnet18", width=512, queue=4096, groups=8, optimizer="sgd", lr=0.06, weight_decay=5e-4, batch_size=512,
    epochs=800, labels=(500, 2500, 5000, 10_000, 50_000), draws=3, few=10**9, probe="sgd",
    tune_labels=(500, 2500, 5000, 10_000, 50_000), tune_epochs=200, tune_lr=0.06, tune_batch=256,
)


def held_against(steps, noisy):
    """(union, length) of the first set with as much noise, and for as long, and of the whole union as briefly."""
    return [(noisy, "own"), (steps[0], "longest"), (steps[-1], "shortest")]


def cells(steps, noisy):
    """(union, length) of the growing unions in updates of their own, and of what the whole one is held against."""
    return [*((union, "own") for union in steps), *held_against(steps, noisy)]


PAIR = ("union", "length")
AXES = (*PAIR, "repeat", "tune", "adapt")
GROWING = [(union, "own", 0, union in (FIRST, WHOLE), union in (FIRST, WHOLE)) for union in STEPS]
BESIDE = [(union, length, 0, False, False) for union, length in held_against(STEPS, NOISY)]
ALONE = [(name, "own", 0, False, False) for name in ("shapes", "gratings", "photos")]
OTHER = [(FIRST, "own", 1, False, False), (FIRST, "none", 0, False, False)]
EARLY = [(FIRST, "early", 0, False, True)]
SETS = ["cinic10", "svhn", "gtsrb", "imagenet32"]
PAPER_STEPS = ["+".join(SETS[: count + 1]) for count in range(4)]
PAPER_CELLS = [
    *[(union, "own", 0, True, True) for union in PAPER_STEPS],
    *[(*cell, 0, False, False) for cell in held_against(PAPER_STEPS, PAPER_STEPS[0] + "+noise")],
    *[(name, "own", 0, False, False) for name in SETS[1:]], (PAPER_STEPS[0], "own", 1, False, False),
    (PAPER_STEPS[0], "none", 0, False, False), (PAPER_STEPS[0], "early", 0, False, True),
]
TINY = {"n_train": 40, "n_test": 20, "epochs": 1, "hidden": (8,), "width": 4, "batch_size": 20, "labels": (20, 40),
    "draws": 1, "few": 20, "tune_labels": (20,), "tune_steps": 2, "tune_batch": 10, "adapt_epochs": 1}

figure = Experiment(
    name="contrastive_tradeoff/unions", figures=("Fig. 7.1", "Fig. 7.3", "Fig. F.2"),
    title="Growing unions of pre-training sets",
    caption="Linear probes after pre-training on digits (D), and shapes (S), gratings (G), photos (N). Means over "
    "seeds and their range. Dotted: D alone with as many updates as DSGN; dashed: D with as many pictures of noise.",
    laptop=LAPTOP, paper=PAPER, grid={AXES: GROWING + BESIDE + ALONE + OTHER + EARLY, "seed": [0, 1, 2]},
    paper_grid={AXES: PAPER_CELLS, "seed": [0, 1, 2]},
    sweep_axes={"lr": loguniform(1e-4, 1e-2), "width": choice(4, 8, 16, 32, 64), "weight_decay": loguniform(1e-5, 1e-1),
        "temperature": loguniform(0.05, 1.0)}, metric="average", mode="max", minutes=3,
    needs=("cifar10", "cinic10", "gtsrb", "imagenet32", "svhn"),
    stand_in="generated pictures of 8 x 8 pixels and an MLP with NT-Xent in place of public sets and a ResNet-18 with "
    "MoCo v2", controls=CONTROLS, small=TINY,
)
figure.trial(train)
figure.cost(cost)


def steps_of(runs):
    """The growing unions, smallest first: the first one that was run, and those that begin with it."""
    own = [union for union in runs.where(length="own", repeat=0).values("union") if "noise" not in union]
    return sorted((u for u in own if u == own[0] or u.startswith(f"{own[0]}+")), key=lambda u: u.count("+"))


def cell(runs, metric, union, length="own", repeat=0):
    return runs.final(metric, union=union, length=length, repeat=repeat)


def noisy(runs):
    (found,) = [union for union in runs.values("union") if "noise" in union]
    return found


def few_and_many(runs):
    """The least and the greatest number of labels of the target, as metrics."""
    (labels,) = {tuple(labels) for labels in runs.trials.labels}
    return f"target/{labels[0]}", f"target/{labels[-1]}"


def trend(runs, metric):
    values = torch.tensor([cell(runs, metric, union) for union in steps_of(runs)])
    return measures.spearman(torch.arange(len(values), dtype=values.dtype), values).item()


PRINTED = f"{INTRODUCTION['target'][0]} to {INTRODUCTION['target'][1]}% and {INTRODUCTION['average'][0]} to " \
    f"{INTRODUCTION['average'][1]}%"


@figure.claim("c14_trade_off", where="Figs. 7.1, 7.3", paper=PRINTED,
    expect={"target falls": above(0), "average rises": above(0)},
    says="from the first set to the whole union accuracy on the target falls, with few labels, and the weighted "
    "average over all sets rises (differences)")
def trade_off(runs):
    few, _ = few_and_many(runs)
    first, *_, last = steps_of(runs)
    return {
        "target falls": cell(runs, few, first) - cell(runs, few, last),
        "average rises": cell(runs, "average", last) - cell(runs, "average", first),
    }


@figure.claim("c14b_step_by_step", where="Fig. 7.3", paper="88.4, 85.2, 82.1, 75.6% (Table 7.1)", within=(-1, 1),
    says="and so they do step by step (Spearman over the four unions)",
    expect={"target": at_most(-0.8), "average": at_least(0.8)})
def monotone(runs):
    return {"target": trend(runs, few_and_many(runs)[0]), "average": trend(runs, "average")}


@figure.claim("c14c_more_than_as_much_noise", origin="ours", where="Fig. 7.3",
    says="the union is worse on the target, with few labels, than the first set with as many pictures of noise, in as "
    "many updates (difference)", expect=above(0))
def beyond_noise(runs):
    few, _ = few_and_many(runs)
    return cell(runs, few, noisy(runs)) - cell(runs, few, steps_of(runs)[-1])


@figure.claim("c14d_not_by_its_length", origin="ours", where="Fig. 7.3",
    says="it is worse than the first set in equally many updates: those of the union, and those of the first set "
    "(differences)", expect={"as many": above(0), "as few": above(0)})
def beyond_length(runs):
    few, _ = few_and_many(runs)
    first, *_, last = steps_of(runs)
    return {
        "as many": cell(runs, few, first, "longest") - cell(runs, few, last),
        "as few": cell(runs, few, first) - cell(runs, few, last, "shortest"),
    }


BEYOND = ("noise", "as many", "as few")


def beyond(runs):
    """What noise and length leave of the fall on the target with few labels (differences of accuracies)."""
    return {"noise": beyond_noise(runs), **beyond_length(runs)}


@figure.claim("c14e_average_beyond_length_and_noise", origin="ours", where="Fig. 7.3",
    says="the average of the union is higher than that of the first set in as many updates, and with as much noise "
    "(differences)", expect={"length": above(0), "noise": above(0)})
def average_beyond(runs):
    first, *_, last = steps_of(runs)
    whole = cell(runs, "average", last)
    return {
        "length": whole - cell(runs, "average", first, "longest"), "noise": whole - cell(runs, "average", noisy(runs))
    }


@figure.claim("c15_fewer_labels_larger_drop", where="Fig. F.2", paper="12.4 points with 1% of labels, 12.8 with all",
    says="the fall on the target is larger with the fewest labels than with the most (difference of accuracies)",
    expect=above(0))
def larger_drop(runs):
    first, *_, last = steps_of(runs)
    few, many = (cell(runs, metric, first) - cell(runs, metric, last) for metric in few_and_many(runs))
    return few - many


@figure.claim("c15b_error_grows_by_a_larger_factor", origin="ours", where="Fig. F.2",
    says="and the error grows by a larger factor (difference of log ratios): many labels leave no room for a fall",
    expect=above(0))
def larger_factor(runs):
    first, *_, last = steps_of(runs)
    few, many = (
        np.log((1 - cell(runs, metric, last)) / (1 - cell(runs, metric, first))) for metric in few_and_many(runs)
    )
    return float(few - many)


@figure.claim("c19_specific_first_universal_later", where="Tables F.2, F.3", paper="76.0 > 58.8%, then 84.7 < 85.9%",
    says="with few labels the specific network is better on its task, with many the universal one at least as good "
    "(differences)", expect={"few": above(0), "many": at_most(0)})
def crossing(runs):
    first, *_, last = steps_of(runs)
    few, many = (cell(runs, metric, first) - cell(runs, metric, last) for metric in few_and_many(runs))
    return {"few": few, "many": many}


def draw_beside(axis, runs, metric, tint):
    """Lines at the first set alone for as long as the whole union, and with as much noise."""
    axis.axhline(cell(runs, metric, steps_of(runs)[0], "longest"), color=tint, linewidth=0.9, linestyle=":")
    axis.axhline(cell(runs, metric, noisy(runs)), color=tint, linewidth=0.9, linestyle="--")


def legend_beside(axis, **options):
    """A legend that says what these lines are, below the drawing unless told otherwise."""
    for style, name in ((":", "first set for as long"), ("--", "first set and noise")):
        axis.plot([], [], color="#666666", linewidth=0.9, linestyle=style, label=name)
    below = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.14), "ncols": 3}
    axis.legend(**below | options)


def draw_growing(axis, runs):
    """Accuracies along the unions, of the target and of all sets, and what the last union is held against."""
    names = steps_of(runs)
    for metric, name, tint in zip((*few_and_many(runs), "average"),
            ("target, few labels", "target, all labels", "weighted average"), CATEGORIES, strict=False):
        table = [runs.finals(metric, union=union, length="own") for union in names]
        band(axis, table, range(len(names)), color=tint, marker="o", markersize=3.5, label=name)
        draw_beside(axis, runs, metric, tint)
    axis.set_xticks(range(len(names)), [union.split("+")[-1] for union in names])
    axis.set(xlabel="pre-trained on, with", ylabel="accuracy")
    legend_beside(axis)


@figure.draw(cols=2, size=(10, 3.9))
def panels(runs, axes):
    left, right = axes[0]
    unions = steps_of(runs)
    names = NAMES[: len(unions)] if unions[0] == FIRST else [union.split("+")[-1] for union in unions]
    xs = np.arange(len(unions))
    own = runs.where(repeat=0)
    (labels,) = {tuple(labels) for labels in runs.trials.labels}
    for n, tint in zip(labels, CATEGORIES, strict=False):
        metric = f"target/{n}"
        table = [own.finals(metric, union=union, length="own") for union in unions]
        band(left, table, xs, color=tint, marker="o", markersize=3.5, label=f"{n} labels")
        draw_beside(left, runs, metric, tint)
    printed = np.array(ALL_LABELS["LP"]) / 100
    if len(unions) == len(printed):
        left.plot(xs, printed, color="#999999", marker="x", linewidth=1, label="paper, CIFAR-10, all labels")
    left.set_xticks(xs, names)
    left.set(xlabel="pre-trained on", ylabel="accuracy on the target")
    legend_beside(left, loc="lower left", bbox_to_anchor=None, ncols=2)
    low, high = left.get_ylim()
    left.set_ylim(low - 0.42 * (high - low), high)
    few = f"target/{labels[0]}"
    for place, (union, name) in enumerate(zip(unions, names, strict=True)):
        pair = [own.finals(metric, union=union, length="own") for metric in ("average", few)]
        right.scatter(*pair, color=CATEGORIES[0], alpha=0.3 + 0.7 * place / len(unions), s=14)
        right.annotate(
            name, [float(np.mean(part)) for part in pair], textcoords="offset points", xytext=(0, 9), ha="center"
        )
    for union, length, name, tint in (
        (noisy(runs), "own", "noise", CATEGORIES[1]), (unions[0], "longest", "long", CATEGORIES[2]),
        (unions[-1], "shortest", "short union", CATEGORIES[3]),
    ):
        pair = [own.finals(metric, union=union, length=length) for metric in ("average", few)]
        right.scatter(*pair, color=tint, s=14, marker="s", label=name)
    right.set(xlabel="weighted average accuracy of all sets", ylabel=f"accuracy on the target, {labels[0]} labels")
    low, high = right.get_ylim()
    right.set_ylim(low - 0.12 * (high - low), high + 0.05 * (high - low))
    right.margins(x=0.12)
    right.legend(loc="lower right")
