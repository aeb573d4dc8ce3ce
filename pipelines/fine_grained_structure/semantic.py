"""Figures 10 to 13. Similar classes stay mixed inside a label; classes put together at random separate.

A network is trained on 20 super-classes of CIFAR-100, the official ones (five similar classes each) or random ones of
five classes, and the last layer's features of one super-class are laid out by t-SNE. Two numbers stand for what the
pictures show: the mean squared distance ratio inside super-classes, and how many samples k-means on the plane of t-SNE
puts with their class.

The laptop preset has classes that come in families: a class mean is N(0, I) for its family plus N(0, tau2 I) of its
own, and "official" super-classes are the families.
"""

from typing import Literal

from featurelab.pipelines import (
    CATEGORIES,
    Cost,
    Experiment,
    Field,
    above,
    at_least,
    at_most,
    data,
    fit,
    learners,
    measures,
    model_validator,
    nets,
    np,
    probes,
    torch,
)
from featurelab.pipelines.fine_grained_structure import training
from featurelab.pipelines.fine_grained_structure.training import CIFAR100, LabelsConfig


class FamiliesConfig(LabelsConfig):
    dataset: Literal["families", "cifar100"] = Field(  # type: ignore[assignment]
        "families", description="where classes are from"
    )
    labels: Literal["official", "random_coarse"] = Field(
        "official", description="trained on: super-classes of similar classes, or random ones of as many"
    )
    members: int = Field(3, ge=2, description="families: classes in each")
    spread: float = Field(0.02, ge=0, description="families: variance tau2 of class means around that of the family")

    @model_validator(mode="after")
    def _possible(self) -> "FamiliesConfig":
        if self.dataset == "families" and self.net != "perceptron":
            raise ValueError(f"{self.net} needs images, and families have none")
        return self


CHANCE = {"families": 1 / 3, "cifar100": 1 / 5}
LAPTOP = FamiliesConfig(
    coarse=4, n_train=720, n_test=720, dim=64, width=128, momentum=0.0, weight_decay=0.0, batch_size=None, epochs=300,
    drops=(), measure_every=50,
)  # fmt: skip
PAPER = LAPTOP.but(**CIFAR100.model_dump(exclude={"labels"}) | {"dim": 3072, "probed": ("head",)})

figure = Experiment(
    name="fine_grained_structure/semantic_groups",
    figure="Figs. 10-13",
    title="Super-classes of similar and of random classes",
    caption="Left: features of one super-class laid out by t-SNE, one seed, colours are classes. Right: means over "
    "seeds, bars their range; dashed: chance.",
    laptop=LAPTOP,
    paper=PAPER,
    grid={"spread": [0.02, 0.1], "labels": ["official", "random_coarse"], "seed": [0, 1, 2]},
    paper_grid={"labels": ["official", "random_coarse"], "seed": [0, 1, 2]},
    sweep_axes=training.SWEEP_AXES,
    metric="accuracy/test",
    mode="max",
    minutes=0.3,
    needs=("cifar100",),
    stand_in="a Gaussian mixture of classes in families and a perceptron in place of CIFAR-100 and ResNet-18",
)


@figure.trial
def run(config, recorder):
    if config.dataset == "cifar100":
        training.train(config, recorder)
    else:
        train_on_families(config, recorder)


def train_on_families(config, recorder):
    classes, seed = config.coarse * config.members, config.streams.data
    means = data.nested_means(config.coarse, config.members, config.dim, [config.spread], seed=seed)[0]
    base = data.GaussianClusters(means, range(classes), config.n_train, config.n_test, seed=seed, dtype=config.dtype)
    official = config.labels == "official"
    task = data.Relabelled(
        base,
        "coarse" if official else "random_coarse",
        classes=classes,
        coarse=config.coarse,
        groups=torch.arange(classes) // config.members if official else None,
        seed=seed,
    )
    net = nets.perceptron(
        [config.dim, config.width, config.coarse],
        init_scale=config.init_scale,
        seed=config.streams.init,
        dtype=config.dtype,
    )
    learner = learners.Supervised(
        net,
        loss="cross_entropy",
        optimizer=learners.sgd(config.lr, momentum=config.momentum, weight_decay=config.weight_decay),
        steps_per_batch=config.measure_every,
    )

    def follow(module, x):
        return training.structure(training.features(module.net, x), task)[0]

    watching = [
        probes.LossProbe({"train": task.train, "test": task.test}, every=config.measure_every),
        probes.Measure(follow, every=config.measure_every, inputs=task.train[0]),
    ]
    fit(learner, task, config, recorder, steps=config.epochs, probes=watching)
    H = training.features(net.cpu(), task.train[0])
    clusters = measures.clusters_within_groups(
        H, task.train[1], task.groups, seed=config.streams.order, reduce=config.cluster, perplexity=config.perplexity,
        restarts=config.restarts,
    )  # fmt: skip
    scores = measures.cluster_scores(clusters, task.parts, task.groups)
    raw, _ = training.structure(task.train[0], task)
    null = measures.msdr_null(H, task.parts, task.groups, seed=config.streams.order)
    recorder.log(
        {f"{name}/head": value for name, value in scores.items()}
        | {"msdr/input": raw["msdr/head"], "msdr_null/head": null},
        step=config.epochs,
    )
    recorder.array("plane", points=clusters.plane, classes=task.parts.numpy(), groups=task.groups.numpy())


