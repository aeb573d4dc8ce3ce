"""What the tables on frozen foundation models share: shares of labels, fine-tuning with and without contrast, cells.

A cell is a model, a dataset, a method and a share of the labels. Methods: a linear probe on frozen features (LP);
fine-tuning (FT) with the classification loss; contrastive regularisation (CR), which adds lambda times a contrastive
loss on views of the same samples. CR stands beside the same loss on views of unrelated samples.

Not stated and inferred: labelled samples are drawn in turn of each class; FT and CR learn labels on the same views; the
temperatures are those of SimCLR (0.5) and SimCSE (0.05).
"""

from typing import Any, Literal

from featurelab.pipelines import (
    CATEGORIES,
    Field,
    TrainedConfig,
    above,
    band,
    bars,
    data,
    fit,
    learners,
    measures,
    nets,
    np,
    stream_seed,
    torch,
)
from featurelab.pipelines.contrastive_tradeoff.printed_pictures import FOUNDATION, FOUNDATION_FEW

CONTROLS = ("permuted_labels", "untrained", "shuffled_pairs")
SHARES, PERCENTS = (0.01, 0.05, 0.1, 0.2, 1.0), (1, 5, 10, 20, 100)  # of labels, as printed


class FoundationConfig(TrainedConfig):
    control: Literal["none", "permuted_labels", "untrained", "shuffled_pairs"] = Field(  # type: ignore[assignment]
        "none", description="what is destroyed; shuffled_pairs: positive pairs of fine-tuning are of two samples"
    )
    family: Literal["stand-in", "CLIP", "MoCo v3", "SimCSE"] = Field("stand-in", description="the frozen encoder")
    model: str | None = Field(
        None, description="a published encoder: a folder or a name; none: one that is pre-trained here"
    )
    weights: Literal["auto", "float32", "float16", "bfloat16"] = Field(
        "auto", description="type of a published encoder's numbers; auto: float16 on a GPU where it is frozen"
    )
    tasks: str = Field("digits", description="sets that labels are learned on, each by itself, joined by +")
    others: str = Field("gratings", description="the set of unrelated samples")
    n_train: int = Field(1000, ge=2, description="training samples of each set; at most as many as there are")
    n_test: int | None = Field(None, ge=1, description="test samples of each set; none: all that are left")
    shares: tuple[float, ...] = Field(SHARES, min_length=1, description="shares of labelled samples")
    encoder_width: int = Field(64, ge=4, multiple_of=4, description="features of the encoder that is pre-trained here")
    pretraining_epochs: int = Field(30, ge=1, description="its passes over its union")
    lr: float = Field(0.06, gt=0, description="learning rate of fine-tuning, before the schedule where there is one")
    probe_lr: float = Field(5.0, gt=0, description="learning rate of the linear probe")
    weight_decay: float = Field(5e-4, ge=0, description="weight decay of fine-tuning")
    batch_size: int = Field(256, ge=2, description="labelled samples in a batch")
    epochs: int = Field(200, ge=1, description="passes over the labelled samples, also of the probe")
    strength: float = Field(1.0, ge=0, description="lambda: weight of the contrastive loss")
    temperature: float = Field(0.5, gt=0, description="of the contrastive loss")


def published_on(config: FoundationConfig) -> tuple[str, str]:
    """Where a published encoder computes, and the type of its numbers where it is frozen."""
    device = "cuda" if config.device != "cpu" and torch.cuda.is_available() else "cpu"
    kind = config.weights if config.weights != "auto" else "float16" if device == "cuda" else "float32"
    return device, kind


def percent(share: float) -> int:
    return round(100 * share)


def labelled(config: FoundationConfig, y: "torch.Tensor", share: float, name: str) -> "torch.Tensor":
    """Rows of the labelled samples, in turn of each class; those of a smaller share are among them."""
    order = data.balanced_order(y.numpy(), data.stream(stream_seed(config.seed, "labels"), name))
    return torch.from_numpy(order[: max(2, round(share * len(y)))].copy())


def fine_tuned(config: FoundationConfig, recorder: Any, task: Any, encoder: Any, width: int, classes: int,
    contrast: Any, optimizer: Any, strength: float, **options: Any) -> Any:
    """An encoder to `width` features, and a linear head, after fine-tuning on batches of (n, 3, ...) or (n, 4, ...)."""
    siamese = nets.Siamese(encoder)
    head = nets.projector((width, classes), seed=stream_seed(config.seed, "head"), dtype=config.dtype)
    learner = learners.ContrastivelyRegularised(
        contrast(siamese, temperature=config.temperature, optimizer=optimizer), head, strength=strength, shown="own",
        optimizer=optimizer, **options,
    )
    fit(learner, task, config, recorder, epochs=config.epochs)
    return learner.net.eval()


