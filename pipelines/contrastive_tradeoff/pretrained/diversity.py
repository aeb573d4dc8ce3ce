"""Figures F.4 to F.7. What else makes pre-training more or less specific.

F.4: networks whose weight decay differs more are less alike. F.5: the more classes an added set of fixed size has, the
lower the target's accuracy. F.6: with half of the nearest set the trade-off stays, with a fifth of it the curve is a U.
F.7: another nearest set, in the paper CIFAR-10 itself in place of CINIC-10; here digits turned by a quarter, so that
the nearest set is not the target. At desktop scale, where `unions` begins with CIFAR-10, it is CIFAR-100. F.6 and F.7
have the controls of `unions` for pictures and updates.

For F.5 the paper draws 200,000 pictures from 50 to 1,000 classes of ImageNet32; but 50 of them have about 64,000, and
100 about 128,000. The paper preset takes 50,000, whatever the classes.
"""

from featurelab.pipelines import (
    CATEGORIES, above, at_least, at_most, band, legend_below, measures, np, null_level, torch,
)
from featurelab.pipelines.contrastive_tradeoff.pretrained import unions
from featurelab.pipelines.contrastive_tradeoff.pretrained.similarity import draw_matrix
from featurelab.pipelines.contrastive_tradeoff.pretrained.unions import (
    PAPER_UNIONS, SEEDS, UNIONS, Unions, grid_of, trade_off_of,
)

CLASSES, DESKTOP_CLASSES, PAPER_CLASSES = (1, 2, 4, 8), (10, 20, 50, 100), (50, 100, 200, 500, 1000)

decay = unions.figure.variant(
    "weight_decay", figures=("Fig. F.4",), title="CKA between networks of different weight decay",
    caption="Linear CKA on the target's pictures. Means over seeds.",
    grid={"weight_decay": [0.01, 1.0, 10.0], "seed": range(6)},  # AdamW's, which a rate of 0.002 multiplies
    paper_grid={"weight_decay": [5e-5, 5e-4, 5e-3], "seed": SEEDS}, paper=unions.PAPER.but(tasks="cinic10"),
    desktop=unions.DESKTOP.but(tasks="cifar10", n_train=2000), desktop_minutes=3,
    desktop_grid={"weight_decay": [5e-5, 5e-4, 5e-3], "seed": SEEDS},
    reduced=f"CIFAR-10 in place of CINIC-10; {unions.REDUCED.replace('1,000 pictures of each', '2,000 pictures')}",
    minutes=1, needs=("cifar10", "cinic10"), controls=("untrained", "shuffled_pairs"),
)


def decay_matrix(runs):
    """CKA between networks of one seed, by weight decay."""
    features = []
    for value in runs.values("weight_decay"):
        (arrays,) = runs.arrays("features", weight_decay=value)
        features.append(torch.from_numpy(np.asarray(arrays["target"])))
    return np.array([[measures.linear_cka(X, Y).item() for Y in features] for X in features])


@decay.claim("f4_farther_in_decay_less_alike", paper="CKA decreases with the weight decay",
    says="Networks of the least and the greatest weight decay are less alike than networks of neighbouring values "
    "(least difference of CKA)", expect=above(0))
def less_alike(runs):
    matrix = decay_matrix(runs)
    return float(min(matrix[0, 1], matrix[1, 2]) - matrix[0, 2])


@decay.draw(size=(4.6, 4))
def decays_drawn(runs, axes):
    (axis,) = axes[0]
    matrix = np.mean([decay_matrix(runs.where(seed=seed)) for seed in runs.values("seed")], axis=0)
    draw_matrix(axis, matrix, [f"{value:g}" for value in runs.values("weight_decay")], digits=3)
    axis.set(xlabel="weight decay", ylabel="weight decay")


classes = unions.figure.variant(
    "classes", figures=("Fig. F.5",), title="More classes in an added set of fixed size",
    caption="Accuracy on the target after pre-training on it and on a set of fixed size with so many classes: gratings "
    "of so many directions. Means over seeds and their range. Dotted: the target alone.",
    grid={("union", "classes"): [("digits", None), *[("digits+gratings", count) for count in CLASSES]],
        "seed": range(6)},
    paper_grid={("union", "classes"): [("cifar10", None), *[("cifar10+imagenet32", count) for count in PAPER_CLASSES]],
        "n_train": [50_000], "seed": SEEDS}, minutes=2,
    desktop=unions.DESKTOP.but(tasks="cifar10+cifar100"), desktop_minutes=4,
    desktop_grid={("union", "classes"): [("cifar10", None), *[("cifar10+cifar100", count) for count in
        DESKTOP_CLASSES]], "seed": SEEDS},
    reduced=f"the added set is of CIFAR-100, in place of ImageNet32; {unions.REDUCED}",
    needs=("cifar10", "imagenet32", "cinic10", "svhn", "gtsrb"),
)


def by_classes(runs):
    """The trials with the added set, by its number of classes, rising."""
    counts = sorted({int(count) for count in runs.values("classes") if count == count and count is not None})
    (grown,) = [union for union in runs.values("union") if "+" in union]
    return {count: runs.where(union=grown, classes=count) for count in counts}


@classes.claim("f5_falls_with_classes", paper="falls from 50 to 1000 classes",
    says="With few labels, the target's accuracy is higher when the added set has the fewest classes than when it has "
    "the most (difference of accuracies)", expect=above(0))
def falls_with_classes(runs):
    fewest, *_, most = by_classes(runs).values()
    return fewest.final(Unions(runs).few) - most.final(Unions(runs).few)


