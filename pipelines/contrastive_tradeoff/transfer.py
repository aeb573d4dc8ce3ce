"""What a pre-trained network is good for: linear probes, fine-tuning with and without contrast, further pre-training.

Labelled pictures are drawn in turn of each class. The network is not changed by any of it: what is trained further is
a copy.
"""

import copy
import math
from typing import Any

from featurelab.pipelines import data, fit, learners, measures, nets, np, stream_seed, torch
from featurelab.pipelines.contrastive_tradeoff.pretraining import (
    UnionConfig,
    classes_of,
    contrast,
    optimizer,
    pictures,
    pretrained,
    views,
)

# fine-tuning: (strength is used, pictures that labels are learned on, where the views are from)
TUNINGS = {
    "ft": (False, "clean", "target"), "cr": (True, "clean", "target"), "ft_views": (False, "both", "target"),
    "cr_views": (True, "both", "target"), "cr_others": (True, "clean", "others"),
}
OTHERS = {True: ("shapes", "noise"), False: ("svhn", "noise")}  # sets that further pre-training is compared on


def train(config: UnionConfig, recorder: Any) -> None:
    """Pre-train, then measure."""
    net = pretrained(config, recorder)
    target = labelled(config, config.target, recorder)
    found = features(net, target)
    recorder.array("features", target=found[1].numpy(), labels=target.test[1].numpy())
    values = {f"target/{n}": probed(config, target, found, n) for n in counts(config, target)}
    accuracies = {}
    for name in config.tasks.split("+"):
        task = target if name == config.target else labelled(config, name, recorder)
        few = min(config.few, len(task.train[0]))
        accuracies[name] = probed(config, task, features(net, task), few)
        values[f"task/{name}"] = accuracies[name]
    values["average"] = measures.weighted_accuracy(accuracies, {name: classes_of(name) for name in accuracies})
    values["silhouette/target"] = measures.silhouette(found[1], target.test[1])
    recorder.log(values, step=0)
    if config.tune:
        recorder.log(tuned(config, net, target, recorder), step=0)
    if config.adapt:
        recorder.log(adapted(config, net, target, recorder), step=0)


def labelled(config: UnionConfig, name: str, recorder: Any) -> "data.TensorData":
    """The pictures of a set that probes learn on, with their labels, which the record names."""
    task = pictures(config, name)
    recorder.dataset(f"{name} probed", task.digest()[:32], task.describe())
    return task


def counts(config: UnionConfig, task: Any) -> list[int]:
    """Numbers of labelled pictures that there are."""
    return list(dict.fromkeys(min(n, len(task.train[0])) for n in config.labels))


def features(net: Any, task: Any) -> "tuple[torch.Tensor, torch.Tensor]":
    """Of training and test pictures."""
    return embedded(net, task.train[0]), embedded(net, task.test[0])


def embedded(net: Any, x: "torch.Tensor", chunk: int = 1024) -> "torch.Tensor":
    device, mode = next(net.parameters()).device, net.training
    net.eval()
    with torch.no_grad():
        parts = [part.to(device) for part in x.split(chunk)]
        found = [net.features(part if part.is_floating_point() else part.float() / 255).cpu() for part in parts]
    net.train(mode)
    return torch.cat(found)


def drawn(config: UnionConfig, task: Any, n: int) -> "list[torch.Tensor]":
    """Rows of n labelled pictures, as often as they are drawn."""
    labels = task.train[1].numpy()
    draws = config.draws if n < len(labels) else 1
    seed = stream_seed(config.seed, "labels")
    orders = [data.balanced_order(labels, data.stream(seed, f"{task.name} {draw}")) for draw in range(draws)]
    return [torch.from_numpy(order[:n].copy()) for order in orders]


def probed(config: UnionConfig, task: Any, found: Any, n: int) -> float:
    """Test accuracy of a linear probe on n labelled pictures, averaged over draws."""
    return float(np.mean([probed_on(config, task, found, rows) for rows in drawn(config, task, n)]))


def probed_on(config: UnionConfig, task: Any, found: Any, rows: "torch.Tensor") -> float:
    """Test accuracy of a linear probe on these labelled pictures."""
    (train_features, test_features), y = found, task.train[1]
    if config.probe == "logistic":
        guess = measures.linear_probe(train_features[rows], y[rows], test_features, ridge=config.ridge, scale="rows")
    else:
        seed = stream_seed(config.seed, "probe")
        guess = measures.sgd_probe(train_features[rows], y[rows], test_features, lr=config.probe_lr, seed=seed)
    return float((guess == task.test[1].numpy()).mean())


