"""What a pre-trained network is good for: linear probes, fine-tuning with and without contrast, further pre-training.

Labelled pictures are drawn in turn of each class. What is trained further is a copy of the network.
"""

import copy
import math
from typing import Any, Literal, NamedTuple

from featurelab.pipelines import data, fit, learners, measures, nets, np, stream_seed, torch
from featurelab.pipelines.contrastive_tradeoff.pretrained.pretraining import (
    UnionConfig, added, classes_of, contrast, optimizer, pictures, pretrained, views,
)


class Tuning(NamedTuple):
    """A way of fine-tuning: whether a contrastive loss is added, where labels are learned, what the views are of."""

    contrast: bool
    shown: Literal["clean", "view", "both"] = "clean"
    unrelated: bool = False


TUNINGS = {"ft": Tuning(False), "cr": Tuning(True), "ft_views": Tuning(False, "both"), "cr_views": Tuning(True, "both"),
    "cr_others": Tuning(True, unrelated=True), "ft_view": Tuning(False, "view"), "cr_view": Tuning(True, "view")}


def train(config: UnionConfig, recorder: Any) -> None:
    """Pre-train a network, then measure it."""
    net = pretrained(config, recorder)
    target = labelled(config, config.target, recorder)
    on_target = features(net, target)
    recorder.array("features", target=on_target[1].numpy(), labels=target.test[1].numpy())
    counts = dict.fromkeys(min(n, len(target.train[0])) for n in config.labels)
    values = {f"target/{n}": probed(config, target, on_target, n) for n in counts}
    accuracies = {}
    for name in config.tasks.split("+"):
        task = target if name == config.target else labelled(config, name, recorder)
        few = min(config.few, len(task.train[0]))
        accuracies[name] = values[f"task/{name}"] = probed(config, task, features(net, task), few)
    classes = {name: classes_of(name) for name in accuracies}
    values["average"] = measures.weighted_accuracy(accuracies, classes)
    values["silhouette/target"] = measures.silhouette(on_target[1], target.test[1])
    recorder.log(values, step=0)
    if config.tune:
        recorder.log(tuned(config, net, target, recorder), step=0)
    if config.adapt:
        recorder.log(adapted(config, net, target, recorder), step=0)


def labelled(config: UnionConfig, name: str, recorder: Any) -> "data.TensorData":
    """The labelled pictures of a set, which the record names."""
    task = pictures(config, name)
    recorder.dataset(f"{name} probed", task.digest()[:32], task.describe())
    return task


def features(net: Any, task: Any) -> "tuple[torch.Tensor, torch.Tensor]":
    """Features of training and test pictures."""
    return embedded(net, task.train[0]), embedded(net, task.test[0])


def embedded(net: Any, x: "torch.Tensor", chunk: int = 1024) -> "torch.Tensor":
    device, mode = next(net.parameters()).device, net.training
    net.eval()
    with torch.no_grad():
        parts = [part.to(device) for part in x.split(chunk)]
        H = [net.features(part if part.is_floating_point() else part.float() / 255).cpu() for part in parts]
    net.train(mode)
    return torch.cat(H)


def drawn(config: UnionConfig, task: Any, n: int) -> "list[torch.Tensor]":
    """The rows of n labelled pictures, for each draw."""
    labels = task.train[1].numpy()
    draws = config.draws if n < len(labels) else 1
    seed = stream_seed(config.seed, "labels")
    orders = [data.balanced_order(labels, data.stream(seed, f"{task.name} {draw}")) for draw in range(draws)]
    return [torch.from_numpy(order[:n].copy()) for order in orders]


def probed(config: UnionConfig, task: Any, H: Any, n: int) -> float:
    """Test accuracy of a linear probe on n labelled pictures, averaged over draws."""
    return float(np.mean([probed_on(config, task, H, rows) for rows in drawn(config, task, n)]))


def probed_on(config: UnionConfig, task: Any, H: Any, rows: "torch.Tensor") -> float:
    """Test accuracy of a linear probe on these labelled pictures; H are training and test features."""
    given = H[0][rows], task.train[1][rows], H[1]
    if config.probe == "logistic":
        guess = measures.linear_probe(*given, ridge=config.ridge, scale="rows")
    else:
        guess = measures.sgd_probe(*given, lr=config.probe_lr, seed=stream_seed(config.seed, "probe"))
    return float((guess == task.test[1].numpy()).mean())


def unrelated_sets(config: UnionConfig) -> tuple[str, str]:
    """Sets with which the target's pictures are compared in further training."""
    public = "mnist" if "mnist" in added(config) else "svhn"
    return ("shapes" if config.is_small else public, "noise")


