"""Figure 7.3 on real pictures: the paper's other groups of sets, and a small network on sets that many have at hand.

Panel (b) has MNIST as target and EMNIST, Fashion-MNIST, GTSRB and ImageNet32; panel (c) Fer2013 as target and
FaceScrub, CIFAR-10, SVHN and ImageNet32, with pictures of 32 pixels as in the others. Both need the paper's sizes; at
desktop scale unions grow from MNIST itself by Fashion-MNIST, GTSRB and CIFAR-100, in order of nearness as in `unions`.
A third panel, ours, has traffic signs as target. EMNIST's letters stand for its letters and digits: we know no
repository that has the digits.

`real_pictures` at paper scale is what two cores can train within half an hour: unions of MNIST, CIFAR-100 and CIFAR-10,
2,000 pictures each of 16 pixels, a residual network of one block a stage, probed on CIFAR-10 and on MNIST. It can speak
of the order of accuracies, not of their size.
"""

from featurelab.pipelines import CATEGORIES, Missing, above
from featurelab.pipelines.contrastive_tradeoff.pretrained import unions
from featurelab.pipelines.contrastive_tradeoff.pretrained.pretraining import UnionConfig
from featurelab.pipelines.contrastive_tradeoff.pretrained.unions import (
    DESKTOP, LENGTHS, PAPER, UNIONS, Unions, desktop_networks, grid_of, growing, trade_off_of,
)

BRIEF = UnionConfig(epochs=5, labels=(20, 1000), draws=1)  # runs the code; there is nothing to be judged
CAPTION = "Means over seeds and their range. Dotted: the first set alone in as many updates as the whole union; " \
    "dashed: with as many pictures of noise."


def panel(figures, target, *sets, **parts):
    return unions.figure.variant(
        f"{target}_target", figures=figures, title=f"Growing unions, probed on {target}", laptop=BRIEF, minutes=0.3,
        paper=PAPER.but(target=target, tasks="+".join(sets), union=sets[0]),
        grid=grid_of(trade_off_of(UNIONS, noise=3), "union", "length"),
        paper_grid=grid_of(trade_off_of(growing(*sets), noise=1), "union", "length"),
        needs=tuple(dict.fromkeys([target, *sets])), controls=("untrained",),
        caption="Accuracy on the target with few labels and all along the unions, and of all sets. " + CAPTION, **parts,
    )


def only_real(runs):
    if runs.values("target") == ["digits"]:
        raise Missing("the laptop preset has none of these sets; contrastive_tradeoff/unions judges its own")


def at_desktop(*sets, instead):
    """The desktop preset of a panel whose unions grow from the target itself by these sets."""
    preset = DESKTOP.but(target=sets[0], tasks="+".join(sets), union=sets[0])
    grid = grid_of(desktop_networks(*sets), "union", "length")
    return {"desktop": preset, "desktop_grid": grid, "desktop_minutes": 6, "reduced": f"{instead}; {unions.REDUCED}"}


mnist = panel(("Fig. 7.3b",), "mnist", "emnist_letters", "fashion_mnist", "gtsrb", "imagenet32", **at_desktop("mnist",
    "fashion_mnist", "gtsrb", "cifar100", instead="MNIST in place of EMNIST, and CIFAR-100 in place of ImageNet32"))
fer2013 = panel(("Fig. 7.3c",), "fer2013", "facescrub", "cifar10", "svhn", "imagenet32")
signs = panel(
    (), "gtsrb", "gtsrb", "svhn", "cifar10", "imagenet32", part="Traffic signs", **at_desktop(
        "gtsrb", "cifar100", "fashion_mnist", "mnist",
        instead="CIFAR-100, Fashion-MNIST and MNIST in place of CIFAR-10, ImageNet32 and SVHN"),
)


def trade_off(runs):
    only_real(runs)
    return unions.trade_off(runs)


for one in (mnist, fer2013, signs):
    one.claim("c14_trade_off_here", **({"origin": "ours"} if one is signs else {"paper": "the same shape"}),
        says="From the first set to the whole union, the target's accuracy with few labels falls and the weighted "
        "average over all sets rises (differences of accuracies)",
        expect={"target falls": above(0), "average rises": above(0)})(trade_off)


@mnist.claim("c14d_beyond_length_and_noise_here", origin="ours", also=[fer2013, signs],
    says="With few labels, the union is worse on the target than the first set with as many pictures of noise, and "
    "than the first set alone in equally many updates, those of the union or of the set (differences of accuracies)",
    expect=unions.BEYOND)
