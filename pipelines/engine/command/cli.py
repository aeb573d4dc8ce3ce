"""The `featurelab` command."""

import atexit
import os
import signal
import sys
import warnings
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from importlib.metadata import version
from typing import Annotated, Any, Literal, NoReturn

import typer
from typer.exceptions import Abort, TyperException

from featurelab.pipelines.engine.command import authors, results
from featurelab.pipelines.engine.command.data import app as data_app
from featurelab.pipelines.engine.command.folders import outbox
from featurelab.pipelines.engine.command.results import finish, print_verdicts, tell_links
from featurelab.pipelines.engine.command.settings import (
    Address,
    AtScale,
    From,
    GPUs,
    Json,
    Name,
    Names,
    Settings,
    connect,
    connecting,
    deciding,
    describing,
    judging,
    planning,
    ranking,
    reading,
    reproducing,
    resourcing,
    showing,
    sweeping,
    trying,
    typed,
    watching,
    working,
)
from featurelab.pipelines.engine.errors import RequestError, RunError, tell
from featurelab.pipelines.engine.experiment import registry
from featurelab.pipelines.engine.experiment.axes import parse_axes
from featurelab.pipelines.engine.experiment.config import parse_overrides, read_settings
from featurelab.pipelines.engine.trial.place import Runtime, running_in
from featurelab.pipelines.engine.trial.signals import Terminated, at_once, kill_descendants, parting
from featurelab.tracking.errors import StoreError, disk_full
from featurelab.tracking.lines import escaped, line, masked

INTERRUPTED = 128 + signal.SIGINT  # an exit status as shells give it

app = typer.Typer(
    name="featurelab",
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="The open laboratory for feature learning: published figures as judged, tracked, repeatable sweeps.",
)


def _tell_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"featurelab {version('feature-learning-lab')}")
        raise typer.Exit()


@app.callback(invoke_without_command=True)
def begin(
    ctx: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_tell_version, is_eager=True, help="Say which version this is.")
    ] = False,
) -> None:
    if ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help())


@app.command("list")
def list_(system: Annotated[str | None, typer.Argument(help="One system only.")] = None, as_json: Json = False) -> None:
    """List the experiments: a table; elsewhere than on a terminal one tab-separated line for each."""
    found = registry.experiments(system)
    if as_json:
        showing.emit([experiment.summary() for experiment in found])
    else:
        showing.list_experiments(found)


@app.command()
def show(experiment: Name, scale: AtScale = "laptop", as_json: Json = False) -> None:
    """Show an experiment: its settings, grid, sweep axes and claims."""
    found = registry.find(experiment)
    said = found.describe(scale)
    if as_json:
        showing.emit(said)
        return
    out = showing.console()
    out.print(f"{found.name}: {found.figure}. {found.title}", markup=False)
    fields = [list(row.values()) for row in said["fields"]]
    out.print(showing.pairs_table("settings", ["name", "value", "meaning"], fields, whole=["name"]))
    out.print(showing.pairs_table("grid", ["axis", "values"], [[k, str(v)] for k, v in said["grid"].items()]))
    out.print(showing.pairs_table("sweep axes", ["axis", "domain"], list(said["sweep_axes"].items())))
    out.print(showing.claim_table(said["claims"]))


@app.command()
@working
def run(
    experiment: Name,
    settings: Settings = None,
    config_file: From = None,
    scale: AtScale = "laptop",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what it would need, and stop.")] = False,
    as_json: Json = False,
) -> None:
    """Run one trial."""
    found = registry.find(experiment)
    overrides = parse_overrides(settings or [], type(found.laptop))
    config = found.preset(scale).but(**read_settings(config_file, type(found.laptop)) | overrides)
    if dry_run:
        needs = planning.dry_run(found, config, scale)
        if as_json:
            showing.emit(needs)
        else:
            showing.console().print(showing.plan_table(needs))
        return
    planning.require_data(found, [config])
    kept = outbox()
    store = connect()
    describing.describe(store, found)
    with watching.TrialBar(found.name.partition("/")[2], found.metric) as bar, running_in(Runtime(reached=bar.reached)):
        outcome = trying.run_trial(found, config, store, scale=scale, outbox=kept, listeners=[bar.heard])
    try:
        metrics, away = reading.last_values(replace(store, patience=5.0).get_run(outcome.run_id).data.metrics), None
    except Exception as error:  # a trial that closed its file descriptors closed those of the store
        if outcome.status == "finished" and not isinstance(error, StoreError):
            raise
        metrics, away = {}, error if isinstance(error, StoreError) else None
    unsent = (kept / f"{outcome.run_id}.jsonl").exists()
    said = {
        "run_id": outcome.run_id,
        "experiment": found.name,
        "config": config.model_dump(mode="json"),
        "metrics": metrics,
        "status": outcome.status,
    }
    if as_json:
        showing.emit(said)
    else:
        showing.console().print(showing.pairs_table("", ["metric", "last value"], list(said["metrics"].items())))
        tell(f"{outcome.status}{': ' + outcome.reason if outcome.reason else ''}, run {outcome.run_id}")
    if away or unsent:
        why = away or "not everything that was recorded has reached the store"
        tell(f"featurelab: {why}; what was recorded is kept until featurelab sync")
    raise typer.Exit(0 if outcome.status == "finished" and not (away or unsent) else 1)


