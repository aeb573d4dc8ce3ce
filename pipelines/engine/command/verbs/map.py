"""`featurelab map`: in which cells of some settings the claims of a figure hold."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from featurelab.pipelines.engine.command.arguments import Address, AtScale, Json, Name
from featurelab.pipelines.engine.command.shared import connect, outbox_folder, runs_trials, start_ray, typed_command
from featurelab.pipelines.engine.errors import RequestError, inform, tell
from featurelab.pipelines.engine.experiment.axes import parse_axes
from featurelab.pipelines.engine.experiment.catalogue import registry
from featurelab.pipelines.engine.experiment.claims import STATUSES
from featurelab.pipelines.engine.trial.signals import last_line
from featurelab.tracking.lines import line

if TYPE_CHECKING:
    from featurelab.pipelines.engine.verdict.maps.mapping import Mapped
    from featurelab.tracking.store.store import Store


@runs_trials
def map_(
    experiment_name: Name,
    over: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUES", help="An axis of listed values, such as lr=0.01,0.1.")
    ] = None,
    address: Address = None,
    name: Annotated[str, typer.Option(help="Name of the map. Default: experiment, date and time.")] = "",
    resume: Annotated[str, typer.Option(help="Run what is missing of the map with this name.")] = "",
    scale: AtScale = "laptop",
    as_json: Json = False,
) -> None:
    """Map where the claims of a figure hold: its grid in every cell of listed settings, each cell judged."""
    experiment = registry.find(experiment_name)
    outbox = outbox_folder()
    if resume and (given := [option for option, value in {"--over": over, "--name": name}.items() if value]):
        raise RequestError(f"--resume {line(resume, 80)} runs what was planned: leave out {', '.join(given)}")
    axes = parse_axes(over or [], type(experiment.laptop))

    # imports MLflow and pandas
    from featurelab.pipelines.engine.sweep import begin
    from featurelab.pipelines.engine.verdict.maps import mapping
    from featurelab.tracking.store.connect import resolve

    if resume:
        store = connect(create=False)
        last_line.resume_command = typed_command()
        finished = begin.resume_sweep(experiment, resume, store, outbox=outbox, address=address, is_map=True)
    else:
        plan = mapping.plan_map(experiment, axes, scale, name=name)
        cells, trials = len(mapping.cells_of(plan)), len(plan.configs)
        inform(
            f"a map of {cells} cell{'s' * (cells != 1)} with {trials // cells} trials each,"
            f" {mapping.estimated_time(plan)}"
        )
        start_ray(address)
        begin.prepare(plan.resources, resolve(), address)
        store = connect()
        finished = begin.run_sweep(plan, store, outbox=outbox, address=address)
    show_map(mapping.judge_map(finished.sweep_run_id, store), store, as_json)
    # a setting under which training diverges is a finding
    raise typer.Exit(0 if all(t.went_well or t.status == "diverged" for t in finished.trials) else 1)


def show_map(mapped: "Mapped", store: "Store", as_json: bool) -> None:
    """Print a map: its verdicts as a table with a row for each cell, and where its pictures are; or all as JSON."""
    from featurelab.pipelines.engine.command import terminal
    from featurelab.pipelines.engine.verdict.links import of_all_verdicts
    from featurelab.tracking.numbers import number

    if as_json:
        terminal.emit(mapped.as_dict())
        return
    claims = [claim.id for claim in mapped.experiment.claims]
    rows: list[Any] = [
        [number(cell.config[axis]) for axis in mapped.over]
        + [f"{verdict.status}, {number(verdict.measured)}" for verdict in cell.verdicts]
        for cell in mapped.cells
    ]
    title = f"{mapped.experiment.name}: map {mapped.name}, sweep {mapped.sweep_run_id}"
    terminal.console().print(terminal.pairs_table(title, [*mapped.over, *claims], rows))
    tell(", ".join(f"{mapped.counts[status]} {status}" for status in STATUSES))
    inform(f"pictures and table: {of_all_verdicts(store, mapped.sweep_run_id)}")
