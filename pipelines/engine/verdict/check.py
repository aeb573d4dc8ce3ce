"""Run a whole figure at its small sizes, in this process and without a store, and name what is missing."""

import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure

from featurelab.modules.learners import Diverged
from featurelab.pipelines.engine.errors import Missing, RunError
from featurelab.pipelines.engine.experiment.claims import leans_on
from featurelab.pipelines.engine.experiment.config import Config
from featurelab.pipelines.engine.experiment.drawing import style
from featurelab.pipelines.engine.experiment.experiment import Experiment
from featurelab.pipelines.engine.experiment.results import Results
from featurelab.pipelines.engine.trial.ending import mistake
from featurelab.pipelines.engine.trial.run import perform
from featurelab.tracking.outbox.null import NullRecorder
from featurelab.tracking.outbox.record import Diverged as NotFinite


class Broken(RunError):
    """A function of the figure raised an error: its message in one line, with the place, and its traceback."""

    def __init__(self, message: str, traceback: str) -> None:
        super().__init__(message)
        self.traceback = traceback


@contextmanager
def _running(part: str, function: Callable[..., Any] | None) -> Iterator[None]:
    """Inside, an error becomes `Broken`, which names this part of the figure."""
    try:
        yield
    except Missing:
        raise
    except Exception as error:
        raise Broken(f"{part}: {mistake(error, function)}", traceback.format_exc()) from None


class MemoryRecorder(NullRecorder):
    """Keeps what a trial records in memory.

    It has `curves[metric][step]`, `arrays[name][part]`, the `entries` of a journal, and the `weights` of a checkpoint.
    """

    def __init__(self) -> None:
        super().__init__()
        self.curves: dict[str, dict[int, float]] = {}
        self.arrays: dict[str, dict[str, Any]] = {}
        self.entries: list[Mapping[str, Any]] = []
        self.weights: dict[str, torch.Tensor] = {}

    @property
    def digest(self) -> str:
        """The digests of the datasets that the trial recorded."""
        return " ".join(sorted({str(entry["dataset"]["digest"]) for entry in self.entries if "dataset" in entry}))

    def array(self, name: str, **arrays: Any) -> None:
        super().array(name, **arrays)
        self.arrays[name] = arrays

    def file(self, path: Path, directory: str = "") -> None:
        super().file(path, directory)
        self.weights = torch.load(path, weights_only=True)["state_dict"]

    def _keep(self, values: Mapping[str, float], step: int) -> None:
        for metric, value in values.items():
            self.curves.setdefault(metric, {})[step] = value

    def _append(self, entry: Mapping[str, Any]) -> None:
        self.entries.append(entry)


@dataclass(frozen=True)
class Table:
    """The recorded values of trials, one a row (`run_id`, `metric`, `step`, `value`), as `Results` reads them."""

    points: pd.DataFrame

    def __call__(self, metric: str) -> pd.DataFrame:
        return self._by_metric.get(metric, self.points[:0])

    @cached_property
    def _by_metric(self) -> dict[str, pd.DataFrame]:
        return {str(metric): points for metric, points in self.points.groupby("metric", sort=False)}


def performed(experiment: Experiment, configs: Iterable[Config]) -> Results:
    """Run these trials one after another, and return their results, as claims and drawings read them."""
    rows: list[dict[str, Any]] = []
    points: list[tuple[str, str, int, float]] = []
    arrays: dict[str, dict[str, dict[str, np.ndarray]]] = {}
    for index, config in enumerate(configs):
        recorder, run_id, status = MemoryRecorder(), f"run{index}", "finished"
        try:
            perform(experiment, config, recorder)
        except (Diverged, NotFinite):
            status = "diverged"
        rows.append({"run_id": run_id, "status": status, **config.model_dump()})
        points += [(run_id, name, step, v) for name, curve in recorder.curves.items() for step, v in curve.items()]
        arrays[run_id] = {
            name: {part: np.asarray(value) for part, value in parts.items()} for name, parts in recorder.arrays.items()
        }
    table = Table(pd.DataFrame(points, columns=["run_id", "metric", "step", "value"]))
    frame = pd.DataFrame(rows, dtype=object)
    return Results(frame, table, lambda run_id, name: arrays[run_id][name], names=lambda: set(table.points.metric))


def recorded(results: Results) -> pd.DataFrame:
    """Everything that the trials of `performed` recorded: `run_id`, `metric`, `step`, `value`."""
    assert isinstance(results.read, Table)
    return results.read.points


