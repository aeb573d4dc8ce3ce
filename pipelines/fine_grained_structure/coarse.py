"""Figures 1, 3, 5, 6, 9 and 32 to 36. A network trained on merged classes still tells the classes apart.

A network is trained on ten classes merged into five labels, y mod 5, until its features collapse. We follow the
collapse (NC1, NC2) and the distances D between the ten classes, and lay out the samples of each label by t-SNE. We then
cluster the samples and compare a linear probe trained on the clusters (CLP) with a probe trained on the true classes
(LPO) and with a network trained on the true classes (OT).

The laptop preset of the first experiment is a Gaussian mixture whose classes are hidden in raw inputs: 16 coordinates
tell them apart, 64 louder ones do not. The second uses scikit-learn's digits, whose raw pixels are clustered already:
it shows what survives training, not what training finds. The paper presets are CIFAR-10 in five labels and CIFAR-100
in twenty.
"""

from featurelab.pipelines import (
    CATEGORIES, Experiment, Missing, above, at_least, at_most, below, between, legend_below, paper_level,
)
from featurelab.pipelines.fine_grained_structure import pictures, training

KINDS, SEEDS = ["coarse", "original"], [0, 1, 2]
OF_FIG_34 = (0.01, 1e-4)  # learning rate and weight decay, not among the nine cells of the other figures

mixture = Experiment(
    name="fine_grained_structure/coarse_mixture", figures=("Fig. 1", "Fig. 3", "Fig. 5", "Fig. 6", "Fig. 9"),
    title="Collapse, class distances and recovered classes under coarse labels",
    caption="Curves are means over seeds, bands their range. Heat maps (divided by their maximum; dark is near) and "
    "planes show one seed. CLP: probe trained on clusters; LPO: on classes; OT: network trained on classes.",
    laptop=training.MIXTURE, paper=training.CIFAR10, grid={"labels": KINDS, "seed": [0, 1, 2, 3, 4, 5]},
    sweep_axes=training.SWEEP_AXES, metric="accuracy/test", mode="max", minutes=1, needs=("cifar10",),
    controls=training.MIXTURE_CONTROLS,
    stand_in="a Gaussian mixture and a perceptron with one hidden layer in place of CIFAR-10 and ResNet-18",
    desktop=training.REAL, desktop_minutes=12, desktop_grid={"labels": KINDS, "seed": SEEDS}, reduced=training.REDUCED,
    headline=True,
    small={"n_train": 100, "n_test": 50, "width": 16, "epochs": 20, "measure_every": 10, "cluster": "none",
        "seed": SEEDS},
)
digits = mixture.variant(
    "coarse_digits", figures=("Fig. 32", "Fig. 33", "Fig. 34", "Fig. 35", "Fig. 36"),
    title="Collapse, class distances and recovered classes under coarse labels of images",
    laptop=training.DIGITS.but(probed=training.ALL), paper=training.CIFAR100,
    grid={("labels", "lr", "weight_decay"): [*((kind, 0.1, 5e-4) for kind in KINDS), ("coarse", *OF_FIG_34)],
        "seed": range(6)}, paper_grid={
        ("labels", "lr", "weight_decay"): [
            *((kind, lr, decay) for kind in KINDS for lr in training.RATES for decay in training.DECAYS),
            ("coarse", *OF_FIG_34),
        ],
        "seed": SEEDS,
    }, minutes=1.6, needs=("cifar100",), controls=None,
    desktop=training.REAL.but(dataset="cifar100", coarse=20, epochs=36), desktop_minutes=20, desktop_grid={
        ("labels", "lr", "weight_decay", "probed"): [
            ("coarse", 0.1, 5e-4, training.ALL), ("original", 0.1, 5e-4, ()), ("coarse", *OF_FIG_34, ("head",)),
        ],
        "seed": SEEDS,
    }, reduced="3,000 pictures without random crops and flips, 64 features and 36 epochs, in place of "
    "50,000, 512 and 350",
    stand_in="scikit-learn's 8x8 digits, a perceptron and five labels in place of CIFAR-100, ResNet-18 and twenty",
    small={"n_train": 200, "width": 16, "epochs": 10, "cluster": "none"},
)
mixture.trial(training.train)
mixture.cost(training.cost)


def coarse(runs):
    return pictures.cell(runs).where(labels="coarse")


