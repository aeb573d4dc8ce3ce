"""`featurelab sweep`: many trials of one experiment over settings that vary, ranked by a metric."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from featurelab.pipelines.engine.command.arguments import (
    Address,
    Json,
    MaybeName,
    SaveWeights,
    Settings,
    SettingsFile,
)
from featurelab.pipelines.engine.command.shared import (
    connect,
    outbox_folder,
    print_links,
    runs_trials,
    start_ray,
    typed_command,
)
from featurelab.pipelines.engine.errors import RequestError, inform, is_quiet, tell
from featurelab.pipelines.engine.experiment.axes import Axis, parse_axes
from featurelab.pipelines.engine.experiment.catalogue import registry
from featurelab.pipelines.engine.experiment.config import Config, Scale, parse_overrides, read_settings
from featurelab.pipelines.engine.experiment.experiment import Experiment
from featurelab.pipelines.engine.trial.signals import last_line
from featurelab.tracking.errors import StoreError
from featurelab.tracking.lines import line

if TYPE_CHECKING:
    from featurelab.pipelines.engine.sweep.file import SweepFile
    from featurelab.pipelines.engine.sweep.plan import Finished, Plan
    from featurelab.pipelines.engine.sweep.resources import Resources
    from featurelab.tracking.store.store import Store


@runs_trials
def sweep(
    experiment_name: MaybeName = None,
    settings: Settings = None,
    over: Annotated[
        list[str] | None, typer.Option(help="An axis, such as lr=loguniform(1e-4,1e-1) or width=64,128.")
    ] = None,
    samples: Annotated[
        int | None,
        typer.Option(help="Random draws for each listed point. Default: 1, or 16 without --over."),
    ] = None,
    search: Annotated[
        Literal["random", "optuna"] | None,
        typer.Option(help="optuna draws trials one by one, and learns from those before. Default: random."),
    ] = None,
    metric: Annotated[
        list[str] | None,
        typer.Option(help="The metric that ranks trials. Default: the experiment's own. With optuna also several."),
    ] = None,
    mode: Annotated[
        list[str] | None,
        typer.Option(help="max or min: whether larger or smaller is better, of all metrics or of each."),
    ] = None,
    config_file: SettingsFile = None,
    scheduler: Annotated[
        Literal["fifo", "asha"] | None, typer.Option(help="asha stops poor trials early. Default: fifo.")
    ] = None,
    cpus_per_trial: Annotated[
        float | None, typer.Option(help="CPUs, and as many threads. Default: one for each process.")
    ] = None,
    gpus_per_trial: Annotated[
        float | None, typer.Option(help="GPUs of each trial: a fraction shares one, several train data-parallel.")
    ] = None,
    workers_per_trial: Annotated[
        int | None, typer.Option(help="Data-parallel processes. Default: one for each GPU.")
    ] = None,
    trial_timeout: Annotated[float | None, typer.Option(help="Seconds after which a trial is ended.")] = None,
    save: SaveWeights = None,
    address: Address = None,
    name: Annotated[str, typer.Option(help="Name of the sweep. Default: experiment, date and time.")] = "",
    resume: Annotated[str, typer.Option(help="Run what is missing of the sweep with this name.")] = "",
    scale: Annotated[Scale | None, typer.Option(help="Which preset to start from. Default: laptop.")] = None,
    file: Annotated[
        Path | None, typer.Option("--file", help="YAML file that holds the whole request. Options override it.")
    ] = None,
    print_file: Annotated[
        bool, typer.Option("--print-file", help="Print the file for this request, and run nothing.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Sweep an experiment over settings. KEY=VALUE sets one for all trials."""
    if file and experiment_name and "=" in experiment_name:  # the experiment is the file's
        settings, experiment_name = [experiment_name, *(settings or [])], None
    from featurelab.pipelines.engine.sweep.file import Metric
    from featurelab.pipelines.engine.sweep.search.goals import parse_goals

    metrics, modes = parse_goals(metric or (), mode)
    others = {name: modes[place] if modes else "" for place, name in enumerate(metrics) if place}
    request = _request(
        file,
        experiment=experiment_name,
        name=name,
        scale=scale,
        samples=samples,
        search=search,
        save=save,
        scheduler=scheduler,
        metric={"name": "".join(metrics[:1]), "goal": "".join(f"{goal}imize" for goal in modes[:1])},
        other_metrics=[Metric(name=name, goal=f"{goal}imize" if goal else None) for name, goal in others.items()],
        resources={
            "cpus": cpus_per_trial,
            "gpus": gpus_per_trial,
            "workers": workers_per_trial,
            "timeout": trial_timeout,
        },
    )
    experiment = registry.find(request.experiment)
    if print_file and not resume:
        axes, fixed, base = _settings(experiment, request, settings or [], over or [], config_file)
        _print_file(request, axes, fixed, base)
        return
    outbox = outbox_folder()
    resources = _resources(request)
    if resume:
        planning: dict[str, Any] = {"KEY=VALUE": settings, "--over": over, "--samples": samples, "--search": search}
        planning |= {"--config": config_file, "--save": save}
        _require_none(planning | {"--name": name, "--print-file": print_file}, resume)
    else:
        plan = _plan(experiment, request, settings or [], over or [], config_file, resources)

        start_ray(address)

    # imports MLflow and pandas, for which a wrong request should not wait
    from featurelab.pipelines.engine.sweep import begin
    from featurelab.tracking.store.connect import resolve

    if resume:
        store = connect(create=False)
        last_line.resume_command = typed_command()
        options: dict[str, Any] = {"outbox": outbox, "address": address}
        options |= {"metric": "".join(metrics[:1]), "mode": "".join(modes[:1])}
        options |= {"other_goals": {name: goal or experiment.mode for name, goal in others.items()}} if metrics else {}
        finished = begin.resume_sweep(experiment, resume, store, **options)
    else:
        begin.prepare(resources, resolve(), address)
        store = connect()
        finished = begin.run_sweep(plan, store, outbox=outbox, address=address)
    _print_ranking(experiment, finished, store, as_json)
    raise typer.Exit(0 if all(trial.went_well for trial in finished.trials) else 1)


