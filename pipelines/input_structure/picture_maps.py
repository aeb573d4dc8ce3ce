"""Figures 2.3 = A.13, A.14, A.15. Neurons of a small network on two classes of pictures form two clusters, or four.

A ReLU network with 50 hidden units and no biases learns two classes of real pictures by gradient descent with momentum,
from Gaussian initial weights and without a regulariser. Its first-layer weights are mapped to the plane so that
distances are near 1 - cos, before training, early and at the end. The paper shows two clusters on MNIST 0/1 and on
CIFAR-10 airplane/automobile, four on SVHN 0/1, and gives no numbers; here k-means on unit weights finds two clusters.

House numbers are light on dark or dark on light, which is likely why there are four. The laptop's stand-in for SVHN is
therefore digits half of which have inverted contrast.

Where the clusters lie is ours: the first gradient of each neuron is near a multiple of the difference of the class
means (exactly one if all neurons are active), so that weights should turn towards it or against it.
"""

from typing import Literal

from featurelab.pipelines import (
    CATEGORIES, Experiment, Field, Recorder, TrainedConfig, at_least, at_most, band, between, choice, data, fit,
    learners, legend_below, legend_beside, loguniform, measures, mlp_cost, nets, np, probes, torch,
)

SIZES = {"digits": 64, "mnist": 784, "cifar10": 3072, "svhn": 3072}  # numbers in one picture
EARLY = 10  # the step that the middle map shows


class MapConfig(TrainedConfig):
    control: Literal["none", "permuted_labels", "untrained", "same_moments"] = Field("none",  # type: ignore[assignment]
        description="what is destroyed; same_moments: Gaussian inputs with the moments of each class")
    dataset: Literal["digits", "mnist", "cifar10", "svhn"] = Field("digits", description="where the pictures are from")
    classes: tuple[int, int] = Field((0, 1), description="the two classes, labels -1 and +1")
    n_train: int = Field(240, ge=2, description="training pictures of both classes")
    n_test: int = Field(100, ge=1, description="test pictures of both classes; of digits all others")
    inverted: float = Field(0.0, ge=0, le=1, description="share of pictures whose contrast is inverted")
    width: int = Field(50, ge=3, description="hidden units")
    init_std: float = Field(0.02, gt=0, description="standard deviation of initial first-layer weights")
    lr: float = Field(0.05, gt=0, description="learning rate")
    momentum: float = Field(0.95, ge=0, lt=1, description="momentum of gradient descent")
    weight_decay: float = Field(0.0, ge=0, description="weight decay of both layers")
    batch_size: int = Field(32, ge=1, description="pictures a step")
    steps: int = Field(100, ge=EARLY, description="optimiser steps")
    measure_every: int = Field(10, ge=1, description="steps between measurements")


PRESET = MapConfig()

figure = Experiment(
    name="input_structure/picture_maps", figures=("Fig. 2.3", "Fig. A.13", "Fig. A.14"),
    published={"Fig. 2.3": "Fig. 3"},
    title="Maps of the neurons of small networks on two classes of pictures",
    caption="Top: neurons of one seed in the plane, distances near 1 - cos, coloured by the sign of their readout. "
    "Stars: plus and minus the difference of the class means. Bottom: means over seeds and their range.", laptop=PRESET,
    paper=PRESET.but(dataset="mnist", n_train=10_000, n_test=1800, steps=2000, measure_every=50),
    desktop=PRESET.but(dataset="mnist", n_train=3000, n_test=500, steps=2000, measure_every=50), desktop_minutes=2,
    desktop_grid={("dataset", "n_train", "lr"): [("mnist", 12_000, 0.05), ("cifar10", 3000, 0.002)], "seed": [0, 1, 2]},
    reduced="3,000 pictures of CIFAR-10 in place of 10,000, at learning rate 0.002: training diverges at 0.05",
    grid={"dataset": ["digits"], "seed": range(6)},
    paper_grid={("dataset", "n_train"): [("mnist", 12_000), ("cifar10", 10_000)], "seed": [0, 1, 2]},
    sweep_axes={"lr": loguniform(1e-3, 0.2), "width": choice(20, 50, 200), "weight_decay": loguniform(1e-6, 1e-2),
        "init_std": loguniform(1e-3, 0.3)}, metric="between", minutes=0.1,
    needs=("cifar10", "mnist"), small={"n_train": 40, "width": 12, "steps": 20},
    stand_in="scikit-learn's 8x8 digits 0 and 1 replace two classes of MNIST and of CIFAR-10",
)
four = figure.variant(
    "four_clusters", figures=("Fig. A.15",),
    title="Maps of the neurons of small networks on pictures of either contrast",
    laptop=PRESET.but(inverted=0.5), paper=PRESET.but(dataset="svhn", n_train=18_000, steps=2000, measure_every=50),
    grid={"dataset": ["digits"], "seed": [0, 1, 2, 3, 4, 5]}, paper_grid={"dataset": ["svhn"], "seed": [0, 1, 2]},
    needs=("svhn",),
    stand_in="scikit-learn's 8x8 digits 0 and 1, half of them with inverted contrast, replace those of SVHN",
)


