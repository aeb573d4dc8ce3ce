"""Figures 10 to 13. Similar classes of a label stay mixed; random classes of a label separate.

A network is trained on 20 super-classes of CIFAR-100, the official ones (five similar classes each) or random ones, and
t-SNE lays out the last layer's features of one super-class. Two numbers measure what the pictures show: the mean
squared distance ratio inside super-classes, and the share of samples that k-means on t-SNE's plane puts with their
class.

The laptop preset has classes that come in families: a class mean is N(0, I) for its family plus N(0, tau2 I) of its
own, and "official" super-classes are the families.
"""

from typing import Literal

from featurelab.pipelines import (
    CATEGORIES, Cost, Field, Recorder, above, at_least, at_most, data, fit, learners, legend_beside, measures,
    model_validator, nets, np, null_level, probes, torch,
)
from featurelab.pipelines.fine_grained_structure import coarse, training


class FamiliesConfig(training.LabelsConfig):
    dataset: Literal["families", "cifar100"] = Field("families",  # type: ignore[assignment]
        description="where classes are from")
    labels: Literal["official", "random_coarse"] = Field("official",
        description="trained on: super-classes of similar classes, or random ones of as many")
    members: int = Field(3, ge=2, description="families: classes in each")
    spread: float = Field(0.02, ge=0, description="families: variance tau2 of class means around that of the family")

    @model_validator(mode="after")
    def _possible(self) -> "FamiliesConfig":
        if self.dataset == "families" and self.net != "perceptron":
            raise ValueError(f"{self.net} needs images, and families have none")
        return self


CHANCE = {"families": 1 / 3, "cifar100": 1 / 5}
SHOWN = {  # the super-classes of Figures 10 to 13: of CIFAR-100's own "vehicles 1" and "non-insect invertebrates"
    "families": {"official": (0, 1), "random_coarse": (0, 1)},
    "cifar100": {"official": (18, 13), "random_coarse": (0, 1)},
}
LAPTOP = FamiliesConfig(coarse=4, n_train=720, n_test=720, dim=64, width=128, momentum=0.0, weight_decay=0.0,
    batch_size=None, epochs=300, drops=(), measure_every=50)
OWN = {"dim": 3072, "probed": ("head",)}  # of presets with pictures
REAL = training.REAL.but(dataset="cifar100", coarse=20)
OF_PICTURES = {"labels": ["official", "random_coarse"], "seed": [0, 1, 2]}

figure = coarse.mixture.variant(
    "semantic_groups", figures=("Fig. 10", "Fig. 11", "Fig. 12", "Fig. 13"),
    title="Super-classes of similar and of random classes",
    caption="Left: features of two super-classes of each kind laid out by t-SNE, for one seed; colours are classes. "
    "Right: means over seeds, bars their range; dotted: chance.", laptop=LAPTOP,
    paper=LAPTOP.but(**training.CIFAR100.model_dump(exclude={"labels"}) | OWN),
    grid={"spread": [0.02, 0.1], "labels": ["official", "random_coarse"], "seed": range(6)}, paper_grid=OF_PICTURES,
    minutes=0.6, needs=("cifar100",), desktop=LAPTOP.but(**REAL.model_dump(exclude={"labels"}) | OWN),
    desktop_minutes=8, desktop_grid=OF_PICTURES, reduced=training.REDUCED,
    stand_in="a Gaussian mixture of classes in families and a perceptron in place of CIFAR-100 and ResNet-18",
    small={"spread": [0.02], "n_train": 96, "n_test": 24, "epochs": 4, "measure_every": 4, "dim": 16, "width": 16},
)


@figure.trial
def run(config: FamiliesConfig, recorder: Recorder) -> None:
    if config.dataset == "cifar100":
        training.train(config, recorder)
    else:
        train_on_families(config, recorder)