def _require_none(planning_options: dict[str, Any], resume: str) -> None:
    """Raise `RequestError` where options that plan a sweep are given with --resume."""
    if given := [option for option, value in planning_options.items() if value]:
        raise RequestError(f"--resume {line(resume, 80)} runs what was planned: leave out {', '.join(given)}")


def _request(file: Path | None, **options: Any) -> "SweepFile":
    """Return the request of the file, if there is one, with the options that are given in place of its own."""
    from featurelab.pipelines.engine.sweep.file import SweepFile

    if file is None and options["experiment"] is None:
        raise RequestError("which experiment? Write featurelab sweep EXPERIMENT, or --file SWEEP.yaml")
    request = SweepFile.read(file) if file else SweepFile(experiment=options["experiment"])
    changes: dict[str, Any] = {}
    for name, value in options.items():
        if isinstance(value, dict):
            given = {key: part for key, part in value.items() if part not in (None, "")}
            changes[name] = getattr(request, name).model_copy(update=given)
        elif value not in (None, "", []):
            changes[name] = value
    return request.model_copy(update=changes)


def _resources(request: "SweepFile") -> "Resources":
    from featurelab.pipelines.engine.sweep.resources import Resources

    given = request.resources
    return Resources.of_trial(given.cpus, given.gpus, given.workers, given.timeout)


