"""Figures F.4 to F.7. What else makes pre-training more or less specific.

F.4: networks whose weight decay differs more are less alike. F.5: the more classes an added set of fixed size has, the
lower the target's accuracy. F.6: with half of the nearest set the trade-off stays, with a fifth of it the curve is a U.
F.7: another nearest set, in the paper CIFAR-10 itself in place of CINIC-10; here digits turned by a quarter, so that
what is nearest is not the target. In F.6 and F.7 the whole union is held against its first set with as many pictures
of noise and with as many updates, and is itself trained in as few.

For F.5 the paper draws 200,000 pictures from 50 to 1,000 classes of ImageNet32; but 50 of them have about 64,000, and
100 about 128,000. The paper preset takes 50,000, whatever the classes.
"""

from featurelab.pipelines import CATEGORIES, above, at_least, at_most, band, measures, np, torch
from featurelab.pipelines.contrastive_tradeoff import unions
from featurelab.pipelines.contrastive_tradeoff.unions import BEYOND, NOISY, PAIR, STEPS, beyond, cells, few_and_many

DECAYS = [0.01, 1.0, 10.0]  # AdamW's, which a rate of 0.002 multiplies
SEEDS = [0, 1, 2]
GROWN = [f"{STEPS[0]}+gratings"]

decay = unions.figure.variant(
    "weight_decay", figures=("Fig. F.4",), title="CKA between networks of other weight decay",
    caption="Linear CKA on the target's pictures. Means over seeds.", grid={"weight_decay": DECAYS, "seed": SEEDS},
    paper_grid={"weight_decay": [5e-5, 5e-4, 5e-3], "seed": [0, 1, 2]}, paper=unions.PAPER.but(tasks="cinic10"),
    minutes=0.5, needs=("cifar10", "cinic10"), controls=("untrained", "shuffled_pairs"), small=unions.TINY,
)


def decay_matrix(runs):
    """CKA between networks of one seed, by weight decay."""
    found = []
    for value in runs.values("weight_decay"):
        (kept,) = runs.arrays("features", weight_decay=value)
        found.append(torch.from_numpy(np.asarray(kept["target"])))
    return np.array([[measures.linear_cka(X, Y).item() for Y in found] for X in found])


@decay.claim("f4_farther_in_decay_less_alike", paper="CKA falls as the gap grows", where="Fig. F.4",
    says="networks of the least and the greatest weight decay are less alike than those of neighbouring ones (least "
    "difference)", expect=above(0))
def less_alike(runs):
    matrix = decay_matrix(runs)
    return float(min(matrix[0, 1], matrix[1, 2]) - matrix[0, 2])


@decay.draw(size=(4.6, 4))
def decays_drawn(runs, axes):
    (axis,) = axes[0]
    matrix = np.mean([decay_matrix(runs.where(seed=seed)) for seed in runs.values("seed")], axis=0)
    names = [f"{value:g}" for value in runs.values("weight_decay")]
    axis.imshow(matrix, vmin=0, vmax=1, cmap="viridis")
    for (i, j), value in np.ndenumerate(matrix):
        axis.text(j, i, f"{value:.3f}", ha="center", va="center", color="white" if value < 0.6 else "black")
    axis.set_xticks(range(3), names)
    axis.set_yticks(range(3), names)
    axis.set(xlabel="weight decay", ylabel="weight decay")
    axis.grid(visible=False)


classes = unions.figure.variant(
    "classes", figures=("Fig. F.5",), title="More classes in an added set of fixed size",
    caption="Accuracy on the target after pre-training on it and on 1,000 gratings of so many directions. Means over "
    "seeds and their range. Dotted: the target alone.",
    grid={("union", "classes"): [(STEPS[0], None), *[(GROWN[0], count) for count in (1, 2, 4, 8)]], "seed": SEEDS},
    paper_grid={("union", "classes"): [("cifar10", None), *[("cifar10+imagenet32", c) for c in
        (50, 100, 200, 500, 1000)]], "n_train": [50_000], "seed": [0, 1, 2]}, minutes=1,
    needs=("cifar10", "imagenet32", "cinic10", "svhn", "gtsrb"), small=unions.TINY,
)


def by_classes(runs, metric):
    grown = next(union for union in runs.values("union") if "+" in union)
    counts = sorted({int(count) for count in runs.values("classes") if count == count and count is not None})
    return counts, [runs.where(union=grown, classes=count) for count in counts], metric


@classes.claim("f5_falls_with_classes", paper="falls from 50 to 1000 classes", where="Fig. F.5",
    says="with few labels the target's accuracy is higher with the fewest classes than with the most (difference)",
    expect=above(0))
def falls_with_classes(runs):
    _, found, metric = by_classes(runs, few_and_many(runs)[0])
    return found[0].final(metric) - found[-1].final(metric)


