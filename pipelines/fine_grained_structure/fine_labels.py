"""Figures 14 and 29 to 31. With classes split at random in two, features encode the classes before the labels.

A coin toss for each sample turns class c into label c or c + C. Nothing in the input tells these twins apart, so the
network can only memorise them. Early in training D shows C clusters (three dark lines: each label, and its twin on
either side); later the twins separate, but stay nearer to each other than to other classes.
"""

from featurelab.pipelines import above, at_least, at_most, bound_level, legend_below, null_level
from featurelab.pipelines.fine_grained_structure import coarse, pictures
from featurelab.pipelines.fine_grained_structure.training import CELLS, CIFAR10, DIGITS, REAL

figure = coarse.mixture.variant(
    "fine_labels", figures=("Fig. 14", "Fig. 29", "Fig. 30", "Fig. 31"),
    title="Class distances under labels that split each class at random",
    caption="Curves are means over seeds, bands their range. Heat maps (divided by their maximum; dark is near) are of "
    "one seed; the first was measured just after training began.",
    laptop=DIGITS.but(labels="fine", weight_decay=0.0, epochs=150), paper=CIFAR10.but(labels="fine", probed=()),
    grid={"seed": range(6)}, paper_grid=CELLS, metric="accuracy/train", minutes=0.4,
    desktop=REAL.but(labels="fine", probed=(), epochs=90, weight_decay=0.0), desktop_minutes=14,
    desktop_grid={"seed": range(3)}, reduced="3,000 pictures without random crops and flips, 64 features, 90 epochs "
    "and no weight decay, in place of 50,000, 512 and 350",
    controls=("permuted_labels", "untrained", "same_moments"),
    stand_in="scikit-learn's 8x8 digits and a perceptron without weight decay in place of CIFAR-10 and ResNet-18",
    small={"n_train": 100, "width": 16, "epochs": 3},
)


def along_training(runs):
    """Return MSDR and the distance of twins over that of other classes, from the first measurement in training on."""
    runs = pictures.cell(runs)
    twin = runs.curve("class_distance/twin") / runs.curve("class_distance/other")
    return runs.curve("msdr/head").iloc[1:], twin.iloc[1:]


def null(runs):
    """Return MSDR of meaningless labels: 1 + 1/(n_c - 1) for n_c samples a label, 20 labels."""
    return 1 + 1 / (runs.trials.n_train.iloc[0] / 20 - 1)


@figure.claim("c10_classes_first", where="Fig. 14", paper="three dark lines: 10 clusters, not 20",
    says="early in training, twins are as near as samples of one label, and far from other classes (MSDR over its null "
    "level, distances)", expect={"MSDR - null": at_most(0.03), "twin/other": at_most(0.5)})
def early(runs):
    ratio, twin = along_training(runs)
    return {"MSDR - null": ratio.iloc[0] - null(runs), "twin/other": twin.iloc[0]}


@figure.claim("c11_twins_part_but_stay_near", where="Fig. 14", paper="the twins' lines are lighter but still there",
    says="by the end of training, twins have separated but are still nearer to each other than to other classes (rise "
    "of MSDR, distances)", expect={"rise of MSDR": above(0.05), "twin/other": at_most(0.6)})
def late(runs):
    ratio, twin = along_training(runs)
    return {"rise of MSDR": ratio.iloc[-1] - ratio.iloc[0], "twin/other": twin.iloc[-1]}


@figure.claim("c11b_labels_are_memorised", where="Section 1", paper="100% training accuracy is reached",
    says="the network memorises the random labels (training accuracy)", expect=at_least(0.99), within=(0, 1))
def memorised(runs):
    return pictures.cell(runs).final("accuracy/train")


@figure.draw(rows=2, cols=4, size=(13, 5.8))
def panels(runs, axes):
    runs = pictures.cell(runs)
    ratio, _, collapse, accuracy = axes[0]
    pictures.over_epochs(ratio, runs, {"msdr/head": "features"})
    null_level(ratio, null(runs), "null, $1 + 1/(n_c - 1)$")
    ratio.set(title="twin / same", ylabel="MSDR")
    legend_below(ratio, 2)
    pictures.ratios(axes[0, 1], runs)
    pictures.over_epochs(collapse, runs, {"nc1_pinv/head": "NC1"})
    collapse.set(title="NC1, fine labels", yscale="log", ylabel="NC1")
    pictures.accuracies(accuracy, runs, "accuracy, fine labels")
    bound_level(accuracy, 0.5, "best possible on test")
    legend_below(accuracy, 3)
    pictures.distances(axes[1], runs.arrays("distances")[0], shares=(0.0, 0.25, 0.57, 1.0))
