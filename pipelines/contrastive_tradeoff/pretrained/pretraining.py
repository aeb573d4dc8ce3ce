"""Networks that are pre-trained on unions of picture sets.

A union is written "digits+shapes": the set nearest to the target first, then what is added to it. "digits:0-3" has
the classes 0 to 3 of a set, "digits:0,4-6" the classes 0, 4, 5 and 6. Each union is trained on from scratch, `epochs`
passes over all of its pictures, so a larger one takes more updates.
"""

import itertools
import math
from typing import Any, Literal, NamedTuple

from featurelab.pipelines import (
    Cost, Field, TrainedConfig, data, fit, learners, model_validator, nets, np, stream_seed, torch,
)

Length = Literal["own", "longest", "shortest", "early", "none"]
Method = Literal["nt_xent", "moco", "simsiam", "nnclr"]
METHODS = {"nt_xent": "NT-Xent", "moco": "MoCo v2", "simsiam": "SimSiam", "nnclr": "NNCLR"}
CONTROLS = ("permuted_labels", "untrained", "shuffled_pairs")
# sets without a download, and their classes: those of `data.PICTURE_KINDS`, which would import torch
SMALL = {"digits": 10, "turned": 10, "shapes": 6, "gratings": 8, "photos": 2, "noise": 1}
MOMENTS = 20_000  # pictures from which the moments of noise are taken, and that are drawn at once
SIGNS_A_CLASS = 2500  # GTSRB is filled up to so many pictures of each sign, turned, shifted and projected


class PublicSet(NamedTuple):
    pictures: int  # that the paper trains on
    classes: int


PUBLIC = {  # CIFAR-100 is not among the paper's sets
    "cinic10": PublicSet(90_000, 10),
    "svhn": PublicSet(73_257, 10),
    "gtsrb": PublicSet(107_500, 43),
    "imagenet32": PublicSet(500_000, 1000),
    "cifar10": PublicSet(50_000, 10),
    "cifar100": PublicSet(50_000, 100),
    "mnist": PublicSet(60_000, 10),
    "fashion_mnist": PublicSet(60_000, 10),
    "emnist_digits": PublicSet(240_000, 10),
    "emnist_letters": PublicSet(124_800, 26),
    "fer2013": PublicSet(28_709, 7),
    "facescrub": PublicSet(127_017, 695),
}


class Heads(NamedTuple):
    """Layers after the features, in training only."""

    projector: tuple[int, ...] = ()
    predictor: tuple[int, ...] = ()


HEADS: dict[str, dict[str, Heads]] = {
    "mlp": {"nt_xent": Heads(), "moco": Heads((64, 32)), "simsiam": Heads((64, 32), (16, 32)),
        "nnclr": Heads((64, 32), (64, 32))},
    "small": {"nt_xent": Heads((128, 64)), "moco": Heads((128, 64)), "simsiam": Heads((128, 128), (32, 128)),
        "nnclr": Heads((128, 64), (128, 64))},
    "resnet18": {"nt_xent": Heads((512, 128)), "moco": Heads(),  # the authors' program: MoCo without a projector
        "simsiam": Heads((2048, 2048), (512, 2048)), "nnclr": Heads((2048, 256), (4096, 256))},
}


