"""What the drawings on relabelled classes share: distances as heat maps, planes of samples, curves over epochs."""

from typing import TYPE_CHECKING, Any

from featurelab.pipelines import CATEGORIES, heatmap, np

if TYPE_CHECKING:
    from featurelab.pipelines.engine.experiment.results import Results

SNAPSHOTS = (20 / 350, 120 / 350, 240 / 350, 1.0)  # the paper's epochs 20, 120, 240, 349 of 350


def snapshots(kept: Any, shares: Any = SNAPSHOTS) -> list[tuple[float, Any]]:
    """The kept distances nearest to these shares of the training, as (epoch, matrix); never the untrained network's."""
    epochs, matrices = kept["epochs"], kept["matrices"]
    later = np.flatnonzero(epochs > 0)
    places = [later[np.abs(epochs[later] - share * epochs[-1]).argmin()] for share in shares]
    return [(float(epochs[place]), matrices[place]) for place in places]


def distances(axes: Any, kept: Any, prefix: str = "", shares: Any = SNAPSHOTS) -> None:
    """Class distances at snapshots of the training, one axis each; dark is near."""
    for axis, (epoch, matrix) in zip(axes, snapshots(kept, shares), strict=False):
        heatmap(axis, matrix / matrix.max(), f"{prefix}epoch {epoch:g}", "class")
        axis.set_ylabel("class")


def plane(axis: Any, kept: Any, group: int, title: str) -> None:
    """The samples of one coarse label in t-SNE's plane, coloured by the original class; nothing without t-SNE."""
    groups, classes = kept["groups"], kept["classes"]
    if not len(kept["points"]):
        axis.set_visible(False)
        return
    for colour, label in zip(CATEGORIES, np.flatnonzero(groups == group), strict=False):
        x, y = kept["points"][classes == label].T
        axis.scatter(x, y, s=3, color=colour, label=f"class {label}", linewidths=0, rasterized=True)
    _bare(axis, title, "t-SNE 1", "t-SNE 2")
    axis.legend(loc="upper center", bbox_to_anchor=(0.5, -0.12), ncols=2, markerscale=3, columnspacing=0.8)


def principal(axis: Any, kept: Any, title: str) -> None:
    """All samples on two principal directions of H, coloured by the coarse label."""
    owner = kept["groups"][kept["classes"]]
    for group in range(int(owner.max()) + 1):
        x, y = kept["principal"][owner == group].T
        colour = CATEGORIES[group % len(CATEGORIES)]
        axis.scatter(x, y, s=3, color=colour, label=f"label {group}", linewidths=0, rasterized=True)
    _bare(axis, title, "component 1", "component 2")


def over_epochs(axis: Any, runs: "Results", metrics: dict[str, str], **look: Any) -> None:
    """Curves of metrics against the epoch: mean over trials, their range as a band. `metrics` maps names to labels."""
    for (metric, label), colour in zip(metrics.items(), CATEGORIES, strict=False):
        table = runs.curves(metric)
        epochs = in_epochs(runs, table.index)
        axis.plot(epochs, table.mean(axis=1), label=label, **({"color": colour} | look))
        low, high = table.min(axis=1), table.max(axis=1)
        axis.fill_between(epochs, low, high, alpha=0.15, linewidth=0, color=look.get("color", colour))
    axis.set_xlabel("epoch")


def in_epochs(runs: "Results", steps: Any) -> Any:
    """Steps as epochs: the last step ends the last epoch."""
    return np.asarray(steps) * (runs.trials.epochs.iloc[0] / max(steps))


def ratios(axis: Any, runs: "Results", **where: Any) -> None:
    """The same-class and twin-class distances over those to other labels, against the epoch."""
    runs = runs.where(**where)
    other = runs.curves("class_distance/other")
    for part, label, colour in (("same", "a: same class", CATEGORIES[0]), ("twin", "b: twin class", CATEGORIES[1])):
        table = runs.curves(f"class_distance/{part}") / other
        epochs = in_epochs(runs, table.index)
        axis.plot(epochs, table.mean(axis=1), color=colour, label=label)
        axis.fill_between(epochs, table.min(axis=1), table.max(axis=1), color=colour, alpha=0.15, linewidth=0)
    axis.set(xlabel="epoch", ylabel="distance / other label", ylim=(0, None))
    axis.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=2, columnspacing=0.8)


def probe_bars(axis: Any, runs: "Results", best: Any) -> None:
    """CLP and LPO of H beside the original task's test accuracy, and CLP of raw inputs and of untrained features."""
    bars = {"CLP": "clp/head", "LPO": "lpo/head", "OT": None, "CLP\ninit": "clp/init", "CLP\ninput": "clp/input"}
    values = [best(runs) if metric is None else runs.final(metric) for metric in bars.values()]
    colours = [*CATEGORIES[:3], *["#b9c0c7"] * 2]
    axis.bar(list(bars), values, color=colours, width=0.7)
    for place, value in enumerate(values):
        axis.text(place, value + 0.01, f"{value:.2f}", ha="center", fontsize=7)
    axis.axhline(0.93, color="#444444", linestyle="--", linewidth=1, label="paper: CLP > 0.93")
    axis.set(ylim=(0, 1.12), ylabel="test accuracy, original classes")
    axis.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2))


def _bare(axis: Any, title: str, across: str, up: str) -> None:
    axis.set(title=title, xticks=[], yticks=[], xlabel=across, ylabel=up)
    axis.grid(visible=False)
