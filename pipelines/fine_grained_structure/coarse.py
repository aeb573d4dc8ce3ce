"""Figures 1, 3, 5, 6, 9 and 32 to 36. Trained on merged classes, the last layer still tells the classes apart.

Ten classes are merged into five labels, y mod 5, and a network is trained on these until its features collapse. We
follow the collapse (NC1, NC2) and the distances D between the ten classes, look at each label's samples in t-SNE's
plane, and cluster them: a linear probe trained on the clusters (CLP) is compared with the same probe trained on the
true classes (LPO) and with the network trained on the true classes to begin with (OT).

The laptop preset of the first experiment is a Gaussian mixture whose classes raw inputs do not show: 16 coordinates
tell them apart, 64 louder ones do not. That of the second is scikit-learn's digits, where raw pixels already cluster
better than features do: there the structure survives training, and is not found by it. Their paper presets are
CIFAR-10 in five labels, and CIFAR-100 in twenty.
"""

from typing import Any

from featurelab.pipelines import Experiment, Grid, Missing, above, at_least, at_most, below, between, heatmap
from featurelab.pipelines.fine_grained_structure.pictures import (
    distances,
    over_epochs,
    plane,
    principal,
    probe_bars,
    ratios,
)
from featurelab.pipelines.fine_grained_structure.training import (
    ALL,
    CIFAR10,
    CIFAR100,
    DECAYS,
    DIGITS,
    MIXTURE,
    RATES,
    SWEEP_AXES,
    cost,
    train,
)

GRID: Grid = {"labels": ["coarse", "original"], "seed": [0, 1, 2]}

mixture = Experiment(
    name="fine_grained_structure/coarse_mixture",
    figure="Figs. 1, 3, 5, 6, 9",
    title="Collapse, class distances and recovered classes under coarse labels",
    caption="Curves are means over seeds, bands their range. Heat maps (divided by their maximum; dark is near) and "
    "planes are of one seed. CLP: clusters and linear probe; LPO: probe with true classes; OT: trained on them.",
    laptop=MIXTURE,
    paper=CIFAR10,
    grid=GRID,
    sweep_axes=SWEEP_AXES,
    metric="accuracy/test",
    mode="max",
    minutes=0.5,
    needs=("cifar10",),
    stand_in="a Gaussian mixture and a perceptron with one hidden layer in place of CIFAR-10 and ResNet-18",
    headline=True,
)
digits = Experiment(
    name="fine_grained_structure/coarse_digits",
    figure="Figs. 32-36",
    title="Collapse, class distances and recovered classes under coarse labels, on images",
    caption=mixture.caption,
    laptop=DIGITS.but(probed=ALL),
    paper=CIFAR100,
    grid=GRID,
    paper_grid={"labels": GRID["labels"], "lr": RATES, "weight_decay": DECAYS, "seed": [0, 1, 2]},
    sweep_axes=SWEEP_AXES,
    metric="accuracy/test",
    mode="max",
    minutes=0.5,
    needs=("cifar100",),
    stand_in="scikit-learn's 8x8 digits, a perceptron and five labels in place of CIFAR-100, ResNet-18 and twenty",
)


def run(config, recorder):
    train(config, recorder)


def headline(runs):
    """The cell of rate and weight decay that the paper's main figures show."""
    cell = runs.where(lr=0.1, weight_decay=5e-4)
    return cell if len(cell.trials) else runs


def coarse(runs):
    return headline(runs).where(labels="coarse")


def best_original(runs):
    """The best test accuracy over the epochs of training on the original classes, as the paper takes it."""
    return float(headline(runs).curves("accuracy/test", labels="original").max().mean())


def shares(runs, step=None):
    """Distances within a class (a) and between twins (b), over those between labels."""
    same, twin, other = (runs.curve(f"class_distance/{part}") for part in ("same", "twin", "other"))
    a, b = same / other, twin / other
    return (a.iloc[-1], b.iloc[-1]) if step is None else (a, b)


