"""What a sweep measured, read back from the store: the view that claims and drawings work on."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import compress
from typing import Any

from featurelab.pipelines.engine.errors import Missing, nearest
from featurelab.pipelines.engine.libraries import np, pd


@dataclass(frozen=True)
class Recorded:
    """What all trials recorded of one metric, with the rows of each trial at hand."""

    read: Callable[[str], pd.DataFrame]
    metric: str

    @cached_property
    def points(self) -> pd.DataFrame:
        return self.read(self.metric)

    @cached_property
    def rows(self) -> Mapping[str, np.ndarray]:
        """By run id, the positions of its rows."""
        positions: dict[str, np.ndarray] = self.points.groupby("run_id", sort=False).indices
        return positions

    @cached_property
    def _last(self) -> dict[str, tuple[Any, int]]:
        """By run id, the last step and the position of its row."""
        steps = self.points.step.to_numpy()
        last_rows = {run_id: rows[np.argsort(steps[rows], kind="stable")[-1]] for run_id, rows in self.rows.items()}
        return {run_id: (steps[row], int(row)) for run_id, row in last_rows.items()}

    def of(self, run_ids: Collection[str]) -> pd.DataFrame:
        """The rows of these trials, in the order of the table."""
        return self.points.iloc[np.sort(np.concatenate([self.rows[run_id] for run_id in run_ids]))]

    def last(self, run_ids: Collection[str]) -> np.ndarray:
        """The last value of each of these trials, the one that ended first at the front."""
        rows = [row for _, row in sorted(self._last[run_id] for run_id in run_ids)]
        values: np.ndarray = self.points.value.to_numpy(dtype=float)[rows]
        return values


@dataclass(frozen=True)
class Results:
    """The finished trials of one sweep.

    Args:
        trials: one row a trial: `run_id`, `status`, and every config field as a column.
        read: `read(metric)` fetches what all trials recorded of it, one value a row: `run_id`, `step`, `value`.
        load: `load(run_id, name)` fetches the named arrays a trial kept.
        looked_at: where given, gets the run ids of all trials that are looked at.
        names: where given, `names()` are the metrics that were recorded, for messages about one that was not.
    """

    trials: pd.DataFrame
    read: Callable[[str], pd.DataFrame]
    load: Callable[[str, str], Mapping[str, np.ndarray]]
    looked_at: set[str] | None = None
    names: Callable[[], Collection[str]] | None = None
    # by metric; shared by all views of these results, of which a figure asks thousands of questions
    _recorded: dict[str, Recorded] = field(default_factory=dict, repr=False, compare=False)
    # columns of this view as lists, which pandas takes longer to give than a figure to compare; its trials by control
    _columns: dict[str, list[Any]] = field(default_factory=dict, init=False, repr=False, compare=False)
    _controls: dict[str, Results] = field(default_factory=dict, init=False, repr=False, compare=False)

    def where(self, **config: Any) -> Results:
        """The trials with these config values."""
        return replace(self, trials=self.trials[self._matching(config)])

    def under(self, control: str) -> Results:
        """The trials under this control, `none` for those without."""
        if "control" not in self.trials:
            return self if control == "none" else replace(self, trials=self.trials[:0])
        if control not in self._controls:
            trials = self.trials[self.trials.control.fillna("none") == control]
            self._controls[control] = replace(self, trials=trials)
        return self._controls[control]

    def by_seed(self) -> Iterator[tuple[int, Results]]:
        """Each seed, in ascending order, with its trials."""
        yield from self._seeds

    @cached_property
    def _seeds(self) -> list[tuple[int, Results]]:
        seeds = {int(seed) for seed in self._column("seed") if seed == seed} if len(self.trials) else set()
        return [(seed, self.where(seed=seed)) for seed in sorted(seeds)]

    def values(self, name: str) -> list[Any]:
        """The values that a config field takes, in the order of the grid."""
        return list(dict.fromkeys(self._column(name)))

    def has(self, metric: str, **where: Any) -> bool:
        """Whether any of the matching trials recorded this metric."""
        rows = self._of(metric).rows
        return any(run_id in rows for run_id, _ in self._looked(where))

    def final(self, metric: str, **where: Any) -> float:
        """The last recorded value, averaged over the matching trials; raises `Missing` without any."""
        recorded, run_ids = self._chosen(metric, where)
        return float(recorded.last(run_ids).mean())  # a value that is not finite must not hide behind others

    def at(self, metric: str, step: int, **where: Any) -> float:
        """The value recorded at `step`, averaged over the matching trials; raises `Missing` without any."""
        points = self._points(metric, where)
        points = points[points.step == step]
        if points.empty:
            raise Missing(f"no {metric} at step {step}{_written(where)}")
        return float(points.value.mean(skipna=False))

    def curves(self, metric: str, **where: Any) -> pd.DataFrame:
        """The recorded values, steps down and trials across; raises `Missing` without any."""
        points = self._points(metric, where)
        values = points.value.to_numpy(float)
        is_number = ~np.isnan(values)
        steps, row = np.unique(points.step.to_numpy()[is_number], return_inverse=True)
        runs, column = np.unique(points.run_id.to_numpy(object)[is_number], return_inverse=True)
        cells, size = row * len(runs) + column, len(steps) * len(runs)
        with np.errstate(invalid="ignore"):  # nothing over none where a trial recorded nothing
            # as `pivot_table`, which took most of the time of judging a figure
            means = np.bincount(cells, values[is_number], size) / np.bincount(cells, minlength=size)
        names = pd.Index(steps, name="step"), pd.Index(runs, name="run_id")
        return pd.DataFrame(means.reshape(len(steps), len(runs)), *names)

    def curve(self, metric: str, **where: Any) -> pd.Series:
        """The mean over the matching trials at each step."""
        return self.curves(metric, **where).mean(axis=1)

    def finals(self, metric: str, **where: Any) -> np.ndarray:
        """The last recorded value of each matching trial; raises `Missing` without any."""
        return np.asarray(self.curves(metric, **where).ffill().iloc[-1])

    def arrays(self, name: str, **where: Any) -> list[Mapping[str, np.ndarray]]:
        """The arrays kept under `name` by each matching trial; raises `Missing` without any."""
        finished = [run_id for run_id, status in self._looked(where) if status == "finished"]
        if not finished:
            raise Missing(f"no finished trial{_written(where)}")
        return [self.load(run_id, name) for run_id in finished]

    def _column(self, name: str) -> list[Any]:
        if name not in self._columns:
            if name not in self.trials:
                raise Missing(f"no setting {name} was recorded")
            self._columns[name] = self.trials[name].tolist()
        return self._columns[name]

    def _matching(self, where: Mapping[str, Any]) -> np.ndarray:
        """Which trials have these config values."""
        keep = np.ones(len(self.trials), dtype=bool)
        for name, value in where.items():
            keep &= np.array([v == value for v in self._column(name)], dtype=bool)
        return keep

    def _looked(self, where: Mapping[str, Any]) -> list[tuple[str, str]]:
        """The run ids and states of the matching trials."""
        trials = zip(self._column("run_id"), self._column("status"), strict=True)
        chosen = list(compress(trials, self._matching(where)))
        if self.looked_at is not None:
            self.looked_at.update(run_id for run_id, _ in chosen)
        return chosen

    def _of(self, metric: str) -> Recorded:
        recorded = self._recorded.get(metric)
        if recorded is None or recorded.read is not self.read:
            recorded = self._recorded[metric] = Recorded(self.read, metric)
        return recorded

    def _points(self, metric: str, where: Mapping[str, Any]) -> pd.DataFrame:
        recorded, run_ids = self._chosen(metric, where)
        return recorded.of(run_ids)

    def _chosen(self, metric: str, where: Mapping[str, Any]) -> tuple[Recorded, list[str]]:
        """What was recorded of a metric, and which of the matching trials recorded it: at least one, all finished."""
        chosen = self._looked(where)
        ended = [status for _, status in chosen if status != "finished"]
        if ended:
            raise Missing(f"{len(ended)} trial{'s' * (len(ended) > 1)} {ended[0]}{_written(where)}")
        recorded = self._of(metric)
        run_ids = [run_id for run_id, _ in chosen if run_id in recorded.rows]
        if not run_ids:
            raise Missing(f"no {metric}{_written(where)}{self._instead_of(metric)}")
        return recorded, run_ids

    def _instead_of(self, metric: str) -> str:
        known = self.names() if self.names is not None else ()
        return f": {nearest(metric, known, most=3)}" if metric not in known and known else ""


def _written(where: Mapping[str, Any]) -> str:
    return " with " + ", ".join(f"{k} = {v}" for k, v in where.items()) if where else ""
