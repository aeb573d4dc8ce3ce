"""Figures 7 and 8. The structure inside a coarse label survives training far beyond collapse.

The network of Figure 5 is trained about three times longer (1000 epochs); the distances between original classes and
the t-SNE layout of the first coarse label look as before. The laptop preset trains on digits for 300 epochs, five times
as long as the other figures. We add a tenfold weight decay, which the paper does not run this long.
"""

from featurelab.pipelines import above, at_least, legend_below, null_level
from featurelab.pipelines.fine_grained_structure import coarse, pictures
from featurelab.pipelines.fine_grained_structure.training import CIFAR10, DIGITS, REAL, REDUCED

PAPER_DECAY, STRONG = 5e-4, 5e-3

figure = coarse.mixture.variant(
    "long_run", figures=("Fig. 7", "Fig. 8"),
    title="Class distances and samples of one coarse label after long training",
    caption="Curves are means over seeds, bands their range. Heat maps (divided by their maximum) and planes show one "
    "seed.", laptop=DIGITS.but(epochs=300, measure_every=10, probed=("head",)),
    paper=CIFAR10.but(epochs=1000, measure_every=20, probed=("head",)),
    grid={"weight_decay": [PAPER_DECAY, STRONG], "seed": range(6)},
    desktop=REAL.but(epochs=72, measure_every=6, probed=("head",)), desktop_minutes=20,
    desktop_grid={"weight_decay": [PAPER_DECAY, STRONG], "seed": range(3)},
    reduced=REDUCED.replace("24 epochs", "72 epochs").replace("350", "1,000"),
    controls=None, stand_in="scikit-learn's 8x8 digits and a perceptron in place of CIFAR-10 and ResNet-18",
    small={"n_train": 60, "width": 16, "epochs": 2, "restarts": 1},
)


@figure.claim("c05_structure_persists", paper="the structure remains after 1000 epochs",
    says="after the long run, the labels are fitted and the classes inside a label are still apart (MSDR above 1.2)",
    expect={"MSDR": at_least(1.2), "train accuracy": at_least(0.999)}, least={"train accuracy": 0.75})
def persists(runs):
    chosen = runs.where(weight_decay=PAPER_DECAY)
    return {"MSDR": chosen.final("msdr/head"), "train accuracy": chosen.final("accuracy/train")}


@figure.claim("c05b_strong_decay_wears_it_down", origin="ours",
    says="ten times the weight decay leaves less structure inside the labels (difference of MSDR)", expect=above(0))
def decay(runs):
    return runs.final("msdr/head", weight_decay=PAPER_DECAY) - runs.final("msdr/head", weight_decay=STRONG)


@figure.claim("c05c_classes_still_recovered", origin="ours",
    says="after the long run, a linear probe trained on clusters (CLP) still beats chance, 1/2 for pairs (difference)",
    expect=above(0.2))
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
