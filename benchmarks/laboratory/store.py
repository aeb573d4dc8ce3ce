"""How long it takes to read from a store with many runs, next to MLflow's client, asked for each curve of each run.

A SQLite store is filled with one sweep of N trials of 200 points. The rows are those that recording would create, but
they are written directly to MLflow's tables, because recording would take longer than everything else. Then each of our
commands that read many runs is timed in this process, for one number of runs also through an MLflow server. The client
is timed on a sample of the runs: its time is proportional to their number.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from benchmarks._rows import Row, Size, alternate, compare
from benchmarks.laboratory._installed import installed
from benchmarks.laboratory._server import server

POINTS, CURVES = 20, 10
COMPARED = 100
PEER = "MLflow client, curve by curve"


def fill(uri: str, number: int) -> tuple[str, list[str]]:
    """Create a sweep with this many trials, and return the id of its run and those of the trials."""
    from featurelab.pipelines.engine.experiment.axes import Listed, loguniform
    from featurelab.pipelines.engine.experiment.catalogue import registry
    from featurelab.pipelines.engine.sweep.begin import open_sweep
    from featurelab.pipelines.engine.sweep.plan import plan_search
    from featurelab.pipelines.engine.trial.record import open_run
    from featurelab.tracking.store.connect import connect

    experiment = registry.find("nothing/at_all")
    base = experiment.laptop.but(points=POINTS, curves=CURVES)
    axes = {"lr": loguniform(1e-4, 1.0), "seed": Listed((0, 1))}
    plan = plan_search(experiment, axes, number // 2, base, scale="laptop", kind="reproduce")
    store = connect(uri)
    sweep = open_sweep(plan, f"sweep-{number}", store)
    tags = {"sweep": f"sweep-{number}", "sweep_run_id": sweep, "kind": "reproduce", "workers": "1", "trial": "0"}
    details: Any = {"scale": "laptop", "name": "first", "axes": plan.axes, "tags": tags}
    first = open_run(experiment, plan.config(0), store, **details)
    ids = _copies(store, first, plan)
    store.set_tags(sweep, {"status": "finished", "seconds": "1.0"})
    store.end_run(sweep)
    return sweep, ids


def _copies(store: Any, first: str, plan: Any) -> list[str]:
    """Write the rows of every trial of the plan by the pattern of the first, which MLflow wrote."""
    import sqlite3

    from benchmarks.laboratory._nothing import curves
    from featurelab.tracking.provenance import config_hash
    from featurelab.tracking.store.addresses import sqlite_path

    # spread over all first digits, as MLflow's own ids: a server is searched by first digit
    ids = [first] + [hashlib.md5(str(index).encode()).hexdigest() for index in range(1, len(plan.configs))]
    with closing(sqlite3.connect(sqlite_path(store.uri))) as database, database:
        database.execute(
            "UPDATE runs SET status = 'FINISHED', end_time = start_time + 1000 WHERE run_uuid = ?", [first]
        )
        columns = [row[1] for row in database.execute("PRAGMA table_info(runs)")]
        pattern = dict(
            zip(columns, database.execute("SELECT * FROM runs WHERE run_uuid = ?", [first]).fetchone(), strict=True)
        )
        tags = dict(database.execute("SELECT key, value FROM tags WHERE run_uuid = ?", [first]).fetchall())
        runs, labels, params, points, latest = [], [], [], [], []
        for index, (run_id, values) in enumerate(zip(ids, plan.configs, strict=True)):
            label = plan.label(index)
            own = {"trial": str(index), "config": json.dumps(values), "config_hash": config_hash(values)}
            own |= {"status": "finished", "seconds": "1.0", "mlflow.runName": label}
            labels += [(key, value, run_id) for key, value in (tags | own).items()]
            params += [(axis, str(values[axis]), run_id) for axis in plan.axes]
            place = str(pattern["artifact_uri"]).replace(first, run_id)
            if index:
                runs.append(tuple((pattern | {"run_uuid": run_id, "name": label, "artifact_uri": place}).values()))
            for name, curve in curves(plan.config(index)).items():
                points += [(name, float(v), 1000 + step, run_id, step, 0) for step, v in enumerate(curve)]
                last = (1000 + POINTS - 1, POINTS - 1, 0, run_id)
                latest.append((name, float(curve[-1]), *last))
        holes = ", ".join("?" * len(columns))
        database.executemany(f"INSERT INTO runs VALUES ({holes})", runs)
        database.executemany("INSERT OR REPLACE INTO tags (key, value, run_uuid) VALUES (?, ?, ?)", labels)
        database.executemany("INSERT INTO params (key, value, run_uuid) VALUES (?, ?, ?)", params)
        sql = "INSERT INTO metrics (key, value, timestamp, run_uuid, step, is_nan) VALUES (?, ?, ?, ?, ?, ?)"
        database.executemany(sql, points)
        sql = "INSERT INTO latest_metrics (key, value, timestamp, step, is_nan, run_uuid) VALUES (?, ?, ?, ?, ?, ?)"
        database.executemany(sql, latest)
    return ids


def commands(uri: str, sweep: str, ids: Sequence[str], folder: Path) -> dict[str, Callable[[], Any]]:
    """Return our functions to time, by id."""
    from featurelab.pipelines.engine.sweep.records import read_trials
    from featurelab.pipelines.engine.verdict.compare import compare as compare_runs
    from featurelab.pipelines.engine.verdict.judge import judge
    from featurelab.pipelines.engine.verdict.report import report_entries
    from featurelab.tracking.report.page import render
    from featurelab.tracking.store.connect import attach

    store = attach(uri)
    few = ids[:: max(1, len(ids) // COMPARED)][:COMPARED]
    return {
        "list": lambda: read_trials(store, "nothing/at_all", sweep),
        "judge": lambda: judge(sweep, store),
        "report": lambda: render(list(report_entries(store)), folder / "report"),
        "compare": lambda: compare_runs(few, store),
    }


WHAT = {
    "list": "list {} runs with their last values",
    "judge": "judge and draw a sweep of {} runs of 200 points",
    "report": "report a sweep of {} runs",
    "compare": f"compare at most {COMPARED} of {{}} runs",
}


def curve_by_curve(uri: str, ids: Sequence[str]) -> None:
    """Read every curve of some runs as MLflow's client offers it."""
    from mlflow import MlflowClient

    client = MlflowClient(uri)
    for run_id in ids:
        for metric in client.get_run(run_id).data.metrics:
            client.get_metric_history(run_id, metric)


