"""`featurelab reproduce` and `featurelab judge`: the verdicts on a figure's claims, from new trials or stored ones."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from featurelab.pipelines.engine.command.arguments import (
    Address,
    AtScale,
    GPUs,
    Json,
    NamesAndSettings,
    SaveWeights,
    SweepId,
)
from featurelab.pipelines.engine.command.shared import (
    connect,
    outbox_folder,
    print_links,
    runs_trials,
    start_ray,
    typed_command,
)
from featurelab.pipelines.engine.command.verbs.map import show_map
from featurelab.pipelines.engine.errors import RequestError, inform, is_quiet, tell
from featurelab.pipelines.engine.experiment.catalogue import registry
from featurelab.pipelines.engine.experiment.claims import STATUSES
from featurelab.pipelines.engine.experiment.config import Scale, parse_overrides
from featurelab.pipelines.engine.experiment.experiment import Experiment
from featurelab.pipelines.engine.trial.record import told_weights
from featurelab.pipelines.engine.trial.signals import last_line
from featurelab.tracking.lines import quoted

if TYPE_CHECKING:
    from featurelab.pipelines.engine.verdict.judge import Judged
    from featurelab.tracking.store.store import Store

NAMED = 8  # of skipped figures


@runs_trials
def reproduce(
    names: NamesAndSettings = None,
    headline: Annotated[bool, typer.Option("--headline", help="Headline figures only.")] = False,
    decide: Annotated[bool, typer.Option("--decide", help="Add seeds until every claim is decided.")] = False,
    most_seeds: Annotated[int | None, typer.Option(help="With --decide: add up to this many. Default: 16.")] = None,
    controls: Annotated[
        bool, typer.Option("--controls", help="Also run the negative controls, expected to break claims.")
    ] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Start anew, do not resume.")] = False,
    gpus_per_trial: GPUs = 0,
    save: SaveWeights = None,
    scale: AtScale = "laptop",
    address: Address = None,
    as_json: Json = False,
) -> None:
    """Run the grids of figures, judge their claims and draw them.

    KEY=VALUE judges one figure at other settings, apart from its own verdicts and from what is documented. seed=100
    judges figures on fresh seeds, from 100 on.
    """
    from featurelab.pipelines.engine.experiment.needs import require_data
    from featurelab.pipelines.engine.sweep.resources import Resources
    from featurelab.pipelines.engine.verdict.decide import seed_limit

    last_line.resume_command = typed_command(without="--fresh")  # which would start again, not resume
    limit = seed_limit(decide, most_seeds)
    pairs = [name for name in names or [] if "=" in name]
    figures = [name for name in names or [] if "=" not in name]
    experiments = at_scale(registry.select(figures, headline), figures, scale)
    of_one = [pair for pair in pairs if not pair.startswith("seed=")]
    if of_one and len(experiments) != 1:
        raise RequestError(f"{quoted(of_one[0])} changes a setting of one figure: name one, not {len(experiments)}")
    settings = parse_overrides(pairs, type(experiments[0].laptop)) if pairs else {}
    outbox = outbox_folder()
    resources = Resources.of_trial(gpus=gpus_per_trial)
    for experiment in experiments:
        require_data(experiment, experiment.configs(scale, settings))

    start_ray(address)

    # imports MLflow and pandas, for which a wrong request should not wait
    from featurelab.pipelines.engine.sweep.begin import prepare
    from featurelab.pipelines.engine.verdict import reproduce as engine
    from featurelab.tracking.store.connect import resolve

    prepare(resources, resolve(), address)
    store = connect()
    if scale != "paper":
        minutes = sum(experiment.minutes_at(scale) or 0 for experiment in experiments)
        if settings:
            minutes = sum(one.minutes_of(one.configs(scale, settings), scale) for one in experiments)
        inform(f"{len(experiments)} figure{'s' * (len(experiments) > 1)}, about {minutes:.1f} min on two cores")
    shown = 0

    def show(judged: "Judged") -> None:
        nonlocal shown
        shown += 1
        experiment = judged.experiment
        inform(f"[{shown}/{len(experiments)}] {experiment.name} ({experiment.figure}): {judged.seconds:.0f} s")
        if not as_json:
            print_verdicts(judged, store)
            if save and (sizes := [trial.weights for trial in judged.trials if trial.weights]):
                inform(told_weights(save, sizes))

    options: dict[str, Any] = {"outbox": outbox, "address": address, "resources": resources, "show": show}
    options |= {"fresh": fresh, "most_seeds": limit, "controls": controls, "settings": settings, "save": save or ""}
    finish(engine.reproduce(experiments, scale, store, **options), store, as_json)


def at_scale(experiments: list[Experiment], names: Sequence[str], scale: Scale) -> list[Experiment]:
    """Return those with a preset of this scale, and say which are skipped.

    Raises `RequestError` for one that is itself named, by name or number, and where none is left.
    """
    systems = set(registry.systems())
    for name in names:
        if name not in systems:
            registry.find(name).preset(scale)
    with_preset = [experiment for experiment in experiments if scale in experiment.scales]
    if not with_preset:
        have = [e.name for e in registry.experiments() if scale in e.scales]
        raise RequestError(f"none of these figures has a {scale} preset: choose from {', '.join(have) or 'none'}")
    if skipped := [experiment.name for experiment in experiments if scale not in experiment.scales]:
        named = ", ".join(skipped[:NAMED]) + (f" and {len(skipped) - NAMED} more" if len(skipped) > NAMED else "")
        inform(f"skipped, without a {scale} preset: {named}")
    return with_preset


def judge(sweep_run_id: SweepId, as_json: Json = False) -> None:
    """Judge and draw a sweep or a map again from what is stored."""
    from featurelab.pipelines.engine.sweep.records import read_sweep
    from featurelab.pipelines.engine.verdict import judge as engine
    from featurelab.pipelines.engine.verdict.maps.mapping import judge_map
    from featurelab.tracking.store.query import whole_id

    store = connect(create=False)
    run_id = whole_id(store, sweep_run_id)
    if read_sweep(store, run_id)[1].kind == "map":
        show_map(judge_map(run_id, store), store, as_json)
        return
    judged = engine.judge(run_id, store)
    if not as_json:
        print_verdicts(judged, store)
    finish([judged], store, as_json)


def print_verdicts(judged: "Judged", store: "Store") -> None:
    """Print the verdicts on a figure, and where its charts are; of another sweep, that it has no verdicts."""
    from featurelab.pipelines.engine.command import terminal

    experiment = judged.experiment
    at = f" at {judged.settings}" if judged.settings else ""
    title = f"{experiment.name}{at}: {len(judged.trials)} trials in {judged.seconds:.0f} s"
    if judged.is_the_figure:
        table = terminal.verdict_table(f"{title}, sweep {judged.sweep_run_id}", judged.verdicts)
        terminal.console().print(table)
        if is_quiet():
            tell(f"{experiment.name}{at}, sweep {judged.sweep_run_id}")
    else:
        tell(f"{title}: not the figure's grid, which its claims are about, so drawn against its axes and not judged")
    if judged.trials_of and experiment.reads:
        inform(f"its trials are those of {experiment.reads.name}, sweep {judged.trials_of}")
    else:
        print_links(store, experiment, judged.sweep, judged.sweep_run_id, judged.trials)


def finish(judged: "list[Judged]", store: "Store", as_json: bool) -> None:
    """Print a summary of all verdicts; exit with 1 where one is not as documented."""
    from featurelab.pipelines.engine.command import terminal
    from featurelab.pipelines.engine.verdict.links import of_all_verdicts

    if as_json:
        terminal.emit({"experiments": [one.as_dict() for one in judged], "scale": judged[0].scale})
    statuses = [verdict.status for one in judged for verdict in one.verdicts]
    figures = [one for one in judged if one.is_the_figure]
    if figures:
        tell(", ".join(f"{statuses.count(status)} {status}" for status in STATUSES))
    if figures and not as_json:
        inform(f"all verdicts: {of_all_verdicts(store, figures[0].sweep_run_id)}")
    for one in judged:
        for verdict in one.verdicts:
            if verdict.surprising:
                tell(f"otherwise than documented: {one.experiment.name} {verdict.id} {verdict.status}")
    raise typer.Exit(0 if all(one.as_documented for one in judged) else 1)
