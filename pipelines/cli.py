"""The `featurelab` command."""

import functools
import signal
import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer.exceptions import Abort, TyperException

from pipelines import registry
from pipelines.axes import parse_axes
from pipelines.config import parse_overrides, read_settings
from pipelines.data_cli import Json
from pipelines.data_cli import app as data_app
from pipelines.errors import RequestError, Unsettled, tell
from pipelines.experiment import Scale
from pipelines.folders import folder, outbox
from pipelines.lazy import lazy
from pipelines.pages import serve
from tracking.errors import StoreError, disk_full
from tracking.lines import line, without_credentials

# These bring torch, Ray, MLflow or pandas: a command loads what it uses, and a listing none of them.
connecting = lazy("tracking.connect")
examining = lazy("pipelines.doctor")
planning = lazy("pipelines.plan")
reading = lazy("pipelines.records")
recording = lazy("tracking.record")
reporting = lazy("tracking.report")
reproducing = lazy("pipelines.reproduce")
resourcing = lazy("pipelines.resources")
repeating = lazy("pipelines.rerun")
showing = lazy("pipelines.show")
sweeping = lazy("pipelines.sweep")
trying = lazy("pipelines.trial")


INTERRUPTED, TERMINATED = 128 + signal.SIGINT, 128 + signal.SIGTERM  # exit statuses as shells give them

app = typer.Typer(
    name="featurelab",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="The open laboratory for feature learning: published figures as judged, tracked, repeatable sweeps.",
)
app.add_typer(data_app, name="data")

Address = Annotated[
    str | None, typer.Option(help="Ray cluster: HOST:PORT, ray://HOST:PORT or auto. Default: this machine.")
]
GPUs = Annotated[float, typer.Option(help="GPUs: a fraction shares one, several train data-parallel.")]
From = Annotated[Path | None, typer.Option("--config", help="YAML or JSON file of settings; KEY=VALUE and --over win.")]
AtScale = Annotated[Scale, typer.Option("--scale", help="Which preset.")]


def working(command: Callable[..., None]) -> Callable[..., None]:
    """Decorator of the commands that run trials: standard output is for what they say, and Ray ends with them."""

    @functools.wraps(command)
    def wrapped(*args: Any, **options: Any) -> None:
        with showing.keeping_stdout():
            try:
                command(*args, **options)
            finally:
                if "ray" in sys.modules:
                    sys.modules["ray"].shutdown()

    return wrapped


@app.command("list")
def list_(system: Annotated[str | None, typer.Argument(help="One system only.")] = None, as_json: Json = False) -> None:
    """List the experiments."""
    found = registry.experiments(system)
    if as_json:
        showing.emit([experiment.summary() for experiment in found])
        return
    rows = [[e.name + (" *" if e.headline else ""), e.figure, e.title, f"{e.minutes:g}", len(e.claims)] for e in found]
    columns = ["experiment (* headline)", "figure", "title", "minutes", "claims"]
    showing.console().print(showing.pairs_table("", columns, rows))


@app.command()
def show(experiment: str, scale: AtScale = "laptop", as_json: Json = False) -> None:
    """Show an experiment: its settings, grid, sweep axes and claims."""
    found = registry.find(experiment)
    said = found.describe(scale)
    if as_json:
        showing.emit(said)
        return
    out = showing.console()
    out.print(f"{found.name}: {found.figure}. {found.title}", markup=False)
    out.print(
        showing.pairs_table("settings", ["name", "value", "meaning"], [list(row.values()) for row in said["fields"]])
    )
    out.print(showing.pairs_table("grid", ["axis", "values"], [[k, str(v)] for k, v in said["grid"].items()]))
    out.print(showing.pairs_table("sweep axes", ["axis", "domain"], list(said["sweep_axes"].items())))
    rows = [[c["id"], c["statement"], c["expected"], c["paper"], c["documented"]] for c in said["claims"]]
    out.print(showing.pairs_table("claims", ["id", "statement", "expected", "paper", "documented"], rows))