def collapse(runs):
    runs = coarse(runs)
    nc1 = runs.curve("nc1_pinv/head")
    return {"train accuracy": runs.final("accuracy/train"), "NC1, end / start": nc1.iloc[-1] / nc1.iloc[0]}


def etf_approached(runs):
    nc2 = coarse(runs).curve("nc2/head")
    return nc2.iloc[-1] - nc2.max()


def etf_reached(runs):
    return coarse(runs).final("nc2/head")


def fine_structure(runs):
    runs = coarse(runs)
    a, b = shares(runs)
    return {"a/b": a / b, "b": b, "MSDR": runs.final("msdr/head"), "train accuracy": runs.final("accuracy/train")}


def input_first(runs):
    a, b = shares(coarse(runs), "all")
    early = a[a <= 0.5]
    if early.empty:
        raise Missing("a never falls to 0.5")
    return {"b - a at first": b[early.index[0]] - early.iloc[0], "largest a - b": (a - b).max()}


def recovered(runs):
    return coarse(runs).final("clp/head")


def parity(runs):
    return abs(recovered(runs) - best_original(runs))


def over_chance(runs):
    chosen = coarse(runs)
    kinds = {"mixture": 10, "digits": 10, "cifar10": 10, "cifar100": 100}[chosen.trials.dataset.iloc[0]]
    return chosen.final("clp/head") - chosen.trials.coarse.iloc[0] / kinds


def over_inputs(runs):
    return coarse(runs).final("clp/head") - coarse(runs).final("clp/input")


def over_start(runs):
    return coarse(runs).final("clp/head") - coarse(runs).final("clp/init")


def renamed_by_training(runs):
    return coarse(runs).final("clp/head") - coarse(runs).final("clp_train_mapped/head")


def over_null(runs):
    chosen = coarse(runs)
    null = chosen.final("msdr_null/head")
    return {"null": null, "MSDR - null": chosen.final("msdr/head") - null}


def over_input_ratio(runs):
    return coarse(runs).final("msdr/head") - coarse(runs).final("msdr/input")


