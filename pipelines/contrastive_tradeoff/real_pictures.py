"""Figure 7.3 on real pictures: the paper's other groups of sets, and a small network on sets that many have at hand.

Panel (b) has MNIST as target and EMNIST, Fashion-MNIST, GTSRB and ImageNet32; panel (c) Fer2013 as target and
FaceScrub, CIFAR-10, SVHN and ImageNet32, with pictures of 32 pixels as in the others. Both need the paper's sizes.
EMNIST's letters stand for its letters and digits: for the digits no repository is known to us.

`real_pictures` at paper scale is what two cores can train within half an hour: unions of MNIST, CIFAR-100 and CIFAR-10,
2,000 pictures each of 16 pixels, a residual network of one block a stage, probed on CIFAR-10 and on MNIST. The order of
accuracies is what it can speak of.
"""

from featurelab.pipelines import CATEGORIES, Missing, above, band, np
from featurelab.pipelines.contrastive_tradeoff import unions
from featurelab.pipelines.contrastive_tradeoff.unions import BEYOND, PAIR, PAPER, beyond, cells, few_and_many, steps_of

ORDERS = {"mnist": ["emnist_letters", "fashion_mnist", "gtsrb", "imagenet32"],
    "fer2013": ["facescrub", "cifar10", "svhn", "imagenet32"]}
PANELS = {"mnist": "b", "fer2013": "c"}
BRIEF = unions.LAPTOP.but(epochs=5, labels=(20, 1000), draws=1)  # the same path; there is nothing to be judged
ELSEWHERE = "nothing of these sets is in the laptop preset, which contrastive_tradeoff/unions judges"


def panel(target):
    order = ORDERS[target]
    grown = ["+".join(order[: count + 1]) for count in range(4)]
    return unions.figure.variant(
        f"{target}_target", figures=(f"Fig. 7.3{PANELS[target]}",), title=f"Growing unions, probed on {target}",
        laptop=BRIEF, minutes=0.3, paper=PAPER.but(target=target, tasks="+".join(order), union=order[0]),
        grid={PAIR: cells(unions.STEPS, unions.NOISY), "seed": [0, 1, 2]},
        paper_grid={PAIR: cells(grown, f"{order[0]}+noise"), "seed": [0, 1, 2]}, needs=(target, *order),
        small=unions.TINY, controls=(),
        caption="Accuracy on the target with few labels and many along the unions, and of all sets. Means over seeds "
        "and their range. Dotted: the first set alone in as many updates as the whole union; dashed: with as many "
        "pictures of noise.",
    )


def only_real(runs):
    if runs.values("target") == ["digits"]:
        raise Missing(ELSEWHERE)


mnist, fer2013 = panel("mnist"), panel("fer2013")


@mnist.claim("c14_trade_off_here", paper="the same shape", says="from the first set to the whole union accuracy on the "
    "target falls, with few labels, and the weighted average rises (differences)", also=[fer2013],
    expect={"target falls": above(0), "average rises": above(0)})
def here(runs):
    only_real(runs)
    return unions.trade_off(runs)


@mnist.claim("c14d_beyond_length_and_noise_here", origin="ours", also=[fer2013],
    says="the union is worse on the target, with few labels, than its first set with as many pictures of noise, and in "
    "equally many updates: those of the union, and those of the set (differences)",
    expect=dict.fromkeys(BEYOND, above(0)))
def beyond_here(runs):
    only_real(runs)
    return beyond(runs)


@mnist.draw(size=(6, 4))
def drawn_here(runs, axes):
    (axis,) = axes[0]
    unions.draw_growing(axis, runs)


fer2013.draw(size=(6, 4))(drawn_here)

SETS = ["cifar10", "cifar100", "mnist"]
SMALL_NETWORK = PAPER.but(
    union="cifar10", tasks="+".join(SETS), n_train=2000, n_test=1000, edge=16, method="nt_xent", net="small", width=24,
    optimizer="adamw", lr=2e-3, weight_decay=0.01, batch_size=256, epochs=15, labels=(20, 100, 500, 2000), draws=5,
    few=500, probe="logistic", groups=1, tune_labels=(100, 500), tune_epochs=None, tune_lr=1e-3, tune_batch=64,
)


