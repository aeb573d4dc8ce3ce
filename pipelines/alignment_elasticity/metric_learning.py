"""Table 1, and Tables 3 and 4 by seed. Unseen classes that are better aligned are better retrieved.

Deep metric learning: half of the classes train a network with the normalised softmax loss (features through LayerNorm
without an affine map; cosines with class weights over a temperature). For each class of the other half we measure
Recall@1 among all unseen samples, and Alignment E F(x)'F(x'). Over these classes we correlate the two (Pearson's r,
two-sided p).

The paper gives r at the end of training; we also record it before training: a class whose images resemble one another
is well aligned and well retrieved in any feature space. All seeds share one split of classes, as in the paper, so
that their p-values are not independent, which Fisher's method assumes; see `alignment_elasticity/tables`. The paper
presets here and in `alignment_elasticity/ranking` are the settings of Table 2.

At desktop scale CIFAR-100 and GTSRB (traffic signs) take the places of CARS196 and CUB200, and a MobileNetV2 of
ImageNet that of ResNet-50. Its upper layers are trained, with the paper's loss, optimiser and batches;
those below are applied once to every image, which leaves no room for random crops.
"""

from typing import Any, Literal

from featurelab.pipelines import (
    CATEGORIES, Cost, Experiment, Field, Missing, Recorder, TrainedConfig, above, at_least, at_most, band, choice, data,
    fit, language, learners, legend_below, loguniform, nets, np, null_level, paper_level, printed_table, probes, torch,
)

STAND_INS, OF_DESKTOP, OF_PAPER = ("digits", "fields"), ("cifar100", "gtsrb"), ("cars196", "cub200")
PAIRS = {name: pair for pair in (STAND_INS, OF_DESKTOP, OF_PAPER) for name in pair}
EDGE = 32  # pixels, of the images of CIFAR-100 and GTSRB
PRINTED: dict[str, dict[str, Any]] = {str(row["dataset"]): row for row in printed_table(__file__, "table_1.csv")}
R = "pearson/recall_alignment"


class MetricConfig(TrainedConfig):
    dataset: Literal["digits", "fields", "cifar100", "gtsrb", "cars196", "cub200"] = Field("digits",
        description="what is retrieved")
    split: int = Field(0, ge=0,
        description="which classes are for training, the same for all seeds; not of CARS196 and CUB200")
    kept: int = Field(60, ge=2, description="CIFAR-100 and GTSRB: images of each class, of training and test set")
    noise: tuple[float, float] = Field((0.5, 2.0), description="fields: least and greatest noise of a class")
    size: int = Field(224, ge=32, description="side of public images in pixels")
    workers: int = Field(0, ge=0, description="processes that decode images of CARS196 and CUB200")
    trunk: Literal["conv", "mobilenet", "resnet50"] = Field("conv",
        description="backbone; mobilenet and resnet50 have ImageNet weights")
    model: str = Field("google/mobilenet_v2_1.0_224", description="mobilenet: a published model, by its folder or name")
    frozen: int = Field(13, ge=0, le=18, description="mobilenet: layers that are not trained, from the first one on")
    pool: int = Field(4, ge=1, le=4, description="conv: side of the grid of means before the linear layer; 1: one mean")
    width: int = Field(128, ge=4, multiple_of=4, description="features D, of a linear layer if not of the backbone")
    temperature: float = Field(0.05, gt=0, description="the cosines are divided by it")
    lr: float = Field(0.05, gt=0, description="learning rate of SGD")
    momentum: float = Field(0.9, ge=0, lt=1, description="momentum of SGD")
    weight_decay: float = Field(1e-4, ge=0, description="weight decay of every layer")
    batch_size: int = Field(75, ge=2, description="images in a batch")
    per_class: int | None = Field(None, ge=1, description="images of one class in a batch; none: batches are shuffled")
    epochs: int = Field(12, ge=1, description="passes over the training classes")


LAPTOP = MetricConfig()

