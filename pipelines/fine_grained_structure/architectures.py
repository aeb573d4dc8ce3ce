"""Figures 40 to 46. DenseNet shows the structure inside labels as ResNet does; VGG is the counter-example.

With VGG the source finds the three dark lines of D, each class and its twins, equally dark from the start: features
know the label alone. The source's "VGG-18" is no standard network; the paper preset takes VGG-16 with batch
normalisation and global means, and the laptop preset small networks of the three kinds on digits.

Figure 43 has the bars of DenseNet alone: cluster-and-linear-probe (CLP), a probe that knows the classes (LPO), and
DenseNet trained on the classes (OT).
"""

import itertools

from featurelab.pipelines import CATEGORIES, Missing, above, at_least, at_most, legend_below, null_level
from featurelab.pipelines.fine_grained_structure import coarse, pictures
from featurelab.pipelines.fine_grained_structure.training import CIFAR10, DECAYS, DIGITS, RATES

figure = coarse.mixture.variant(
    "architectures", figures=("Fig. 40", "Fig. 41", "Fig. 42", "Fig. 43", "Fig. 44", "Fig. 45", "Fig. 46"),
    title="Class distances under coarse labels: ResNet, DenseNet, VGG",
    caption="Curves are means over seeds, bands their range. Heat maps (divided by their maximum; dark is near) are of "
    "one seed.", laptop=DIGITS.but(net="resnet", width=64, epochs=20), paper=CIFAR10.but(probed=("head",)), grid={
        ("net", "width", "labels", "probed"): [
            ("resnet", 64, "coarse", ()), ("densenet", 64, "coarse", ("head",)), ("vgg", 64, "coarse", ()),
            ("densenet", 64, "original", ()),
        ],
        "seed": [0, 1, 2],
    }, paper_grid={
        ("net", "width", "labels"): [
            ("resnet18", 512, "coarse"), ("densenet121", 1024, "coarse"), ("vgg16", 512, "coarse"),
            ("densenet121", 1024, "original"),
        ],
        ("lr", "weight_decay"): list(itertools.product(RATES, DECAYS)),
        "seed": [0, 1, 2],
    }, minutes=1.0,
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
    """The runs of one kind of network, in the paper's main cell of rate and weight decay."""
    runs = pictures.cell(runs).where(labels=labels)
    for name in runs.values("net"):
        if name.startswith(kind):
            return runs.where(net=name)
    raise Missing(f"no {kind} was trained on {labels} labels")


@figure.claim("c23_vgg_has_less", where="Figs. 44-46", paper="VGG: twins as dark as the diagonal",
    says="MSDR of ResNet exceeds that of VGG (difference)", expect=above(0))
def less(runs):
    return of(runs, "resnet").final("msdr/head") - of(runs, "vgg").final("msdr/head")


@figure.claim("c23b_vgg_has_none", where="Figs. 44-46", paper="three equally dark lines",
    says="with VGG twins are as near as samples of one class (MSDR)", expect=at_most(1.1))
def none(runs):
    return of(runs, "vgg").final("msdr/head")


@figure.claim("c23c_densenet_has_it", where="Figs. 40-43", paper="supports the claims",
    says="with DenseNet MSDR ends above 1.2, the labels learned",
    expect={"MSDR": at_least(1.2), "train accuracy": at_least(0.999)})
def densenet(runs):
    runs = of(runs, "densenet")
    return {"MSDR": runs.final("msdr/head"), "train accuracy": runs.final("accuracy/train")}


@figure.claim("c07_densenet_above_chance", where="Fig. 43", paper="supports the claims",
    says="CLP of DenseNet exceeds what clusters without knowledge of the classes would give, 1/2 for pairs",
    expect=at_least(0.3))
def over_chance(runs):
    return of(runs, "densenet").final("clp/head") - 0.5


@figure.claim("c06b_densenet_as_well_as_trained_on", where="Fig. 43", paper="supports the claims",
    says="CLP of DenseNet comes near DenseNet trained on the original classes (OT; the distance)", expect=at_most(0.04))
def parity(runs):
    best = pictures.best(of(runs, "densenet", "original"))
    return abs(of(runs, "densenet").final("clp/head") - best)


@figure.claim("c23d_labels_learned", origin="ours",
    says="ResNet and VGG have both learned their labels, so that their MSDR may be compared (the lower accuracy)",
    within=(0, 1), expect=at_least(0.999))
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