@figure.cost
def cost(config):
    if config.dataset == "cifar100":
        return training.cost(config)
    weights = config.dim * config.width + config.width * config.coarse
    numbers = 2 * (config.n_train + config.n_test) * (config.dim + config.width) + 4 * weights
    return Cost(weights, 6.0 * weights * config.n_train * config.epochs, 4.0 * numbers, config.epochs)


def both(runs, metric, **where):
    return (runs.final(metric, labels=labels, **where) for labels in ("official", "random_coarse"))


def gap(runs, metric):
    """How far random super-classes exceed official ones, at the spread where they do so least."""
    gaps = []
    for spread in runs.values("spread"):
        official, shuffled = both(runs, metric, spread=spread)
        gaps.append(shuffled - official)
    return min(gaps)


@figure.claim(
    "c09_random_groups_separate_better",
    says="random super-classes over official ones: MSDR and share of samples clustered right (differences)",
    paper="much better separated",
    where="Section 5",
    expect={"MSDR": above(0), "cluster accuracy": above(0)},
)
def better(runs):
    return {"MSDR": gap(runs, "msdr/head"), "cluster accuracy": gap(runs, "cluster_accuracy/head")}


@figure.claim(
    "c09b_similar_classes_stay_mixed",
    says="official super-classes of the most similar classes: MSDR near 1, few samples clustered right above chance",
    paper="not able to distinguish all sub-classes",
    where="Section 5",
    expect={"MSDR": at_most(1.1), "cluster accuracy over chance": at_most(0.15)},
)
def mixed(runs):
    spread, dataset = min(runs.values("spread")), runs.values("dataset")[0]
    where = {"labels": "official", "spread": spread}
    return {
        "MSDR": runs.final("msdr/head", **where),
        "cluster accuracy over chance": runs.final("cluster_accuracy/head", **where) - CHANCE[dataset],
    }


@figure.claim(
    "c09c_the_input_has_it",
    says="the raw input's MSDR is higher under random super-classes too (difference)",
    origin="ours",
    expect=above(0),
)
def in_the_input(runs):
    return gap(runs, "msdr/input")


@figure.claim(
    "c09d_all_are_fitted",
    says="training accuracy is at least 0.999 under both groupings (smallest)",
    origin="ours",
    expect={"official": at_least(0.999), "random": at_least(0.999)},
    fails="random super-classes are not fitted after 300 steps, so their features have not collapsed",
)
def fitted(runs):
    return dict(zip(("official", "random"), (min(pair) for pair in shares(runs)), strict=True))


def shares(runs):
    return zip(*(both(runs, "accuracy/train", spread=spread) for spread in runs.values("spread")), strict=True)


@figure.draw(cols=4, size=(14, 3.4))
def panels(runs, axes):
    spread = min(runs.values("spread"))
    names = {"official": "similar classes", "random_coarse": "random classes"}
    for axis, (labels, name) in zip(axes[0], names.items(), strict=False):
        kept = runs.arrays("plane", labels=labels, spread=spread)[0]
        inside = kept["groups"][kept["classes"]] == 0
        points, classes = kept["points"][inside], kept["classes"][inside]
        for c, colour in zip(np.unique(classes), CATEGORIES, strict=False):
            axis.scatter(*points[classes == c].T, s=8, color=colour, linewidth=0)
        axis.set(title=f"a super-class of {name}", xticks=[], yticks=[])
        axis.grid(visible=False)
    spreads = sorted(runs.values("spread"))
    for axis, metric, name in zip(
        axes[0, 2:], ("msdr/head", "cluster_accuracy/head"), ("MSDR", "cluster accuracy"), strict=True
    ):
        for offset, (labels, title) in enumerate(names.items()):
            values = [runs.curves(metric, labels=labels, spread=s).ffill().iloc[-1] for s in spreads]
            means = np.array([v.mean() for v in values])
            bars = [means - [v.min() for v in values], [v.max() for v in values] - means]
            places = np.arange(len(spreads)) + 0.35 * offset
            axis.bar(places, means, 0.32, yerr=np.clip(bars, 0, None), color=CATEGORIES[offset], capsize=2, label=title)
        level = 1.0 if metric.startswith("msdr") else CHANCE[runs.values("dataset")[0]]
        axis.axhline(level, color="#444444", linestyle="--", linewidth=1)
        axis.set_xticks(np.arange(len(spreads)) + 0.17, [f"{s:g}" for s in spreads])
        axis.set(xlabel="variance inside a family, τ²", ylabel=name)
    axes[0, 3].legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