def measured(number: int, through_server: bool, sampled: int, repeats: int) -> list[Row]:
    """Rows of a store with this many runs."""
    with tempfile.TemporaryDirectory() as temporary, ExitStack() as running:
        folder = Path(temporary)
        uri = f"sqlite:///{folder / 'mlflow.db'}"
        sweep, ids = fill(uri, number)
        if through_server:
            uri = running.enter_context(server(folder, uri))
        ours = alternate(commands(uri, sweep, ids, folder), repeats, warm=False)
        sample = ids[:: max(1, number // sampled)][:sampled]
        (peer,) = alternate({PEER: lambda: curve_by_curve(uri, sample)}, 1, warm=False).values()
        estimate = [peer[0] * number / len(sample)] * repeats
        place = "server" if through_server else "file"
        rows: list[Row] = []
        for name, seconds in ours.items():
            what = f"{WHAT[name].format(f'{number:,}')}, {'MLflow server over ' * through_server}SQLite"
            numbers = {"peer_sampled_runs": len(sample)}
            # only judging reads all curves
            taken = {"featurelab": seconds} | ({PEER: estimate} if name == "judge" else {})
            rows += compare(f"{place}/{number}/{name}", what, taken, numbers=numbers if name == "judge" else {})
        return rows


def planned(number: int, repeats: int) -> list[Row]:
    """Rows of a sweep of this many trials that is planned and labelled."""
    from featurelab.pipelines.engine.experiment.axes import Listed, loguniform
    from featurelab.pipelines.engine.experiment.catalogue import registry
    from featurelab.pipelines.engine.sweep.plan import plan_search

    experiment = registry.find("neural_feature_ansatz/init_scale")
    axes = {"lr": loguniform(1e-4, 1.0), "seed": Listed((0, 1))}

    def plan() -> None:
        laid_out = plan_search(experiment, axes, number // 2, experiment.laptop, scale="laptop")
        if len(names := [laid_out.label(index) for index in range(number)]) != number or not all(names):
            raise SystemExit("a trial has no name")

    what = f"plan and name a sweep of {number:,} trials (neural_feature_ansatz/init_scale)"
    return compare(f"plan/{number}", what, alternate({"featurelab": plan}, repeats, warm=False))


def rows(size: Size) -> list[Row]:
    with installed():
        if size == "tiny":
            return [*measured(6, False, 2, 1), *planned(10, 1)]
        return [
            *(row for number in (100, 1000, 10_000) for row in measured(number, False, 20, 3)),
            *measured(1000, True, 20, 3),
            *planned(100_000, 3),
        ]
