"""The drawing of a sweep that is not a figure's grid: the metric that ranks it, against each of its axes."""

import math
from collections.abc import Sequence
from statistics import median
from typing import TYPE_CHECKING, Any

from featurelab.pipelines.engine.sweep.search.best import finished_values
from featurelab.pipelines.engine.trial.record import TrialRecord

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLUMNS = 3
FEW = 8  # an axis with at most this many values shows them evenly spaced
WIDE = 20.0  # positive values that span more than this factor are drawn on a logarithmic scale


def overview(title: str, trials: Sequence[TrialRecord], axes: Sequence[str], metric: str, mode: str) -> "Figure":
    """The last value of the metric against each axis.

    Every trial is a point, hollow if it was stopped early. A bar marks the median of the trials with the same value,
    and a ring the best finished trial. Trials without a finite value are counted below.
    """
    from matplotlib.figure import Figure

    measured = [trial for trial in trials if trial.went_well and math.isfinite(trial.metrics.get(metric, math.nan))]
    varied = [axis for axis in axes if len({str(trial.config.get(axis)) for trial in trials}) > 1] or list(axes[:1])
    rows, cols = math.ceil(len(varied) / COLUMNS), min(COLUMNS, len(varied))
    figure = Figure(figsize=(0.8 + 3.2 * max(cols, 2), 0.9 + 2.9 * rows), layout="constrained")
    panels = figure.subplots(rows, cols, squeeze=False, sharey=True)
    values = finished_values(measured, metric)
    first = (min if mode == "min" else max)(values, key=lambda run_id: values[run_id], default=None)
    best = next((trial for trial in measured if trial.run_id == first), None)
    for place, axis in enumerate(varied):
        _panel(panels.flat[place], measured, axis, metric, best)
        panels.flat[place].set(xlabel=axis, ylabel=metric if place % cols == 0 else "")
    for empty in panels.flat[len(varied) :]:
        empty.set_axis_off()
    if _spans([trial.metrics[metric] for trial in measured]):
        panels[0, 0].set_yscale("log")
    handles, labels = panels[0, 0].get_legend_handles_labels()
    if handles:
        figure.legend(handles, labels, loc="outside upper right", ncols=len(labels))
    figure.suptitle(title, x=0.01, ha="left")
    if missing := len(trials) - len(measured):
        figure.supxlabel(f"not shown: {missing} of {len(trials)} trials, which have no finite {metric}", fontsize=8)
    return figure


def _panel(panel: Any, trials: Sequence[TrialRecord], axis: str, metric: str, best: TrialRecord | None) -> None:
    values: dict[str, Any] = {trial.run_id: trial.config.get(axis) for trial in trials}
    kinds = sorted(set(map(_hashable, values.values())), key=lambda kind: (isinstance(kind, str), kind))
    listed = len(kinds) <= FEW or any(isinstance(kind, str) for kind in kinds)
    places = {run_id: kinds.index(_hashable(v)) if listed else float(v) for run_id, v in values.items()}
    if listed:
        names = [f"{kind:g}" if isinstance(kind, float) else str(kind) for kind in kinds]
        panel.set_xticks(range(len(kinds)), names, rotation=15 if sum(map(len, names)) > 30 else 0)
        panel.set_xlim(-0.5, max(len(kinds), 1) - 0.5)
    elif _spans(list(places.values())):
        panel.set_xscale("log")
    for stopped in (False, True):
        some = [trial for trial in trials if (trial.status == "stopped") is stopped]
        face, label = ("none", "stopped early") if stopped else ("C0", "finished")
        if some:
            x, y = [places[t.run_id] for t in some], [t.metrics[metric] for t in some]
            look = {"facecolors": face, "edgecolors": "C0", "linewidths": 0.9, "alpha": 0.75, "zorder": 3}
            panel.scatter(x, y, s=16, label=label, **look)
    if listed:
        by_place = {x: [t.metrics[metric] for t in trials if places[t.run_id] == x] for x in places.values()}
        middles = [median(values) for values in by_place.values()]
        look = {"markersize": 18, "markeredgewidth": 1.6, "color": "black", "zorder": 2}
        panel.plot(list(by_place), middles, "_", label="median", **look)
    if best is not None:
        where = [places[best.run_id]], [best.metrics[metric]]
        panel.scatter(*where, s=90, facecolors="none", edgecolors="C1", linewidths=1.4, zorder=4, label="best")


def _hashable(value: Any) -> Any:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else str(value)


def _spans(values: Sequence[float]) -> bool:
    return bool(values) and min(values) > 0 and max(values) / min(values) > WIDE
