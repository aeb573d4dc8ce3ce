"""Train a classifier on coarse or fine labels, and follow collapse and the structure inside the labels.

The features H are the input of the final linear layer in evaluation mode. During training we follow the collapse to the
labels trained on (NC1, NC2) and the mean squared distances D between the original classes; at the end we cluster and
probe H. We also measure raw inputs and the network before training, to tell learned structure from that of the inputs.

The paper names neither batch size, momentum, decay schedule nor augmentation of its runs on CIFAR. We use batches of
128, momentum 0.9, a tenth of the learning rate after one and two thirds of the epochs, and random crops and flips.
"""

import itertools
import math
from typing import Any, Literal

from featurelab.pipelines import (
    Cost, Field, Recorder, TrainedConfig, choice, data, fit, learners, loguniform, measures, model_validator, nets,
    probes, torch,
)

Dataset = Literal["mixture", "digits", "cifar10", "cifar100"]
CLASSES = {"mixture": 10, "digits": 10, "cifar10": 10, "cifar100": 100}
SHAPES = {"digits": (1, 8, 8), "cifar10": (3, 32, 32), "cifar100": (3, 32, 32)}
# parameters of the paper's networks, and multiply-adds of one forward pass on 32 x 32 pixels
PARAMETERS = {"resnet18": (11_173_962, 5.6e8), "vgg16": (14_724_042, 3.1e8), "densenet121": (6_956_298, 8.9e8)}


# the mixture's classes are Gaussian, so only the coarse labels have other structure than moments
MIXTURE_CONTROLS = ("permuted_labels", "untrained", "same_coarse_moments")


class LabelsConfig(TrainedConfig):
    control: Literal[
        "none", "permuted_labels", "untrained", "same_moments", "same_coarse_moments"
    ] = Field(  # type: ignore[assignment]
        "none", description="what is destroyed; same_moments: Gaussian inputs with the moments of each class; "
        "same_coarse_moments: with those of each coarse label, so that its classes are alike"
    )
    dataset: Dataset = Field("mixture", description="source of the classes")
    labels: Literal["original", "coarse", "random_coarse", "official", "fine"] = Field("coarse",
        description="trained on: the C classes y; y mod the number of coarse labels; a random merging into as many; "
        "CIFAR-100's official super-classes; y + C b with a coin toss b for each sample")
    coarse: int = Field(5, ge=2, description="number of coarse labels")
    merging: int = Field(0, ge=0, description="which random merging")
    n_train: int = Field(1500, ge=2, description="training samples")
    n_test: int = Field(1500, ge=1, description="test samples; digits: all that training does not use")
    dim: int = Field(16, ge=1, description="mixture: coordinates that tell classes apart")
    mean_variance: float = Field(9.0, gt=0, description="mixture: variance of class means; samples have 1 around them")
    nuisance_dim: int = Field(64, ge=0, description="mixture: coordinates independent of the class")
    nuisance_variance: float = Field(49.0, ge=0, description="mixture: their variance")
    net: Literal["perceptron", "resnet", "vgg", "densenet", "resnet18", "vgg16", "densenet121"] = Field("perceptron",
        description="architecture; the first four are small, the others on 3x3 stems of stride 1")
    width: int = Field(128, ge=8, multiple_of=8, description="last-layer features d; the other widths follow from it")
    hidden: int = Field(1, ge=1, description="perceptron: hidden layers, each twice as wide as the next")
    init_scale: float = Field(1.0, gt=0, description="perceptron: factor on all of PyTorch's initial parameters")
    lr: float = Field(0.1, gt=0, description="initial learning rate")
    momentum: float = Field(0.9, ge=0, lt=1, description="momentum of stochastic gradient descent")
    weight_decay: float = Field(5e-4, ge=0, description="weight decay of all parameters")
    batch_size: int | None = Field(128, ge=1, description="samples a step; none: all of them")
    epochs: int = Field(60, ge=1, description="passes over the training set")
    drops: tuple[float, ...] = Field((1 / 3, 2 / 3), description="shares of the epochs at which the rate drops")
    drop: float = Field(0.1, gt=0, le=1, description="factor on the learning rate at each drop")
    augment: bool = Field(False, description="train on random crops and horizontal flips")
    measure_every: int = Field(1, ge=1, description="epochs between measurements")
    probed: tuple[Literal["head", "init", "input"], ...] = Field((),
        description="cluster-and-linear-probe of H at the end, of H before training, of raw inputs")
    cluster: Literal["tsne", "none"] = Field("tsne", description="k-means on t-SNE's plane, or on features themselves")
    perplexity: float = Field(30.0, gt=0, description="t-SNE: effective number of neighbours")
    restarts: int = Field(10, ge=1, description="k-means: number of starts, of which the best counts")
    ridge: float = Field(1.0, gt=0, description="linear probe: penalty ridge/2 |W|^2 on standardised features")

    @model_validator(mode="after")
    def _possible(self) -> "LabelsConfig":
        images = self.net != "perceptron"
        if images and self.dataset == "mixture":
            raise ValueError(f"{self.net} needs images, and the mixture has none")
        if self.labels == "official" and self.dataset != "cifar100":
            raise ValueError("only cifar100 has official super-classes")
        if self.coarse >= CLASSES[self.dataset]:
            raise ValueError(f"coarse must be below the {CLASSES[self.dataset]} classes")
        if self.net in PARAMETERS and self.width % 32:
            raise ValueError(f"the width of {self.net} must be a multiple of 32")
        return self


