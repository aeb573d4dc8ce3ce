"""What Tables 7.2, F.6, F.7 and F.8 share: settings, labelled samples, the gains of one method over another."""

from typing import Any, Literal, NamedTuple

from featurelab.pipelines import (
    CATEGORIES, Field, TrainedConfig, above, band, bars, data, legend_below, measures, np, printed_table, stream_seed,
    torch,
)

SHARES = (0.01, 0.05, 0.1, 0.2, 1.0)  # of labels, as printed


class Method(NamedTuple):
    """A method as the figure names it, and as the paper prints it; empty where the paper has none."""

    label: str
    printed: str = ""


class FoundationConfig(TrainedConfig):
    control: Literal["none", "permuted_labels", "untrained", "shuffled_pairs"] = Field(  # type: ignore[assignment]
        "none", description="what is destroyed; shuffled_pairs: positive pairs of fine-tuning are of two samples"
    )
    family: Literal["stand-in", "CLIP", "MoCo v3", "SimCSE", "MobileNet"] = Field("stand-in",
        description="the frozen encoder")
    model: str | None = Field(None,
        description="a published encoder: a folder or a name; none: one that is pre-trained here")
    weights: Literal["auto", "float32", "float16", "bfloat16"] = Field("auto",
        description="type of a published encoder's numbers; auto: float16 on a GPU where it is frozen")
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


def descended(config: FoundationConfig, H: Any, y: Any, test: Any) -> float:
    """Test accuracy of a linear probe trained by SGD."""
    guess = measures.sgd_probe(H, y, test[0], lr=config.probe_lr, epochs=config.epochs, batch_size=config.batch_size,
        seed=stream_seed(config.seed, "probe"))
    return float((guess == test[1].numpy()).mean())


def tables(runs: Any) -> list[tuple[str, str, Any]]:
    """Family, set and trials of each table that was run."""
    return [(family, task, runs.where(family=family, tasks=tasks)) for family in runs.values("family")
        for tasks in runs.where(family=family).values("tasks") for task in tasks.split("+")]


def percents(runs: Any) -> list[int]:
    (shares,) = {tuple(shares) for shares in runs.trials.shares}
    return [percent(share) for share in shares]


def gains(runs: Any, method: str, over: str) -> "np.ndarray":
    """Accuracy of one method less that of another: one row a table, one column a share of labels."""
    return np.array([[some.at(f"{task}/{method}", p) - some.at(f"{task}/{over}", p) for p in percents(runs)]
        for _, task, some in tables(runs)])


def gains_with_all_labels(runs: Any, lp: str, ft: str, cr: str) -> dict[str, float]:
    over_ft, over_lp = (float(gains(runs, *pair)[:, -1].mean()) for pair in ((cr, ft), (ft, lp)))
    return {"CR_over_FT": over_ft, "FT_over_LP": over_lp}


ORDER = {"CR_over_FT": above(0), "FT_over_LP": above(0)}


def draw_tables(runs: Any, axes: Any, methods: dict[str, Method], shown: tuple[str, ...], encoders: Any) -> None:
    """Mean accuracy by the share of labels; and with all labels, set by set, the methods `shown`, and the paper's."""
    left, right = axes[0]
    colors = dict(zip(methods, [*CATEGORIES, "gray"], strict=False))
    tables_f: Any = printed_table(__file__, "tables_f_6_to_f_8.csv")
    printed = [row for row in tables_f if row["encoder"] in encoders]
    columns = [str(percent(share)) for share in SHARES]
    own, at = tables(runs), percents(runs)
    for method, color in colors.items():
        table = np.mean([some.curves(f"{task}/{method}") for _, task, some in own], axis=0)
        label = methods[method].label
        band(left, table, at, color=color, marker="o", markersize=3.5, shade=0.1, label=label)
        if rows := [row for row in printed if row["method"] == methods[method].printed]:
            mean = np.mean([[row[column] for column in columns] for row in rows], axis=0) / 100
            left.plot([int(column) for column in columns], mean, "x:", color=color, markersize=4, linewidth=0.9)
    left.plot([], [], "x:", color="gray", markersize=4, linewidth=0.9, label="paper")
    left.set_xscale("log")
    left.set_xticks(at, [str(p) for p in at])
    left.minorticks_off()
    left.set(xlabel="labelled share (%)", ylabel="test accuracy, mean of sets")
    names = [task if family == "stand-in" else f"{family}\n{task}" for family, task, _ in own]
    for place, method in enumerate(shown):
        look = {"color": colors[method], "linestyle": "none"}
        table = np.array([some.curves(f"{task}/{method}").loc[at[-1]].to_numpy() for _, task, some in own])
        bars(right, table, np.arange(len(own)) + 0.2 * (place - 1), label=methods[method].label, **look)
        rows = [row for row in printed if row["method"] == methods[method].printed]
        xs = np.arange(len(own), len(own) + len(rows)) + 0.2 * (place - 1)
        right.plot(xs, [row["100"] / 100 for row in rows], marker="x", markersize=5, **look)
    right.axvline(len(own) - 0.5, color="gray", linewidth=0.8)
    right.annotate("paper", (len(own) - 0.4, 1.01), xycoords=("data", "axes fraction"))
    names += [f"{row['encoder']}\n{row['set']}" for row in rows]
    right.set_xticks(range(len(names)), names, fontsize=8)
    right.set(ylabel="test accuracy, all labels")
    legend_below(axes)
