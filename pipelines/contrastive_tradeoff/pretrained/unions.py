"""Figures 7.1, 7.3 and F.2. Growing unions of pre-training sets: universality against label efficiency.

A network is pre-trained on the set nearest to the target, then, from scratch, on unions with one more unrelated set
each. Linear probes give its accuracy on the target, with few labels and many, and the average over all sets, weighted
by their numbers of classes. In the paper the target's accuracy falls while the average rises.

A larger union also takes more updates and has more pictures. Controls for both are the first set with as many pictures
of noise, the first set in the updates of the whole union, and the whole union in the updates of the first set. The
average rises nearly by construction: the sets that are added are those that are averaged. Noise is Gaussian, with the
mean and covariance of the pixels of the sets in whose place it stands: white noise would be a weaker control.

The paper preset has the settings of the authors' program: MoCo v2 without a projector, both directions of its loss
added at temperature 0.1, and keys of both views in a queue of 4,096.

The desktop preset begins with CIFAR-10 itself, as Figure F.7 does, since CINIC-10 is large. Sets are added in order of
their nearness to the target, by the Frechet distance of Gaussians with the moments of the pixels; features of a
MobileNet that was trained on ImageNet give the same order. Pictures of 32 pixels are folded to 16 x 16 squares of 12
numbers, so that a small residual network is quick enough.

The laptop preset has digits as target, generated shapes, gratings and patches of two photographs, 8 x 8 pixels, and
NT-Xent in place of MoCo v2. `similarity` and `regularised` read its trials.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

from featurelab.pipelines import (
    CATEGORIES, Experiment, Missing, Results, above, at_least, at_most, band, choice, legend_below, loguniform,
    measures, np, null_level, printed_table, torch,
)
from featurelab.pipelines.contrastive_tradeoff.pretrained.pretraining import CONTROLS, Length, UnionConfig, cost
from featurelab.pipelines.contrastive_tradeoff.pretrained.transfer import train

SEEDS = [0, 1, 2]
PRINTED = "88.5 to 76.4% (share of labels not given) and 18.3 to 20.1%"  # Figure 7.1: the target, and the average


class Network(NamedTuple):
    """A network of a figure: what it is pre-trained on, for how long, and whether it is trained further."""

    union: str
    length: Length = "own"
    repeat: int = 0
    tune: bool = False
    adapt: bool = False
    target: str = "digits"


def grid_of(networks, *settings):
    """These networks, which differ in these settings, at every seed."""
    return {settings: [tuple(getattr(network, setting) for setting in settings) for network in networks], "seed": SEEDS}


def growing(*sets):
    """The unions that begin with the first set, smallest first."""
    return ["+".join(sets[: count + 1]) for count in range(len(sets))]


def trade_off_of(unions, noise):
    """The unions, and their controls for the number of pictures and of updates; `noise` sets of noise are as many."""
    first, whole = unions[0], unions[-1]
    controls = [Network(first + noise * "+noise"), Network(first, "longest"), Network(whole, "shortest")]
    return [*map(Network, unions), *controls]


def desktop_networks(*sets):
    """The growing unions of these sets with their controls, and an untrained network."""
    return [*trade_off_of(growing(*sets), noise=1), Network(sets[0], "none")]


def every_network(sets, *, noise, tuned):
    """All networks by name: unions, their controls, each other set alone, the first set again, untrained and early."""
    first, unions = sets[0], growing(*sets)
    return {
        **{name: Network(union, tune=name in tuned, adapt=name in tuned)
            for name, union in zip(NAMES, unions, strict=True)},
        **dict(zip(("noise", "longer", "shorter"), trade_off_of(unions, noise)[-3:], strict=True)),
        "S": Network(sets[1]), "G": Network(sets[2]), "N": Network(sets[3]), "again": Network(first, repeat=1),
        "untrained": Network(first, "none"), "early": Network(first, "early", adapt=True),
    }


NAMES = ["D", "DS", "DSG", "DSGN"]  # N, photos, stands for natural pictures
SETS = ["digits", "shapes", "gratings", "photos"]
PAPER_SETS = ["cinic10", "svhn", "gtsrb", "imagenet32"]
UNIONS, PAPER_UNIONS = growing(*SETS), growing(*PAPER_SETS)
NETWORKS = every_network(SETS, noise=3, tuned=("D", "DSGN"))
PAPER_NETWORKS = every_network(PAPER_SETS, noise=1, tuned=NAMES)
DESKTOP_SETS = ["cifar10", "cifar100", "gtsrb", "mnist"]
DESKTOP_UNIONS = growing(*DESKTOP_SETS)
DESKTOP_NETWORKS = every_network(DESKTOP_SETS, noise=1, tuned=("D", "DSGN"))
SETTINGS = ("union", "length", "repeat", "tune", "adapt")
PAPER = UnionConfig(union="cinic10", target="cifar10", tasks="cinic10+svhn+gtsrb+imagenet32", n_train=500_000, edge=32,
    method="moco", net="resnet18", width=512, temperature=0.1, queue=4096, symmetric=True, optimizer="sgd", lr=0.06,
    weight_decay=5e-4, batch_size=512, epochs=800, labels=(500, 2500, 5000, 10_000, 50_000), draws=3, few=10**9,
    probe="sgd", tune_labels=(500, 2500, 5000, 10_000, 50_000), tune_epochs=200, tune_lr=0.06, tune_batch=256)
DESKTOP = PAPER.but(union="cifar10", tasks="+".join(DESKTOP_SETS), n_train=1000, n_test=1000, net="small", width=64,
    fold=2, queue=512, batch_size=64, epochs=10, labels=(50, 100, 200, 1000), draws=5, probe="logistic",
    tune_labels=(50, 200), tune_epochs=50, tune_batch=64, adapt_epochs=5)
REDUCED = (
    "1,000 pictures of each; a residual network of one block a stage and 64 features for 10 epochs, in batches of 64, "
    "with a queue of 512; 50 labels and more, and a logistic probe: SGD at learning rate 5 does not fit small features"
)
REPLACED = "CIFAR-10, CIFAR-100, GTSRB and MNIST in place of CINIC-10, SVHN, GTSRB and ImageNet32"
TINY = {"n_train": 40, "n_test": 20, "epochs": 1, "hidden": (8,), "width": 4, "batch_size": 20, "labels": (20, 40),
    "draws": 1, "few": 20, "tune_labels": (20,), "tune_steps": 2, "tune_batch": 10, "adapt_epochs": 1}

figure = Experiment(
    name="contrastive_tradeoff/unions", figures=("Fig. 7.1", "Fig. 7.3", "Fig. F.2"),
    title="Growing unions of pre-training sets",
    caption="Linear probes after pre-training on digits (D), and shapes (S), gratings (G), photos (N). Means over "
    "seeds and their range. Dotted: D alone with as many updates as DSGN; dashed: D with as many pictures of noise.",
    laptop=UnionConfig(), paper=PAPER, grid=grid_of(NETWORKS.values(), *SETTINGS),
    paper_grid=grid_of(PAPER_NETWORKS.values(), *SETTINGS), desktop=DESKTOP, desktop_minutes=18,
    desktop_grid=grid_of(DESKTOP_NETWORKS.values(), *SETTINGS),
    reduced=f"{REPLACED}; {REDUCED}",
    sweep_axes={"lr": loguniform(1e-4, 1e-2), "width": choice(4, 8, 16, 32, 64), "weight_decay": loguniform(1e-5, 1e-1),
        "temperature": loguniform(0.05, 1.0)}, metric="average", mode="max", minutes=3, headline=True,
    needs=("cifar10", "cinic10", "gtsrb", "imagenet32", "svhn"),
    stand_in="generated pictures of 8 x 8 pixels and an MLP with NT-Xent in place of public sets and a ResNet-18 with "
    "MoCo v2", controls=CONTROLS, small=TINY,
)
figure.trial(train)
figure.cost(cost)


@dataclass(frozen=True)
class Unions:
    """What was measured of networks along growing unions."""

    runs: Results

    @property
    def all(self) -> list[str]:
        """The growing unions, smallest first: those that begin with the first set of the largest one.

        The order of trials says nothing: further seeds have another one. Raises `Missing` without any union.
        """
        names = [u for u in self.runs.where(length="own", repeat=0).values("union") if "noise" not in u]
        if not names:
            raise Missing("no union was pre-trained on")
        first = max(names, key=lambda u: u.count("+")).split("+")[0]
        return sorted((u for u in names if u.split("+")[0] == first), key=lambda u: u.count("+"))

    @property
    def first(self) -> str:
        return self.all[0]

    @property
    def whole(self) -> str:
        return self.all[-1]

    @property
    def noise(self) -> str:
        """The first set with as many pictures of noise as the whole union adds. Raises `Missing` without it."""
        unions = [union for union in self.runs.values("union") if "noise" in union]
        if not unions:  # further seeds have only the trials of claims that are not decided yet
            raise Missing("no set was pre-trained on with noise")
        (union,) = unions
        return union

    @property
    def labels(self) -> tuple[int, ...]:
        """Numbers of labelled pictures of the target, rising."""
        (labels,) = {tuple(labels) for labels in self.runs.trials.labels}
        return labels

    @property
    def few(self) -> str:
        """The metric of the target's accuracy with the fewest labels."""
        return f"target/{self.labels[0]}"

    @property
    def many(self) -> str:
        return f"target/{self.labels[-1]}"

    def of(self, metric: str, union: str, length: Length = "own") -> float:
        return self.runs.final(metric, union=union, length=length, repeat=0)

    def fall(self, metric: str) -> float:
        """From the first set to the whole union."""
        return self.of(metric, self.first) - self.of(metric, self.whole)

    def trend(self, metric: str) -> float:
        """The rank correlation with the number of sets."""
        values = torch.tensor([self.of(metric, union) for union in self.all])
        return measures.spearman(torch.arange(len(values), dtype=values.dtype), values).item()