ALL = ("head", "init", "input")
MIXTURE = LabelsConfig(dataset="mixture", init_scale=0.1, momentum=0.0, weight_decay=0.0, batch_size=None, epochs=300,
    drops=(), measure_every=10, probed=ALL)
DIGITS = LabelsConfig(dataset="digits", n_train=1257, n_test=540, hidden=2)
CIFAR10 = LabelsConfig(dataset="cifar10", n_train=50_000, n_test=10_000, net="resnet18", width=512, hidden=2,
    epochs=350, augment=True, measure_every=10, probed=ALL)
CIFAR100 = CIFAR10.but(dataset="cifar100", coarse=20)
# without random crops and flips, under which a narrow network does not fit its labels in so few epochs
REAL = CIFAR10.but(n_train=3000, n_test=1000, width=64, epochs=24, augment=False, measure_every=3)
REDUCED = "3,000 pictures without random crops and flips, 64 features and 24 epochs, in place of 50,000, 512 and 350"
RATES, DECAYS = [0.1, 0.01, 0.001], [5e-3, 5e-4, 5e-5]
CELLS = {"lr": RATES, "weight_decay": DECAYS, "seed": [0, 1, 2]}
SWEEP_AXES = {
    "lr": loguniform(1e-3, 0.3),
    "width": choice(32, 64, 128, 256, 512),
    "weight_decay": loguniform(5e-5, 5e-3),
}


def train(config: LabelsConfig, recorder: Recorder):
    """Train on the config's labels, follow collapse and class distances, and cluster and probe at the end."""
    task, net = dataset(config), network(config)
    drops = sorted({max(1, round(share * config.epochs)) for share in config.drops})
    sgd = learners.sgd(config.lr, momentum=config.momentum, weight_decay=config.weight_decay)
    schedule = learners.milestone_schedule(drops, factor=config.drop)
    learner = learners.Supervised(net, loss="cross_entropy", optimizer=sgd, schedule=schedule)
    matrices, layers = [], {}  # D over time; features of both sets before training and at the last measurement

    def watched(module, x):
        H = {"train": features(module.net, x), "test": features(module.net, task.test[0].to(x.device))}
        layers["head"] = {part: rows.cpu() for part, rows in H.items()}
        layers.setdefault("init", layers["head"])
        D, values = structure(H["train"], task)
        values |= collapse(H["train"], task)
        matrices.append(D.cpu().numpy())
        for part, (_, y) in {"train": task.train, "test": task.test}.items():
            with torch.no_grad():
                f, y = module.net.head(H[part]), y.to(x.device)
            values[f"loss/{part}"] = torch.nn.functional.cross_entropy(f.to(H[part].dtype), y).item()
            values[f"accuracy/{part}"] = (f.argmax(1) == y).double().mean().item()
        return values

    watching = probes.Measure(watched, every=config.measure_every, on="epoch", inputs=task.train[0])
    step = fit(learner, task, config, recorder, epochs=config.epochs, probes=[watching]).global_step
    if not layers:
        return  # only the first of several workers measures
    epochs = [at * config.epochs / step for at, _ in watching.history]
    recorder.array("distances", epochs=epochs, matrices=matrices, groups=task.groups.numpy())
    layers["input"] = {"train": task.train[0].flatten(1), "test": task.test[0].flatten(1)}
    D, raw = structure(layers["input"]["train"], task)
    recorder.array("input_distances", matrix=D.numpy())
    values = {f"class_distance_input/{part}": raw[f"class_distance/{part}"] for part in ("same", "twin", "other")}
    values["msdr/input"] = raw["msdr/head"]
    for name in ("head", "input"):
        H = layers[name]["train"]
        values[f"msdr_null/{name}"] = measures.msdr_null(H, task.parts, task.groups, seed=config.streams.order)
    recorder.log(values, step=step)
    if task.treatment in ("coarse", "random_coarse"):
        probe(config, recorder, task, {name: layers[name] for name in config.probed}, step)