def shuffled(results: Results, seed: int = 0) -> Results:
    """The same trials with random numbers instead of measured values."""
    rng = np.random.default_rng(seed)

    def load(run_id: str, name: str) -> Mapping[str, np.ndarray]:
        return {
            part: rng.random(value.shape) if value.dtype.kind == "f" else value
            for part, value in results.load(run_id, name).items()
        }

    points = recorded(results)
    return replace(results, read=Table(points.assign(value=rng.random(len(points)))), load=load)


def drawn(experiment: Experiment, results: Results) -> Figure:
    """The figure, drawn as `reproduce` draws it, with nothing moved to make room: that takes most of the time."""
    drawing = experiment.drawing
    assert drawing is not None
    with style():
        figure = Figure(figsize=drawing.size)
        drawing.draw(results, figure.subplots(drawing.rows, drawing.cols, squeeze=False))
        figure.suptitle(f"{experiment.figure}. {experiment.title}")
        figure.draw_without_rendering()
    return figure


def missing(experiment: Experiment) -> Iterator[str]:
    """Run a figure at its small sizes, and yield a line for each thing that is missing.

    Raises `Broken` if its trial, a claim, its cost or its drawing raises an error.
    """
    if experiment.run_trial is None:
        yield "no trial is declared: @figure.trial"
        return
    yield from _undeclared(experiment)
    for scale in experiment.scales:
        with _running(f"the {scale} grid", None):
            experiment.configs(scale)
    configs = experiment.small_configs()
    with _running("the cost", experiment.estimate):
        if experiment.estimate is not None:
            experiment.estimate(configs[0])
    with _running("a trial", experiment.run_trial):
        results = performed(experiment, configs)
    for status, number in results.trials.status.value_counts().items():
        if status != "finished":
            yield f"{number} of {len(results.trials)} small trials {status}"
    small, planned = (len({config.seed for config in trials}) for trials in (configs, experiment.configs("laptop")))
    # three, since a measure of few possible values may agree by chance
    others = [shuffled(results, seed) for seed in range(3)]
    backwards = replace(results, trials=results.trials[::-1])
    for claim in experiment.claims:
        if planned < claim.seeds:
            yield f"claim {claim.id} needs {claim.seeds} seeds, and the laptop grid has {planned}"
        with _running(f"claim {claim.id}", claim.measure):
            values = claim.measured(results)
            verdict = replace(claim, seeds=min(claim.seeds, small)).decided(*values)
            if not _alike(values[0], claim.measured(backwards)[0]):
                yield f"claim {claim.id} depends on the order of trials, which further seeds do not keep"
        if verdict.status == "untested":
            if "untested" not in map(claim.documented, experiment.scales):
                yield f"claim {claim.id} cannot be measured: {verdict.reason}"
        elif all(claim.measured(other)[0] == values[0] for other in others):
            yield f"claim {claim.id} does not depend on what was measured"
    if experiment.drawing is not None:
        try:
            with _running("the drawing", experiment.drawing.draw):
                drawn(experiment, results)
        except Missing as gap:
            yield f"the figure cannot be drawn: {gap}"


def _alike(one: Mapping[int, Mapping[str, float]], other: Mapping[int, Mapping[str, float]]) -> bool:
    """Whether all parts of all seeds are the same numbers, but for rounding in sums."""
    if {seed: set(parts) for seed, parts in one.items()} != {seed: set(parts) for seed, parts in other.items()}:
        return False
    first, second = ([parts[part] for parts in by_seed.values() for part in sorted(parts)] for by_seed in (one, other))
    return np.allclose(first, second, rtol=1e-6, atol=1e-9, equal_nan=True)


def _undeclared(experiment: Experiment) -> Iterator[str]:
    if not experiment.claims:
        yield "no claim is declared: @figure.claim"
    for claim in experiment.claims:
        if word := leans_on(claim.says):
            yield f"claim {claim.id} begins with {word!r}: a statement is read alone, so name what it is about"
    if experiment.drawing is None:
        yield "no drawing is declared: @figure.draw"
    if experiment.estimate is None:
        yield "no cost is declared: @figure.cost"
    if not experiment.sweep_axes:
        yield "no sweep axes are declared: a learning rate, a width, a regulariser"
    if not experiment.small:
        yield "no small sizes are declared: small={...} (checked at the sizes of the laptop preset)"
    for scale in experiment.scales:
        if not any("seed" in ((axis,) if isinstance(axis, str) else axis) for axis in experiment.grid_of(scale)):
            yield f"the {scale} grid has no seeds"