def tuned(config: UnionConfig, net: Any, target: Any, recorder: Any) -> dict[str, float]:
    """Test accuracies of a probe and of each way of fine-tuning on the same labels, and silhouettes of the classes."""
    values: dict[str, float] = {}
    last: dict[str, Any] = {}  # features of test pictures with the most labels
    unrelated = pictures(config, unrelated_sets(config)[0])
    H = features(net, target)
    for n in config.tune_labels:
        rows = drawn(config, target, n)[0]
        values[f"tuned/lp/{n}"] = probed_on(config, target, H, rows)
        for name, way in TUNINGS.items():
            x, y = target.train[0][rows], target.train[1][rows]
            if way.unrelated:
                x = torch.stack([x, unrelated.train[0][: len(x)]], dim=1)
            task = data.TensorData((x, y), target.test, batch_size=config.tune_batch, order_seed=config.streams.order,
                augment=views(config, clean=True), dtype=config.dtype, name=f"{target.name} {n} {name}")
            learner = classifier(config, net, len(rows), config.strength * way.contrast, way.shown)
            fit(learner, task, config, recorder, steps=tune_steps(config, len(rows)))
            tuned_net = learner.net.eval()
            last[name] = embedded(tuned_net.siamese, target.test[0])
            with torch.no_grad():
                guess = tuned_net.head(last[name].to(next(tuned_net.parameters()).device)).argmax(1).cpu()
            values[f"tuned/{name}/{n}"] = (guess == target.test[1]).double().mean().item()
            values[f"silhouette/{name}/{n}"] = measures.silhouette(last[name], target.test[1])
    recorder.array("tuned", **{name: features.numpy() for name, features in last.items()})
    return values


def tune_steps(config: UnionConfig, n: int) -> int:
    """Updates of fine-tuning on n pictures."""
    if config.tune_epochs is None:
        return config.tune_steps
    return config.tune_epochs * math.ceil(n / config.tune_batch)


def classifier(config: UnionConfig, net: Any, n: int, strength: float, shown: Any) -> Any:
    """The learner that fine-tunes a copy of the network with a fresh head and projector."""
    copied = copy.deepcopy(net)
    seed = stream_seed(config.seed, "fine-tuning")
    as_pretrained = config.method == "moco" and not config.is_small
    if not as_pretrained:
        copied.projector = nets.projector((config.width, 64, 32), seed=seed, dtype=config.dtype)
    head = nets.projector((config.width, classes_of(config.target)), seed=seed + 1, dtype=config.dtype)
    epochs = math.ceil(tune_steps(config, n) / math.ceil(n / config.tune_batch))
    method = "moco" if as_pretrained else "nt_xent"
    settings = config if as_pretrained else config.but(temperature=0.5)
    regulariser = contrast(settings, copied, config.tune_lr, epochs, method)
    options: dict[str, Any] = {"optimizer": optimizer(config, config.tune_lr)}
    if config.optimizer == "sgd":
        options["schedule"] = learners.cosine_schedule(epochs)
    return learners.ContrastivelyRegularised(regulariser, head, strength=strength, shown=shown, **options)


def adapted(config: UnionConfig, net: Any, target: Any, recorder: Any) -> dict[str, float]:
    """Gains of the probe with few labels by further pre-training on unlabelled pictures of the target and of others."""
    values = {}
    few = min(config.few, len(target.train[0]))
    before = probed(config, target, features(net, target), few)
    for name in ("target", *unrelated_sets(config)):
        task = pictures(config, config.target if name == "target" else name, place=9)
        unlabelled = data.union([task], batch_size=config.batch_size, order_seed=config.streams.order,
            augment=views(config), dtype=config.dtype)
        further = copy.deepcopy(net)
        learner = contrast(config, further, config.tune_lr, config.adapt_epochs)
        fit(learner, unlabelled, config, recorder, epochs=config.adapt_epochs)
        values[f"gain/{name}"] = probed(config, target, features(further, target), few) - before
    return values | {"gain/base": before}


def fine_tuned(config: Any, recorder: Any, task: Any, encoder: Any, width: int, classes: int, contrast: Any,
        optimizer: Any, strength: float, **options: Any) -> Any:
    """An encoder to `width` features, and a linear head, after fine-tuning on batches of (n, 3, ...) or (n, 4, ...)."""
    siamese = nets.Siamese(encoder)
    head = nets.projector((width, classes), seed=stream_seed(config.seed, "head"), dtype=config.dtype)
    learner = learners.ContrastivelyRegularised(contrast(siamese, temperature=config.temperature, optimizer=optimizer),
        head, strength=strength, shown="own", optimizer=optimizer, **options)
    fit(learner, task, config, recorder, epochs=config.epochs)
    return learner.net.eval()


def accuracy(net: Any, x: "torch.Tensor", y: "torch.Tensor", at_once: int = 1024) -> float:
    device = next(net.parameters()).device
    with torch.no_grad():
        guess = torch.cat([net(part.to(device)).argmax(1).cpu() for part in x.split(at_once)])
    return (guess == y).double().mean().item()
