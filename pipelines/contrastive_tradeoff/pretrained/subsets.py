"""Figure 7.4, Tables F.2 and F.3. Pre-training on a part of one large set, on more of it, and on all of it.

The paper pre-trains on ImageNet's birds (B), then with its vehicles (V), then with more (+), then on all of ImageNet;
MoCo v3 with a ViT-S and SimSiam with a ResNet-50. The target are the birds. Tables F.2 and F.3 compare birds, or
vehicles, with all of ImageNet and with a tenth of it, by the number of labels: with few of them the specific network is
better, with many the universal one is as good, and a tenth of the pictures is worse than either.

The laptop preset takes digits in place of ImageNet: 0 to 3 for the birds, 4 and 5 for the vehicles, 6 and 7 for what is
added next; an MLP with NT-Xent is pre-trained. It shows whether the trade-off exists within one set of pictures, and
nothing about ImageNet. The paper preset pre-trains a ResNet-18 with SimSiam on ImageNet at 32 x 32 pixels, 500 pictures
a class; the published ViT-S and ResNet-50 at 224 pixels are out of reach of this code. Birds are ImageNet's 59 classes
of birds. The paper does not list its other classes: vehicles are those of WordNet, what is added next cats and fruit.

The desktop preset takes large animals, vehicles and plants of CIFAR-100, and MoCo v2, since SimSiam hardly learns in so
few epochs.

A network of all classes also takes more updates, so that one in as few updates as the target's is compared.
"""

from featurelab.pipelines import (
    CATEGORIES, Experiment, Missing, above, at_most, band, choice, legend_below, loguniform, np,
)
from featurelab.pipelines.contrastive_tradeoff.pretrained import unions
from featurelab.pipelines.contrastive_tradeoff.pretrained.pretraining import CONTROLS, UnionConfig, classes_in, cost
from featurelab.pipelines.contrastive_tradeoff.pretrained.transfer import train
from featurelab.pipelines.contrastive_tradeoff.pretrained.unions import growing

ALL_DIGITS = ["digits:0-3", "digits:4-5", "digits:6-7", "digits:8-9"]
BIRDS = "imagenet32:7-24,80-100,127-146"
VEHICLES = (
    "imagenet32:403-405,407-408,417,436,444,450,466,468,472,484,510-511,537,554-555,561,565,569,573,575-576,586,603,609,"
    "612,625,627-628,654,656,661,665,670-671,675,690,705,717,724,734,751,757,779-780,802-803,812,814,817,820,829,833,847,"
    "856,864,866-867,870-871,874,880,895,914"
)
MORE = "imagenet32:281-293,948-957"
SETTINGS = ("union", "target", "portion", "length")
STEPS = ("B", "BV", "BV+", "ALL")
PRINTED = {  # Tables F.2 and F.3: by number of labels, of the specific set, of ImageNet, of a tenth of it
    "birds": {500: (76.00, 58.78, 30.06), 1000: (81.42, 69.39, 35.96), 2000: (82.88, 79.66, 39.49),
        4000: (83.83, 83.59, 44.13), 8000: (84.71, 85.93, 48.50)},
    "vehicles": {500: (61.81, 57.86, 31.48), 1000: (70.93, 67.90, 37.76), 2000: (72.09, 69.81, 39.07),
        4000: (74.14, 72.93, 39.62), 8000: (75.53, 74.55, 43.53)},
}


def networks(steps, vehicles):
    """Growing unions, the whole in as few updates and of a tenth of the pictures, and the same for the vehicles."""
    whole, birds = steps[-1], steps[0]
    rows = [(union, birds, 1.0, "own") for union in steps]
    rows += [(whole, birds, 1.0, "shortest"), (whole, birds, 0.1, "own")]
    return [*rows, (vehicles, vehicles, 1.0, "own"), (whole, vehicles, 1.0, "own"), (whole, vehicles, 0.1, "own")]


def others(name, *parts):
    """The classes of a set that are in none of these parts of it."""
    known = {number for part in parts for number in classes_in(part)}
    return f"{name}:" + ",".join(str(number) for number in classes_in(name) if number not in known)


