"""Figures 40 to 46. DenseNet keeps the structure inside labels, as ResNet does; VGG is the counter-example.

With VGG the paper finds the three dark lines of D (each class and its twins) equally dark from the start: features
encode the label alone. "VGG-18" in the paper is no standard network. The paper preset uses VGG-16 with batch
normalisation and global average pooling; the laptop preset uses small networks of all three kinds on digits. The
desktop preset has narrow networks on CIFAR-10: ResNet-18, VGG-16 and the laptop's DenseNet, since 121 layers would take
too long.

Figure 43 has bars for DenseNet alone: a linear probe trained on clusters (CLP), a linear probe trained on the classes
(LPO), and DenseNet trained on the classes (OT).
"""

import itertools

from featurelab.pipelines import CATEGORIES, Missing, above, at_least, at_most, legend_below, null_level
from featurelab.pipelines.fine_grained_structure import coarse, pictures
from featurelab.pipelines.fine_grained_structure.training import CIFAR10, DECAYS, DIGITS, RATES, REAL

figure = coarse.mixture.variant(
    "architectures", figures=("Fig. 40", "Fig. 41", "Fig. 42", "Fig. 43", "Fig. 44", "Fig. 45", "Fig. 46"),
    title="Class distances under coarse labels: ResNet, DenseNet, VGG",
    caption="Curves are means over seeds, bands their range. Heat maps (divided by their maximum; dark is near) are of "
    "one seed.", laptop=DIGITS.but(net="resnet", width=64, epochs=20), paper=CIFAR10.but(probed=("head",)), grid={
        ("net", "width", "labels", "probed"): [
            ("resnet", 64, "coarse", ()), ("densenet", 64, "coarse", ("head",)), ("vgg", 64, "coarse", ()),
            ("densenet", 64, "original", ()),
        ],
        "seed": range(6),
    }, paper_grid={
        ("net", "width", "labels"): [
            ("resnet18", 512, "coarse"), ("densenet121", 1024, "coarse"), ("vgg16", 512, "coarse"),
            ("densenet121", 1024, "original"),
        ],
        ("lr", "weight_decay"): list(itertools.product(RATES, DECAYS)),
        "seed": [0, 1, 2],
    }, minutes=2, controls=None,
    desktop=REAL.but(n_train=1000, batch_size=32, epochs=50, measure_every=10, probed=()), desktop_grid={
        ("net", "labels", "probed"): [
            ("resnet18", "coarse", ()), ("densenet", "coarse", ("head",)), ("vgg16", "coarse", ()),
            ("densenet", "original", ()),
        ],
        "seed": range(3),
    }, desktop_minutes=15, reduced="1,000 pictures without random crops and flips in batches of 32, 64 features and 50 "
    "epochs, in place of 50,000, 512 to 1,024 and 350; DenseNet has 11 layers in three blocks",
    stand_in="scikit-learn's 8x8 digits and networks of 64 features in place of CIFAR-10 and ResNet-18, DenseNet-121, "
    "VGG-16", small={
        ("net", "width", "labels", "probed"): [
            ("resnet", 16, "coarse", ()), ("densenet", 16, "coarse", ("head",)), ("vgg", 16, "coarse", ()),
            ("densenet", 16, "original", ()),
        ],
        "n_train": 60, "epochs": 1, "cluster": "none",
    },
)


def of(runs, kind, labels="coarse"):
    """Return the runs of one kind of network at the learning rate and weight decay of the paper's main figures."""
    runs = pictures.cell(runs).where(labels=labels)
    for name in runs.values("net"):
        if name.startswith(kind):
            return runs.where(net=name)
    raise Missing(f"no {kind} was trained on {labels} labels")


@figure.claim("c23_vgg_has_less", where="Figs. 44-46", paper="VGG: twins as dark as the diagonal",
    says="ResNet keeps the classes inside a label further apart than VGG does (difference of MSDR)", expect=above(0))
def less(runs):
    return of(runs, "resnet").final("msdr/head") - of(runs, "vgg").final("msdr/head")


@figure.claim("c23b_vgg_has_none", where="Figs. 44-46", paper="three equally dark lines",
    says="VGG keeps twins as near as samples of one class (MSDR)", expect=at_most(1.1))
def none(runs):
    return of(runs, "vgg").final("msdr/head")


@figure.claim("c23c_densenet_has_it", where="Figs. 40-43", paper="supports the claims",
    says="DenseNet fits the labels and keeps the classes inside a label apart (MSDR above 1.2)",
    expect={"MSDR": at_least(1.2), "train accuracy": at_least(0.999)}, least={"train accuracy": 0.75})
def densenet(runs):
    runs = of(runs, "densenet")
    return {"MSDR": runs.final("msdr/head"), "train accuracy": runs.final("accuracy/train")}


@figure.claim("c07_densenet_above_chance", where="Fig. 43", paper="supports the claims",
    says="a linear probe trained on clusters of DenseNet's features (CLP) beats chance, 1/2 for pairs (difference)",
    expect=at_least(0.3))
def over_chance(runs):
    return of(runs, "densenet").final("clp/head") - 0.5


@figure.claim("c06b_densenet_as_well_as_trained_on", where="Fig. 43", paper="supports the claims",
    says="a linear probe trained on clusters of DenseNet's features (CLP) is about as accurate as DenseNet trained on "
    "the original classes (OT; absolute difference)", expect=at_most(0.04))
def parity(runs):
    best = pictures.best(of(runs, "densenet", "original"))
    return abs(of(runs, "densenet").final("clp/head") - best)


@figure.claim("c23d_labels_learned", origin="ours",
    says="ResNet and VGG both fit their labels in at least three of four runs, so their MSDR can be compared (lower "
    "training accuracy)", within=(0, 1), about="share", least=0.75, expect=at_least(0.999))
def fitted(runs):
    return min(of(runs, kind).final("accuracy/train") for kind in ("resnet", "vgg"))


@figure.draw(rows=3, cols=6, size=(17, 8.6))
def panels(runs, axes):
    for (accuracy, ratio, *maps, bars), name in zip(axes, ("ResNet", "DenseNet", "VGG"), strict=True):
        chosen = of(runs, name.lower())
        pictures.accuracies(accuracy, chosen, f"{name}, accuracy")
        pictures.over_epochs(ratio, chosen, {"msdr/head": "features"})
        null_level(ratio, chosen.final("msdr/input"), "raw inputs", color=CATEGORIES[5])
        null_level(ratio, 1.0, "equally dark lines")
        ratio.set(title=f"{name}, twin / same", ylabel="MSDR", ylim=(0.9, None))
        pictures.distances(maps, chosen.arrays("distances")[0], f"{name}, D, ", shares=(20 / 350, 200 / 350, 1.0))
        if name == "DenseNet":
            pictures.recovered(bars, chosen, pictures.best(of(runs, "densenet", "original")))
            bars.set(title=f"{name}, classes recovered", ylabel="test accuracy")
        else:
            bars.set_visible(False)
    legend_below(axes[2, 0], 2)
    legend_below(axes[2, 1], 3)
