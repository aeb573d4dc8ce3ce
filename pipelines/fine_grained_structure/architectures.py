"""Figures 40 to 46. DenseNet shows the structure inside labels as ResNet does; VGG is the counter-example.

With VGG the source finds the three dark lines of D, each class and its twins, equally dark from the start: features
know the label alone. The source's "VGG-18" is no standard network; the paper preset takes VGG-16 with batch
normalisation and global means, and the laptop preset small networks of the three kinds on digits.
"""

from featurelab.pipelines import CATEGORIES, Experiment, Missing, above, at_least, at_most
from featurelab.pipelines.fine_grained_structure.pictures import distances, over_epochs
from featurelab.pipelines.fine_grained_structure.training import CIFAR10, DECAYS, DIGITS, RATES, SWEEP_AXES, cost, train

SHARES = (20 / 350, 200 / 350, 1.0)

figure = Experiment(
    name="fine_grained_structure/architectures",
    figure="Figs. 40-46",
    title="Class distances under coarse labels: ResNet, DenseNet, VGG",
    caption="Curves are means over seeds, bands their range. Heat maps (divided by their maximum; dark is near) are of "
    "one seed.",
    laptop=DIGITS.but(net="resnet", width=64, epochs=20),
    paper=CIFAR10.but(probed=("head",)),
    grid={("net", "width"): [("resnet", 64), ("densenet", 64), ("vgg", 64)], "seed": [0, 1, 2]},
    paper_grid={
        ("net", "width"): [("resnet18", 512), ("densenet121", 1024), ("vgg16", 512)],
        ("lr", "weight_decay"): [(lr, decay) for lr in RATES for decay in DECAYS],
        "seed": [0, 1, 2],
    },
    sweep_axes=SWEEP_AXES,
    metric="accuracy/test",
    mode="max",
    minutes=0.7,
    needs=("cifar10",),
    stand_in="scikit-learn's 8x8 digits and networks of 64 features in place of CIFAR-10 and ResNet-18, DenseNet-121, "
    "VGG-16",
)


@figure.trial
def run(config, recorder):
    train(config, recorder)


figure.cost(cost)


def of(runs, kind):
    """The runs of one kind of network, in the paper's main cell of rate and weight decay."""
    runs = runs.where(lr=0.1, weight_decay=5e-4)
    for name in runs.values("net"):
        if name.startswith(kind):
            return runs.where(net=name)
    raise Missing(f"no {kind} was trained")


@figure.claim(
    "c23_vgg_has_less",
    says="MSDR of ResNet exceeds that of VGG (difference)",
    paper="VGG: twins as dark as the diagonal",
    where="Figs. 44-46",
    expect=above(0),
)
def less(runs):
    return of(runs, "resnet").final("msdr/head") - of(runs, "vgg").final("msdr/head")


@figure.claim(
    "c23b_vgg_has_none",
    says="with VGG twins are as near as samples of one class (MSDR)",
    paper="three equally dark lines",
    where="Figs. 44-46",
    expect=at_most(1.1),
    fails="a small VGG on digits keeps a part of the structure, where the source's on CIFAR-10 keeps none",
)
def none(runs):
    return of(runs, "vgg").final("msdr/head")


@figure.claim(
    "c23c_densenet_has_it",
    says="with DenseNet MSDR ends above 1.2, the labels learned",
    paper="supports the claims",
    where="Figs. 40-43",
    expect={"MSDR": at_least(1.2), "train accuracy": at_least(0.999)},
)
def densenet(runs):
    runs = of(runs, "densenet")
    return {"MSDR": runs.final("msdr/head"), "train accuracy": runs.final("accuracy/train")}


@figure.claim(
    "c23d_labels_learned",
    says="ResNet and VGG have both learned their labels, so that their MSDR may be compared (the lower accuracy)",
    origin="ours",
    expect=at_least(0.999),
)
def fitted(runs):
    return min(of(runs, kind).final("accuracy/train") for kind in ("resnet", "vgg"))


@figure.draw(rows=3, cols=5, size=(14.5, 8.6))
def panels(runs, axes):
    for row, kind, name in zip(axes, ("resnet", "densenet", "vgg"), ("ResNet", "DenseNet", "VGG"), strict=True):
        chosen = of(runs, kind)
        over_epochs(row[0], chosen, {"accuracy/train": "train", "accuracy/test": "test"})
        row[0].set(title=f"{name}, accuracy", ylabel="accuracy", ylim=(0, 1.02))
        over_epochs(row[1], chosen, {"msdr/head": "features"})
        row[1].axhline(chosen.final("msdr/input"), color=CATEGORIES[5], linestyle=":", label="raw inputs")
        row[1].axhline(1.0, color="#444444", linestyle="--", linewidth=1, label="equally dark lines")
        row[1].set(title=f"{name}, twin / same", ylabel="MSDR", ylim=(0.9, None))
        distances(row[2:], chosen.arrays("distances")[0], f"{name}, D, ", shares=SHARES)
    axes[2, 0].legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=2)
    axes[2, 1].legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=3, columnspacing=0.8)