figure = Experiment(
    name="alignment_elasticity/metric_learning", figures=("Table 1", "Table 3", "Table 4"),
    title="Class-wise Recall@1 and Alignment of unseen classes in metric learning",
    caption="Left: unseen classes at the end of training, one colour a seed. Middle: Pearson's r during training, from "
    "first to last value. Right: Recall@k and average Alignment, means over seeds and their range.", laptop=LAPTOP,
    paper=LAPTOP.but(dataset="cars196", trunk="resnet50", width=2048, lr=0.01, per_class=25, epochs=30, workers=8),
    desktop=LAPTOP.but(dataset="cifar100", trunk="mobilenet", width=1280, size=64, lr=0.001, per_class=25, epochs=10),
    desktop_grid={"dataset": OF_DESKTOP, "seed": range(4)}, desktop_minutes=7,
    reduced="60 images of each class of CIFAR-100 and of GTSRB in place of CARS196 and CUB200, a random half of the "
    "classes for training; a MobileNetV2 of ImageNet at 64 pixels in place of ResNet-50 at 224, whose first 13 of 18 "
    "layers are frozen; lr 0.001 for both sets, as training does not converge at 0.01; 10 epochs in place of 30, no "
    "random crops", grid={"dataset": ["digits", "fields"], "seed": range(6)},
    paper_grid={("dataset", "lr"): [("cars196", 0.01), ("cub200", 0.001)], "seed": [0, 1, 2, 3]},
    sweep_axes={"lr": loguniform(1e-3, 1e-1), "width": choice(64, 128, 256), "weight_decay": loguniform(1e-6, 1e-2)},
    metric="recall_at_1/unseen", mode="max", minutes=0.9, small={"epochs": 2, "width": 16}, needs=("cars196", "cub200"),
    stand_in="scikit-learn's digits under the eight symmetries of the square, and random fields with classes of "
    "different noise, replace CARS196 and CUB200; a small random network replaces a pretrained ResNet-50: the same "
    "statistic, other numbers",
)


@figure.trial
def run(config: MetricConfig, recorder: Recorder) -> None:
    task, classes, unseen = unseen_half(config)
    net = nets.MetricNet(backbone(config), config.width, classes, temperature=config.temperature,
        seed=config.streams.init, dtype=config.dtype)
    optimizer = learners.sgd(config.lr, momentum=config.momentum, weight_decay=config.weight_decay)
    learner = learners.Supervised(net, loss="cross_entropy", optimizer=optimizer)
    retrieval = probes.RetrievalProbe(unseen, on="epoch")
    fit(learner, task, config, recorder, epochs=config.epochs, probes=[retrieval])
    recorder.array("classes", **{name: values.numpy() for name, values in retrieval.by_class.items()})


