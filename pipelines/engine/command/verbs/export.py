"""`featurelab export`: the runs of a sweep or of an experiment as a table that other programs read."""

import csv
import io
import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from featurelab.pipelines.engine.command.arguments import complete_experiments
from featurelab.pipelines.engine.command.shared import connect
from featurelab.pipelines.engine.errors import RequestError, unknown
from featurelab.pipelines.engine.experiment.catalogue import registry

if TYPE_CHECKING:
    from featurelab.tracking.store.store import Store

COLUMNS = ("run_id", "name", "sweep", "status")  # then the settings as params.*, and the last values as metrics.*


def export(
    what: Annotated[
        str,
        typer.Argument(
            metavar="SWEEP|EXPERIMENT",
            help="A sweep by its name or run id, or an experiment.",
            autocompletion=complete_experiments,
        ),
    ],
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV, one line for each run. The default.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document: a list of runs.")] = False,
) -> None:
    """Print the runs of a sweep or of an experiment: run id, status, settings, last values of metrics."""
    if as_csv and as_json:
        raise RequestError("--csv and --json are both given: leave out one")
    runs = _runs(what, connect(create=False))
    if as_json:
        from featurelab.pipelines.engine.command import terminal

        terminal.emit(runs)
    else:
        sys.stdout.write(_as_csv(runs))


def _runs(what: str, store: "Store") -> list[dict[str, Any]]:
    """The runs of the sweep or experiment with this name or id; raises `RequestError` where there is none."""
    from featurelab.pipelines.engine.sweep import records
    from featurelab.tracking.store import query

    if what in registry.names():
        return records.exported_experiment(store, registry.find(what))
    sweeps = records.sweep_ids(store)
    if what in sweeps:
        return records.exported_sweep(store, sweeps[what])
    if records.SOME_ID.fullmatch(what):
        return records.exported_sweep(store, query.whole_id(store, what))
    raise unknown("sweep or experiment", what, [*sweeps, *registry.names()])


def _as_csv(runs: list[dict[str, Any]]) -> str:
    """The runs as CSV; a run that lacks a setting or a metric has an empty field."""
    rows = [_flat(run) for run in runs]
    names = dict.fromkeys(name for row in rows for name in row if name not in COLUMNS)
    kinds = ("params.", "metrics.")
    ordered = [*COLUMNS, *(name for kind in kinds for name in names if name.startswith(kind))]
    text = io.StringIO()
    writer = csv.DictWriter(text, ordered, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _flat(run: dict[str, Any]) -> dict[str, Any]:
    flat = {name: run[name] for name in COLUMNS}
    for kind in ("params", "metrics"):
        flat |= {f"{kind}.{name}": _written(value) for name, value in run[kind].items()}
    return flat


def _written(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, list | dict) else value
