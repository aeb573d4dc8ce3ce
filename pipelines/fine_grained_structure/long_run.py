"""Figures 7 and 8. The structure inside a coarse label outlasts training far beyond collapse.

Figure 5's network is trained about three times longer (1000 epochs); the distances between original classes and the
samples of the first coarse label in t-SNE's plane look as before. The laptop preset trains on digits for 300 epochs,
five times the 60 of their other figures. A tenfold weight decay, which the source does not run this long, stands
beside it.
"""

from featurelab.pipelines import above, at_least, legend_below, null_level
from featurelab.pipelines.fine_grained_structure import coarse, pictures
from featurelab.pipelines.fine_grained_structure.training import CIFAR10, DIGITS

PAPER_DECAY, STRONG = 5e-4, 5e-3

figure = coarse.mixture.variant(
    "long_run", figures=("Fig. 7", "Fig. 8"),
    title="Class distances and one coarse label's samples after long training",
    caption="Ratio: mean over seeds, bands their range. Heat maps (divided by their maximum), planes: one seed.",
    laptop=DIGITS.but(epochs=300, measure_every=10, probed=("head",)),
    paper=CIFAR10.but(epochs=1000, measure_every=20, probed=("head",)),
    grid={"weight_decay": [PAPER_DECAY, STRONG], "seed": [0, 1, 2]},
    stand_in="scikit-learn's 8x8 digits and a perceptron in place of CIFAR-10 and ResNet-18",
    small={"n_train": 60, "width": 16, "epochs": 2, "restarts": 1},
)


@figure.claim("c05_structure_persists", where="Figs. 7, 8", paper="the structure remains after 1000 epochs",
    says="after the long run the labels are learned and MSDR is still above 1.2",
    expect={"MSDR": at_least(1.2), "train accuracy": at_least(0.999)})
def persists(runs):
    chosen = runs.where(weight_decay=PAPER_DECAY)
    return {"MSDR": chosen.final("msdr/head"), "train accuracy": chosen.final("accuracy/train")}


@figure.claim("c05b_strong_decay_wears_it_down", origin="ours",
    says="ten times the weight decay leaves a smaller MSDR (difference)", expect=above(0))
def decay(runs):
    return runs.final("msdr/head", weight_decay=PAPER_DECAY) - runs.final("msdr/head", weight_decay=STRONG)


@figure.claim("c05c_classes_still_recovered", origin="ours",
    says="clusters of the features still know the classes: CLP over chance, 1/2 for pairs", expect=above(0.2))
def recovered(runs):
    return runs.final("clp/head", weight_decay=PAPER_DECAY) - 0.5


@figure.draw(rows=2, cols=5, size=(14.5, 5.8))
def panels(runs, axes):
    for (ratio, *maps, plane), value in zip(axes, (PAPER_DECAY, STRONG), strict=True):
        chosen = runs.where(weight_decay=value)
        pictures.over_epochs(ratio, chosen, {"msdr/head": "features"})
        null_level(ratio, chosen.final("msdr_null/head"), "null")
        ratio.set(title=f"weight decay {value:g}", ylabel="MSDR", ylim=(0.9, None))
        legend_below(ratio, 2)
        pictures.distances(maps, chosen.arrays("distances")[0], shares=(0.2, 0.6, 1.0))
        pictures.plane(plane, chosen.arrays("plane")[0], 0, "coarse label 0")
