"""Figures 19 to 28. Errors, class distances and recovered classes at nine learning rates and weight decays.

Too little training may look like structure: at a small rate the network has not fitted its labels yet, and its features
still resemble the inputs. Claims on structure therefore count only cells whose training accuracy is at least 0.999, and
report their number.
"""

from featurelab.pipelines import CATEGORIES, Missing, at_least, at_most, below, legend_below
from featurelab.pipelines.fine_grained_structure import coarse, pictures
from featurelab.pipelines.fine_grained_structure.training import CIFAR10, DECAYS, DIGITS, RATES, REAL

figure = coarse.mixture.variant(
    "rates", figures=("Fig. 19", "Fig. 20", "Fig. 21", "Fig. 22", "Fig. 23", "Fig. 24", "Fig. 25", "Fig. 26", "Fig. 27",
        "Fig. 28"), title="Coarse labels at nine cells of learning rate and weight decay",
    caption="From the top: error and loss, means over seeds; distances over their maximum, of one seed (dark is near), "
    "at the paper's four times, with the final training accuracy; CLP, LPO and OT.",
    laptop=DIGITS.but(epochs=40, probed=("head",), cluster="none"), paper=CIFAR10.but(probed=("head",)),
    grid={"lr": RATES, "weight_decay": DECAYS, "labels": ["coarse", "original"], "seed": range(6)}, minutes=1.6,
    desktop=REAL.but(n_train=500, batch_size=16, epochs=40, measure_every=10, probed=("head",)), desktop_minutes=20,
    desktop_grid={"lr": RATES, "weight_decay": DECAYS, "labels": ["coarse", "original"], "seed": range(3)},
    reduced="500 pictures without random crops and flips in batches of 16, 64 features and 40 epochs, in place of "
    "50,000, 512 and 350", controls=None,
    stand_in="scikit-learn's 8x8 digits and a perceptron in place of CIFAR-10 and ResNet-18; k-means on features "
    "themselves in place of t-SNE's plane",
    small={"n_train": 20, "width": 64, "epochs": 20, "measure_every": 20, "batch_size": 20, "drops": (), "restarts": 1},
)


def cells(runs, metric):
    """Return the final value of a metric in each cell of learning rate and weight decay."""
    runs = runs.where(labels="coarse")
    return {
        (lr, decay): runs.final(metric, lr=lr, weight_decay=decay)
        for lr in runs.values("lr")
        for decay in runs.values("weight_decay")
    }


def learned(runs):
    """Return the cells that fit their labels. Raises Missing where none does."""
    fitting = [cell for cell, share in cells(runs, "accuracy/train").items() if share >= 0.999]
    if not fitting:
        raise Missing("no cell reaches a training accuracy of 0.999")
    return fitting


@figure.claim("c24_all_but_one_cell_fit", where="Fig. 19", paper="8 cells below 0.5%, 6 of them at 0",
    says="eight of the nine cells have a training error below 0.5%, and six have none (eighth and sixth smallest "
    "error)", expect={"eighth": below(0.005), "sixth": at_most(0)})
def fitted(runs):
    errors = sorted(1 - share for share in cells(runs, "accuracy/train").values())
    if len(errors) < 8:
        raise Missing(f"only {len(errors)} of the nine cells were trained")
    return {"eighth": errors[7], "sixth": errors[5]}


@figure.claim("c03_fine_structure_in_every_cell", where="Figs. 21-24",
    paper="the observations hold; their strength depends on rate and weight decay",
    says="in every cell that fits its labels, a class is nearer to itself than to its twin, and nearer to its twin "
    "than to other labels (worst a/b, b and MSDR)",
    expect={"a/b": below(1), "b": below(1), "MSDR": at_least(1.2), "cells": at_least(1)}, least={"cells": 0.75})
def everywhere(runs):
    same, twin, other = (cells(runs, f"class_distance/{part}") for part in ("same", "twin", "other"))
    chosen, ratio = learned(runs), cells(runs, "msdr/head")
    return {
        "a/b": max(same[c] / twin[c] for c in chosen),
        "b": max(twin[c] / other[c] for c in chosen),
        "MSDR": min(ratio[c] for c in chosen),
        "cells": len(chosen),
    }


@figure.claim("c07_above_chance_in_every_cell", where="Fig. 28", paper="bars, no number",
    says="in every cell that fits its labels, a linear probe trained on clusters (CLP) beats chance, 1/2 for pairs "
    "(smallest difference)", expect=at_least(0.3))
def over_chance(runs):
    clp = cells(runs, "clp/head")
    return min(clp[c] for c in learned(runs)) - 0.5


@figure.draw(rows=7, cols=9, size=(19, 15))
def panels(runs, axes):
    for (errors, losses, *maps, bars), ((lr, decay), fit) in zip(axes.T, cells(runs, "accuracy/train").items(),
            strict=False):
        cell = runs.where(lr=lr, weight_decay=decay)
        merged = cell.where(labels="coarse")
        for part, colour in (("train", CATEGORIES[0]), ("test", CATEGORIES[1])):
            error = 1 - merged.curve(f"accuracy/{part}")
            errors.plot(pictures.in_epochs(merged, error.index), error, label=part, color=colour)
        errors.set(title=f"η = {lr:g}\ndecay {decay:g}", ylim=(-0.02, 1))
        pictures.over_epochs(losses, merged, {"loss/train": "train", "loss/test": "test"})
        losses.set(yscale="log")
        losses.sharey(axes[1, 0])
        pictures.distances(maps, merged.arrays("distances")[0], "")
        for axis in maps:
            axis.set(ylabel="")
        maps[-1].set_xlabel(f"class (fitted {fit:.3f})")
        pictures.recovered(bars, merged, pictures.best(cell))
    for axis, label in zip(axes[:, 0], ("error", "loss", *["D: class"] * 4, "test accuracy"), strict=True):
        axis.set_ylabel(label)
    legend_below([axes[0, 8], axes[6, 8]], 3)