@figure.claim("c14_trade_off", where="Figs. 7.1, 7.3", paper=PRINTED,
    says="From the first set to the whole union, the target's accuracy with few labels falls and the weighted average "
    "over all sets rises (differences of accuracies)", expect={"target falls": above(0), "average rises": above(0)})
def trade_off(runs):
    unions = Unions(runs)
    return {"target falls": unions.fall(unions.few), "average rises": -unions.fall("average")}


@figure.claim("c14b_step_by_step", where="Fig. 7.3", paper="80.6, 77.8, 75.6, 68.3% (1%, Table F.5)", within=(-1, 1),
    says="As sets are added to the union, the target's accuracy with few labels falls and the weighted average rises "
    "(Spearman over the four unions)", expect={"target": at_most(-0.8), "average": at_least(0.8)})
def monotone(runs):
    unions = Unions(runs)
    return {"target": unions.trend(unions.few), "average": unions.trend("average")}


@figure.claim("c14c_more_than_as_much_noise", origin="ours", where="Fig. 7.3",
    says="With few labels, the whole union is worse on the target than the first set with as much noise of the same "
    "moments, in equally many updates (difference of accuracies)", expect=above(0))
def beyond_noise(runs):
    unions = Unions(runs)
    return unions.of(unions.few, unions.noise) - unions.of(unions.few, unions.whole)