@app.command()
@working
def run(
    experiment: str,
    settings: Annotated[list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Settings to change.")] = None,
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
    store = connecting.connect()
    outcome = trying.run_trial(found, config, store, scale=scale, outbox=kept)
    try:
        metrics, away = reading.last_values(replace(store, patience=5.0).get_run(outcome.run_id).data.metrics), None
    except StoreError as error:
        metrics, away = {}, error
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
    if away:
        tell(f"featurelab: {away}; what was recorded is kept until featurelab sync")
    raise typer.Exit(0 if outcome.status == "finished" and not away else 1)


@app.command()
@working
def sweep(
    experiment: str,
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
    """Sweep an experiment over settings."""
    found = registry.find(experiment)
    kept = outbox()
    resources = resourcing.Resources.of_trial(cpus_per_trial, gpus_per_trial, workers_per_trial, trial_timeout)
    if resume:
        store = connecting.connect(create=False)
        done = sweeping.resume_sweep(found, resume, store, outbox=kept, address=address)
        metric, direction = metric or found.metric, mode or found.mode
    else:
        axes = parse_axes(over or [], type(found.laptop))
        own = {"threads": min(max(1, int(resources.cpus)), 1024)}
        plan = sweeping.plan_search(
            found,
            axes,
            samples if samples is not None else (1 if axes else 16),
            found.preset(scale).but(**own | read_settings(config_file, type(found.laptop))),
            scale=scale,
            name=name,
            scheduler=scheduler,
            resources=resources,
            metric=metric or found.metric,
            mode=mode or found.mode,
        )
        planning.require_data(found, plan.configs)
        metric, direction = plan.metric, plan.mode
        sweeping.prepare(resources, connecting.resolve(), address)
        store = connecting.connect()
        done = sweeping.run_sweep(plan, store, outbox=kept, address=address)
    said = done.as_dict(metric, direction)
    if as_json:
        showing.emit(said)
    else:
        showing.console().print(showing.sweep_table(done.trials, metric, direction))
        best = said["best"]
        tell(
            f"best {metric}: {best['metrics'][metric]:.4g} in {best['run_id']}"
            if best
            else f"no trial recorded {metric}"
        )
        tell(f"compare: {reading.compare_link(store, found.name, [trial.run_id for trial in done.trials])}")
    raise typer.Exit(0 if all(trial["status"] in ("finished", "stopped") for trial in said["trials"]) else 1)


@app.command()
@working
def reproduce(
    names: Annotated[list[str] | None, typer.Argument(metavar="[EXPERIMENT|SYSTEM]...", help="Default: all.")] = None,
    headline: Annotated[bool, typer.Option("--headline", help="Headline figures only.")] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Begin anew where it was interrupted before.")] = False,
    gpus_per_trial: GPUs = 0,
    scale: AtScale = "laptop",
    address: Address = None,
    as_json: Json = False,
) -> None:
    """Run the grids of figures, judge their claims, draw them."""
    chosen = registry.select(names or [], headline)
    kept = outbox()
    resources = resourcing.Resources.of_trial(gpus=gpus_per_trial)
    for experiment in chosen:
        planning.require_data(experiment, experiment.configs(scale))
    sweeping.prepare(resources, connecting.resolve(), address)
    store = connecting.connect()
    if scale == "laptop":
        minutes = sum(experiment.minutes for experiment in chosen)
        tell(f"{len(chosen)} figure{'s' * (len(chosen) > 1)}, about {minutes:.1f} min on two cores")
    said = 0

    def show(one: Any) -> None:
        nonlocal said
        said += 1
        tell(f"[{said}/{len(chosen)}] {one.experiment.name} ({one.experiment.figure}): {one.seconds:.0f} s")
        if not as_json:
            _print_verdicts(one)

    options = {"outbox": kept, "address": address, "resources": resources, "show": show, "fresh": fresh}
    judged = reproducing.reproduce(chosen, scale, store, **options)
    _finish(judged, as_json)


@app.command()
def judge(sweep_run_id: str, as_json: Json = False) -> None:
    """Judge and draw a sweep again from what is stored."""
    judged = reproducing.judge(sweep_run_id, connecting.connect(create=False))
    if not as_json:
        _print_verdicts(judged)
    _finish([judged], as_json)


@app.command()
@working
def rerun(run_id: str, address: Address = None, as_json: Json = False) -> None:
    """Repeat a run, or a whole sweep, from its id and say whether it came out the same."""
    result = repeating.rerun(run_id, connecting.connect(create=False), outbox=outbox(), address=address)
    if as_json:
        showing.emit(result.as_dict())
    else:
        word = "identical" if result.identical else "NOT identical"
        tell(
            f"{word}: {result.points_compared} points of {result.metrics_compared} metrics, "
            f"largest difference {result.max_abs_diff:g}"
        )
        for line in result.differences:
            tell(f"  {line}")
        for line in result.environment_changes:
            tell(f"  environment: {line}")
        tell(f"new run {result.new_run_id}")
    raise typer.Exit(0 if result.identical else 1)


@app.command()
def compare(run_ids: Annotated[list[str], typer.Argument(metavar="RUN_ID RUN_ID...")], as_json: Json = False) -> None:
    """Put runs side by side: what differs in their settings, and their last values."""
    said = repeating.compare(run_ids, connecting.connect(create=False))
    if as_json:
        showing.emit(said)
        return
    out = showing.console()
    rows = [[k, *values] for part in ("settings", "metrics") for k, values in said[part].items()]
    out.print(showing.pairs_table("", ["", *said["names"]], rows))
    tell(f"in MLflow: {said['url']}")


@app.command()
def report(out: Annotated[Path, typer.Option(help="Folder to write to.")] = Path("report")) -> None:
    """Write one HTML page with every verdict and figure."""
    out = folder(out, "--out")
    entries = list(reproducing.report_entries(connecting.connect(create=False)))
    if not entries:
        raise RequestError("nothing to report yet: run featurelab reproduce first")
    tell(f"report: {reporting.render(entries, out).as_uri()}")


@app.command()
def ui(port: Annotated[int, typer.Option(min=1, max=65535)] = 5000) -> None:
    """Serve the store's MLflow pages on this machine."""
    store = connecting.connect()
    if store.uri.startswith(("http:", "https:")):
        raise RequestError(f"the store is a server, which has its pages itself: {without_credentials(store.uri)}")
    for title, link in reproducing.links(store, port):
        tell(f"{title}: {link}")
    raise typer.Exit(serve(store.uri, port))


@app.command()
def sync() -> None:
    """Send what a crash or a dead server left unsent."""
    summary = recording.sync(outbox(writes=False))
    tell(f"{len(summary.sent)} runs sent, {len(summary.busy)} still being recorded, {len(summary.failed)} left unsent")
    for run_id, reason in summary.failed.items():
        tell(f"  {run_id}: {reason}")
    raise typer.Exit(1 if summary.failed else 0)


@app.command()
def doctor(as_json: Json = False) -> None:
    """Check that this machine is fit to run experiments."""
    checks = examining.examine(outbox(writes=False))
    if as_json:
        showing.emit(checks)
    else:
        for check in checks:
            tell(f"{'ok  ' if check['ok'] else 'BAD '} {check['name']}: {check['detail']}")
    raise typer.Exit(0 if all(check["ok"] for check in checks) else 1)


def _print_verdicts(judged: Any) -> None:
    title = f"{judged.experiment.name}: {judged.trials} trials in {judged.seconds:.0f} s, sweep {judged.sweep_run_id}"
    showing.console().print(showing.verdict_table(title, judged.verdicts))
    tell(f"compare: {judged.compare}")


def _finish(judged: list[Any], as_json: bool) -> None:
    if as_json:
        showing.emit({"experiments": [one.as_dict() for one in judged]})
    verdicts = [verdict for one in judged for verdict in one.verdicts]
    counts = {s: sum(v.status == s for v in verdicts) for s in ("holds", "fails", "untested")}
    tell(", ".join(f"{number} {status}" for status, number in counts.items()))
    for one in judged:
        for verdict in one.verdicts:
            if verdict.surprising:
                tell(f"otherwise than documented: {one.experiment.name} {verdict.id} {verdict.status}")
    raise typer.Exit(0 if all(one.as_documented for one in judged) else 1)


def main() -> None:
    """Run the command; a wrong request ends in one line and status 2, Ctrl-C in 130."""
    warnings.filterwarnings("ignore")
    try:
        code = app(standalone_mode=False)
    except (RequestError, StoreError) as error:
        tell(f"featurelab: {line(str(error))}")
        code = 2
    except Unsettled as error:
        tell(f"featurelab: {line(str(error))}")
        code = 1
    except TyperException as error:
        if text := error.format_message():
            tell(f"featurelab: {line(text)}")
        code = error.exit_code
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
        elif "pipelines.trial" in sys.modules and isinstance(error, trying.Terminated):
            code = TERMINATED
        else:
            raise
    if code in (INTERRUPTED, TERMINATED):
        word = "interrupted" if code == INTERRUPTED else "terminated"
        tell(f"featurelab: {word}; what was recorded is kept")
    sys.exit(code or 0)