def train_on_families(config: FamiliesConfig, recorder: Recorder):
    classes, streams, every = config.coarse * config.members, config.streams, config.measure_every
    means = data.nested_means(config.coarse, config.members, config.dim, [config.spread], seed=streams.data)[0]
    samples = (config.n_train, config.n_test)
    base = data.GaussianClusters(means, range(classes), *samples, seed=streams.data, dtype=config.dtype)
    official = config.labels == "official"
    task = data.Relabelled(base, "coarse" if official else "random_coarse", classes=classes, coarse=config.coarse,
        groups=torch.arange(classes) // config.members if official else None, seed=streams.data)
    task = training.with_control(config, task)
    widths = [config.dim, config.width, config.coarse]
    net = nets.perceptron(widths, init_scale=config.init_scale, seed=streams.init, dtype=config.dtype)
    sgd = learners.sgd(config.lr, momentum=config.momentum, weight_decay=config.weight_decay)
    learner = learners.Supervised(net, loss="cross_entropy", optimizer=sgd, steps_per_batch=every)

    def follow(module, x):
        H = training.features(module.net, x)
        return training.structure(H, task)[1] | training.collapse(H, task)

    watching = [probes.LossProbe({"train": task.train, "test": task.test}, every=every),
        probes.Measure(follow, every=every, inputs=task.train[0])]
    fit(learner, task, config, recorder, steps=config.epochs, probes=watching)
    H = training.features(net.cpu(), task.train[0])
    clusters = training.clusters(config, H, task)
    scores = measures.cluster_scores(clusters, task.parts, task.groups)
    values = {f"{name}/head": value for name, value in scores.items()}
    values["msdr/input"] = training.structure(task.train[0], task)[1]["msdr/head"]
    values["msdr_null/head"] = measures.msdr_null(H, task.parts, task.groups, seed=streams.order)
    recorder.log(values, step=config.epochs)
    recorder.array("plane", points=clusters.plane, classes=task.parts.numpy(), groups=task.groups.numpy())


@figure.cost
def cost(config: FamiliesConfig):
    if config.dataset == "cifar100":
        return training.cost(config)
    weights = config.dim * config.width + config.width * config.coarse
    numbers = 2 * (config.n_train + config.n_test) * (config.dim + config.width) + 4 * weights
    return Cost(weights, 6.0 * weights * config.n_train * config.epochs, 4.0 * numbers, config.epochs)


def gap(runs, metric):
    """Return how far random super-classes exceed official ones, at the spread where the difference is smallest."""
    official, shuffled = (by_spread(runs, metric, labels) for labels in ("official", "random_coarse"))
    return min(high - low for high, low in zip(shuffled, official, strict=True))


def by_spread(runs, metric, labels):
    return [runs.final(metric, labels=labels, spread=spread) for spread in runs.values("spread")]


@figure.claim("c09_random_groups_separate_better", where="Section 5", paper="much better separated",
    says="random super-classes separate into their classes better than official ones do (differences of MSDR and of "
    "clustering accuracy)", expect={"MSDR": above(0), "cluster accuracy": above(0)})
def better(runs):
    return {"MSDR": gap(runs, "msdr/head"), "cluster accuracy": gap(runs, "cluster_accuracy/head")}


@figure.claim("c09b_similar_classes_stay_mixed", where="Section 5", paper="not able to distinguish all sub-classes",
    says="classes of official super-classes, in a mixture those of the most similar classes, stay mixed (MSDR near 1, "
    "clustering accuracy near chance)",
    expect={"MSDR": at_most(1.1), "cluster accuracy over chance": at_most(0.15)})
def mixed(runs):
    chosen = runs.where(labels="official", spread=min(runs.values("spread")))
    over_chance = chosen.final("cluster_accuracy/head") - CHANCE[runs.values("dataset")[0]]
    return {"MSDR": chosen.final("msdr/head"), "cluster accuracy over chance": over_chance}


@figure.claim("c09c_the_input_has_it", origin="ours",
    says="raw inputs already have a higher MSDR under random super-classes than under official ones (difference)",
    expect=above(0), controls=())
def in_the_input(runs):
    return gap(runs, "msdr/input")


@figure.claim("c09d_all_are_fitted", origin="ours", says="the network fits both official and random super-classes in "
    "at least three of four runs (smallest training accuracy)", about="share", least=0.75, within=(0, 1),
    expect={"official": at_least(0.999), "random": at_least(0.999)})
def fitted(runs):
    names = {"official": "official", "random": "random_coarse"}
    return {name: min(by_spread(runs, "accuracy/train", labels)) for name, labels in names.items()}


@figure.draw(cols=6, size=(19, 3.4))
def panels(runs, axes):
    *planes, ratio, accuracy = axes[0]
    spreads, dataset = sorted(runs.values("spread")), runs.values("dataset")[0]
    places, names = np.arange(len(spreads)), {"official": "similar classes", "random_coarse": "random classes"}
    chosen = [(labels, group) for labels in names for group in SHOWN[dataset][labels]]
    for axis, (labels, group) in zip(planes, chosen, strict=True):
        samples = runs.arrays("plane", labels=labels, spread=spreads[0])[0]
        for c, colour in zip(np.flatnonzero(samples["groups"] == group), CATEGORIES, strict=False):
            axis.scatter(*samples["points"][samples["classes"] == c].T, s=8, color=colour, linewidth=0)
        axis.set(title=f"{names[labels]}, super-class {group}", xticks=[], yticks=[])
        axis.grid(visible=False)
    chance = CHANCE[dataset]
    shown = [(ratio, "msdr/head", "MSDR", 1.0), (accuracy, "cluster_accuracy/head", "cluster accuracy", chance)]
    for axis, metric, name, level in shown:
        for offset, (labels, title) in enumerate(names.items()):
            table = np.array([runs.finals(metric, labels=labels, spread=spread) for spread in spreads])
            means = table.mean(1)
            ends = np.clip([means - table.min(1), table.max(1) - means], 0, None)
            look = {"yerr": ends, "color": CATEGORIES[offset], "capsize": 2, "label": title}
            axis.bar(places + 0.35 * offset, means, 0.32, **look)
        null_level(axis, level)
        drawn_from = {"families": [f"{spread:g}" for spread in spreads], "cifar100": ["CIFAR-100"]}[dataset]
        axis.set_xticks(places + 0.17, drawn_from)
        axis.set(xlabel="variance inside a family, τ²" if dataset == "families" else "", ylabel=name)
    legend_beside(accuracy)