def beyond(runs):
    only_real(runs)
    return unions.beyond(runs)


mnist.draw(size=(6, 4.4))(unions.draw_growing)
fer2013.draw(size=(6, 4.4))(unions.draw_growing)
signs.draw(size=(6, 4.4))(unions.draw_growing)

SETS = ["cifar10", "cifar100", "mnist"]
TARGETS = ["cifar10", "mnist"]
SMALL_NETWORK = PAPER.but(union="cifar10", tasks="+".join(SETS), n_train=2000, n_test=1000, edge=16, method="nt_xent",
    net="small", width=24, optimizer="adamw", lr=2e-3, weight_decay=0.01, batch_size=256, epochs=15,
    labels=(20, 100, 500, 2000), draws=5, few=500, probe="logistic", temperature=0.2, symmetric=False,
    tune_labels=(100, 500), tune_epochs=None, tune_lr=1e-3, tune_batch=64)


def networks_of(target):
    """Unions that grow from this target, and their controls."""
    order = sorted(SETS, key=lambda name: name != target)
    return [network._replace(target=target) for network in trade_off_of(growing(*order), noise=2)]


real = unions.figure.variant(
    "real_pictures", figures=("Fig. 7.3", "Fig. F.2"), part="a small network",
    title="Growing unions of MNIST, CIFAR-10 and CIFAR-100", laptop=BRIEF, paper=SMALL_NETWORK,
    grid=grid_of(trade_off_of(UNIONS, noise=3), "target", "union", "length"),
    paper_grid=grid_of([*networks_of("cifar10"), *networks_of("mnist")], "target", "union", "length"),
    needs=tuple(SETS), minutes=0.4, controls=("untrained",),
    caption="Accuracy on the target with few labels and all. " + CAPTION,
)


def of_each(runs, measure):
    """A measurement of the trials of each target; its parts by name."""
    only_real(runs)
    return unions.flat({target: measure(runs.where(target=target)) for target in runs.values("target")})


@real.claim("c14_trade_off_real", paper=unions.PRINTED, where="Fig. 7.3",
    says="With CIFAR-10 and with MNIST as target, from the first set to the whole union the target's accuracy with few "
    "labels falls and the weighted average rises (differences of accuracies)",
    expect={f"{target}, {part}": above(0) for target in TARGETS for part in ("target falls", "average rises")})
def real_trade_off(runs):
    return of_each(runs, unions.trade_off)


@real.claim("c14c_real_more_than_as_much_noise", origin="ours", where="Fig. 7.3",
    says="With CIFAR-10 and with MNIST as target, the union is worse on the target than its set with as many pictures "
    "of noise (differences of accuracies)", expect={target: above(0) for target in TARGETS})
def real_beyond_noise(runs):
    return of_each(runs, unions.beyond_noise)


@real.claim("c14d_real_not_by_its_length", origin="ours", where="Fig. 7.3",
    says="With CIFAR-10 and with MNIST as target, the union is worse on the target than its set in equally many "
    "updates, those of the union or of the set (differences of accuracies)",
    expect={f"{target}, {length}": above(0) for target in TARGETS for length in LENGTHS})
def real_beyond_length(runs):
    return of_each(runs, unions.beyond_length)


@real.claim("c15_real_fewer_labels_larger_drop", paper="curves, no number", where="Fig. F.2",
    says="With CIFAR-10 and with MNIST as target, the target's accuracy falls more with the fewest labels than with "
    "the most (differences of the two falls)", expect={target: above(0) for target in TARGETS})
def real_larger_drop(runs):
    return of_each(runs, unions.larger_drop)


@real.draw(cols=2, size=(10, 4.4))
def real_panels(runs, axes):
    targets = runs.values("target")
    for axis, target in zip(axes[0], targets, strict=False):
        some = runs.where(target=target)
        for n, color in zip((Unions(some).labels[0], Unions(some).labels[-1]), CATEGORIES, strict=False):
            unions.draw_along(axis, some, f"target/{n}", color, f"{n} labels")
        axis.set_title(f"target: {target}")
        unions.finish_along(axis, some)
    if len(targets) == 1:
        unions.draw_along(axes[0, 1], runs, "average", CATEGORIES[2], "weighted average")
        unions.finish_along(axes[0, 1], runs)