def real_cells(target):
    """Growing unions with this target, and what stands beside them."""
    first, *others = sorted(SETS, key=lambda name: name != target)
    grown = [first, f"{first}+{others[0]}", "+".join([first, *others])]
    return [(target, *cell) for cell in cells(grown, f"{first}+noise+noise")]


real = unions.figure.variant(
    "real_pictures", figures=("Fig. 7.3",), part="a small network",
    title="Growing unions of MNIST, CIFAR-10 and CIFAR-100", laptop=BRIEF, paper=SMALL_NETWORK,
    grid={("target", "union", "length"): [("digits", *cell) for cell in cells(unions.STEPS, unions.NOISY)],
        "seed": [0, 1, 2]},
    paper_grid={("target", "union", "length"): [*real_cells("cifar10"), *real_cells("mnist")], "seed": [0, 1, 2]},
    needs=tuple(SETS), minutes=0.4, small=unions.TINY, controls=(),
    caption="Accuracy on the target with few labels and many. Dotted: the target alone in as many updates as the "
    "union; dashed: with as many pictures of noise. Means over seeds and their range.",
)


def by_target(runs, measure):
    """A measurement of a union's trials, for each target."""
    return {target: measure(runs.where(target=target)) for target in runs.values("target") if target != "digits"}


@real.claim("c14_trade_off_real", paper=unions.PRINTED, where="Fig. 7.3",
    says="from the first set to the whole union accuracy on the target falls, with few labels, and the weighted "
    "average rises (differences)",
    expect={f"{name}, {what}": above(0) for name in ("cifar10", "mnist") for what in ("target falls", "average rises")})
def real_trade_off(runs):
    only_real(runs)
    found = by_target(runs, unions.trade_off)
    return {f"{target}, {what}": value for target, parts in found.items() for what, value in parts.items()}


@real.claim("c14c_real_more_than_as_much_noise", origin="ours", where="Fig. 7.3",
    says="the union is worse on the target than its set with as many pictures of noise (differences)",
    expect={"cifar10": above(0), "mnist": above(0)})
def real_beyond_noise(runs):
    only_real(runs)
    return by_target(runs, unions.beyond_noise)


@real.claim("c14d_real_not_by_its_length", origin="ours", where="Fig. 7.3",
    says="it is worse than the target's set in equally many updates: those of the union, and those of the set "
    "(differences)",
    expect={f"{name}, {what}": above(0) for name in ("cifar10", "mnist") for what in ("as many", "as few")})
def real_beyond_length(runs):
    only_real(runs)
    found = by_target(runs, unions.beyond_length)
    return {f"{target}, {what}": value for target, parts in found.items() for what, value in parts.items()}


@real.claim("c15_real_fewer_labels_larger_drop", paper="curves, no number", where="Fig. F.2",
    says="the fall on the target is larger with the fewest labels than with the most (differences)",
    expect={"cifar10": above(0), "mnist": above(0)})
def real_larger_drop(runs):
    only_real(runs)
    return by_target(runs, unions.larger_drop)


@real.draw(cols=2, size=(10, 4))
def real_panels(runs, axes):
    for axis, target in zip(axes[0], runs.values("target"), strict=False):
        some = runs.where(target=target)
        names = steps_of(some)
        for metric, tint in zip(few_and_many(some), CATEGORIES, strict=False):
            table = [some.finals(metric, union=union, length="own") for union in names]
            label = f"{metric.removeprefix('target/')} labels"
            band(axis, table, np.arange(len(names)), color=tint, marker="o", markersize=3.5, label=label)
            unions.draw_beside(axis, some, metric, tint)
        axis.set_xticks(range(len(names)), [union.split("+")[-1] for union in names])
        axis.set(xlabel="pre-trained on, with", ylabel="accuracy", title=f"target: {target}")
        unions.legend_beside(axis, ncols=2)
    if len(runs.values("target")) == 1:
        table = [runs.finals("average", union=union, length="own") for union in names]
        band(axes[0][1], table, np.arange(len(names)), color=CATEGORIES[0], marker="o", markersize=3.5)
        axes[0][1].set_xticks(range(len(names)), [union.split("+")[-1] for union in names])
        axes[0][1].set(xlabel="pre-trained on, with", ylabel="weighted average accuracy")
