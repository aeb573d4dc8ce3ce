"""Figures 37 to 39. Labels that merge random classes, instead of y mod 5, show the same structure.

If Figure 5 depended on which classes y mod 5 pairs, other pairs would look different. Here a random permutation of the
classes decides which classes share a label; every seed draws four permutations.
"""

from featurelab.pipelines import CATEGORIES, at_least, at_most, below, legend_below
from featurelab.pipelines.fine_grained_structure import coarse, pictures
from featurelab.pipelines.fine_grained_structure.training import CELLS, CIFAR10, DIGITS, REAL, REDUCED

MERGINGS = [0, 1, 2, 3]

figure = coarse.mixture.variant(
    "random_merging", figures=("Fig. 37", "Fig. 38", "Fig. 39"),
    title="Class distances when random classes share a label",
    caption="Distances after training, divided by their maximum, of one seed; dark is near. Each row has two dark "
    "blocks: the class, and the class merged with it. Right: all seeds.",
    laptop=DIGITS.but(labels="random_coarse", epochs=40), paper=CIFAR10.but(labels="random_coarse", probed=()),
    grid={"merging": MERGINGS, "seed": range(6)}, paper_grid={"merging": [0], **CELLS}, minutes=0.4,
    desktop=REAL.but(labels="random_coarse", probed=()), desktop_minutes=16,
    desktop_grid={"merging": MERGINGS, "seed": range(3)}, reduced=REDUCED,
    controls=None, stand_in="scikit-learn's 8x8 digits and a perceptron in place of CIFAR-10 and ResNet-18",
    small={"merging": [0, 1], "n_train": 100, "width": 16, "epochs": 2},
)


def each(runs, measure):
    """Return `measure` of the runs of each merging."""
    runs = pictures.cell(runs)
    return [measure(runs.where(merging=merging)) for merging in runs.values("merging")]


@figure.claim("c22_any_merging", where="Appendix F", paper="the same observations as for y mod 5",
    says="for every random merging, a class is nearer to itself than to its twin, and nearer to its twin than to other "
    "labels (worst a/b, b and MSDR)",
    expect={"a/b": below(1), "b": below(1), "MSDR": at_least(1.2), "train accuracy": at_least(0.999)})
def any_merging(runs):
    by_merging = each(runs, pictures.structure)
    worst = {"a/b": max, "b": max, "MSDR": min, "train accuracy": min}
    return {part: of(values[part] for values in by_merging) for part, of in worst.items()}


@figure.claim("c22b_null_level", origin="ours",
    says="MSDR is about 1 for classes permuted within their labels (largest over mergings)", expect=at_most(1.05),
    controls=())
def null_level(runs):
    return max(each(runs, lambda merged: merged.final("msdr_null/head")))


@figure.draw(cols=5, size=(15, 3.4))
def panels(runs, axes):
    runs = pictures.cell(runs)
    *maps, right = axes[0]
    shown = runs.values("merging")
    for axis, merging in zip(maps, MERGINGS, strict=True):
        if merging not in shown:
            axis.set_visible(False)
            continue
        history = runs.arrays("distances", merging=merging)[0]
        pairs = ", ".join("+".join(str(i) for i, g in enumerate(history["groups"]) if g == label) for label in range(5))
        pictures.distance_map(axis, history["matrices"][-1], f"D, merging {merging}", f"class\nmerged: {pairs}")
    for place, merging in enumerate(shown):
        for metric, mark, colour, label in (("msdr/head", "o", CATEGORIES[0], "features"),
                ("msdr/input", "s", "#b9c0c7", "raw inputs"), ("msdr_null/head", "_", "#444444", "null")):
            last = runs.finals(metric, merging=merging)
            right.plot([place] * len(last), last, mark, color=colour, label=None if place else label, markersize=5)
    right.set(title="MSDR at the end", xlabel="merging", ylabel="MSDR", xticks=range(len(shown)))
    legend_below(right, 3)