def accuracy(net: Any, x: "torch.Tensor", y: "torch.Tensor", at_once: int = 1024) -> float:
    device = next(net.parameters()).device
    with torch.no_grad():
        guess = torch.cat([net(part.to(device)).argmax(1).cpu() for part in x.split(at_once)])
    return (guess == y).double().mean().item()


def descended(config: FoundationConfig, H: Any, y: Any, test: Any) -> float:
    """Test accuracy of a linear probe trained by SGD."""
    guess = measures.sgd_probe(
        H, y, test[0], lr=config.probe_lr, epochs=config.epochs, batch_size=config.batch_size,
        seed=stream_seed(config.seed, "probe"),
    )
    return float((guess == test[1].numpy()).mean())


def tables(runs: Any) -> list[tuple[str, str, Any]]:
    """Family, set and trials of each table that was run."""
    found = []
    for family in runs.values("family"):
        own = runs.where(family=family)
        for tasks in own.values("tasks"):
            found += [(family, task, own.where(tasks=tasks)) for task in tasks.split("+")]
    return found


def percents(runs: Any) -> list[int]:
    (shares,) = {tuple(shares) for shares in runs.trials.shares}
    return [percent(share) for share in shares]


def gains(runs: Any, method: str, over: str, at: Any = None) -> "np.ndarray":
    """Accuracy of one method less that of another: one row a table, one column a share of labels."""
    return np.array(
        [[some.at(f"{task}/{method}", p) - some.at(f"{task}/{over}", p) for p in at or percents(runs)]
            for _, task, some in tables(runs)]
    )


ORDER = {"CR_over_FT": above(0), "FT_over_LP": above(0)}


def drawn(runs: Any, axes: Any, methods: Any, shown: Any, names: Any) -> None:
    """Mean accuracy by the share of labels; and with all labels, set by set, LP, FT and CR (`shown`)."""
    left, right = axes[0]
    at, tints = percents(runs), dict(zip(methods, [*CATEGORIES, "#999999"], strict=False))
    for method, (label, printed) in methods.items():
        curves = [some.curves(f"{task}/{method}") for _, task, some in tables(runs)]
        band(left, np.mean(curves, axis=0), at, color=tints[method], marker="o", markersize=3.5, shade=0.1, label=label)
        if printed:
            mean = np.mean([FOUNDATION_FEW[name][printed] for name in names], axis=0) / 100
            left.plot(PERCENTS, mean, color=tints[method], linestyle=":", marker="x", markersize=4, linewidth=0.9)
    left.set_xscale("log")
    left.set_xticks(at, [str(p) for p in at])
    left.minorticks_off()
    left.set(xlabel="labelled share (%)", ylabel="test accuracy, mean of sets")
    left.legend(loc="lower right", ncols=2)
    own = tables(runs)
    for place, method in enumerate(shown):
        off, look = 0.2 * (place - 1), {"color": tints[method], "linestyle": "none"}
        found = np.array([some.curves(f"{task}/{method}").loc[at[-1]].to_numpy() for _, task, some in own])
        bars(right, found, np.arange(len(own)) + off, label=methods[method][0], **look)
        printed = [FOUNDATION[name][place] / 100 for name in names]
        right.plot(len(own) + np.arange(len(names)) + off, printed, marker="x", markersize=5, **look)
    labels = [task if family == "stand-in" else f"{family}\n{task}" for family, task, _ in own]
    right.axvline(len(own) - 0.5, color="#999999", linewidth=0.8)
    right.annotate("paper", (len(own) - 0.4, 0.02), xycoords=("data", "axes fraction"), color="#5b6770")
    right.set_xticks(range(len(own) + len(names)), [*labels, *(_broken(name) for name in names)], fontsize=8)
    right.set(ylabel="test accuracy, all labels")
    low, high = right.get_ylim()
    right.set_ylim(low - 0.12 * (high - low), high)
    right.legend(loc="lower right", ncols=3)


def _broken(name: str) -> str:
    """A printed row's name in two lines."""
    return "\n".join(name.rsplit(" ", 1))