class UnionConfig(TrainedConfig):
    control: Literal["none", "permuted_labels", "untrained", "shuffled_pairs"] = Field(  # type: ignore[assignment]
        "none", description="what is destroyed; shuffled_pairs: positive pairs are of two pictures"
    )
    union: str = Field("digits", description="sets that are pre-trained on, nearest to the target first, joined by +")
    target: str = Field("digits", description="the set whose accuracy is the target's")
    tasks: str = Field("digits+shapes+gratings+photos", description="sets whose accuracies are averaged, joined by +")
    n_train: int = Field(1000, ge=2, description="training pictures of each set; at most as many as the paper's")
    n_test: int | None = Field(None, ge=1, description="test pictures of each set; none: all that are left")
    share: float = Field(1.0, gt=0, le=1, description="share of the first set's pictures that is pre-trained on")
    portion: float = Field(1.0, gt=0, le=1, description="share of every set's pictures that is pre-trained on")
    classes: int | None = Field(None, ge=1, description="classes of the last set that are kept; none: all")
    edge: int = Field(8, ge=8, description="side of the pictures, pixels")
    length: Length = Field("own",
        description="updates: epochs of the union; of the whole one; of the first set; an eighth of it; none")
    repeat: int = Field(0, ge=0, description="repetition with other weights and batches")
    method: Method = Field("nt_xent", description="pre-training method")
    net: Literal["mlp", "small", "resnet18"] = Field("mlp", description="the encoder")
    width: int = Field(16, ge=4, multiple_of=4, description="features; the ResNet-18 of the paper has 512")
    fold: int = Field(1, ge=1, description="side of the squares of pixels that a residual network takes as channels")
    hidden: tuple[int, ...] = Field((256, 128), description="mlp: units of its hidden layers")
    normalised: bool = Field(False, description="mlp: whether its hidden layers and MoCo's have batch normalisation")
    temperature: float = Field(0.2, gt=0, description="of NT-Xent, MoCo and NNCLR")
    queue: int = Field(1024, ge=1, description="rows of the queue of MoCo and NNCLR")
    momentum: float = Field(0.99, ge=0, le=1, description="MoCo: momentum of the key network")
    groups: int = Field(1, ge=1, description="MoCo: parts of a batch with statistics of their own; keys are shuffled")
    symmetric: bool = Field(False, description="as the authors' program: MoCo adds both directions and queues both "
        "keys; NNCLR takes NT-Xent of neighbours and predictions")
    optimizer: Literal["adamw", "sgd"] = Field("adamw", description="of pre-training and fine-tuning")
    lr: float = Field(2e-3, gt=0, description="learning rate of pre-training, before the cosine schedule")
    warmup: int = Field(0, ge=0, description="epochs in which the learning rate of pre-training rises")
    weight_decay: float = Field(0.01, ge=0, description="weight decay of pre-training")
    batch_size: int = Field(256, ge=2, description="pictures in a batch")
    epochs: int = Field(60, ge=1, description="passes over the union")
    labels: tuple[int, ...] = Field((20, 50, 100, 1000), description="labelled pictures of the target")
    draws: int = Field(5, ge=1, description="draws of labelled pictures that are averaged")
    few: int = Field(50, ge=1, description="labelled pictures of each task, where tasks are averaged")
    probe: Literal["logistic", "sgd"] = Field("logistic", description="how linear probes are trained")
    probe_lr: float = Field(5.0, gt=0, description="sgd: learning rate of the probe")
    ridge: float = Field(0.1, gt=0, description="logistic: penalty of the probe's weights")
    tune: bool = Field(False, description="also fine-tune, with and without contrastive regularisation")
    tune_labels: tuple[int, ...] = Field((50, 200), description="labelled pictures of fine-tuning")
    tune_steps: int = Field(400, ge=1, description="updates of fine-tuning")
    tune_epochs: int | None = Field(None, ge=1, description="passes of fine-tuning; replaces the number of updates")
    tune_lr: float = Field(1e-3, gt=0, description="learning rate of fine-tuning and of further pre-training")
    tune_batch: int = Field(64, ge=2, description="pictures in a batch of fine-tuning")
    strength: float = Field(0.1, ge=0, description="lambda: weight of the contrastive loss in fine-tuning")
    adapt: bool = Field(False, description="also pre-train further on unlabelled pictures, then probe")
    adapt_epochs: int = Field(30, ge=1, description="passes of further pre-training")

    @model_validator(mode="after")
    def _possible(self) -> "UnionConfig":
        names = [*self.sets, *self.tasks.split("+"), self.target]
        known = {*SMALL, *PUBLIC}
        if unknown := [name for name in names if whole(name) not in known]:
            raise ValueError(f"{unknown[0]!r} is no set; known: {', '.join(sorted(known))}")
        for name in names:
            if not (chosen := classes_in(name)) or not {*chosen} <= {*range(classes_of(whole(name)))}:
                most = classes_of(whole(name)) - 1
                raise ValueError(f"{name!r} must have classes from 0 to {most}, as in digits:0-3 or digits:0,4-6")
        small = {whole(name) in SMALL for name in names if name != "noise"}
        if len(small) > 1 or (True in small and self.edge != 8):
            raise ValueError("small pictures, of 8 pixels a side, cannot be joined with others")
        if self.edge % self.fold:
            raise ValueError(f"edge must be a multiple of fold, got {self.edge} and {self.fold}")
        return self

    @property
    def sets(self) -> list[str]:
        return self.union.split("+")

    @property
    def is_small(self) -> bool:
        return whole(self.target) in SMALL