def unseen_half(config: MetricConfig):
    """Return the data, the number of training classes, and the samples of unseen classes."""
    if config.dataset in PRINTED:
        train, test = data.metric_split(data.dataset_source(config.dataset).classes)
        balanced = None if config.per_class is None else (config.batch_size // config.per_class, config.per_class)
        images = data.StreamedImages(config.dataset, train_classes=train, test_classes=test, pooled=True,
            size=config.size, resize=config.size * 8 // 7, batch_size=config.batch_size, balanced=balanced,
            order_seed=config.streams.order, workers=config.workers)
        return images, len(train), images.loader("test")
    if config.dataset == "digits":
        samples = data.symmetric_digits(seed=config.split)
    elif config.dataset == "fields":
        samples = data.random_fields(80, 22, noise=config.noise, seed=config.split)
    else:
        samples = small_images(config)
    task = data.ClassSplit(samples, split=config.split, batch_size=config.batch_size, per_class=config.per_class,
        order_seed=config.streams.order, dtype=config.dtype, name=f"{config.dataset}_class_split")
    return task, len(task.train_classes), task.unseen


def small_images(config: MetricConfig):
    """Return CIFAR-100 or GTSRB: `kept` images of each class, or what a MobileNet's frozen layers make of them."""
    images = data.public_pictures(config.dataset, EDGE, seed=config.split)
    (x, y), (z, t) = images.labelled, images.test
    x, y = torch.cat([x, z]), torch.cat([y, t])
    rows = torch.cat([(y == label).nonzero()[: config.kept, 0] for label in y.unique()])
    below: Any = mobilenet(config).trunk[: config.frozen] if config.trunk == "mobilenet" else torch.nn.Identity()
    size = config.size if config.trunk == "mobilenet" else EDGE
    with torch.no_grad():
        parts = [below(resized(some, size).to(memory_format=torch.channels_last)) for some in x[rows].split(128)]
    return torch.cat(parts), y[rows]


def resized(pixels, size):
    """Return images of bytes as numbers from -1 to 1, with sides of `size` pixels."""
    scaled = pixels.float() / 127.5 - 1
    return torch.nn.functional.interpolate(scaled, size=(size, size), mode="bilinear", antialias=True)


def mobilenet(config: MetricConfig) -> Any:
    return nets.pretrained_mobilenet(language.find_model(config.model), dtype=config.dtype)


def backbone(config: MetricConfig):
    """Return a network from images, or from maps of frozen layers, to `width` features."""
    trunk: Any
    width = config.width
    drawn: dict[str, Any] = {"seed": config.streams.init, "dtype": config.dtype}
    if config.trunk == "conv":
        channels = [width // 4, width // 2, width]
        colours = 3 if config.dataset in OF_DESKTOP else 1
        trunk = nets.conv_trunk(colours, channels, strides=(1, 2, 1), pool=config.pool, **drawn)
        features = width * config.pool**2
    else:
        if config.trunk == "mobilenet":
            whole = mobilenet(config)
            trunk, features = whole.trunk[config.frozen :].requires_grad_(), whole.head.in_features
            trunk = trunk.to(memory_format=torch.channels_last)
        else:
            trunk, features = nets.pretrained_resnet50(dtype=config.dtype).trunk, 2048
        if width == features:
            return trunk
    return nets.TrunkHead(trunk, nets.initialised(lambda: torch.nn.Linear(features, width), **drawn))


@figure.cost
def cost(config: MetricConfig):
    width, below = config.width, 0.0
    if config.trunk == "resnet50":
        samples, unseen = (8_054, 8_131) if config.dataset == "cars196" else (5_864, 5_924)
        parameters, multiplications, activations, pixels = 23_508_032, 4.1e9, 1.1e7, 3 * config.size**2
    else:
        samples, unseen, pixels = 880, 880, 64
        if config.dataset in OF_DESKTOP:
            classes = data.dataset_source(config.dataset).classes
            samples, unseen, pixels = (classes + 1) // 2 * config.kept, classes // 2 * config.kept, 3 * EDGE**2
        kernels, embedding = 9 * (width // 4 + width**2 // 8 + width**2 // 2), (config.pool * width) ** 2
        parameters, multiplications, activations = kernels + embedding, 16.0 * kernels + embedding, 120.0 * width
        if config.trunk == "mobilenet":  # MobileNetV2; a quarter of its multiplications are in the upper layers
            places = (config.size / 224) ** 2
            parameters, multiplications, activations = 3_500_000, 8e7 * places, 5e6 * places
            below = 2.2e8 * places * (samples + unseen)
    flops = 2.0 * config.epochs * (multiplications * (3 * samples + unseen) + width * unseen**2) + 2.0 * below
    memory = 4.0 * (3 * parameters + config.batch_size * (activations + pixels) + unseen * width)
    steps = config.epochs * -(-samples // config.batch_size)
    public = () if config.dataset in STAND_INS else (config.dataset,)
    models = (config.model,) if config.trunk == "mobilenet" else ()
    return Cost(parameters, flops, memory, steps, public, models)


def each_dataset(runs, value):
    """value(runs) on A (CARS196, CIFAR-100 or digits) and on B (CUB200, GTSRB or random fields)."""
    names = PAIRS[runs.values("dataset")[0]]
    return {part: value(runs.where(dataset=name)) for part, name in zip("AB", names, strict=True)}


@figure.claim("c27_recall_goes_with_alignment", says="Recall@1 and Alignment correlate positively over unseen classes "
    "after training (Pearson's r; A: CARS196, CIFAR-100 or digits, B: CUB200, GTSRB or random fields)", where="Table 1",
    paper="0.24 (CARS196), 0.29 (CUB200)", expect={"A": above(0), "B": above(0)})
def correlation(runs):
    return each_dataset(runs, lambda some: some.final(R))


@figure.claim("c27_combined_p", seeds=4, says="Fisher's method finds the correlation of Recall@1 and Alignment "
    "significant, p < 0.05, whatever its sign (mean over four seeds of -2 ln p is at least 3.88)",
    paper="p = 0.00 for both", where="Table 1", expect={"A": at_least(3.88), "B": at_least(3.88)})
def fisher(runs):
    return each_dataset(runs, lambda some: -2 * np.log(max(some.final("pearson_p/recall_alignment"), 1e-300)))


@figure.claim("c27_correlation_as_printed", says="Pearson's r of Recall@1 and Alignment is within 0.15 of the printed "
    "mean (larger distance of the two datasets)", paper="0.24, 0.29", where="Table 1", expect=at_most(0.15))
def printed_correlation(runs):
    return max(abs(runs.final(R, dataset=name) - PRINTED[name]["r"]) for name in public(runs))


@figure.claim("c28_recall_and_alignment_as_printed", says="Recall@1 is within 2 points, and average Alignment within "
    "15%, of the printed means (larger distances of the two datasets)", paper="93.65, 68.13; 843.27, 1072.49",
    where="Table 1", expect={"Recall@1": at_most(0.02), "Alignment": at_most(0.15)})
def printed_values(runs):
    names = public(runs)
    recall, alignment = ({name: runs.final(f"{score}/unseen", dataset=name) for name in names}
        for score in ("recall_at_1", "alignment"))
    return {"Recall@1": max(abs(recall[name] - PRINTED[name]["recall"]) for name in names),
        "Alignment": max(abs(alignment[name] / PRINTED[name]["alignment"] - 1) for name in names)}


def public(runs):
    """The datasets of Table 1; raises `Missing` for runs on stand-ins."""
    names = PAIRS[runs.values("dataset")[0]]
    if not set(names) <= set(PRINTED):
        raise Missing(f"Table 1 is about CARS196 and CUB200; these runs are on stand-ins, {' and '.join(names)}")
    return names


@figure.claim("c27_before_training_b", origin="ours", says="random fields, some classes noisier than others: Recall@1 "
    "and Alignment correlate before training (Pearson's r)", expect=at_least(0.5), controls=())
def before_training(runs):
    name = PAIRS[runs.values("dataset")[0]][1]
    if name == "gtsrb":
        raise Missing("no class of GTSRB is noisier than others by construction")
    return runs.at(R, 0, dataset=name)


@figure.claim("c27_training_raises_r", origin="ours",
    says="training raises the correlation of Recall@1 and Alignment over unseen classes (r after less before)",
    expect={"A": above(0), "B": above(0)})
def gain(runs):
    return each_dataset(runs, lambda some: some.final(R) - some.at(R, 0))


@figure.draw(rows=2, cols=3, size=(12, 7.2))
def panels(runs, axes):
    names = [name for name in PAIRS[runs.values("dataset")[0]] if name in runs.values("dataset")]
    for (classes, training, retrieval), name in zip(axes, names, strict=False):
        chosen = runs.where(dataset=name)
        for (seed, of_seed), colour in zip(chosen.by_seed(), CATEGORIES, strict=False):
            scores, curve = of_seed.arrays("classes")[0], of_seed.curve(R)
            classes.scatter(scores["alignment"], scores["recall"], s=9, color=colour, alpha=0.7)
            label = f"seed {seed}: {curve.iloc[0]:.2f} to {curve.iloc[-1]:.2f}"
            training.plot(curve.index, curve, color=colour, label=label)
        classes.set(title=f"{name}, after training", xlabel="Alignment of a class", ylabel="Recall@1 of a class")
        null_level(training, 0, "no correlation")
        if name in PRINTED:
            paper_level(training, PRINTED[name]["r"])
        training.set(title=name, xlabel="step", ylabel="r of Recall@1 and Alignment", ylim=(-1, 1))
        legend_below(training, 2, fontsize=7)
        for k, colour in zip((1, 2, 4, 8), CATEGORIES, strict=False):
            band(retrieval, chosen.curves(f"recall_at_{k}/unseen"), color=colour, label=f"Recall@{k}")
        right = retrieval.twinx()
        band(right, chosen.curves("alignment/unseen"), color=CATEGORIES[5], linestyle="--")
        retrieval.plot([], [], color=CATEGORIES[5], linestyle="--", label="Alignment (right axis)")
        right.set_ylabel("average Alignment")
        right.grid(visible=False)
        right.spines["right"].set_visible(True)
        retrieval.set(title=name, xlabel="step", ylabel="Recall@k")
        legend_below(retrieval, 3, fontsize=7)
