"""One stored run: its settings, its curves, and the network that it trained."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from featurelab.pipelines.engine.errors import RequestError, unknown
from featurelab.pipelines.engine.face.show import Picture, page
from featurelab.pipelines.engine.libraries import pd

if TYPE_CHECKING:
    import pytorch_lightning as pl

    from featurelab.tracking.store.store import Store

LINES, MARKERS = ("-", "--", ":", "-."), "osD^"  # tell metrics apart that share a colour


@dataclass(frozen=True, eq=False)
class Run:
    """A run, as the store has it: `run_id`, `experiment`, `status`, `settings`, and the last value of each metric."""

    run_id: str
    experiment: str
    status: str
    settings: dict[str, Any]
    metrics: dict[str, float]
    store: "Store"

    def curves(self, metrics: Sequence[str] | None = None) -> pd.DataFrame:
        """Return the recorded values: a row for each step and a column for each metric, by default for all.

        Raises `RequestError` for a metric that the run did not record.
        """
        points = histories(self.store, [self.run_id], metrics)
        return points.pivot_table(index="step", columns="metric", values="value", aggfunc="last")

    def figure(self, metrics: Sequence[str] | None = None) -> Picture:
        """Return a drawing of the curves against the step. Raises as `curves`."""
        from matplotlib.figure import Figure

        from featurelab.pipelines.engine.experiment.drawing import CATEGORIES, legend_beside, style

        table = self.curves(metrics)
        with style():
            drawing = Figure(figsize=(7, 4), layout="constrained")
            axes = drawing.subplots()
            for index, metric in enumerate(table):
                values = table[metric].dropna()
                again, colour = divmod(index, len(CATEGORIES))
                line, marker = (LINES[again % 4], "") if len(values) > 1 else ("", MARKERS[again % 4])
                axes.plot(values.index, values, label=metric, color=CATEGORIES[colour], linestyle=line, marker=marker)
            axes.set_xlabel("step")
            legend_beside(axes)
            axes.set_title(f"{self.experiment}, run {self.run_id[:8]}")
        return Picture(drawing)

    def load(self, fit: int | None = None) -> "pl.LightningModule":
        """Return the trained module, by training it again: see `featurelab.load`."""
        from featurelab.pipelines.engine.verdict.load import load

        return load(self.run_id, self.store, fit)

    def __repr__(self) -> str:
        return f"<run {self.run_id} of {self.experiment}: {self.status}>"

    def _repr_html_(self) -> str:
        rows = [*self.settings.items(), *self.metrics.items()]
        return page(
            f"{self.experiment}, run {self.run_id}: {self.status}", pd.DataFrame(rows, columns=["name", "value"])
        )


def read_run(run_id: str, store: "Store") -> Run:
    """Return a trial from the store; raise `StoreError` for an unknown run, `RequestError` for one that is not ours."""
    from featurelab.pipelines.engine.sweep.records import last_values
    from featurelab.pipelines.engine.sweep.schemas import parsed

    run = store.get_run(run_id)
    tags = run.data.tags
    if not {"experiment", "config", "status"} <= tags.keys():
        raise RequestError(f"{run_id} is not a trial that featurelab recorded: it has no config")
    settings, metrics = parsed(tags["config"], f"the config of run {run_id}"), last_values(run.data.metrics)
    return Run(str(run.info.run_id), tags["experiment"], tags["status"], settings, metrics, store)


def histories(store: "Store", run_ids: Sequence[str], metrics: Sequence[str] | None) -> pd.DataFrame:
    """Return all recorded points of these runs; raise `RequestError` for a metric that none of them recorded."""
    from featurelab.tracking.store import query

    if isinstance(metrics, str):
        metrics = [metrics]
    points = query.histories(store, run_ids, metrics)
    if missing := set(metrics or ()) - set(points["metric"]):
        recorded = set(query.histories(store, run_ids)["metric"])
        raise unknown("metric", sorted(missing)[0], recorded)
    return points