def pictures(config: MapConfig):
    """Two classes, labels -1 and +1 as (n, 1); pixels less their training means, over one standard deviation of all."""
    c = config
    if c.dataset == "digits":
        base: data.TensorData = data.Digits(1257, split="stratified", targets="labels", pixels="overall", flatten=False,
            seed=c.streams.data, dtype=c.dtype)
        parts = [of_classes(part, c.classes) for part in (base.labelled, base.test)]
        (x, y), (z, t) = parts
        train, test = (x[: c.n_train], y[: c.n_train]), (torch.cat([x[c.n_train :], z]), torch.cat([y[c.n_train :], t]))
    else:
        base = data.PublicImages(c.dataset, c.n_train, c.n_test, classes=c.classes, targets="signs", pixels="unit",
            flatten=False, seed=c.streams.data, dtype=c.dtype)
        train, test = base.labelled, base.test
    train, test = (contrast(part, c.inverted, data.stream(c.streams.data, f"inverted {name}"))
        for name, part in (("train", train), ("test", test)))
    mean = train[0].mean(0)
    spread = (train[0] - mean).square().mean().sqrt()
    train, test = (((x - mean) / spread, y) for x, y in (train, test))
    task = data.TensorData(train, test, name=f"{c.dataset}_{c.classes[0]}_{c.classes[1]}", batch_size=c.batch_size,
        order_seed=c.streams.order, dtype=c.dtype)
    return data.same_moments(task, seed=c.streams.data) if c.control == "same_moments" else task


def contrast(part, share, chance):
    """The pictures, a share of them less twice their distance from mid-grey, so that light and dark change places."""
    x, y = part
    chosen = torch.from_numpy(chance.random(len(x)) < share).to(x.device)
    middle = (x.max() + x.min()) / 2
    return torch.where(chosen.view(-1, *[1] * (x.ndim - 1)), 2 * middle - x, x), y


def of_classes(part, classes):
    x, y = part
    chosen = (y == classes[0]) | (y == classes[1])
    return x[chosen], torch.where(y[chosen] == classes[1], 1.0, -1.0)[:, None]


@figure.trial
def run(config: MapConfig, recorder: Recorder) -> None:
    task = pictures(config)
    x, y = (part.flatten(1) for part in task.labelled)
    axis = ((x * y).sum(0) / len(x)).double()  # along the difference of the class means
    dim = x.shape[1]
    net = nets.mlp(dim, config.width, 1, init_scale=[config.init_std**2 * dim, 1.0], seed=config.streams.init,
        dtype=config.dtype)
    weights = {}

    def follow(module, _):
        W, a = (layer.weight.detach().cpu().double() for layer in module.net.layers)
        weights[module.trainer.global_step] = (W.clone(), a[0].clone())
        clusters = measures.direction_clusters(W, seed=config.streams.order)
        toward = measures.direction_alignment(W, axis)
        clusters["clusters"] = measures.cluster_count(W, seed=config.streams.order)
        return clusters | {"toward_means": toward["mean_abs_cosine"], "aligned_share": toward["aligned_share"]}

    watching = [probes.LossProbe({"train": task.train, "test": task.test}, config.measure_every),
        probes.Measure(follow, config.measure_every)]
    descent = learners.sgd(config.lr, config.momentum, config.weight_decay)
    learner = learners.Supervised(net, loss="logistic", optimizer=descent)
    fit(learner, task, config, recorder, steps=config.steps, probes=watching)
    shown = [0, min(step for step in weights if step >= EARLY), max(weights)]
    marks = torch.stack([axis, -axis])
    for place, step in enumerate(shown):
        W, a = weights[step]
        mapped = measures.weight_map(W, marks, seed=config.seed)
        recorder.array(f"map_{place}", points=mapped.points.numpy(), marks=mapped.marks.numpy(), step=np.array(step),
            signs=a[mapped.rows].sign().numpy())