def structure(H, task):
    """Return D between the original classes, its means over kinds of pairs, and the mean squared distance ratio."""
    D = measures.class_distances(measures.class_moments(H, task.parts.to(H.device), len(task.groups)))
    blocks = measures.distance_blocks(D, task.groups)
    values = {f"class_distance/{part}": blocks[part] for part in ("same", "twin", "other")}
    return D, values | {"msdr/head": measures.msdr(D, task.groups)}


def collapse(H, task):
    """Return NC1 and NC2 of features for the labels trained on."""
    y = task.train[1].to(H.device)
    m = measures.class_moments(H, y, task.outputs)
    return {"nc1_pinv/head": measures.nc1_pinv(H, y, moments=m).item(), "nc2/head": measures.nc2(m).item()}


def clusters(config: LabelsConfig, H, task):
    """Cluster the samples of each label into as many clusters as the label has classes."""
    return measures.clusters_within_groups(H, task.train[1], task.groups, seed=config.streams.order,
        reduce=config.cluster, perplexity=config.perplexity, restarts=config.restarts)


def probe(config: LabelsConfig, recorder: Recorder, task, layers, step):
    """Cluster and probe the features after training, the features before training, and the raw inputs."""
    y_train, y_test = task.original
    for name, H in layers.items():
        clustered = clusters(config, H["train"], task)
        train, test = (H["train"], y_train), (H["test"], y_test)
        scores = measures.cluster_and_probe(clustered, train, test, task.groups, ridge=config.ridge)
        recorder.log({f"{score}/{name}": value for score, value in scores.items()}, step=step)
        if name == "head":
            plane = {"points": clustered.plane, "principal": principal_plane(H["train"]).numpy()}
            recorder.array("plane", classes=y_train.numpy(), groups=task.groups.numpy(), **plane)


def principal_plane(H):
    """Return the samples (n, 2) on the two principal directions of H (n, d)."""
    centred = H.double() - H.double().mean(0)
    return centred @ torch.linalg.eigh(centred.T @ centred).eigenvectors[:, -2:].flip(1)


def features(net, x, chunk=2000):
    """Return H (n, d) in evaluation mode, computed in chunks."""
    mode = net.training
    net.eval()
    with torch.no_grad():
        H = torch.cat([net.features(part) for part in x.split(chunk)])
    net.train(mode)
    return H


