"""Many stored runs: those of a sweep, and those of a figure with the verdicts on its claims."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from featurelab.pipelines.engine.errors import RequestError, nearest
from featurelab.pipelines.engine.face.run import Run, histories, read_run
from featurelab.pipelines.engine.face.show import Picture, page
from featurelab.pipelines.engine.libraries import pd

if TYPE_CHECKING:
    from featurelab.pipelines.engine.experiment.claims import Verdict
    from featurelab.pipelines.engine.trial.record import TrialRecord
    from featurelab.tracking.store.store import Store

CLAIM = ["id", "status", "measured", "ci", "expected", "paper", "seeds", "documented", "origin", "statement", "reason"]


@dataclass(frozen=True, eq=False)
class Sweep:
    """A sweep, as the store has it. `metric` and `mode` rank its trials unless others are given."""

    sweep_run_id: str
    name: str
    experiment: str
    trials: "Sequence[TrialRecord]"
    metric: str
    mode: Literal["min", "max"]
    store: "Store"
    other_goals: "Mapping[str, Literal['min', 'max']]" = field(default_factory=dict)

    def runs(self) -> pd.DataFrame:
        """Return a row for each trial: run_id, name, status, then its settings and the last value of each metric."""
        rows = [
            {"run_id": trial.run_id, "name": trial.name, "status": trial.status, **trial.config, **trial.metrics}
            for trial in self.trials
        ]
        return pd.DataFrame(rows)

    def best(self, metric: str = "", mode: Literal["min", "max"] | None = None) -> Run:
        """Return the best trial by the last value of `metric`, as `featurelab sweep` ranks trials.

        Raises `RequestError` if no trial can be ranked by it.
        """
        from featurelab.pipelines.engine.sweep.search.best import rank

        metric = metric or self.metric
        recorded = {name for trial in self.trials for name in trial.metrics}
        if metric not in recorded:
            raise RequestError(f"trials do not record {metric}: {nearest(metric, recorded, most=3)}")
        ranked = rank(self.trials, metric, mode or self.mode, self.store)
        if ranked.best is None:
            raise RequestError(ranked.line())
        return read_run(ranked.best.run_id, self.store)

    def front(self) -> pd.DataFrame:
        """Return the rows of `runs` that no other finished trial beats: the Pareto front of the sweep's metrics."""
        from featurelab.pipelines.engine.sweep.search.goals import front

        best = {trial.run_id for trial in front(self.trials, {self.metric: self.mode, **self.other_goals})}
        table = self.runs()
        return table[table["run_id"].isin(best)].reset_index(drop=True)

    def history(self, metrics: Sequence[str] | None = None) -> pd.DataFrame:
        """Return all recorded points: run_id, metric, step, value. Raises `RequestError` for an unknown metric."""
        return histories(self.store, [trial.run_id for trial in self.trials], metrics)

    def figure(self) -> Picture:
        """Return the figure that the trials make, or for another sweep its metric against each of its axes.

        Raises `RequestError` for an experiment that declares no drawing.
        """
        from featurelab.pipelines.engine.verdict.judge import redrawn

        drawing = redrawn(self.sweep_run_id, self.store)
        if drawing is None:
            raise RequestError(f"{self.experiment} declares no drawing")
        return Picture(drawing)

    def __repr__(self) -> str:
        return f"<sweep {self.name} of {self.experiment}: {len(self.trials)} trials, {self.sweep_run_id}>"

    def _repr_html_(self) -> str:
        return page(f"{self.experiment}: sweep {self.name}", self.runs(), self.figure())


@dataclass(frozen=True, eq=False)
class Reproduction(Sweep):
    """The trials of a figure, with the verdicts on its claims."""

    verdicts: "Sequence[Verdict]" = ()

    def claims(self) -> pd.DataFrame:
        """Return a row for each claim: its verdict, what was measured with its 95% interval, and what was expected."""
        return table_of(self.verdicts)

    def __repr__(self) -> str:
        told = ", ".join(f"{verdict.id} {verdict.status}" for verdict in self.verdicts) or "no claims"
        return f"<reproduction of {self.experiment}: {told}>"

    def _repr_html_(self) -> str:
        from featurelab.pipelines.engine.verdict.judge import redrawn

        drawing = redrawn(self.sweep_run_id, self.store)
        table = self.claims()[CLAIM[:7]]
        return page(f"Verdicts on {self.experiment}", table, Picture(drawing) if drawing else None)


def table_of(verdicts: "Sequence[Verdict]") -> pd.DataFrame:
    """Return verdicts as a table, one row each."""
    rows: list[dict[str, Any]] = [verdict.model_dump() for verdict in verdicts]
    return pd.DataFrame([{name: row[name] for name in CLAIM} for row in rows], columns=CLAIM)