def tuned(config: UnionConfig, net: Any, target: Any, recorder: Any) -> dict[str, float]:
    """Test accuracy of a probe, and after fine-tuning in each way, on the same labels; how far apart classes lie."""
    values: dict[str, float] = {}
    kept: dict[str, Any] = {}
    unrelated = pictures(config, OTHERS[config.is_small][0])
    found = features(net, target)
    for n in config.tune_labels:
        rows = drawn(config, target, n)[0]
        values[f"tuned/lp/{n}"] = probed_on(config, target, found, rows)
        for name, (with_contrast, shown, source) in TUNINGS.items():
            x, y = target.train[0][rows], target.train[1][rows]
            if source == "others":
                x = torch.stack([x, unrelated.train[0][: len(x)]], dim=1)
            task = data.TensorData(
                (x, y), target.test, batch_size=config.tune_batch, order_seed=config.streams.order,
                augment=views(config, clean=True), dtype=config.dtype, name=f"{target.name} {n} {name}",
            )
            learner = classifier(config, net, len(rows), config.strength * with_contrast, shown)
            fit(learner, task, config, recorder, steps=tune_steps(config, len(rows)))
            tuned_net = learner.net.eval()
            H = embedded(tuned_net.siamese, target.test[0])
            with torch.no_grad():
                guess = tuned_net.head(H.to(next(tuned_net.parameters()).device)).argmax(1).cpu()
            values[f"tuned/{name}/{n}"] = (guess == target.test[1]).double().mean().item()
            values[f"silhouette/{name}/{n}"] = measures.silhouette(H, target.test[1])
            if n == config.tune_labels[-1]:
                kept[name] = H.numpy()
    recorder.array("tuned", **kept)
    return values


def tune_steps(config: UnionConfig, n: int) -> int:
    """Updates of fine-tuning on n pictures."""
    if config.tune_epochs is None:
        return config.tune_steps
    return config.tune_epochs * math.ceil(n / config.tune_batch)


def classifier(config: UnionConfig, net: Any, n: int, strength: float, shown: Any) -> Any:
    """The learner that fine-tunes a copy of the network with a fresh head and projector."""
    copied = copy.deepcopy(net)
    width = config.width
    seed = stream_seed(config.seed, "fine-tuning")
    if config.is_small or config.method != "moco":
        copied.projector = nets.projector((width, 64, 32), seed=seed, dtype=config.dtype)
    head = nets.projector((width, classes_of(config.target)), seed=seed + 1, dtype=config.dtype)
    epochs = math.ceil(tune_steps(config, n) / math.ceil(n / config.tune_batch))
    beside = "moco" if config.method == "moco" and not config.is_small else "nt_xent"
    regulariser = contrast(
        config.but(temperature=0.5) if beside == "nt_xent" else config, copied, config.tune_lr, epochs, beside
    )
    options: dict[str, Any] = {"optimizer": optimizer(config, config.tune_lr)}
    if config.optimizer == "sgd":
        options["schedule"] = learners.cosine_schedule(epochs)
    return learners.ContrastivelyRegularised(regulariser, head, strength=strength, shown=shown, **options)


def adapted(config: UnionConfig, net: Any, target: Any, recorder: Any) -> dict[str, float]:
    """Gain of the probe with few labels by further pre-training on unlabelled pictures of the target, and of others."""
    values = {}
    few = min(config.few, len(target.train[0]))
    before = probed(config, target, features(net, target), few)
    for name in ("target", *OTHERS[config.is_small]):
        task = pictures(config, config.target if name == "target" else name, place=9)
        learning = data.union(
            [task], batch_size=config.batch_size, order_seed=config.streams.order, augment=views(config),
            dtype=config.dtype,
        )
        further = copy.deepcopy(net)
        learner = contrast(config, further, config.tune_lr, config.adapt_epochs)
        fit(learner, learning, config, recorder, epochs=config.adapt_epochs)
        values[f"gain/{name}"] = probed(config, target, features(further, target), few) - before
    return values | {"gain/base": before}