def whole(name: str) -> str:
    """The set of which a name has some classes, or all."""
    return name.partition(":")[0]


def classes_in(name: str) -> list[int]:
    """The classes of a set that a name has; none if they cannot be read."""
    if ":" not in name:
        return list(range(classes_of(name)))
    classes: list[int] = []
    for span in name.partition(":")[2].split(","):
        first, _, last = span.partition("-")
        if not (first.isdigit() and (last or first).isdigit()):
            return []
        classes += range(int(first), int(last or first) + 1)
    return classes


def classes_of(name: str) -> int:
    if ":" in name:
        return len(classes_in(name))
    return SMALL[name] if name in SMALL else PUBLIC[name].classes


# what is trained on


def added(config: UnionConfig) -> list[str]:
    """Tasks that the whole union adds to the first set. A first set that is no task stands in for the first task."""
    tasks = config.tasks.split("+")
    return [name for name in tasks if name != config.sets[0]] if config.sets[0] in tasks else tasks[1:]


def size(config: UnionConfig, name: str) -> int:
    """Training pictures of a set; one of noise has as many as all that are added to the first."""
    if ":" in name:
        return round(size(config, whole(name)) * classes_of(name) / classes_of(whole(name)))
    if config.is_small:
        return config.n_train
    most = sum(PUBLIC[other].pictures for other in added(config)) if name == "noise" else PUBLIC[name].pictures
    return min(config.n_train, most)


def first_size(config: UnionConfig) -> int:
    """Pictures of the first set that are pre-trained on."""
    n = size(config, config.sets[0])
    return n if config.share == 1 else max(2, round(config.share * n))


