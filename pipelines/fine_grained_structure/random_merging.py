"""Figures 37 to 39. Classes merged at random, instead of y mod 5: the same structure inside the labels.

Were Figure 5 owed to which classes y mod 5 happens to pair, other pairs would show something else. Here a random
permutation of the classes decides; every seed draws its own four.
"""

from featurelab.pipelines import CATEGORIES, Experiment, at_least, at_most, below, heatmap
from featurelab.pipelines.fine_grained_structure.pictures import snapshots
from featurelab.pipelines.fine_grained_structure.training import CIFAR10, DECAYS, DIGITS, RATES, SWEEP_AXES, cost, train

MERGINGS = [0, 1, 2, 3]

figure = Experiment(
    name="fine_grained_structure/random_merging",
    figure="Figs. 37-39",
    title="Class distances when random classes share a label",
    caption="Final distances, divided by their maximum, of one seed; dark is near. Each row has two dark blocks: the "
    "class, and the one merged with it. Right: all seeds.",
    laptop=DIGITS.but(labels="random_coarse", epochs=40),
    paper=CIFAR10.but(labels="random_coarse", probed=()),
    grid={"merging": MERGINGS, "seed": [0, 1, 2]},
    paper_grid={"merging": [0], "lr": RATES, "weight_decay": DECAYS, "seed": [0, 1, 2]},
    sweep_axes=SWEEP_AXES,
    metric="accuracy/test",
    mode="max",
    minutes=0.2,
    needs=("cifar10",),
    stand_in="scikit-learn's 8x8 digits and a perceptron in place of CIFAR-10 and ResNet-18",
)


@figure.trial
def run(config, recorder):
    train(config, recorder)


figure.cost(cost)


def cell(runs):
    """The rate and weight decay of the paper's main figures."""
    return runs.where(lr=0.1, weight_decay=5e-4)


def blocks(runs, merging):
    same, twin, other = (
        cell(runs).final(f"class_distance/{part}", merging=merging) for part in ("same", "twin", "other")
    )
    return same / other, twin / other


@figure.claim(
    "c22_any_merging",
    says="a < b < 1 and MSDR >= 1.2 for every random merging (the worst of each)",
    paper="the same observations as for y mod 5",
    where="Appendix F",
    expect={"a/b": below(1), "b": below(1), "MSDR": at_least(1.2), "train accuracy": at_least(0.999)},
)
def any_merging(runs):
    found = {m: blocks(runs, m) for m in runs.values("merging")}
    return {
        "a/b": max(a / b for a, b in found.values()),
        "b": max(b for _, b in found.values()),
        "MSDR": min(cell(runs).final("msdr/head", merging=m) for m in found),
        "train accuracy": min(cell(runs).final("accuracy/train", merging=m) for m in found),
    }


@figure.claim(
    "c22b_null_level",
    says="classes permuted within their labels have an MSDR of about 1 (the largest over mergings)",
    origin="ours",
    expect=at_most(1.05),
)
def null_level(runs):
    return max(cell(runs).final("msdr_null/head", merging=m) for m in runs.values("merging"))


@figure.draw(cols=5, size=(15, 3.4))
def panels(runs, axes):
    runs = cell(runs)
    for axis, merging in zip(axes[0], MERGINGS, strict=False):
        if merging not in runs.values("merging"):
            axis.set_visible(False)
            continue
        kept = runs.arrays("distances", merging=merging)[0]
        (_, matrix) = snapshots(kept, (1.0,))[0]
        pairs = ", ".join("+".join(str(i) for i, g in enumerate(kept["groups"]) if g == label) for label in range(5))
        heatmap(axis, matrix / matrix.max(), f"D, merging {merging}", f"class (merged: {pairs})")
        axis.set_ylabel("class")
    axis = axes[0, 4]
    for place, merging in enumerate(runs.values("merging")):
        for metric, mark, colour, label in (
            ("msdr/head", "o", CATEGORIES[0], "features"),
            ("msdr/input", "s", "#b9c0c7", "raw inputs"),
            ("msdr_null/head", "_", "#444444", "null"),
        ):
            last = runs.curves(metric, merging=merging).iloc[-1]
            axis.plot([place] * len(last), last, mark, color=colour, label=None if place else label, markersize=5)
    axis.set(title="MSDR at the end", xlabel="merging", ylabel="MSDR", xticks=range(len(runs.values("merging"))))
    axis.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=3, columnspacing=0.8)