LAPTOP_STEPS = growing(*ALL_DIGITS)
CIFAR_ANIMALS = "cifar100:3,15,19,21,31,38,42-43,88,97"  # five carnivores and five other large animals
CIFAR_VEHICLES = "cifar100:8,13,41,48,58,69,81,85,89-90"
CIFAR_PLANTS = "cifar100:0,51,53-54,57,62,70,82-83,92"
REAL_PARTS = (CIFAR_ANIMALS, CIFAR_VEHICLES, CIFAR_PLANTS)
DESKTOP_STEPS = growing(*REAL_PARTS, others("cifar100", *REAL_PARTS))
PAPER_STEPS = growing(BIRDS, VEHICLES, MORE, others("imagenet32", BIRDS, VEHICLES, MORE))
figure = Experiment(
    name="contrastive_tradeoff/subsets", figures=("Fig. 7.4", "Table F.2", "Table F.3"),
    title="Pre-training on more and more classes of one set",
    caption="Left: a network is pre-trained on digits 0 to 3 (B), with 4 and 5 (V), with 6 and 7 (+), and on all; "
    "linear probes on B, and on all ten digits. Middle, right: probes by the number of labels after pre-training on "
    "the target's classes alone, on all, and on a tenth of all, for as many epochs, so that a tenth takes a tenth of "
    "the updates. Means over seeds and their range; crosses: the paper.",
    laptop=UnionConfig(union=LAPTOP_STEPS[0], target=ALL_DIGITS[0], tasks="digits", few=1000, labels=(8, 20, 50, 150)),
    paper=unions.PAPER.but(union=BIRDS, target=BIRDS, tasks="imagenet32", method="simsiam", lr=0.03, warmup=10,
        probe_lr=1.0, labels=(500, 1000, 2000, 4000, 8000)),
    grid={SETTINGS: networks(LAPTOP_STEPS, ALL_DIGITS[1]), "seed": [0, 1, 2, 3, 4, 5]},
    paper_grid={SETTINGS: networks(PAPER_STEPS, VEHICLES), "seed": unions.SEEDS},
    desktop=unions.DESKTOP.but(union=CIFAR_ANIMALS, target=CIFAR_ANIMALS, tasks="cifar100", n_train=10_000, n_test=2000,
        epochs=15), desktop_minutes=18,
    desktop_grid={SETTINGS: networks(DESKTOP_STEPS, CIFAR_VEHICLES), "seed": unions.SEEDS},
    reduced="CIFAR-100 in place of ImageNet, 100 pictures of each class: ten large animals for the birds (B), ten "
    "vehicles (V), ten flowers, fruits and mushrooms for what is added next (+); a residual network of one block a "
    "stage and 64 features with MoCo v2 for 15 epochs, in batches of 64; 50 labels and more, and a logistic probe",
    sweep_axes={"lr": loguniform(1e-4, 1e-2), "width": choice(4, 8, 16, 32, 64), "weight_decay": loguniform(1e-5, 1e-1),
        "temperature": loguniform(0.05, 1.0)}, metric="average", mode="max", minutes=1.5, needs=("imagenet32",),
    stand_in="scikit-learn's digits of 8 x 8 pixels and an MLP with NT-Xent, in place of ImageNet, a ViT-S with MoCo "
    "v3 and a ResNet-50 with SimSiam", controls=CONTROLS,
    small=unions.TINY | {"n_train": 200, "n_test": 100, "labels": (4, 10), "few": 40},
)
figure.trial(train)
figure.cost(cost)


class Parts:
    """The trials by what was pre-trained on, for the first target (birds) or the second (vehicles)."""

    def __init__(self, runs, target=0):
        whole = max(runs.values("union"), key=lambda union: union.count("+"))  # it begins with the first target
        self.target = sorted(runs.values("target"), key=lambda name: not whole.startswith(name))[target]
        self.runs = runs.where(target=self.target)
        plain = sorted(self.runs.where(portion=1.0, length="own").values("union"), key=lambda u: u.count("+"))
        self.specific, self.whole, self.steps = plain[0], plain[-1], plain
        self.labels = [int(n) for n in runs.values("labels")[0] if runs.has(f"target/{n}")]
        if not self.labels:
            raise Missing("no accuracy on the target was recorded")

    def of(self, metric, union, portion=1.0, length="own"):
        return self.runs.final(metric, union=union, portion=portion, length=length)

    def lead(self, n):
        """How much better the specific network is on the target than that of all classes, with n labels."""
        return self.of(f"target/{n}", self.specific) - self.of(f"target/{n}", self.whole)


@figure.claim("s1_trade_off", where="Fig. 7.4", paper="the target falls, the average rises (two panels)",
    says="From the target's classes to all classes, the target's accuracy with few labels falls and the accuracy on "
    "all classes rises (differences of accuracies)", expect={"target falls": above(0), "all classes rise": above(0)})
def trade_off(runs):
    parts = Parts(runs)
    rise = parts.of("average", parts.whole) - parts.of("average", parts.specific)
    return {"target falls": parts.lead(parts.labels[0]), "all classes rise": rise}


