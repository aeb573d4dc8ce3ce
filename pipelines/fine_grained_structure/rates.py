"""Figures 19 to 28. Nine cells of learning rate and weight decay: errors, class distances, recovered classes.

What looks like structure may be mere lack of training: at a small rate the network has not learned its labels yet,
and features still resemble inputs. So claims on structure count only cells whose training accuracy is at least 0.999,
and how many these are stands beside them.
"""

from featurelab.pipelines import CATEGORIES, Experiment, Grid, Missing, at_least, at_most, below, heatmap
from featurelab.pipelines.fine_grained_structure.pictures import in_epochs, snapshots
from featurelab.pipelines.fine_grained_structure.training import CIFAR10, DECAYS, DIGITS, RATES, SWEEP_AXES, cost, train

GRID: Grid = {"lr": RATES, "weight_decay": DECAYS, "labels": ["coarse", "original"], "seed": [0, 1, 2]}

figure = Experiment(
    name="fine_grained_structure/rates",
    figure="Figs. 19-28",
    title="Coarse labels at nine cells of learning rate and weight decay",
    caption="Top: training error, mean over seeds. Middle: final distances over their maximum, of one seed, with "
    "the training accuracy; dark is near. Bottom: CLP, LPO and OT.",
    laptop=DIGITS.but(epochs=40, probed=("head",), cluster="none"),
    paper=CIFAR10.but(probed=("head",)),
    grid=GRID,
    sweep_axes=SWEEP_AXES,
    metric="accuracy/test",
    mode="max",
    minutes=0.8,
    needs=("cifar10",),
    stand_in="scikit-learn's 8x8 digits and a perceptron in place of CIFAR-10 and ResNet-18; k-means on features "
    "themselves in place of t-SNE's plane",
)


@figure.trial
def run(config, recorder):
    train(config, recorder)


figure.cost(cost)


def cells(runs, metric):
    """The final value of a metric in each cell of rate and weight decay."""
    runs = runs.where(labels="coarse")
    return {
        (lr, decay): runs.final(metric, lr=lr, weight_decay=decay)
        for lr in runs.values("lr")
        for decay in runs.values("weight_decay")
    }


def learned(runs):
    """The cells in which the labels are learned."""
    found = [cell for cell, share in cells(runs, "accuracy/train").items() if share >= 0.999]
    if not found:
        raise Missing("no cell reaches a training accuracy of 0.999")
    return found


@figure.claim(
    "c24_all_but_one_cell_fit",
    says="of the nine cells' training errors, in ascending order, the eighth is below 0.5% and the sixth is 0",
    paper="8 cells below 0.5%, 6 of them at 0",
    where="Fig. 19",
    expect={"eighth": below(0.005), "sixth": at_most(0)},
    fails="forty epochs of digits are too few steps for the two smaller learning rates",
)
def fitted(runs):
    errors = sorted(1 - share for share in cells(runs, "accuracy/train").values())
    return {"eighth": errors[7], "sixth": errors[5]}


@figure.claim(
    "c03_fine_structure_in_every_cell",
    says="in every cell that has learned its labels a < b < 1 and MSDR >= 1.2 (the worst of each)",
    paper="the observations hold; their strength depends on rate and weight decay",
    where="Figs. 21-24",
    expect={"a/b": below(1), "b": below(1), "MSDR": at_least(1.2), "cells": at_least(1)},
)
def everywhere(runs):
    same, twin, other = (cells(runs, f"class_distance/{part}") for part in ("same", "twin", "other"))
    chosen, ratio = learned(runs), cells(runs, "msdr/head")
    return {
        "a/b": max(same[c] / twin[c] for c in chosen),
        "b": max(twin[c] / other[c] for c in chosen),
        "MSDR": min(ratio[c] for c in chosen),
        "cells": len(chosen),
    }


@figure.claim(
    "c07_above_chance_in_every_cell",
    says="in every cell that has learned its labels CLP exceeds chance, 1/2 for pairs (the least difference)",
    paper="bars, no number",
    where="Fig. 28",
    expect=at_least(0.3),
)
def over_chance(runs):
    clp = cells(runs, "clp/head")
    return min(clp[c] for c in learned(runs)) - 0.5


@figure.draw(rows=3, cols=9, size=(19, 6.8))
def panels(runs, axes):
    chosen = runs.where(labels="coarse")
    accuracy = cells(runs, "accuracy/train")
    for column, (lr, decay) in enumerate(accuracy):
        cell = chosen.where(lr=lr, weight_decay=decay)
        top, middle, bottom = axes[:, column]
        for part, colour in (("train", CATEGORIES[0]), ("test", CATEGORIES[1])):
            error = 1 - cell.curve(f"accuracy/{part}")
            top.plot(in_epochs(cell, error.index), error, label=part, color=colour)
        top.set(title=f"η = {lr:g}\ndecay {decay:g}", xlabel="epoch", ylim=(-0.02, 1))
        (_, matrix) = snapshots(cell.arrays("distances")[0], (1.0,))[0]
        heatmap(middle, matrix / matrix.max(), "", f"class (fitted {accuracy[lr, decay]:.3f})")
        original = runs.where(labels="original", lr=lr, weight_decay=decay)
        best = original.curves("accuracy/test").max().mean()
        bars = {"CLP": cell.final("clp/head"), "LPO": cell.final("lpo/head"), "OT": best}
        bottom.bar(list(bars), list(bars.values()), color=CATEGORIES[:3])
        bottom.axhline(0.5, color="#444444", linestyle=":", linewidth=1, label="chance")
        bottom.set(ylim=(0, 1.05))
    axes[0, 0].set_ylabel("error")
    axes[1, 0].set_ylabel("D: class")
    axes[2, 0].set_ylabel("test accuracy")
    axes[0, 8].legend(loc="upper right")
    axes[2, 8].legend(loc="upper center", bbox_to_anchor=(0.5, -0.15))