def updates(config: UnionConfig, n: int) -> int:
    """Optimiser steps of pre-training on n pictures."""
    if config.length == "none":
        return 1
    first = first_size(config)
    seen = {"own": n, "longest": first + sum(size(config, name) for name in added(config)), "shortest": first,
        "early": max(1, first // 8)}[config.length]
    return config.epochs * math.ceil(seen / config.batch_size)


def pictures(config: UnionConfig, name: str, *, place: int = 0, classes: int | None = None) -> "data.TensorData":
    """A set with its labels: pictures in [0, 1], or bytes of public ones. Noise differs from place to place."""
    if ":" in name:
        return some_classes(pictures(config, whole(name)), classes_in(name), name, config.dtype)
    if name == "noise":
        return noise(config, place)
    seed, n = config.streams.data, size(config, name)
    if config.is_small:
        kind: Any = name
        return data.small_pictures(kind, n, config.n_test, classes=classes, seed=seed, dtype=config.dtype)
    rows: dict[str, Any] = {"n_train": n}
    if name == "gtsrb" and n == PUBLIC[name].pictures:
        rows = {"per_class": SIGNS_A_CLASS, "change": data.Warps()}
    n_test = None if classes else config.n_test  # a set of few classes may have fewer test pictures than others
    return data.public_pictures(name, config.edge, n_test=n_test, classes=classes, seed=seed, **rows)


def imitated(config: UnionConfig, place: int) -> list[str]:
    """The sets whose moments the noise at this place of the union has.

    Sets of noise divide among them the sets that the whole union adds; noise outside of the union is like the target.
    """
    others = [name for name in added(config) if name != "noise"]
    if not 0 < place < len(config.sets) or not others:
        return [config.target]
    return others[(place - 1) % len(others) :: config.sets.count("noise")]


def noise(config: UnionConfig, place: int) -> "data.TensorData":
    """Gaussian pictures with the mean and covariance of the pixels of the sets that they stand for, in one class.

    Where pictures are bytes, these are rounded and cut off at 0 and 255, which changes the moments a little.
    """
    names, n = imitated(config, place), size(config, "noise")
    ends = [0, *itertools.accumulate(size(config, name) for name in names)]
    parts = []
    for name, (first, last) in zip(names, itertools.pairwise(round(n * end / ends[-1]) for end in ends), strict=True):
        like = pictures(config.but(n_train=min(config.n_train, MOMENTS)), name).labelled[0]
        own = like if config.is_small else like.double()
        for start in range(first, last, MOMENTS):
            count, drawn = min(MOMENTS, last - start), f"noise {place} {name} {start}"
            if len(own) < own[0].numel():
                x = mixed(own, data.stream(config.streams.data, drawn).standard_normal((count, len(own))))
            else:
                x = data.gaussians_like(own, count, "covariance", seed=config.streams.data, name=drawn)
            parts.append(x if config.is_small else x.round().clamp(0, 255).to(like.dtype))
    x = torch.cat(parts)
    return data.TensorData((x, torch.zeros(len(x), dtype=torch.int64)), dtype=config.dtype, name="noise")


def mixed(x: "torch.Tensor", normal: "np.ndarray") -> "torch.Tensor":
    """Gaussians with the mean and covariance of x, as sums of its rows: of few rows a covariance has few directions."""
    rows, chance = x.flatten(1), torch.from_numpy(normal).to(x)
    mean = rows.mean(0)
    return (mean + chance @ (rows - mean) / math.sqrt(len(rows))).view(-1, *x.shape[1:])


def some_classes(task: Any, classes: list[int], name: str, dtype: Any) -> "data.TensorData":
    """The pictures of these classes, which are numbered anew in this order."""
    parts, order = [], torch.tensor(classes)
    for x, y in (task.labelled, task.test):
        inside = torch.isin(y, order)
        parts.append((x[inside], (y[inside, None] == order).int().argmax(1)))
    return data.TensorData(*parts, dtype=dtype, name=name)


def union_of(config: UnionConfig) -> "data.TensorData":
    """The pictures that are pre-trained on, in batches of two views."""
    parts = []
    for place, name in enumerate(config.sets):
        last = place == len(config.sets) - 1 and place > 0
        part = pictures(config, name, place=place, classes=config.classes if last else None)
        if not place and config.share < 1:
            x, y = part.train
            part.train = x[: first_size(config)], y[: first_size(config)]
        if config.portion < 1:
            x, y = part.train
            part.train = x[: max(2, round(config.portion * len(x)))], y[: max(2, round(config.portion * len(x)))]
        parts.append(part)
    order = stream_seed(config.seed, f"order {config.repeat}")
    return data.union(parts, batch_size=config.batch_size, order_seed=order, augment=views(config), dtype=config.dtype)


def views(config: UnionConfig, clean: bool = False) -> Any:
    """Two views of each picture; where clean, behind the picture itself."""
    change = data.SmallChanges() if config.is_small else data.simsiam_change(config.edge)
    return data.Views(change, clean=clean, shuffled=config.control == "shuffled_pairs")


# networks and their pre-training


def encoder(config: UnionConfig) -> Any:
    """A network from pictures to features."""
    seed = stream_seed(config.seed, f"init {config.repeat}")
    if config.net == "mlp":
        sizes = (config.edge**2 * (1 if config.is_small else 3), *config.hidden, config.width)
        if config.normalised:
            body = nets.projector(sizes, batch_norm=True, seed=seed, dtype=config.dtype)
            return torch.nn.Sequential(torch.nn.Flatten(), body)
        return nets.perceptron(sizes, seed=seed, dtype=config.dtype)
    channels = config.fold**2 * (1 if config.is_small else 3)
    options: dict[str, Any] = {"channels": channels, "seed": seed, "dtype": config.dtype}
    if config.net == "resnet18":
        trunk = nets.resnet18(2, width=config.width // 8, **options).trunk
    else:
        widths = (config.width // 4, config.width // 2, config.width)
        trunk = nets.resnet(2, depths=(1, 1, 1), widths=widths, **options).trunk
    return trunk if config.fold == 1 else torch.nn.Sequential(torch.nn.PixelUnshuffle(config.fold), trunk)


def siamese(config: UnionConfig) -> "nets.Siamese":
    """An encoder with the heads of its pre-training method."""
    heads = HEADS[config.net][config.method]
    normed = config.method in ("simsiam", "nnclr")
    seed = stream_seed(config.seed, f"heads {config.repeat}")
    projector = predictor = None
    if heads.projector:
        projector = nets.projector((config.width, *heads.projector), batch_norm=normed or config.normalised,
            last_norm=normed, seed=seed, dtype=config.dtype)
    if heads.predictor:
        sizes = (heads.projector[-1], *heads.predictor)
        predictor = nets.projector(sizes, batch_norm=True, seed=seed + 1, dtype=config.dtype)
    return nets.Siamese(encoder(config), projector, predictor)


def optimizer(config: UnionConfig, lr: float) -> Any:
    if config.optimizer == "sgd":
        return learners.sgd(lr, momentum=0.9, weight_decay=config.weight_decay)
    return learners.adamw(lr, weight_decay=config.weight_decay)


def contrast(config: UnionConfig, net: "nets.Siamese", lr: float, epochs: int, method: str | None = None,
        warmup: int = 0) -> Any:
    """The learner of a pre-training method."""
    method, schedule = method or config.method, learners.cosine_schedule(epochs, min(warmup, epochs - 1))
    options: dict[str, Any] = {"optimizer": optimizer(config, lr), "schedule": schedule}
    if method == "simsiam":
        return learners.SimSiam(net, **options)
    options["temperature"] = config.temperature
    if method == "nt_xent":
        return learners.NTXent(net, **options)
    options |= {"width": [config.width, *HEADS[config.net][method].projector][-1], "size": config.queue,
        "seed": stream_seed(config.seed, "queue"), "symmetric": config.symmetric}
    if method == "nnclr":
        return learners.NNCLR(net, **options)
    return learners.MoCo(net, momentum=config.momentum, groups=config.groups, **options)


def pretrained(config: UnionConfig, recorder: Any) -> "nets.Siamese":
    """A network after its pre-training."""
    task, net = union_of(config), siamese(config)
    steps = updates(config, len(task.train[0]))
    batches = math.ceil(len(task.train[0]) / config.batch_size)
    learner = contrast(config, net, config.lr, max(1, math.ceil(steps / batches)), warmup=config.warmup)
    if config.length == "none":
        with learners.withheld_updates():
            fit(learner, task, config, recorder, steps=1)
    else:
        fit(learner, task, config, recorder, steps=steps)
    history = learner.loss_history
    recorder.log({"loss/first": history[0].item(), "loss/pretraining": history[-20:].mean().item()}, step=steps)
    return net


def cost(config: UnionConfig) -> Cost:
    """Forward and backward passes of pre-training on two views, and the pictures in memory."""
    each = [first_size(config), *(size(config, name) for name in config.sets[1:])]
    steps = updates(config, sum(each))
    if config.net == "resnet18":
        scale = (config.width / 512) ** 2
        parameters, products = 11.2e6 * scale, 0.56e9 * scale / config.fold**2
    elif config.net == "small":
        parameters, products = 19.0 * config.width**2, 4.0 * (config.width * config.edge / config.fold) ** 2
    else:
        sizes = [config.edge**2, *config.hidden, config.width]
        parameters = products = float(sum(a * b for a, b in itertools.pairwise(sizes)))
    tuned_pictures = config.tune * 5 * len(config.tune_labels) * config.tune_steps * 3 * config.tune_batch
    flops = 6.0 * products * (2 * config.batch_size * steps + tuned_pictures)
    pixels = sum(each) * config.edge**2 * (4.0 if config.is_small else 3.0)
    memory = pixels + 16.0 * parameters + 4e3 * config.batch_size * config.edge**2
    needed = () if config.is_small else tuple(dict.fromkeys([*config.sets, *config.tasks.split("+"), config.target]))
    return Cost(int(parameters), flops, memory, steps, tuple(name for name in needed if name in PUBLIC))