@figure.claim("s1b_not_by_its_length", where="Fig. 7.4", origin="ours",
    says="In as few updates as the target's classes take, the network of all classes is worse on the target with few "
    "labels than that of the target's classes (difference of accuracies)", expect=above(0))
def beyond_length(runs):
    parts = Parts(runs)
    few = f"target/{parts.labels[0]}"
    return parts.of(few, parts.specific) - parts.of(few, parts.whole, length="shortest")


@figure.claim("s2_specific_first_universal_later", where="Table F.2", paper="76.0 > 58.8%, then 84.7 < 85.9%",
    says="With the fewest labels the network of the target's classes is better on them than that of all classes, with "
    "the most labels it is no better (differences of accuracies)", expect={"few": above(0), "many": at_most(0)})
def crossing(runs):
    parts = Parts(runs)
    return {"few": parts.lead(parts.labels[0]), "many": parts.lead(parts.labels[-1])}


@figure.claim("s2b_universal_on_all_classes", where="Table F.2", paper="73.20 > 41.38%",
    says="On all classes with all labels, the network of all classes is better than that of the target's (difference "
    "of accuracies)", expect=above(0))
def universal(runs):
    parts = Parts(runs)
    return parts.of("average", parts.whole) - parts.of("average", parts.specific)


@figure.claim("s2c_a_tenth_is_worse_than_either", where="Tables F.2, F.3", paper="30.06 and 31.48% with 500 labels",
    says="A network of a tenth of all pictures is worse on the target than that of all, and than that of the target's "
    "classes, with few labels (least differences over both targets)", expect={"all": above(0), "specific": above(0)})
def tenth(runs):
    targets = [Parts(runs, 0), Parts(runs, 1)]
    few = f"target/{targets[0].labels[0]}"
    least = [parts.of(few, parts.whole, portion=0.1) for parts in targets]
    return {"all": min(parts.of(few, parts.whole) - low for parts, low in zip(targets, least, strict=True)),
        "specific": min(parts.of(few, parts.specific) - low for parts, low in zip(targets, least, strict=True))}


@figure.claim("s3_the_lead_shrinks_with_labels", where="Table F.3", paper="61.8 > 57.9%, then 75.5 > 74.6%",
    says="On the second target too the specific network is better with the fewest labels, and its lead shrinks with "
    "the most (lead, and how much it shrinks)", expect={"lead": above(0), "shrinks": above(0)})
def second_target(runs):
    parts = Parts(runs, 1)
    few, many = parts.lead(parts.labels[0]), parts.lead(parts.labels[-1])
    return {"lead": few, "shrinks": few - many}


@figure.draw(cols=3, size=(13, 4.2))
def panels(runs, axes):
    left, *tables = axes[0]
    parts = Parts(runs)
    few = f"target/{parts.labels[0]}"
    shown = {few: f"target B, {parts.labels[0]} labels", "average": "all classes, all labels"}
    for (metric, label), color in zip(shown.items(), CATEGORIES, strict=False):
        table = [parts.runs.finals(metric, union=union, portion=1.0, length="own") for union in parts.steps]
        band(left, table, range(len(table)), color=color, marker="o", markersize=3.5, label=label)
        brief = parts.runs.finals(metric, union=parts.whole, portion=1.0, length="shortest")
        left.plot(len(table) - 1, float(np.mean(brief)), "x", color=color, label=f"{label}: ALL in as few updates as B")
    left.set_xticks(range(len(parts.steps)), STEPS[: len(parts.steps)])
    left.set(xlabel="pre-trained on", ylabel="accuracy", title="Fig. 7.4")
    legend_below(left, 1)
    for number, (axis, (name, printed)) in enumerate(zip(tables, PRINTED.items(), strict=True)):
        own = Parts(runs, number)
        rows = {"target's classes": (own.specific, 1.0), "all classes": (own.whole, 1.0),
            "a tenth of all": (own.whole, 0.1)}
        for place, ((label, (union, portion)), color) in enumerate(zip(rows.items(), CATEGORIES, strict=False)):
            table = [own.runs.finals(f"target/{n}", union=union, portion=portion, length="own") for n in own.labels]
            band(axis, table, range(len(table)), color=color, marker="o", markersize=3.5, label=label)
            ends = [list(printed.values())[end][place] / 100 for end in (0, -1)]
            axis.plot([0, len(table) - 1], ends, "x:", color=color, linewidth=0.9)
        axis.plot([], [], "x:", color="gray", linewidth=0.9, label=f"paper, {name}: 500 and 8,000 labels")
        axis.set_xticks(range(len(own.labels)), [str(n) for n in own.labels])
        axis.set(xlabel="labels of the target", ylabel="accuracy on the target", title=f"Table F.{number + 2}")
        legend_below(axis, 2)