@classes.draw(size=(6, 4.2))
def classes_drawn(runs, axes):
    (axis,) = axes[0]
    (alone,) = [union for union in runs.values("union") if "+" not in union]
    trials = by_classes(runs)
    for n, color in zip(Unions(runs).labels, CATEGORIES, strict=False):
        table = [some.finals(f"target/{n}") for some in trials.values()]
        band(axis, table, list(trials), color=color, marker="o", markersize=3.5, label=f"{n} labels")
        null_level(axis, runs.final(f"target/{n}", union=alone), color=color)
    axis.plot([], color="grey", linestyle=":", linewidth=1, label="target alone")
    axis.set(xscale="log", xlabel="classes of the added set", ylabel="accuracy on the target")
    axis.set_xticks(list(trials), map(str, trials))
    axis.minorticks_off()
    legend_below(axis, columns=3)


share = unions.figure.variant(
    "nearest_share", figures=("Fig. F.6",), title="Less of the nearest set",
    caption="Accuracy on the target with few labels along the unions, with a share of the nearest set. Means over "
    "seeds and their range. Dotted: the nearest set alone in as many updates as the whole union; dashed: with as many "
    "pictures of noise.", grid={"share": [0.5, 0.2], **grid_of(trade_off_of(UNIONS, noise=3), "union", "length")},
    paper_grid={"share": [1.0, 0.5, 0.2], **grid_of(trade_off_of(PAPER_UNIONS, noise=1), "union", "length")},
    minutes=2.2, desktop=unions.DESKTOP, desktop_minutes=11,
    desktop_grid={"share": [0.5, 0.2], **grid_of(trade_off_of(unions.DESKTOP_UNIONS, noise=1), "union", "length")},
    reduced=f"{unions.REPLACED}, without the whole of the first set; {unions.REDUCED}",
)


@share.claim("f6_half_keeps_the_trade_off", paper="decreasing at 100 and 50% (MoCo v2)",
    says="With half of the nearest set, the target's accuracy with few labels falls from this half alone to the whole "
    "union (fall of accuracy)", expect=above(0))
def half(runs):
    unions = Unions(runs.where(share=0.5))
    return unions.fall(unions.few)


@share.claim("f6b_a_fifth_makes_a_u", paper="U shape at 20%", says="With a fifth of the nearest set, the target's "
    "accuracy with few labels falls along the unions and rises again to the whole one (differences from the mean "
    "along the way)", expect={"falls": above(0), "rises again": above(0)})
def u_shape(runs):
    unions = Unions(runs.where(share=0.2))
    first, *between, whole = (unions.of(unions.few, union) for union in unions.all)
    bottom = sum(between) / len(between)  # the least of several would lie below both ends by chance
    return {"falls": first - bottom, "rises again": whole - bottom}


@share.claim("f6c_beyond_length_and_noise", origin="ours", expect=unions.BEYOND,
    says="With half of the nearest set and few labels, the whole union is worse on the target than this half with as "
    "many pictures of noise, and than it alone in equally many updates, the union's or its own (differences)")
def half_beyond(runs):
    return unions.beyond(runs.where(share=0.5))


@share.draw(size=(6, 4.4))
def shares_drawn(runs, axes):
    (axis,), few = axes[0], Unions(runs).few
    for value, color in zip(runs.values("share"), CATEGORIES, strict=False):
        unions.draw_along(axis, runs.where(share=value), few, color, f"{100 * value:g}% of the nearest")
    unions.finish_along(axis, runs, f"accuracy on the target, {few.removeprefix('target/')} labels", columns=2)


TURNED = unions.growing("turned", *unions.SETS[1:])
FROM_CIFAR10 = unions.growing("cifar10", *unions.PAPER_SETS[1:])
FROM_CIFAR100 = unions.growing("cifar100", "gtsrb", "fashion_mnist", "mnist")
nearest = unions.figure.variant(
    "another_nearest", figures=("Fig. F.7",), title="Another set that is nearest to the target",
    caption="Accuracy on the target with few labels and all along unions that begin with another set. Means over seeds "
    "and their range. Dotted: that set alone in as many updates as the whole union; dashed: with as many pictures of "
    "noise.", grid=grid_of(trade_off_of(TURNED, noise=3), "union", "length"),
    paper_grid=grid_of(trade_off_of(FROM_CIFAR10, noise=1), "union", "length"), minutes=1.7,
    desktop=unions.DESKTOP.but(tasks="cifar10+gtsrb+fashion_mnist+mnist"), desktop_minutes=8,
    desktop_grid=grid_of(trade_off_of(FROM_CIFAR100, noise=1), "union", "length"),
    reduced="CIFAR-100 as the nearest set, in place of CIFAR-10; GTSRB, Fashion-MNIST and MNIST in place of SVHN, "
    f"GTSRB and ImageNet32; {unions.REDUCED}",
)


@nearest.claim("f7_trade_off_stays", paper="the same phenomena", within=(-1, 1),
    says="Along unions that begin with another set, the target's accuracy with few labels falls and the weighted "
    "average rises (Spearman)", expect={"target": at_most(-0.8), "average": at_least(0.8)})
def stays(runs):
    return unions.monotone(runs)


@nearest.claim("f7b_beyond_length_and_noise", origin="ours", expect=unions.BEYOND,
    says="With few labels, the whole union is worse on the target than its first set, which is another, with as many "
    "pictures of noise, and than it alone in equally many updates, the union's or its own (differences)")
def turned_beyond(runs):
    return unions.beyond(runs)


nearest.draw(size=(6, 4.4))(unions.draw_growing)
