"""`featurelab run`: one trial of an experiment, or an estimate of what one needs."""

from dataclasses import replace
from typing import Annotated, Any

import typer

from featurelab.pipelines.engine.command.arguments import AtScale, Json, Name, SaveWeights, Settings, SettingsFile
from featurelab.pipelines.engine.command.shared import connect, outbox_folder, runs_trials
from featurelab.pipelines.engine.errors import inform, tell
from featurelab.pipelines.engine.experiment.catalogue import registry
from featurelab.pipelines.engine.experiment.config import Config, Scale, parse_overrides, read_settings
from featurelab.pipelines.engine.experiment.experiment import Experiment
from featurelab.pipelines.engine.trial.place import Runtime, running_in
from featurelab.pipelines.engine.trial.record import Save, told_weights
from featurelab.tracking.errors import StoreError


@runs_trials
def run(
    name: Name,
    settings: Settings = None,
    config_file: SettingsFile = None,
    scale: AtScale = "laptop",
    save: SaveWeights = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what the trial needs, and run nothing.")] = False,
    as_json: Json = False,
) -> None:
    """Run one trial."""
    from featurelab.pipelines.engine.experiment.needs import require_data

    experiment = registry.find(name)
    overrides = parse_overrides(settings or [], type(experiment.laptop))
    config = experiment.preset(scale).but(**read_settings(config_file, type(experiment.laptop)) | overrides)
    if dry_run:
        _print_needs(experiment, config, scale, as_json)
        return
    require_data(experiment, [config])
    _run_trial(experiment, config, scale, save or "", as_json)


def _print_needs(experiment: Experiment, config: Config, scale: Scale, as_json: bool) -> None:
    from featurelab.pipelines.engine.command import terminal
    from featurelab.pipelines.engine.experiment import needs

    estimate = needs.dry_run(experiment, config, scale)
    if as_json:
        terminal.emit(estimate)
    else:
        terminal.console().print(terminal.plan_table(estimate))


def _run_trial(experiment: Experiment, config: Config, scale: Scale, save: Save, as_json: bool) -> None:
    outbox, store = outbox_folder(), connect()

    # imports torch, for which nobody should wait whose store does not answer
    from featurelab.pipelines.engine.command import terminal
    from featurelab.pipelines.engine.command.watch import TrialBar
    from featurelab.pipelines.engine.sweep.descriptions import describe
    from featurelab.pipelines.engine.trial.run import run_trial

    describe(store, experiment)
    bar = TrialBar(experiment.name.partition("/")[2], experiment.metric)
    with bar, running_in(Runtime(on_step=bar.on_step)):
        options: dict[str, Any] = {"scale": scale, "outbox": outbox, "listeners": [bar.on_metrics], "save": save}
        outcome = run_trial(experiment, config, store, **options)
    metrics, size, problem = _read_end(store, outcome)
    if not problem and (outbox / f"{outcome.run_id}.jsonl").exists():
        problem = "not everything that was recorded has reached the store"
    if as_json:
        document: dict[str, Any] = {"run_id": outcome.run_id, "experiment": experiment.name}
        document |= {"config": config.model_dump(mode="json"), "metrics": metrics, "status": outcome.status}
        terminal.emit(document | ({"weights_bytes": size} if save else {}))
    else:
        terminal.console().print(terminal.pairs_table("", ["metric", "last value"], list(metrics.items())))
        if size:
            inform(told_weights(save, [size]))
        tell(f"{outcome.status}{': ' + outcome.reason if outcome.reason else ''}, run {outcome.run_id}")
    if problem:
        tell(f"featurelab: {problem}; what was recorded is kept until featurelab sync")
    raise typer.Exit(0 if outcome.status == "finished" and not problem else 1)


def _read_end(store: Any, outcome: Any) -> tuple[dict[str, float], int, str]:
    """Return what the store has of a trial, and what keeps it from answering, if anything does.

    That is the last values of its metrics, and how many bytes of weights it has stored.
    """
    from featurelab.pipelines.engine.sweep.records import last_values

    try:
        run = replace(store, patience=5.0).get_run(outcome.run_id).data
        return last_values(run.metrics), int(run.tags.get("weights_bytes", "0")), ""
    except StoreError as error:
        return {}, 0, str(error)
    except Exception:
        if outcome.status == "finished":
            raise
        return {}, 0, ""  # a trial that closed its file descriptors also closed those of the store
