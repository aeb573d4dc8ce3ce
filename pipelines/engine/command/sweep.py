"""`featurelab sweep`: many trials of one experiment over settings that vary, ranked by a metric."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from featurelab.pipelines.engine.command.arguments import (
    Address,
    AtScale,
    GPUs,
    Json,
    Name,
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
from featurelab.pipelines.engine.errors import RequestError, tell
from featurelab.pipelines.engine.experiment import registry
from featurelab.pipelines.engine.experiment.axes import parse_axes
from featurelab.pipelines.engine.experiment.config import Scale, parse_overrides, read_settings
from featurelab.pipelines.engine.experiment.experiment import Experiment
from featurelab.pipelines.engine.trial.signals import last_line
from featurelab.tracking.errors import StoreError
from featurelab.tracking.lines import line

if TYPE_CHECKING:
    from featurelab.pipelines.engine.sweep.plan import Finished, Plan
    from featurelab.tracking.store.store import Store


@runs_trials
def sweep(
    experiment_name: Name,
    settings: Settings = None,
    over: Annotated[
        list[str] | None, typer.Option(help="An axis, such as lr=loguniform(1e-4,1e-1) or width=64,128.")
    ] = None,
    samples: Annotated[
        int | None,
        typer.Option(help="Random draws for each listed point. Default: 1, or 16 without --over."),
    ] = None,
    metric: Annotated[str, typer.Option(help="The metric that ranks trials. Default: the experiment's own.")] = "",
    mode: Annotated[Literal["max", "min"] | None, typer.Option(help="Whether larger or smaller is better.")] = None,
    config_file: SettingsFile = None,
    scheduler: Annotated[Literal["fifo", "asha"], typer.Option(help="asha stops poor trials early.")] = "fifo",
    cpus_per_trial: Annotated[
        float | None, typer.Option(help="CPUs, and as many threads. Default: one for each process.")
    ] = None,
    gpus_per_trial: GPUs = 0,
    workers_per_trial: Annotated[
        int | None, typer.Option(help="Data-parallel processes. Default: one for each GPU.")
    ] = None,
    trial_timeout: Annotated[float | None, typer.Option(help="Seconds after which a trial is ended.")] = None,
    address: Address = None,
    name: Annotated[str, typer.Option(help="Name of the sweep. Default: experiment, date and time.")] = "",
    resume: Annotated[str, typer.Option(help="Run what is missing of the sweep with this name.")] = "",
    scale: AtScale = "laptop",
    as_json: Json = False,
) -> None:
    """Sweep an experiment over settings. KEY=VALUE sets one for all trials."""
    from featurelab.pipelines.engine.sweep.resources import Resources

    experiment = registry.find(experiment_name)
    outbox = outbox_folder()
    resources = Resources.of_trial(cpus_per_trial, gpus_per_trial, workers_per_trial, trial_timeout)
    if resume:
        planning = {"KEY=VALUE": settings, "--over": over, "--samples": samples, "--config": config_file}
        _require_none(planning | {"--name": name}, resume)
    else:
        ranking = {"metric": metric or experiment.metric, "mode": mode or experiment.mode}
        details: dict[str, Any] = {"name": name, "scheduler": scheduler, "resources": resources, **ranking}
        plan = _plan(experiment, settings or [], over or [], samples, config_file, scale, **details)

        start_ray(address)

    # imports MLflow and pandas, for which a wrong request should not wait
    from featurelab.pipelines.engine.sweep import begin
    from featurelab.tracking.store.connect import resolve

    if resume:
        store = connect(create=False)
        last_line.resume_command = typed_command()
        options: dict[str, Any] = {"outbox": outbox, "address": address, "metric": metric, "mode": mode}
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


def _plan(
    experiment: Experiment,
    settings: list[str],
    over: list[str],
    samples: int | None,
    config_file: Path | None,
    scale: Scale,
    **details: Any,
) -> "Plan":
    """Return the plan that these options describe.

    Raises `RequestError` for settings that the experiment does not have or take, and for data that are not here.
    """
    from featurelab.pipelines.engine.sweep.plan import plan_over

    config_class = type(experiment.laptop)
    axes, fixed = parse_axes(over, config_class), parse_overrides(settings, config_class)
    others = read_settings(config_file, config_class)
    return plan_over(experiment, axes, fixed, samples, scale=scale, others=others, **details)


def _print_ranking(experiment: Experiment, finished: "Finished", store: "Store", as_json: bool) -> None:
    """Draw the sweep, and print its trials, best first, or all of it as JSON."""
    from featurelab.pipelines.engine.command import terminal
    from featurelab.pipelines.engine.sweep.best import rank
    from featurelab.pipelines.engine.verdict.judge import judge

    ranking = (finished.metric, finished.mode) if finished.metric else (experiment.metric, experiment.mode)
    ranked = rank(finished.trials, *ranking, store)
    try:
        judge(finished.sweep_run_id, store)
    except StoreError as error:  # the trials are useful without the drawing
        tell(f"featurelab: the sweep is not drawn: {error}")
    if as_json:
        terminal.emit(finished.as_dict() | {"best": ranked.as_dict()})
    else:
        terminal.console().print(terminal.sweep_table(ranked))
        tell(ranked.line())
        print_links(store, experiment, finished.name, finished.sweep_run_id, finished.trials)