def _settings(
    experiment: Experiment, request: "SweepFile", settings: list[str], over: list[str], config_file: Path | None
) -> tuple[dict[str, Axis], dict[str, Any], Config]:
    """Return the axes, the settings that are fixed, and the preset with these settings.

    Raises `RequestError` for settings that the experiment does not have or take.
    """
    from featurelab.pipelines.engine.sweep.plan import MOST_THREADS

    model = type(experiment.laptop)
    typed_axes, typed = parse_axes(over, model), parse_overrides(settings, model)
    if both := [setting for setting in typed if setting in typed_axes]:
        raise RequestError(f"{both[0]} is given both as {both[0]}=... and with --over: leave out one")
    from_files = request.fixed(model) | read_settings(config_file, model)
    axes = {name: axis for name, axis in request.axes(model).items() if name not in typed} | typed_axes
    fixed = {name: value for name, value in from_files.items() if name not in typed_axes} | typed
    threads = {"threads": min(max(1, int(_resources(request).cpus)), MOST_THREADS)}
    try:
        return axes, fixed, experiment.preset(request.scale).but(**threads | fixed)
    except RequestError as error:
        for name, value in typed.items():
            if str(error).startswith(f"{name} = ") and isinstance(value, str) and re.search("[,(]", value):
                axis = line(f"{name}={value}", 80)
                raise RequestError(f"{error}. To sweep over it, write --over '{axis}'") from None
        raise


def _plan(
    experiment: Experiment,
    request: "SweepFile",
    settings: list[str],
    over: list[str],
    config_file: Path | None,
    resources: "Resources",
) -> "Plan":
    """Return the plan of the request.

    Raises `RequestError` for settings that the experiment does not have or take, and for data that are not here.
    """
    from featurelab.pipelines.engine.sweep.plan import default_samples, plan_search

    axes, fixed, base = _settings(experiment, request, settings, over, config_file)
    if request.search != "random" and request.method == "grid":
        raise RequestError("method: grid runs every point, and --search optuna chooses among them: leave out one")
    samples = default_samples(axes, request.search) if request.samples is None else request.samples
    details: dict[str, Any] = {"name": request.name, "scheduler": request.scheduler, "scale": request.scale}
    details |= {"search": request.search, "save": request.save, "metric": request.metric.name or experiment.metric}
    details |= {"mode": request.metric.mode or experiment.mode}
    details |= {"other_goals": {other.name: other.mode or experiment.mode for other in request.other_metrics}}
    return plan_search(experiment, axes, samples, base, fixed=fixed, resources=resources, **details)


def _print_file(request: "SweepFile", axes: dict[str, Axis], fixed: dict[str, Any], base: Config) -> None:
    """Print the file that holds this request."""
    from featurelab.pipelines.engine.command import terminal
    from featurelab.pipelines.engine.sweep.file import parameters

    terminal.write(request.model_copy(update={"parameters": parameters(axes, fixed, base)}).text())


def _print_ranking(experiment: Experiment, finished: "Finished", store: "Store", as_json: bool) -> None:
    """Draw the sweep, and print its trials, best first, or all of it as JSON."""
    from featurelab.pipelines.engine.command import terminal
    from featurelab.pipelines.engine.sweep.search.best import rank
    from featurelab.pipelines.engine.sweep.search.goals import front, front_line
    from featurelab.pipelines.engine.trial.record import told_weights
    from featurelab.pipelines.engine.verdict.judge import judge

    ranking = (finished.metric, finished.mode) if finished.metric else (experiment.metric, experiment.mode)
    ranked = rank(finished.trials, *ranking, store)
    best = front(finished.trials, finished.goals) if finished.other_goals else []
    try:
        judge(finished.sweep_run_id, store)
    except StoreError as error:  # the trials are useful without the drawing
        tell(f"featurelab: the sweep is not drawn: {error}")
    if as_json:
        several = {"front": [trial.as_dict() for trial in best]} if finished.other_goals else {}
        terminal.emit(finished.as_dict() | {"best": ranked.as_dict()} | several)
    else:
        terminal.console().print(terminal.sweep_table(ranked, list(finished.other_goals)))
        tell(front_line(best, finished.goals) if finished.other_goals else ranked.line())
        if sizes := [trial.weights for trial in finished.trials if trial.weights]:
            inform(told_weights(finished.save, sizes))
        if is_quiet():
            tell(f"sweep {finished.name}, run {finished.sweep_run_id}")
        print_links(store, experiment, finished.name, finished.sweep_run_id, finished.trials)