@figure.claim("c14d_not_by_its_length", origin="ours", where="Fig. 7.3",
    says="In equally many updates, those of the union or those of the first set, the whole union is worse on the "
    "target than the first set alone (differences of accuracies)", expect={"as many": above(0), "as few": above(0)})
def beyond_length(runs):
    unions = Unions(runs)
    few, first, whole = unions.few, unions.first, unions.whole
    return {"as many": unions.of(few, first, "longest") - unions.of(few, whole),
        "as few": unions.of(few, first) - unions.of(few, whole, "shortest")}


LENGTHS = ("as many", "as few")
BEYOND = dict.fromkeys(("noise", *LENGTHS), above(0))  # what `beyond` gives, and what is expected of it


def beyond(runs):
    """How much worse the union is on the target than its controls, with few labels."""
    return {"noise": beyond_noise(runs), **beyond_length(runs)}


@figure.claim("c14e_average_beyond_length_and_noise", origin="ours", where="Fig. 7.3",
    says="The weighted average of the whole union is higher than that of the first set in as many updates, and of the "
    "first set with as much noise of the same moments (differences of accuracies)",
    expect={"length": above(0), "noise": above(0)})
def average_beyond(runs):
    unions = Unions(runs)
    whole = unions.of("average", unions.whole)
    return {"length": whole - unions.of("average", unions.first, "longest"),
        "noise": whole - unions.of("average", unions.noise)}


@figure.claim("c15_fewer_labels_larger_drop", where="Fig. F.2", paper="12.4 points with 1%, 12.8 with all (Table F.5)",
    says="From the first set to the whole union, the target's accuracy falls more with the fewest labels than with the "
    "most (difference of the two falls)", expect=above(0))
def larger_drop(runs):
    unions = Unions(runs)
    return unions.fall(unions.few) - unions.fall(unions.many)


@figure.claim("c15b_error_grows_by_a_larger_factor", origin="ours", where="Fig. F.2",
    says="From the first set to the whole union, the target's error grows by a larger factor with the fewest labels "
    "than with the most, where accuracies have little room to fall (difference of log ratios)", expect=above(0))