@figure.cost
def cost(config: MapConfig):
    return mlp_cost(dim=SIZES[config.dataset], width=config.width, hidden=1, outputs=1, n_train=config.n_train,
        batch_size=config.batch_size, steps=config.steps, bytes_a_number=4,
        data=() if config.dataset == "digits" else (config.dataset,))


def each(runs, measure):
    """measure(runs) on each data set."""
    return [measure(runs.where(dataset=name)) for name in runs.values("dataset")]


@figure.claim("c16_two_clusters", paper="two clusters (maps, no number)", within=(-1, 1),
    says="at the end neurons form two clusters (mean cosine with the centre of the looser one, cosine of the centres)",
    expect={"within": at_least(0.65), "between": at_most(-0.85)},
    where="Figs. A.13, A.14; bounds set after the fact, on digits")
def clusters(runs):
    within = each(runs, lambda some: min(some.final("within_1"), some.final("within_2")))
    return {"within": min(within), "between": max(each(runs, lambda some: some.final("between")))}


@figure.claim("c16c_early", paper="effective features emerge after a few steps", within=(-2, 2),
    says=f"at the first measurement from step {EARLY} on, the clusters have moved most of the way apart (share of the "
    "fall of the cosine of centres)",
    expect=at_least(0.5))
def early(runs):
    def share(some):
        between = some.curve("between")
        step = min(step for step in between.index if step >= EARLY)
        fall = between.iloc[0] - between.iloc[-1]
        return float((between.iloc[0] - between[step]) / fall) if fall else 0.0

    return min(each(runs, share))


@figure.claim("c16d_along_the_class_means", origin="ours", within=(-1, 1),
    says="training turns neurons to the difference of the class means (rise of the mean |cos|)", expect=at_least(0.3))
def along_the_means(runs):
    return min(each(runs, lambda some: some.final("toward_means") - some.at("toward_means", 0)))


@four.claim("a15_four_clusters", paper="four clusters (map, no number)", about="share", least=0.75,
    says="in at least three of four runs, the neurons form four clusters at the end (number of clusters, 2 to 6, that "
    "have the largest mean silhouette)", expect=between(4, 4))
def four_clusters(runs):
    return runs.final("clusters")


@four.claim("a15b_the_task_is_learned", origin="ours", within=(0, 1),
    says="the network learns pictures of either contrast (test accuracy)", expect=at_least(0.9))
def learned(runs):
    return runs.final("accuracy/test")


@figure.draw(rows=2, cols=3, size=(10, 7))
def panels(runs, axes):
    names = runs.values("dataset")
    for place, axis in enumerate(axes[0]):
        mapped = runs.arrays(f"map_{place}", dataset=names[0])[0]
        for sign, colour in ((1, CATEGORIES[0]), (-1, CATEGORIES[1])):
            chosen, label = mapped["points"][mapped["signs"] == sign], f"a {'>' if sign > 0 else '<'} 0"
            axis.scatter(*chosen.T, s=9, color=colour, label=label)
        axis.scatter(*mapped["marks"].T, marker="*", s=90, color=CATEGORIES[2], label="± class means")
        axis.set(title=f"{names[0]}, step {int(mapped['step'])}", xticks=[], yticks=[], aspect="equal")
        axis.set(xlim=(-1.3, 1.3), ylim=(-1.3, 1.3))
    legend_beside(axes[0, 2])
    lines = {"within_1": "larger cluster", "within_2": "smaller cluster", "between": "centres"}
    for name, dash in zip(names, ("-", "--", ":"), strict=False):
        some = runs.where(dataset=name)
        for (metric, label), colour in zip(lines.items(), CATEGORIES, strict=False):
            band(axes[1, 0], some.curves(metric), color=colour, linestyle=dash, label=f"{label}, {name}")
        band(axes[1, 1], some.curves("toward_means"), color=CATEGORIES[0], linestyle=dash, label=name)
        band(axes[1, 2], some.curves("accuracy/test"), color=CATEGORIES[0], linestyle=dash, label=name)
    axes[1, 0].set(title="clusters", xlabel="step", ylabel="cosine", ylim=(-1.05, 1.05))
    axes[1, 1].set(title="mean |cos| with the class means' difference", xlabel="step", ylim=(0, 1.02))
    axes[1, 2].set(title="test accuracy", xlabel="step", ylim=(0.4, 1.02))
    legend_below(axes[1, 0], 2)
    axes[1, 1].legend(loc="lower right")