CLAIMS: list[tuple[Any, str, dict[str, Any]]] = [
    (collapse, "c01_collapse", {
        "says": "the coarse labels are learned and NC1 falls to a tenth of its initial value",
        "paper": "NC1 tends to 0", "where": "Fig. 3",
        "expect": {"train accuracy": at_least(0.999), "NC1, end / start": at_most(0.1)},
    }),
    (etf_approached, "c02_nc2_falls", {
        "says": "NC2 ends below its largest value (difference)",
        "paper": "NC2 falls", "where": "Fig. 3", "expect": below(0),
    }),
    (etf_reached, "c02b_nc2_vanishes", {
        "says": "the class means end as a simplex equiangular tight frame (NC2)",
        "paper": "NC2 tends to 0", "where": "Fig. 3", "expect": at_most(0.1),
    }),
    (fine_structure, "c03_fine_structure_remains", {
        "says": "at the end a < b < 1: a class is nearer to itself than to its twin, and to that than to other labels",
        "paper": "the diagonal is darker than the twins", "where": "Fig. 5",
        "expect": {"a/b": below(1), "b": below(1), "MSDR": at_least(1.2), "train accuracy": at_least(0.999)},
    }),
    (input_first, "c04_input_structure_first", {
        "says": "b - a where a first falls to 0.5; and the largest a - b at any time",
        "paper": "the diagonal is dark before the twins", "where": "Fig. 5",
        "expect": {"b - a at first": at_least(0.05), "largest a - b": at_most(0)},
    }),
    (recovered, "c06_classes_recovered", {
        "says": "test accuracy on the original classes of a linear probe trained on clusters (CLP)",
        "paper": "> 93%", "where": "Fig. 9", "expect": at_least(0.93),
    }),
    (parity, "c06b_as_well_as_trained_on", {
        "says": "CLP comes near the network trained on the original classes (OT; the distance)",
        "paper": "comparable to LPO and OT", "where": "Fig. 9", "expect": at_most(0.04),
    }),
    (over_chance, "c07_above_chance", {
        "says": "CLP exceeds what clusters without knowledge of the classes would give",
        "paper": "implied by > 93%", "where": "Fig. 9", "expect": at_least(0.3),
    }),
    (over_inputs, "c08_features_beat_inputs", {
        "says": "CLP of features exceeds CLP of raw inputs (difference)",
        "origin": "ours", "where": "Fig. 9", "expect": at_least(0.2),
    }),
    (over_start, "c08b_training_helps", {
        "says": "CLP of features exceeds that before training (difference)",
        "origin": "ours", "where": "Fig. 9", "expect": at_least(0.2),
    }),
    (renamed_by_training, "c06c_renamed_by_training_set", {
        "says": "what CLP loses when the training set's labels, not the test set's, name its clusters",
        "origin": "ours", "where": "Section 5", "expect": between(0, 0.02),
    }),
    (over_null, "c03b_ratio_above_null", {
        "says": "MSDR of classes permuted within their labels is about 1, and that of the true ones above it",
        "origin": "ours", "where": "Fig. 5", "expect": {"null": at_most(1.05), "MSDR - null": at_least(0.15)},
    }),
    (over_input_ratio, "c03c_ratio_above_inputs", {
        "says": "training raises the MSDR above that of raw inputs (difference)",
        "origin": "ours", "where": "Fig. 5", "expect": above(0),
    }),
]  # fmt: skip
ETF = "NC2 falls only after a peak early in training, and ends far from 0 at this size"
FAILS = {
    mixture: {
        "c02b_nc2_vanishes": ETF,
        "c06b_as_well_as_trained_on": "in one of the three mixtures two classes of a label are neighbours in feature "
        "space and CLP loses a tenth; on three other seeds the distance was 0.02",
    },
    digits: {
        "c01_collapse": "after 60 epochs NC1 stands at a fifth of its initial value, which is small already on digits",
        "c02b_nc2_vanishes": ETF,
        "c06_classes_recovered": "digits of one label such as 3 and 8 stay neighbours among features, and k-means cuts "
        "across them",
        "c06b_as_well_as_trained_on": "k-means cuts across digits of one label that stay neighbours among features",
        "c08_features_beat_inputs": "raw digits cluster by class already, and better than features do",
        "c08b_training_helps": "untrained features of digits still cluster as raw pixels do",
    },
}


def panels(runs, axes):
    chosen = coarse(runs)
    over_epochs(axes[0, 0], chosen, {"nc1_pinv/head": "NC1"})
    axes[0, 0].set(title="NC1, coarse labels", yscale="log", ylabel="NC1")
    over_epochs(axes[0, 1], chosen, {"nc2/head": "NC2"})
    axes[0, 1].set(title="NC2, coarse labels", ylim=(0, None), ylabel="NC2")
    ratios(axes[0, 2], chosen)
    axes[0, 2].set(title="class distances")
    probe_bars(axes[0, 3], headline(runs).where(labels="coarse"), lambda _: best_original(runs))
    axes[0, 3].set(title="original classes recovered")
    kept = chosen.arrays("plane")[0]
    principal(axes[0, 4], kept, "features, by coarse label")
    matrix = chosen.arrays("input_distances")[0]["matrix"]
    heatmap(axes[1, 0], matrix / matrix.max(), "D, raw inputs", "class")
    axes[1, 0].set_ylabel("class")
    distances(axes[1, 1:], chosen.arrays("distances")[0], "D, ")
    for group, axis in enumerate(axes[2]):
        plane(axis, kept, group, f"coarse label {group}")


for experiment, failing in FAILS.items():
    experiment.trial(run)
    experiment.cost(cost)
    experiment.draw(rows=3, cols=5, size=(15, 9))(panels)
    for measure, name, claim in CLAIMS:
        status: dict[str, Any] = {"fails": failing[name]} if name in failing else {}
        experiment.claim(name, **claim, **status)(measure)
