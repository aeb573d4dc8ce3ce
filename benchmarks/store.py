"""How long reading from a store takes, by the number of runs in it.

A SQLite store is filled with one sweep of N trials of 200 points. The rows are those that recording would create, but
they are written directly to MLflow's tables, because recording would take longer than everything else. Then each of our
commands that read many runs is timed in this process, next to the usual alternative: ask MLflow's client for each curve
of each run. With `--server` everything goes through an MLflow server.

    python -m benchmarks.store [--json] [--server] [--runs 100 1000 10000]
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from benchmarks._installed import installed
from benchmarks._server import server

RUNS = (100, 1000, 10_000)
POINTS, CURVES = 20, 10
COMPARED = 100
SAMPLED = 100  # runs on which the alternative is timed: its time is proportional to their number


def fill(uri: str, number: int) -> tuple[str, list[str]]:
    """Create a sweep with this many trials, and return the id of its run and those of the trials."""
    from featurelab.pipelines.engine.experiment import registry
    from featurelab.pipelines.engine.experiment.axes import Listed, loguniform
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
    first = open_run(experiment, plan.configs[0], store, **details)
    ids = _copies(store, first, plan)
    store.set_tags(sweep, {"status": "finished", "seconds": "1.0"})
    store.end_run(sweep)
    return sweep, ids


def _copies(store: Any, first: str, plan: Any) -> list[str]:
    """Write the rows of every trial of the plan by the pattern of the first, which MLflow wrote."""
    import sqlite3

    from benchmarks._nothing import curves
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
        for index, (run_id, config) in enumerate(zip(ids, plan.configs, strict=True)):
            values = config.model_dump(mode="json")
            own = {"trial": str(index), "config": json.dumps(values), "config_hash": config_hash(values)}
            own |= {"status": "finished", "seconds": "1.0", "mlflow.runName": plan.label(config)}
            labels += [(key, value, run_id) for key, value in (tags | own).items()]
            params += [(axis, str(values[axis]), run_id) for axis in plan.axes]
            place = str(pattern["artifact_uri"]).replace(first, run_id)
            if index:
                runs.append(
                    tuple((pattern | {"run_uuid": run_id, "name": plan.label(config), "artifact_uri": place}).values())
                )
            for name, curve in curves(config).items():
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


def commands(uri: str, sweep: str, ids: list[str], folder: Path) -> dict[str, Callable[[], Any]]:
    """Return the functions to time by name: ours, and the alternative."""
    from mlflow import MlflowClient

    from featurelab.pipelines.engine.sweep.records import read_trials
    from featurelab.pipelines.engine.verdict.report import report_entries
    from featurelab.pipelines.engine.verdict.reproduce import judge
    from featurelab.pipelines.engine.verdict.rerun import compare
    from featurelab.tracking.report import render
    from featurelab.tracking.store.connect import attach

    store, client = attach(uri), MlflowClient(uri)
    few = ids[:: max(1, len(ids) // COMPARED)][:COMPARED]

    def curve_by_curve() -> None:
        for run_id in ids[:SAMPLED]:
            for metric in client.get_run(run_id).data.metrics:
                client.get_metric_history(run_id, metric)

    return {
        "list trials": lambda: read_trials(store, "nothing/at_all", sweep),
        "judge": lambda: judge(sweep, store),
        "report": lambda: render(list(report_entries(store)), folder / "report"),
        f"compare {len(few)} runs": lambda: compare(few, store),
        "client, curve by curve": curve_by_curve,
    }


def measure(numbers: list[int], through_server: bool = False) -> dict[str, Any]:
    rows: dict[str, dict[str, Any]] = {}
    for number in numbers:
        with tempfile.TemporaryDirectory() as temporary, ExitStack() as running:
            folder = Path(temporary)
            uri = f"sqlite:///{folder / 'mlflow.db'}"
            sweep, ids = fill(uri, number)
            if through_server:
                uri = running.enter_context(server(folder, uri))
            for name, command in commands(uri, sweep, ids, folder).items():
                start = time.perf_counter()
                command()
                seconds = time.perf_counter() - start
                if name.startswith("client"):
                    seconds *= number / min(SAMPLED, number)
                rows.setdefault(name, {"method": name})[f"seconds_at_{number}"] = seconds
                print(number, name, f"{seconds:.2f} s", file=sys.stderr, flush=True)
    return {"points_a_run": POINTS * CURVES, "methods": list(rows.values())}


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of a table")
    parser.add_argument("--server", action="store_true", help="read through an MLflow server over the file")
    parser.add_argument("--runs", type=int, nargs="+", default=RUNS)
    args = parser.parse_args(argv)
    with installed():
        results = measure(args.runs, args.server)
    if args.json:
        print(json.dumps(results))
        return
    for row in results["methods"]:
        print(f"{row['method']:24}" + "".join(f"{row[f'seconds_at_{n}']:12.2f} s" for n in args.runs))


if __name__ == "__main__":
    main()