def of_fig_34(runs):
    lr, decay = OF_FIG_34
    return runs.where(labels="coarse", lr=lr, weight_decay=decay)


def gain(runs, than, score="clp/head"):
    """Return how far a score of the features exceeds another one."""
    return coarse(runs).final(score) - coarse(runs).final(than)


@mixture.claim("c01_collapse", where="Fig. 3", paper="NC1 tends to 0", also=[digits],
    says="the network fits the coarse labels, and NC1 falls to at most a tenth of its initial value",
    expect={"train accuracy": at_least(0.999), "NC1, end / start": at_most(0.1)}, least={"train accuracy": 0.75})
def collapse(runs):
    nc1 = coarse(runs).curve("nc1_pinv/head")
    return {"train accuracy": coarse(runs).final("accuracy/train"), "NC1, end / start": nc1.iloc[-1] / nc1.iloc[0]}


@mixture.claim("c02b_nc2_vanishes", where="Fig. 3", paper="NC2 tends to 0", also=[digits],
    says="the class means end as a simplex equiangular tight frame (final NC2)", expect=at_most(0.1))
def etf_reached(runs):
    return coarse(runs).final("nc2/head")


@mixture.claim("c02c_nc2_falls_below_its_start", where="Fig. 3", paper="NC2 falls", also=[digits],
    says="NC2 ends below its value before training (final over initial)", expect=below(1))
def etf_nearer(runs):
    nc2 = coarse(runs).curve("nc2/head")
    return nc2.iloc[-1] / nc2.iloc[0]


@mixture.claim("c03_fine_structure_remains", where="Fig. 5", paper="the diagonal is darker than the twins",
    also=[digits], says="after training, a class is nearer to itself than to its twin, and nearer to its twin than to "
    "other labels (a < b < 1, MSDR)", least={"train accuracy": 0.75},
    expect={"a/b": below(1), "b": below(1), "MSDR": at_least(1.2), "train accuracy": at_least(0.999)})
def fine_structure(runs):
    return pictures.structure(coarse(runs))


@mixture.claim("c04_input_structure_first", where="Fig. 5", paper="the diagonal is dark before the twins",
    also=[digits], says="distances within a class (a) fall before those between twins (b): b - a when a first reaches "
    "0.5, and the largest a - b at any time", expect={"b - a at first": at_least(0.05), "largest a - b": at_most(0)})
def input_first(runs):
    same, twin, other = (coarse(runs).curve(f"class_distance/{part}") for part in ("same", "twin", "other"))
    a, b = same / other, twin / other
    early = a[a <= 0.5]
    if early.empty:
        raise Missing("a never falls to 0.5")
    return {"b - a at first": b[early.index[0]] - early.iloc[0], "largest a - b": (a - b).max()}


@mixture.claim("c06_classes_recovered", where="Fig. 9", paper="> 93% (CIFAR-10)", also=[digits],
    says="a linear probe trained on clusters (CLP) recognises the original classes (test accuracy)",
    expect=at_least(0.93))
def recovered(runs):
    return coarse(runs).final("clp/head")


@mixture.claim("c06b_as_well_as_trained_on", where="Fig. 9", paper="comparable to LPO and OT", also=[digits],
    says="a linear probe trained on clusters (CLP) is about as accurate as a network trained on the original classes "
    "(OT; absolute difference)", expect=at_most(0.04))
def parity(runs):
    return abs(recovered(runs) - pictures.best(pictures.cell(runs)))


@mixture.claim("c07_above_chance", where="Fig. 9", paper="implied by > 93% (CIFAR-10)", also=[digits],
    says="a linear probe trained on clusters (CLP) is more accurate than chance, which is what clusters unrelated to "
    "the classes give (difference)", expect=at_least(0.3))
def over_chance(runs):
    trial = coarse(runs).trials.iloc[0]
    return recovered(runs) - trial.coarse / training.CLASSES[trial.dataset]


@digits.claim("c07b_above_chance_in_another_cell", where="Fig. 34", paper="the sub-classes of each label can be seen",
    says="at learning rate 0.01 and weight decay 1e-4, a linear probe trained on clusters (CLP) is more accurate than "
    "chance (difference)", expect=at_least(0.3))
def over_chance_in_another_cell(runs):
    score, trial = of_fig_34(runs).final("clp/head"), coarse(runs).trials.iloc[0]
    return score - trial.coarse / training.CLASSES[trial.dataset]