@classes.draw(size=(6, 4))
def classes_drawn(runs, axes):
    (axis,) = axes[0]
    (labels,) = {tuple(labels) for labels in runs.trials.labels}
    alone = next(union for union in runs.values("union") if "+" not in union)
    for n, tint in zip(labels, CATEGORIES, strict=False):
        counts, found, metric = by_classes(runs, f"target/{n}")
        table = [some.finals(metric) for some in found]
        band(axis, table, counts, color=tint, marker="o", markersize=3.5, label=f"{n} labels")
        axis.axhline(runs.final(metric, union=alone), color=tint, linewidth=0.9, linestyle=":")
    axis.set(xscale="log", xlabel="classes of the added set", ylabel="accuracy on the target")
    axis.set_xticks(counts, [str(count) for count in counts])
    axis.minorticks_off()
    axis.legend(ncols=2)


share = unions.figure.variant(
    "nearest_share", figures=("Fig. F.6",), title="Less of the nearest set",
    caption="Accuracy on the target with few labels along the unions, with a share of the nearest set. Means over "
    "seeds and their range. Dotted: the nearest set alone in as many updates as the whole union; dashed: with as many "
    "pictures of noise.", grid={"share": [0.5, 0.2], PAIR: cells(STEPS, NOISY), "seed": SEEDS},
    paper_grid={"share": [1.0, 0.5, 0.2], PAIR: cells(unions.PAPER_STEPS, unions.PAPER_STEPS[0] + "+noise"),
        "seed": [0, 1, 2]}, minutes=2.2, small=unions.TINY,
)


def along(runs, metric):
    return np.array([unions.cell(runs, metric, union) for union in unions.steps_of(runs)])


@share.claim("f6_half_keeps_the_trade_off", paper="decreasing at 100 and 50%", where="Fig. F.6",
    says="with half of the nearest set the target's accuracy falls from it alone to the whole union (difference)",
    expect=above(0))
def half(runs):
    found = along(runs.where(share=0.5), few_and_many(runs)[0])
    return float(found[0] - found[-1])


@share.claim("f6b_a_fifth_makes_a_u", paper="U shape at 20%", where="Fig. F.6",
    says="with a fifth of it the accuracy at the whole union is above the least along the way, which is below that of "
    "the nearest set alone (differences)", expect={"falls": above(0), "rises again": above(0)})
def u_shape(runs):
    found = along(runs.where(share=0.2), few_and_many(runs)[0])
    return {"falls": float(found[0] - found[1:-1].min()), "rises again": float(found[-1] - found[1:-1].min())}


@share.claim("f6c_beyond_length_and_noise", origin="ours", where="Fig. F.6", expect=dict.fromkeys(BEYOND, above(0)),
    says="with half of the nearest set the union is worse on the target than that half with as many pictures of noise, "
    "and than it in equally many updates: those of the union, and those of the half (differences)")
def half_beyond(runs):
    return beyond(runs.where(share=0.5))


@share.draw(size=(6, 4))
def shares_drawn(runs, axes):
    (axis,) = axes[0]
    few, _ = few_and_many(runs)
    names = unions.steps_of(runs)
    for value, tint in zip(runs.values("share"), CATEGORIES, strict=False):
        some = runs.where(share=value)
        table = [some.finals(few, union=union, length="own") for union in names]
        band(
            axis,
            table,
            range(len(names)),
            color=tint,
            marker="o",
            markersize=3.5,
            label=f"{100 * value:g}% of the nearest",
        )
        unions.draw_beside(axis, some, few, tint)
    axis.set_xticks(range(len(names)), unions.NAMES if names[0] == STEPS[0] else [n.split("+")[-1] for n in names])
    axis.set(xlabel="pre-trained on", ylabel=f"accuracy on the target, {few.removeprefix('target/')} labels")
    unions.legend_beside(axis, ncols=2)


TURNED = [union.replace("digits", "turned") for union in STEPS]
FROM_CIFAR10 = [union.replace("cinic10", "cifar10") for union in unions.PAPER_STEPS]
nearest = unions.figure.variant(
    "another_nearest", figures=("Fig. F.7",), title="Another set that is nearest to the target",
    caption="Accuracy on the target with few labels and many along unions that begin with turned digits. Means over "
    "seeds and their range. Dotted: turned digits alone in as many updates as the whole union; dashed: with as many "
    "pictures of noise.", grid={PAIR: cells(TURNED, NOISY.replace("digits", "turned")), "seed": SEEDS},
    paper_grid={PAIR: cells(FROM_CIFAR10, "cifar10+noise"), "seed": [0, 1, 2]}, minutes=1.7, small=unions.TINY,
)


@nearest.claim("f7_trade_off_stays", paper="the same curves", where="Fig. F.7", within=(-1, 1),
    says="with few labels the target's accuracy falls along the unions, and the average rises (Spearman)",
    expect={"target": at_most(-0.8), "average": at_least(0.8)})
def stays(runs):
    few, _ = few_and_many(runs)
    return {"target": unions.trend(runs, few), "average": unions.trend(runs, "average")}


@nearest.claim("f7b_beyond_length_and_noise", origin="ours", where="Fig. F.7", expect=dict.fromkeys(BEYOND, above(0)),
    says="the union is worse on the target, with few labels, than its first set with as many pictures of noise, and in "
    "equally many updates: those of the union, and those of the set (differences)")
def turned_beyond(runs):
    return beyond(runs)


@nearest.draw(size=(6, 4))
def nearest_drawn(runs, axes):
    (axis,) = axes[0]
    unions.draw_growing(axis, runs)