@app.command()
@working
def sweep(
    experiment: Name,
    settings: Settings = None,
    over: Annotated[
        list[str] | None, typer.Option(help="An axis, as lr=loguniform(1e-4,1e-1) or width=64,128.")
    ] = None,
    samples: Annotated[int | None, typer.Option(help="Draws of the random axes for each listed point.")] = None,
    metric: Annotated[str, typer.Option(help="What ranks the trials. Default: the experiment's own.")] = "",
    mode: Annotated[Literal["max", "min"] | None, typer.Option(help="Whether more or less of it is better.")] = None,
    config_file: From = None,
    scheduler: Annotated[Literal["fifo", "asha"], typer.Option(help="asha stops poor trials early.")] = "fifo",
    cpus_per_trial: Annotated[
        float | None, typer.Option(help="CPUs, and as many threads. Default: one a process.")
    ] = None,
    gpus_per_trial: GPUs = 0,
    workers_per_trial: Annotated[
        int | None, typer.Option(help="Data-parallel processes. Default: one for each GPU.")
    ] = None,
    trial_timeout: Annotated[float | None, typer.Option(help="Seconds after which a trial is given up.")] = None,
    address: Address = None,
    name: str = "",
    resume: Annotated[str, typer.Option(help="Run what is missing of the sweep of this name.")] = "",
    scale: AtScale = "laptop",
    as_json: Json = False,
) -> None:
    """Sweep an experiment over settings. KEY=VALUE fixes one for all trials."""
    found = registry.find(experiment)
    kept = outbox()
    resources = resourcing.Resources.of_trial(cpus_per_trial, gpus_per_trial, workers_per_trial, trial_timeout)
    if resume:
        given = {"KEY=VALUE": settings, "--over": over, "--samples": samples, "--config": config_file, "--name": name}
        if idle := [option for option, value in given.items() if value]:
            raise RequestError(f"--resume {line(resume, 80)} runs what was planned: leave out {', '.join(idle)}")
        store = connect(create=False)
        parting.command = typed()
        done = sweeping.resume_sweep(found, resume, store, outbox=kept, address=address, metric=metric, mode=mode)
    else:
        axes = parse_axes(over or [], type(found.laptop))
        fixed = parse_overrides(settings or [], type(found.laptop))
        if both := [setting for setting in fixed if setting in axes]:
            raise RequestError(f"{both[0]} is given both as {both[0]}=... and with --over")
        own = {"threads": min(max(1, int(resources.cpus)), 1024)}
        plan = sweeping.plan_search(
            found,
            axes,
            samples if samples is not None else (1 if axes else 16),
            found.preset(scale).but(**own | read_settings(config_file, type(found.laptop)) | fixed),
            fixed=fixed,
            scale=scale,
            name=name,
            scheduler=scheduler,
            resources=resources,
            metric=metric or found.metric,
            mode=mode or found.mode,
        )
        planning.require_data(found, [plan.config(index) for index in range(len(plan.configs))])
        sweeping.prepare(resources, connecting.resolve(), address)
        store = connect()
        done = sweeping.run_sweep(plan, store, outbox=kept, address=address)
    by = (done.metric, done.mode) if done.metric else (found.metric, found.mode)
    ranked = ranking.rank(done.trials, *by, store)
    said = done.as_dict() | {"best": ranked.as_dict()}
    try:
        judging.judge(done.sweep_run_id, store)
    except StoreError as error:  # the trials are worth having without it
        tell(f"featurelab: not drawn: {error}")
    if as_json:
        showing.emit(said)
    else:
        showing.console().print(showing.sweep_table(ranked))
        tell(ranked.line())
        tell_links(store, found, done.name, done.sweep_run_id, done.trials)
    raise typer.Exit(0 if all(trial["status"] in ("finished", "stopped") for trial in said["trials"]) else 1)