def larger_factor(runs):
    unions = Unions(runs)
    few, many = (np.log((1 - unions.of(metric, unions.whole)) / (1 - unions.of(metric, unions.first)))
        for metric in (unions.few, unions.many))
    return float(few - many)


@figure.claim("c19_specific_first_universal_later", where="Table F.2", paper="76.0 > 58.8%, then 84.7 < 85.9%",
    says="With few labels the first set's network is better on the target than the whole union's, with many labels it "
    "is no better (differences of accuracies)", expect={"few": above(0), "many": at_most(0)})
def crossing(runs):
    unions = Unions(runs)
    return {"few": unions.fall(unions.few), "many": unions.fall(unions.many)}


def flat(measured):
    """Numbers, or numbers by part, of several groups of trials: each by the name of its group and part."""
    return {f"{name}, {part}" if part else name: value for name, values in measured.items()
        for part, value in (values if isinstance(values, dict) else {"": values}).items()}


def draw_along(axis, runs, metric, color, label):
    """Accuracies along the unions, and lines at the controls: the first set for as long, and with as much noise."""
    unions = Unions(runs)
    table = [runs.where(repeat=0).finals(metric, union=union, length="own") for union in unions.all]
    band(axis, table, range(len(table)), color=color, marker="o", markersize=3.5, label=label)
    null_level(axis, unions.of(metric, unions.first, "longest"), color=color)
    null_level(axis, unions.of(metric, unions.noise), color=color, linestyle="--")


def finish_along(axis, runs, ylabel="accuracy", columns=3):
    """The unions' names below the axis, and a legend that names the lines of `draw_along`."""
    names = Unions(runs).all
    ticks = NAMES if names == UNIONS else [union.split("+")[-1] for union in names]
    axis.set_xticks(range(len(names)), ticks)
    axis.set(xlabel="pre-trained on" if names == UNIONS else "pre-trained on, with", ylabel=ylabel)
    for linestyle, label in ((":", "first set for as long"), ("--", "first set and noise")):
        axis.plot([], [], color="gray", linewidth=1, linestyle=linestyle, label=label)
    legend_below(axis, columns)


def draw_growing(runs, axes):
    """Accuracies on the target, with few labels and all, and the average, along the unions."""
    (axis,), unions = axes[0], Unions(runs)
    shown = {unions.few: "target, few labels", unions.many: "target, all labels", "average": "weighted average"}
    for (metric, label), color in zip(shown.items(), CATEGORIES, strict=False):
        draw_along(axis, runs, metric, color, label)
    finish_along(axis, runs)


@figure.draw(cols=2, size=(10.5, 4.4))
def panels(runs, axes):
    (left, right), unions = axes[0], Unions(runs)
    for n, color in zip(unions.labels, CATEGORIES, strict=False):
        draw_along(left, runs, f"target/{n}", color, f"{n} labels")
    table: Any = printed_table(__file__, "table_f_5.csv")
    printed = [row["100"] / 100 for row in table if row["method"] == "LP"]
    if len(unions.all) == len(printed):
        left.plot(range(4), printed, color="black", marker="x", linewidth=1, label="paper, CIFAR-10, all labels")
    finish_along(left, runs, "accuracy on the target")
    shown = {NAMES[place] if unions.all == UNIONS else union.split("+")[-1]: (union, "own", CATEGORIES[0], "o")
        for place, union in enumerate(unions.all)}
    first, whole = ("D", "DSGN") if unions.all == UNIONS else ("first set", "union")
    shown |= {"noise": (unions.noise, "own", CATEGORIES[1], "s"),
        f"{first} for as long": (unions.first, "longest", CATEGORIES[2], "s"),
        f"{whole} in brief": (unions.whole, "shortest", CATEGORIES[3], "s"),
        "untrained": (unions.first, "none", CATEGORIES[4], "s")}
    for name, (union, length, color, marker) in shown.items():
        pair = [runs.where(repeat=0).finals(metric, union=union, length=length) for metric in ("average", unions.few)]
        right.scatter(*pair, color=color, s=14, marker=marker, label=name if marker == "s" else None)
        if marker == "o":
            mean = [float(np.mean(values)) for values in pair]
            right.annotate(name, mean, textcoords="offset points", xytext=(0, 9), ha="center")
    right.set(xlabel="weighted average accuracy of all sets",
        ylabel=f"accuracy on the target, {unions.labels[0]} labels")
    right.margins(0.12)
    legend_below(right, 3)
