"""Judge the claims of a figure, and draw it, from the store alone."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from featurelab.pipelines.engine.errors import tell
from featurelab.pipelines.engine.experiment.claims import STATUSES, Claim, Verdict
from featurelab.pipelines.engine.experiment.config import Scale, tupled
from featurelab.pipelines.engine.experiment.experiment import Experiment
from featurelab.pipelines.engine.experiment.results import Results
from featurelab.pipelines.engine.sweep import schemas
from featurelab.pipelines.engine.sweep.descriptions import describe_verdicts, reproduction_note, sweep_note
from featurelab.pipelines.engine.sweep.plan import Plan
from featurelab.pipelines.engine.sweep.records import (
    JUDGING,
    TRIALS_OF,
    as_text,
    end_sweep,
    how_trials_went,
    log_values,
    read_sweep,
    read_trials_of,
)
from featurelab.pipelines.engine.trial.record import TrialRecord
from featurelab.pipelines.engine.verdict.decide import further_trials
from featurelab.pipelines.engine.verdict.overview import overview
from featurelab.tracking.pages import NOTE
from featurelab.tracking.store import query
from featurelab.tracking.store.connect import Store

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Judged:
    """A sweep with its drawing, and if its trials make the figure, the verdicts on the figure's claims."""

    experiment: Experiment
    sweep: str
    sweep_run_id: str
    scale: Scale
    trials: list[TrialRecord]
    seconds: float
    figure: str
    verdicts: list[Verdict]
    is_the_figure: bool = True
    trials_of: str | None = None  # the id of the sweep whose trials it reads, if it has none of its own
    further: list[dict[str, Any]] = field(default_factory=list)  # configs of trials that its undecided claims need
    settings: str = ""  # those of a figure that is reproduced at other settings than its own

    @property
    def as_documented(self) -> bool:
        return not any(verdict.surprising for verdict in self.verdicts)

    def as_dict(self) -> dict[str, Any]:
        """The sweep as `--json` prints it."""
        return {
            "name": self.experiment.name,
            "sweep_run_id": self.sweep_run_id,
            "trials": len(self.trials),
            "seconds": round(self.seconds, 1),
            "figure": self.figure,
            "claims": [verdict.model_dump() for verdict in self.verdicts],
        }


def judge(sweep_run_id: str, store: Store, drawn_before: str = "") -> Judged:
    """Judge and draw a sweep; the verdicts and the figure replace earlier ones of the same sweep.

    Claims are about the figure's own grid, so any other sweep is only drawn, against its axes. `drawn_before` is the
    path of a figure that this process has drawn from the same grid, and that stays. Raises `RequestError` for a run
    that is not a sweep of ours.
    """
    experiment, plan, tags = read_sweep(store, sweep_run_id)
    trials = read_trials_of(store, experiment, sweep_run_id, plan, tags)
    seconds = schemas.seconds(tags.get("seconds"))
    if not is_the_figure(experiment, plan):
        figure = draw_overview(experiment, plan, tags["sweep"], trials, sweep_run_id, store)
        return Judged(
            experiment, tags["sweep"], sweep_run_id, plan.scale, trials, seconds, figure, [], is_the_figure=False
        )
    all_results = collect(trials, store)
    results = all_results.under("none")
    controls = experiment.named_controls
    scale = plan.scale if plan.settings.keys() <= {"seed"} else None
    verdicts = [judge_claim(claim, all_results, plan, scale, also=controls) for claim in experiment.claims]
    further = further_trials(experiment, plan, verdicts, results)
    settings = plan.marks.get("settings", "")
    figure = drawn_before
    if experiment.drawing and not figure:
        figure = draw(experiment, _of_the_grid(experiment, plan, results), sweep_run_id, store, plan)
    counts = {status: sum(v.status == status for v in verdicts) for status in STATUSES}
    unexpected = sum(verdict.surprising for verdict in verdicts)
    store.log_json(sweep_run_id, [verdict.model_dump() for verdict in verdicts], "verdicts.json")
    if verdicts:
        store.log_mlflow_table(sweep_run_id, pd.DataFrame(map(_flat, verdicts)), "verdicts_table.json")
    describe_verdicts(store)  # a store of an earlier version may lack this description
    log_values(store, sweep_run_id, {f"claims/{s}": n for s, n in counts.items()} | {"claims/unexpected": unexpected})
    store.set_tags(
        sweep_run_id,
        {
            "verdict": ", ".join(f"{number} {status}" for status, number in counts.items() if number) or "no claims",
            NOTE: reproduction_note(experiment, verdicts, sweep_run_id, settings),
        },
    )
    if tags.get("status") == JUDGING and not further:
        end_sweep(store, sweep_run_id, how_trials_went(trials))
    return Judged(
        experiment,
        tags["sweep"],
        sweep_run_id,
        plan.scale,
        trials,
        seconds,
        figure,
        verdicts,
        trials_of=tags.get(TRIALS_OF),
        further=further,
        settings=settings,
    )


def judge_claim(
    claim: Claim, results: Results, plan: Plan, scale: Scale | None = None, also: Sequence[str] = ()
) -> Verdict:
    """The verdict on a claim; without a `scale`, at other settings than a preset's, of which nothing is documented.

    A measure that raises an error leaves its claim untested, with the error as the reason: it may be written for the
    figure's own settings, and a mistake in one must not cost the others their verdicts.
    """
    plain = results.under("none")
    try:
        verdict = claim.judge(plain, scale, most_seeds=plan.most_seeds)
        return claim.against(verdict, results, also=also)
    except Exception as error:
        from featurelab.pipelines.engine.trial.ending import mistake

        none = claim.judge(replace(plain, trials=plain.trials[:0]), scale)
        return none.model_copy(update={"reason": f"could not be measured: {mistake(error, claim.measure)}"})


