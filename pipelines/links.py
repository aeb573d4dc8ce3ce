"""What a person finds in MLflow's pages: links to a sweep, and descriptions of figures and sweeps."""

import re
import sys
from collections.abc import Iterator, Sequence

from pipelines.claims import Verdict
from pipelines.errors import RequestError
from pipelines.experiment import Experiment
from pipelines.records import SWEEP_NAME, VERDICTS, TrialRecord, read_stored_plan, read_trials
from tracking import pages, query
from tracking.connect import Store

START = "nothing serves MLflow's pages here: featurelab ui does"
SHOWN = 5  # of the newest sweeps


DEFAULT = f"http://127.0.0.1:{pages.PORT}"


def of_sweep(
    store: Store, experiment: Experiment, sweep: str, sweep_run_id: str, trials: Sequence[TrialRecord]
) -> Iterator[tuple[str, str]]:
    """What to tell of where a sweep is shown: its charts, and those with its trials in parallel coordinates."""
    experiment_id = store.find_experiment(experiment.name)
    if experiment_id is None or not SWEEP_NAME.fullmatch(sweep):
        return
    address = pages.served(store, sweep_run_id)
    yield "charts", (address or DEFAULT) + pages.charts_link(experiment_id, sweep)
    if key := keep_view(store, experiment, experiment_id, sweep, sweep_run_id, trials):
        yield "parallel coordinates", (address or DEFAULT) + pages.view_link(experiment_id, key)
    if not address:
        yield "MLflow", START


def keep_view(
    store: Store,
    experiment: Experiment,
    experiment_id: str,
    sweep: str,
    sweep_run_id: str,
    trials: Sequence[TrialRecord],
) -> str:
    """Lay out the charts of a sweep whose trials have something to be compared by; returns the key of the view."""
    plan = read_stored_plan(store, sweep_run_id, experiment)
    metric = plan["metric"] or experiment.metric
    metrics = {name for trial in trials for name in trial.metrics}
    axes = [axis for axis in plan["axes"] if len({str(trial.config.get(axis)) for trial in trials}) > 1]
    if not axes or metric not in metrics:
        return ""
    derived = {f"{kind}/{name}" for name in metrics for kind in ("final", "best")}
    options = {"lower_first": plan["mode"] == "min", "metrics": metrics | derived}
    return pages.keep_view(store, experiment_id, sweep_run_id, sweep, axes, metric, **options)


def of_runs(store: Store, run_ids: Sequence[str], experiment_ids: Sequence[str]) -> str:
    return (pages.served(store, run_ids[0]) or DEFAULT) + pages.compare_link(run_ids, experiment_ids)


def of_store(store: Store, port: int) -> Iterator[tuple[str, str]]:
    """Where the pages that are about to be served at this port show the verdicts and the newest sweeps."""
    base = f"http://127.0.0.1:{port}"
    found = query.runs(store, VERDICTS)
    verdicts = store.find_experiment(VERDICTS)
    if found.empty or verdicts is None:
        yield "MLflow", f"{base}/#/experiments?{pages.MODEL_TRAINING}"
        return
    yield "verdicts", f"{base}/#/experiments/{verdicts}/runs?startTime=ALL&{pages.MODEL_TRAINING}"
    for row in found.sort_values("start", ascending=False).head(SHOWN).to_dict("records"):
        name = str(row.get("tags.experiment"))
        experiment_id = store.find_experiment(name)
        try:
            trials = read_trials(store, name, row["run_id"]) if experiment_id else []
        except RequestError:  # an experiment of a package that is not here, or a run that is not ours
            continue
        sweep = str(row.get("tags.sweep"))
        if len(trials) > 1 and experiment_id and SWEEP_NAME.fullmatch(sweep):
            yield str(row["name"]), base + pages.charts_link(experiment_id, sweep)


def describe(store: Store, experiment: Experiment) -> None:
    """Give the experiment's page a description: what the figure shows, the paper, the command."""
    experiment_id = store.experiment_id(experiment.name)
    module = sys.modules.get(str(getattr(experiment.run_trial, "__module__", "")))
    parts = [
        # the page shows one line of the first paragraph, and tables its first words
        f"{_title(experiment)} [Charts](#{pages.charts_link(experiment_id)[2:]})",
        experiment.caption or (module and module.__doc__),
        _paper(experiment),
        f"`{_reproduction(experiment)}`",
    ]
    text = "\n\n".join(part.strip() for part in parts if part)
    pages.describe(store, experiment_id, text, mark=f"`{_reproduction(experiment)}`")


def describe_verdicts(store: Store) -> None:
    """Give the page of all sweeps a description."""
    judge, report = "`featurelab judge SWEEP`", "`featurelab report`"
    text = f"""One run for each sweep: its plan, its drawing, and the verdicts of a figure.

Trials are in the experiments of their figures, and carry the tag `sweep`.

{judge} judges and draws again from what is stored, {report} puts all figures on one page."""
    pages.describe(store, store.experiment_id(VERDICTS), text, mark=judge)


def sweep_note(experiment: Experiment, name: str, axes: Sequence[str], trials: int) -> str:
    """The description of a sweep that is not the figure's own."""
    parts = [
        f"Sweep `{name}`: {trials} trials over {', '.join(axes)}, in the setting of {_title(experiment)}",
        _paper(experiment),
        f"`featurelab sweep {experiment.name} --resume {name}` runs what is missing of it.",
    ]
    return "\n\n".join(part for part in parts if part)


def reproduction_note(experiment: Experiment, verdicts: Sequence[Verdict], sweep_run_id: str) -> str:
    """The description of a figure's own sweep: its verdicts as a table."""
    from pipelines.show import number

    table = ["| claim | verdict | measured | expected | paper |", "|---|---|---|---|---|"]
    for v in verdicts:
        status = v.status + (" (unexpected)" if v.surprising else "")
        table.append(f"| {v.statement} | {status} | {number(v.measured)} | {number(v.expected)} | {number(v.paper)} |")
    parts = [
        f"**{_title(experiment)}**",
        "\n".join(table) if verdicts else "",
        _paper(experiment),
        f"`{_reproduction(experiment)}` makes it, `featurelab judge {sweep_run_id}` judges again what is stored.",
    ]
    return "\n\n".join(part for part in parts if part)


def _title(experiment: Experiment) -> str:
    return f"{experiment.figure}: {experiment.title}."


def _reproduction(experiment: Experiment) -> str:
    return f"featurelab reproduce {experiment.name}"


def _paper(experiment: Experiment) -> str:
    """What the experiment's package says of its paper, which is linked to where it is on arXiv."""
    package = sys.modules.get(str(getattr(experiment.run_trial, "__module__", "")).rpartition(".")[0])
    text = (package and package.__doc__) or ""
    return re.sub(r"(?<!\[)arXiv:(\d{4}\.\d{4,5})", r"[arXiv:\1](https://arxiv.org/abs/\1)", text).strip()