@mixture.claim("c08_features_beat_inputs", where="Fig. 9", origin="ours", also=[digits],
    says="a linear probe trained on clusters (CLP) is more accurate on trained features than on raw inputs "
    "(difference)", expect=at_least(0.2))
def over_inputs(runs):
    return gain(runs, "clp/input")


@mixture.claim("c08b_training_helps", where="Fig. 9", origin="ours", also=[digits],
    says="a linear probe trained on clusters (CLP) is more accurate on trained features than on features before "
    "training (difference)", expect=at_least(0.2))
def over_start(runs):
    return gain(runs, "clp/init")


@mixture.claim("c06c_renamed_by_training_set", where="Section 4.3", origin="ours", also=[digits],
    says="naming the clusters by the training set's labels instead of the test set's costs little accuracy in at least "
    "three of four runs (loss of CLP)", about="share", least=0.75, expect=between(0, 0.02))
def renamed_by_training(runs):
    return gain(runs, "clp_train_mapped/head")


@mixture.claim("c03b_ratio_above_null", where="Fig. 5", origin="ours", also=[digits],
    says="MSDR is about 1 for classes permuted within their labels, and larger for the true classes (null level, "
    "difference)", expect={"null": at_most(1.05), "MSDR - null": at_least(0.15)})
def over_null(runs):
    return {"null": coarse(runs).final("msdr_null/head"), "MSDR - null": gain(runs, "msdr_null/head", "msdr/head")}


@mixture.claim("c03c_ratio_above_inputs", where="Fig. 5", origin="ours", also=[digits],
    says="training raises MSDR above that of raw inputs (difference)", expect=above(0))
def over_input_ratio(runs):
    return gain(runs, "msdr/input", "msdr/head")


@digits.draw(rows=4, cols=5, size=(15, 12))
def panels_of_images(runs, axes):
    panels(runs, axes)
    (lr, decay), chosen = OF_FIG_34, of_fig_34(runs)
    samples = chosen.arrays("plane")[0]
    for group, axis in enumerate(axes[3]):
        pictures.plane(axis, samples, group, f"label {group}, η = {lr:g}, decay {decay:.0e}")


@mixture.draw(rows=3, cols=5, size=(15, 9))
def panels(runs, axes):
    chosen = coarse(runs)
    pictures.over_epochs(axes[0, 0], chosen, {"nc1_pinv/head": "NC1"})
    axes[0, 0].set(title="NC1, coarse labels", yscale="log", ylabel="NC1")
    pictures.over_epochs(axes[0, 1], chosen, {"nc2/head": "NC2"})
    axes[0, 1].set(title="NC2, coarse labels", ylim=(0, None), ylabel="NC2")
    pictures.ratios(axes[0, 2], chosen)
    probe_bars(axes[0, 3], chosen, pictures.best(pictures.cell(runs)))
    samples = chosen.arrays("plane")[0]
    pictures.principal(axes[0, 4], samples, "features, by coarse label")
    pictures.distance_map(axes[1, 0], chosen.arrays("input_distances")[0]["matrix"], "D, raw inputs")
    pictures.distances(axes[1, 1:], chosen.arrays("distances")[0])
    for group, axis in enumerate(axes[2]):
        pictures.plane(axis, samples, group, f"coarse label {group}")


def probe_bars(axis, runs, best):
    """Draw CLP and LPO of H, the test accuracy of the original task, and CLP of untrained features and raw inputs."""
    scores = {"CLP": "clp/head", "LPO": "lpo/head", "OT": None, "CLP\ninit": "clp/init", "CLP\ninput": "clp/input"}
    values = [best if metric is None else runs.final(metric) for metric in scores.values()]
    axis.bar(list(scores), values, color=[*CATEGORIES[:3], *["#b9c0c7"] * 2], width=0.7)
    for place, value in enumerate(values):
        axis.text(place, value + 0.01, f"{value:.2f}", ha="center", fontsize=7)
    if runs.values("dataset")[0] not in ("digits", "cifar100"):  # of CIFAR-100 the paper prints no number
        paper_level(axis, 0.93, "paper: CLP > 0.93")
        legend_below(axis, 1)
    axis.set(title="original classes recovered", ylim=(0, 1.12), ylabel="test accuracy, original classes")