def _of_the_grid(experiment: Experiment, plan: Plan, results: Results) -> Results:
    """Return the trials that the figure shows: those with the seeds of its grid."""
    if "seed" not in results.trials:
        return results
    # of the settings, the seed alone: a stored plan may have others that the experiment no longer accepts
    first = {name: value for name, value in plan.settings.items() if name == "seed"}
    seeds = {config.seed for config in experiment.configs(plan.scale, first)}
    return replace(results, trials=results.trials[results.trials.seed.isin(seeds)])


def is_the_figure(experiment: Experiment, plan: Plan) -> bool:
    """Whether the trials of a stored plan make the figure, so that its claims are about them."""
    if plan.kind in ("reproduce", "at_settings"):
        return True
    if plan.kind == "map":
        return False
    grid = [config.model_dump(mode="json") for config in experiment.configs(plan.scale)]
    return sorted(map(as_text, plan.configs)) == sorted(map(as_text, grid))


def draw_overview(
    experiment: Experiment,
    plan: Plan,
    name: str,
    trials: list[TrialRecord],
    sweep_run_id: str,
    store: Store,
) -> str:
    """Draw the metric that ranks a sweep against each of its axes, and describe the sweep on its MLflow page."""
    from featurelab.pipelines.engine.experiment.drawing import style

    store.set_tags(sweep_run_id, {NOTE: sweep_note(experiment, name, plan.axes, len(trials))})
    title, metric = f"{experiment.name}: sweep {name}", plan.metric or experiment.metric
    with style():
        store.log_figure(sweep_run_id, overview(title, trials, plan.axes, metric, plan.mode), "figure")
    return "figure.png"


def collect(trials: list[TrialRecord], store: Store) -> Results:
    """Return the results of these trials; each metric and each array is read from the store at its first use."""
    rows = [{"run_id": t.run_id, "status": t.status, **tupled(t.config)} for t in trials]
    frame = pd.DataFrame(rows, dtype=object)  # pandas would turn None into NaN, and integers into floats

    @cache
    def read(metric: str) -> pd.DataFrame:
        return query.histories(store, [trial.run_id for trial in trials], [metric])

    @cache
    def load(run_id: str, name: str) -> Mapping[str, np.ndarray]:
        with np.load(store.download(run_id, f"arrays/{name}.npz"), allow_pickle=False) as file:
            return dict(file)

    return Results(frame, read, load, names=lambda: {name for trial in trials for name in trial.metrics})


def draw(experiment: Experiment, results: Results, sweep_run_id: str, store: Store, plan: Plan) -> str:
    """Draw the figure, store it as PNG, SVG and PDF, and return the path of the PNG among the run's artifacts.

    If the drawing raises an error, the picture says so: the verdicts are useful without it.
    """
    from featurelab.pipelines.engine.experiment.drawing import style

    try:
        figure = drawn(experiment, results, plan)
    except Exception as error:
        from featurelab.pipelines.engine.trial.ending import mistake

        assert experiment.drawing is not None
        reason = mistake(error, experiment.drawing.draw)
        figure = _without_drawing(reason)
        tell(f"{experiment.name} cannot be drawn: {reason}")
    with style():
        store.log_figure(sweep_run_id, figure, "figure")
    return "figure.png"


def _without_drawing(reason: str) -> "Figure":
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 2), layout="constrained")
    figure.text(0.5, 0.5, f"cannot be drawn: {reason}", ha="center", wrap=True)
    return figure


def drawn(experiment: Experiment, results: Results, plan: Plan) -> "Figure":
    """Return the drawing of a figure.

    Below the title it says what takes the place of the paper's data and networks; the title names settings that are
    not the figure's own. If trials are missing, the picture says so: the verdicts are useful without it.
    """
    from matplotlib.figure import Figure

    from featurelab.pipelines.engine.errors import Missing
    from featurelab.pipelines.engine.experiment.drawing import style, subtitle

    drawing, settings = experiment.drawing, plan.marks.get("settings", "")
    assert drawing is not None
    with style():
        figure = Figure(figsize=drawing.size, layout="constrained")
        axes = figure.subplots(drawing.rows, drawing.cols, squeeze=False)
        try:
            drawing.draw(results, axes)
        except Missing as gap:
            figure.clear()
            figure.text(0.5, 0.5, f"cannot be drawn: {gap}", ha="center")
        figure.suptitle(f"{experiment.figure}. {experiment.title}" + (f", at {settings}" if settings else ""))
        if not settings and (difference := experiment.difference(plan.scale)):
            subtitle(figure, difference)
    return figure


def redrawn(sweep_run_id: str, store: Store) -> "Figure | None":
    """Return the drawing of a sweep from what is stored, and store nothing; None for a figure that declares none.

    Raises `RequestError` for a run that is not a sweep of ours.
    """
    from featurelab.pipelines.engine.experiment.drawing import style

    experiment, plan, tags = read_sweep(store, sweep_run_id)
    trials = read_trials_of(store, experiment, sweep_run_id, plan, tags)
    if not is_the_figure(experiment, plan):
        with style():
            title = f"{experiment.name}: sweep {tags['sweep']}"
            return overview(title, trials, plan.axes, plan.metric or experiment.metric, plan.mode)
    if experiment.drawing is None:
        return None
    of_grid = _of_the_grid(experiment, plan, collect(trials, store).under("none"))
    return drawn(experiment, of_grid, plan)


def _flat(verdict: Verdict) -> dict[str, Any]:
    """A verdict as a row of a table, whose cells are texts and numbers."""
    return {
        key: json.dumps(value) if isinstance(value, dict | list) else value
        for key, value in verdict.model_dump().items()
    }
