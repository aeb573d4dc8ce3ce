"""Figures 14 and 29 to 31. Each class split at random in two: features know the classes before they know the labels.

A coin tossed once a sample turns class c into the label c or c + C. Nothing in the input tells these twins apart, so
they can only be memorised. Early in training D shows C clusters (three dark lines: each label, and its twin on either
side); late the twins part, but stay nearer to each other than to other classes.
"""

from featurelab.pipelines import Experiment, above, at_least, at_most
from featurelab.pipelines.fine_grained_structure.pictures import distances, over_epochs, ratios
from featurelab.pipelines.fine_grained_structure.training import CIFAR10, DECAYS, DIGITS, RATES, SWEEP_AXES, cost, train

SHARES = (0.0, 0.25, 0.57, 1.0)

figure = Experiment(
    name="fine_grained_structure/fine_labels",
    figure="Figs. 14, 29-31",
    title="Class distances under labels that split each class at random",
    caption="Curves are means over seeds, bands their range. Heat maps (divided by their maximum; dark is near) are of "
    "one seed; the first is the first measurement after training began.",
    laptop=DIGITS.but(labels="fine", weight_decay=0.0, epochs=150),
    paper=CIFAR10.but(labels="fine", probed=()),
    grid={"seed": [0, 1, 2]},
    paper_grid={"lr": RATES, "weight_decay": DECAYS, "seed": [0, 1, 2]},
    sweep_axes=SWEEP_AXES,
    metric="accuracy/train",
    mode="max",
    minutes=0.2,
    needs=("cifar10",),
    stand_in="scikit-learn's 8x8 digits and a perceptron without weight decay in place of CIFAR-10 and ResNet-18",
)


@figure.trial
def run(config, recorder):
    train(config, recorder)


figure.cost(cost)


def cell(runs):
    """The rate and weight decay of Figure 14."""
    chosen = runs.where(lr=0.1, weight_decay=5e-4)
    return chosen if len(chosen.trials) else runs


def early_and_late(runs):
    """MSDR and the twins' share of the distance to other classes: at the first measurement in training, at the end."""
    chosen = cell(runs)
    ratio = chosen.curve("msdr/head")
    twin = chosen.curve("class_distance/twin") / chosen.curve("class_distance/other")
    return (ratio.iloc[1], twin.iloc[1]), (ratio.iloc[-1], twin.iloc[-1])


def null(runs):
    """MSDR of labels that mean nothing: 1 + 1/(n_c - 1) for n_c samples a label, 20 labels."""
    return 1 + 1 / (cell(runs).trials.n_train.iloc[0] / 20 - 1)


@figure.claim(
    "c10_classes_first",
    says="early on twins are as near as samples of one label (MSDR over its null level), and both far from others",
    paper="three dark lines, equally dark",
    where="Fig. 14",
    expect={"MSDR - null": at_most(0.03), "twin/other": at_most(0.5)},
)
def early(runs):
    (ratio, twin), _ = early_and_late(runs)
    return {"MSDR - null": ratio - null(runs), "twin/other": twin}


@figure.claim(
    "c11_twins_part_but_stay_near",
    says="from early to the end MSDR rises, and twins stay nearer to each other than to other classes",
    paper="the twins' lines are lighter but still there",
    where="Fig. 14",
    expect={"rise of MSDR": above(0.05), "twin/other": at_most(0.6)},
)
def late(runs):
    (before, _), (after, twin) = early_and_late(runs)
    return {"rise of MSDR": after - before, "twin/other": twin}


@figure.claim(
    "c11b_labels_are_memorised",
    says="the random labels are learned (training accuracy)",
    paper="trained to the end",
    where="Section 6",
    expect=at_least(0.99),
)
def memorised(runs):
    return cell(runs).final("accuracy/train")


@figure.draw(rows=2, cols=4, size=(13, 5.8))
def panels(runs, axes):
    chosen = cell(runs)
    over_epochs(axes[0, 0], chosen, {"msdr/head": "features"})
    axes[0, 0].axhline(null(runs), color="#444444", linestyle="--", linewidth=1, label="null, $1 + 1/(n_c - 1)$")
    axes[0, 0].set(title="twin / same", ylabel="MSDR")
    axes[0, 0].legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=2, columnspacing=0.8)
    ratios(axes[0, 1], chosen)
    axes[0, 1].set(title="class distances")
    over_epochs(axes[0, 2], chosen, {"nc1_pinv/head": "NC1"})
    axes[0, 2].set(title="NC1, fine labels", yscale="log", ylabel="NC1")
    over_epochs(axes[0, 3], chosen, {"accuracy/train": "train", "accuracy/test": "test"})
    axes[0, 3].axhline(0.5, color="#444444", linestyle="--", linewidth=1, label="best possible on test")
    axes[0, 3].set(title="accuracy, fine labels", ylabel="accuracy", ylim=(0, 1.02))
    axes[0, 3].legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=3, columnspacing=0.8)
    distances(axes[1], chosen.arrays("distances")[0], "D, ", shares=SHARES)