@app.command()
@working
def reproduce(
    names: Names = None,
    headline: Annotated[bool, typer.Option("--headline", help="Headline figures only.")] = False,
    decide: Annotated[bool, typer.Option("--decide", help="Add seeds until every claim is decided.")] = False,
    most_seeds: Annotated[int | None, typer.Option(help="With --decide: to how many at most, 16 unless told.")] = None,
    controls: Annotated[bool, typer.Option("--controls", help="Run what should break each claim too.")] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Begin anew where it was interrupted before.")] = False,
    gpus_per_trial: GPUs = 0,
    scale: AtScale = "laptop",
    address: Address = None,
    as_json: Json = False,
) -> None:
    """Run the grids of figures, judge their claims, draw them."""
    parting.command = typed(without="--fresh")  # which would begin anew once more
    limit = deciding.seed_limit(decide, most_seeds)
    chosen = registry.select(names or [], headline)
    kept = outbox()
    resources = resourcing.Resources.of_trial(gpus=gpus_per_trial)
    for experiment in chosen:
        planning.require_data(experiment, experiment.configs(scale))
    sweeping.prepare(resources, connecting.resolve(), address)
    store = connect()
    if scale == "laptop":
        minutes = sum(experiment.minutes for experiment in chosen)
        tell(f"{len(chosen)} figure{'s' * (len(chosen) > 1)}, about {minutes:.1f} min on two cores")
    said = 0

    def show(one: Any) -> None:
        nonlocal said
        said += 1
        tell(f"[{said}/{len(chosen)}] {one.experiment.name} ({one.experiment.figure}): {one.seconds:.0f} s")
        if not as_json:
            print_verdicts(one, store)

    options = {"outbox": kept, "address": address, "resources": resources, "show": show, "fresh": fresh}
    options |= {"most_seeds": limit, "controls": controls}
    judged = reproducing.reproduce(chosen, scale, store, **options)
    finish(judged, store, as_json)


for _command in (
    results.judge,
    results.rerun,
    results.compare,
    results.report,
    results.ui,
    results.sync,
    results.doctor,
    authors.new,
    authors.check,
):
    app.command()(_command)
app.add_typer(data_app, name="data")


def main() -> None:
    """Run the command; a wrong request ends in one line and status 2, Ctrl-C in 130."""
    warnings.filterwarnings("ignore")
    try:
        code = app(standalone_mode=False)
    except (RequestError, StoreError) as error:
        tell(f"featurelab: {line(str(error))}")
        code = 2
    except RunError as error:
        tell(f"featurelab: {line(str(error))}")
        code = 1
    except TyperException as error:
        if text := error.format_message():
            tell(f"featurelab: {line(text)}")
        code = error.exit_code
    except Terminated as end:
        code = end.status
    except (KeyboardInterrupt, Abort):
        code = INTERRUPTED
    except SystemExit as end:
        code = end.code
    except BaseException as error:
        if "mlflow" in sys.modules and isinstance(error, sys.modules["mlflow"].MlflowException):
            tell(f"featurelab: the store refuses: {line(str(error))}")
            code = 2
        elif full := disk_full(error):
            tell(f"featurelab: {full}")
            code = 1
        else:
            raise
    if isinstance(code, int) and code > 128:
        parting.said = True
        tell(f"featurelab: {parting.line(code - 128)}")
    sys.exit(code or 0)


def _leaving() -> Callable[[int], NoReturn]:
    """What ends this process at once: with its one line on what is standard error now, and its processes with it."""
    stderr = os.dup(2)  # where Ray's lines are held back, 2 is another file
    end = os._exit  # while somebody else's package is imported, it is another

    def leave(number: int) -> NoReturn:
        shown = "\x1b[?25h" if os.isatty(stderr) else ""  # a bar hides the cursor
        said = "" if parting.said else escaped(masked(f"featurelab: {parting.line(number)}")) + "\n"
        with suppress(OSError):
            os.write(stderr, f"{shown}{said}".encode())
        kill_descendants()
        end(128 + number)

    return leave


def script() -> None:
    """`main` in a process of its own, which ends at once: to take apart all that was imported would take a second."""
    with at_once(_leaving()), ExitStack() as leaving:
        try:
            main()
        except SystemExit as end:
            leaving.callback(_leave, end.code if isinstance(end.code, int) else 1)


def _leave(code: int) -> None:
    atexit._run_exitfuncs()
    with suppress(OSError, ValueError):  # who read what we said may be gone
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    script()