def dataset(config: LabelsConfig) -> "data.Relabelled":
    same: dict[str, Any] = {"seed": config.streams.data, "dtype": config.dtype}
    base: Any
    if config.dataset == "mixture":
        base = data.NuisanceMixture(config.n_train, config.n_test, dim=config.dim, mean_variance=config.mean_variance,
            nuisance_dim=config.nuisance_dim, nuisance_variance=config.nuisance_variance, **same)
    elif config.dataset == "digits":
        base = data.Digits(config.n_train, split="stratified", targets="labels", pixels="overall", flatten=False,
            **same)
    else:
        base = data.PublicImages(config.dataset, config.n_train, config.n_test, targets="labels", pixels="per_channel",
            flatten=False, **same)
    treatment, groups = config.labels, None
    if treatment == "official":
        treatment, groups = "coarse", data.groups_from_pairs(base.labels[0], base.coarse[0])
    options = {"augment": data.crop_and_flip(pad=4)} if config.augment else {}
    task = data.Relabelled(base, treatment, classes=CLASSES[config.dataset], coarse=config.coarse, groups=groups,
        seed=data.stream(config.streams.data, f"merging {config.merging}").integers(2**31).item(),
        batch_size=config.batch_size, order_seed=config.streams.order, **options)
    return with_control(config, task)


def with_control(config: LabelsConfig, task: "data.Relabelled") -> "data.Relabelled":
    """Return the data, with Gaussian inputs where the control asks for the moments of classes or of coarse labels."""
    y, z = task.original
    classes = {"same_moments": (y, z), "same_coarse_moments": (task.groups[y], task.groups[z])}.get(config.control)
    return data.same_moments(task, seed=config.streams.data, classes=classes) if classes else task


def sizes(config: LabelsConfig) -> list[int]:
    """Return the numbers of inputs, of the perceptron's hidden units, and of labels."""
    classes = CLASSES[config.dataset]
    labels = {"original": classes, "official": 20, "fine": 2 * classes}.get(config.labels, config.coarse)
    inputs = math.prod(SHAPES.get(config.dataset, (config.dim + config.nuisance_dim,)))
    return [inputs, *(config.width * 2**layer for layer in reversed(range(config.hidden))), labels]


def network(config: LabelsConfig) -> Any:
    """Build the network of the config; `features(x)` is H, `head` the last layer."""
    same: dict[str, Any] = {"seed": config.streams.init, "dtype": config.dtype}
    if config.net == "perceptron":
        return nets.perceptron(sizes(config), init_scale=config.init_scale, **same)
    classes, width, same["channels"] = sizes(config)[-1], config.width, SHAPES[config.dataset][0]
    eighth, quarter, half = width // 8, width // 4, width // 2
    small = (quarter, quarter, "M", half, half, "M", width, width, width, "M")
    stages = [(eighth, 2), (quarter, 2), (half, 3), (width, 3), (width, 3)]
    layout: list[Any] = [part for channels, depth in stages for part in [*[channels] * depth, "M"]]
    build = {
        "resnet": lambda: nets.resnet(classes, depths=(1, 1, 1), widths=(quarter, half, width), **same),
        "vgg": lambda: nets.vgg(small, classes, **same),
        # 2 k channels, two halvings, 11 layers of k each: 8 k features
        "densenet": lambda: nets.densenet(classes, blocks=(2, 4, 5), growth=eighth, **same),
        "resnet18": lambda: nets.resnet18(classes, width=eighth, **same),
        "vgg16": lambda: nets.vgg(layout, classes, **same),
        "densenet121": lambda: nets.densenet(classes, growth=width // 32, **same),
    }
    return build[config.net]()


def cost(config: LabelsConfig) -> Cost:
    """Return the cost of training, and of a forward pass over both sets at each measurement."""
    layers = sizes(config)
    if config.net in PARAMETERS:
        parameters, products = PARAMETERS[config.net]
        scale = (config.width / {"densenet121": 1024}.get(config.net, 512)) ** 2
        parameters, products = int(parameters * scale), products * scale
    elif config.net == "perceptron":
        parameters = sum((a + 1) * b for a, b in itertools.pairwise(layers))
        products = float(parameters)
    else:
        parameters, products = 18 * config.width**2, 18.0 * config.width**2 * 16
    n, both = config.n_train, config.n_train + config.n_test
    batch = min(config.batch_size or n, n)
    passes = 6.0 * n * config.epochs + 2.0 * both * (config.epochs // config.measure_every + 2)
    numbers = 2 * both * (layers[0] + config.width) + 4 * parameters + batch * products**0.5 * 400
    public = (config.dataset,) if config.dataset.startswith("cifar") else ()
    return Cost(parameters, products * passes, 4.0 * numbers, config.epochs * -(-n // batch), public)
