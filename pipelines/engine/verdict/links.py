"""Links to MLflow's pages: the charts of a sweep, its trials in parallel coordinates, its verdicts."""

import re
from collections.abc import Iterator, Sequence
from urllib.parse import urlsplit

from featurelab.pipelines.engine.errors import RequestError
from featurelab.pipelines.engine.experiment.experiment import Experiment
from featurelab.pipelines.engine.sweep.plan import SWEEP_NAME
from featurelab.pipelines.engine.sweep.records import VERDICTS, read_stored_plan, read_trials
from featurelab.pipelines.engine.trial.record import TrialRecord
from featurelab.tracking import pages
from featurelab.tracking.lines import quoted
from featurelab.tracking.store import query
from featurelab.tracking.store.connect import Store

START = "its pages are not served on this machine: run featurelab ui"
LONGEST_ADDRESS = 500
SHOWN = 5  # sweeps, the newest ones
DEFAULT = f"http://127.0.0.1:{pages.PORT}"


def of_sweep(
    store: Store, experiment: Experiment, sweep: str, sweep_run_id: str, trials: Sequence[TrialRecord]
) -> Iterator[tuple[str, str]]:
    """Yield titles and links of a sweep: its charts, and its trials in parallel coordinates."""
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
    """Store a view of a sweep's charts, and return its key; empty if the trials do not differ or lack the metric."""
    plan = read_stored_plan(store, sweep_run_id, experiment)
    metric = plan.metric or experiment.metric
    metrics = {name for trial in trials for name in trial.metrics}
    axes = [axis for axis in plan.axes if len({str(trial.config.get(axis)) for trial in trials}) > 1]
    if not axes or metric not in metrics:
        return ""
    return pages.keep_view(
        store,
        experiment_id,
        sweep_run_id,
        sweep,
        axes,
        metric,
        lower_first=plan.mode == "min",
        metrics=metrics,
    )


def of_runs(store: Store, run_ids: Sequence[str], experiment_ids: Sequence[str]) -> str:
    """Return the link to the page that compares these runs."""
    return address_of(store, run_ids[0]) + pages.compare_link(run_ids, experiment_ids)


def address_of(store: Store, run_id: str) -> str:
    """Return the address of the MLflow pages that show this run, or at which `featurelab ui` would serve them."""
    return pages.served(store, run_id) or DEFAULT


def base_of(url: str) -> str:
    """Return the address of MLflow's pages that a user gives; raise `RequestError` for an invalid one.

    The address is published in the report, so it must not contain credentials.
    """
    try:
        parts = urlsplit(url)
        port_or_none = parts.port  # raises ValueError for anything but a number
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and port_or_none != 0
    except ValueError:
        valid = False
    spaced = not url.isascii() or not url.isprintable() or re.search(r"[\s\"'<>\\]", url)
    if not valid or spaced or parts.query or parts.fragment or len(url) > LONGEST_ADDRESS:
        form = "give one such as https://mlflow.example.org"
        raise RequestError(f"--store-url {quoted(url)} is not an address of MLflow's pages: {form}")
    if parts.username is not None or parts.password is not None:
        raise RequestError(f"--store-url {quoted(url)} has credentials in it, which the report would show")
    return url.rstrip("/")


def of_verdicts(store: Store, base: str, sweep_run_id: str) -> str:
    """Return the link to a sweep's own run, with its drawing and verdicts; empty in a store without sweeps."""
    experiment_id = store.find_experiment(VERDICTS)
    return base + pages.run_link(experiment_id, sweep_run_id) if experiment_id else ""


def of_all_verdicts(store: Store, sweep_run_id: str) -> str:
    """Return the link to the list of all sweeps with the counts of their claims, in the store that has this sweep."""
    experiment_id = store.experiment_id(VERDICTS)
    base = address_of(store, sweep_run_id)
    return base + pages.table_link(experiment_id, pages.columns_of(store, experiment_id))


def of_charts(store: Store, base: str, experiment: str, sweep: str) -> str:
    """Return the link to the curves of a sweep's trials; empty if there are none, or the name is not a sweep's."""
    experiment_id = store.find_experiment(experiment) if SWEEP_NAME.fullmatch(sweep) else None
    return base + pages.charts_link(experiment_id, sweep) if experiment_id else ""


def of_store(store: Store, port: int) -> Iterator[tuple[str, str]]:
    """Yield titles and links of the verdicts and of the newest sweeps, on pages that will be served at this port."""
    base = f"http://127.0.0.1:{port}"
    sweeps = query.runs(store, VERDICTS)
    verdicts = store.find_experiment(VERDICTS)
    if sweeps.empty or verdicts is None:
        yield "MLflow", f"{base}/#/experiments?{pages.MODEL_TRAINING}"
        return
    yield "verdicts", base + pages.table_link(verdicts, pages.columns_of(store, verdicts))
    for row in sweeps.sort_values("start", ascending=False).head(SHOWN).to_dict("records"):
        name = str(row.get("tags.experiment"))
        experiment_id = store.find_experiment(name)
        try:
            trials = read_trials(store, name, row["run_id"]) if experiment_id else []
        except RequestError:  # the package of the experiment is not installed, or the run is not ours
            continue
        sweep = str(row.get("tags.sweep"))
        if len(trials) > 1 and experiment_id and SWEEP_NAME.fullmatch(sweep):
            yield str(row["name"]), base + pages.charts_link(experiment_id, sweep)
