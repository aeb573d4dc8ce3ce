"""How long a user waits for commands: to the first point in the store, from the last trial to the prompt, and in all.

Each command runs in a process of its own, in a new folder with an empty store. Memory is the largest that one of its
processes needed, as Linux reports it. What a command that trains cannot do without is measured beside it: a script that
imports the same libraries and records one number in a new store, in its own process or in two tasks of Ray.
"""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path
from statistics import median

from benchmarks._rows import OURS, Row, Size, compare

FEATURELAB = Path(sys.executable).parent / "featurelab"
FIGURE = "neural_feature_ansatz/init_scale"
SHORT = [FIGURE, "steps=20", "n_train=64", "dim=16", "width=32"]
COMMANDS = {
    "run": ("run of a short trial", ["run", *SHORT]),
    "sweep": ("sweep of two short trials", ["sweep", *SHORT, "--over", "seed=0,1"]),
    "reproduce": ("reproduce of one short figure", ["reproduce", "looped_transformer/convergence"]),
}
BY_HAND = """
def trial(store):
    import mlflow, pytorch_lightning, torch
    mlflow.set_tracking_uri(store)
    with mlflow.start_run():
        mlflow.log_metric("loss", torch.rand(()).item())
"""
ALONE = f"{BY_HAND}\ntrial('sqlite:///mlflow.db')"
IN_RAY = f"""
import os, mlflow, ray
{BY_HAND}
store = f"sqlite:///{{os.getcwd()}}/mlflow.db"
ray.init(num_cpus=2, include_dashboard=False, logging_level="ERROR")
mlflow.set_tracking_uri(store)
mlflow.set_experiment("Default")
ray.get([ray.remote(trial).remote(store) for _ in range(2)])
"""
SCRIPTS = {"one number by hand": ALONE, "one number by hand, in Ray": IN_RAY}
PEERS = {"run": "one number by hand", "sweep": "one number by hand, in Ray", "reproduce": "one number by hand, in Ray"}
TRIALS = "runs JOIN experiments USING (experiment_id) WHERE experiments.name != 'verdicts'"
FIRST = f"SELECT COUNT(*) FROM metrics WHERE run_uuid IN (SELECT run_uuid FROM {TRIALS})"
LAST = f"SELECT MAX(end_time) FROM {TRIALS}"
EVERY_S = 0.03


def rows(size: Size) -> list[Row]:
    """A row for each command: seconds in all, and what the command waits for."""
    names = list(COMMANDS) if size == "full" else ["run"]
    peers = dict.fromkeys(PEERS[name] for name in names)
    commands = {name: [str(FEATURELAB), *COMMANDS[name][1]] for name in names}
    commands |= {peer: [sys.executable, "-c", SCRIPTS[peer]] for peer in peers}
    measured: dict[str, list[dict[str, float]]] = {name: [] for name in commands}
    for _ in range(2 if size == "full" else 1):
        for name, command in commands.items():
            measured[name].append(once(command))
    return [row for name in names for row in _compared(name, measured[name], measured[PEERS[name]])]


def _compared(name: str, ours: list[dict[str, float]], peers: list[dict[str, float]]) -> list[Row]:
    seconds = {OURS: [run["seconds"] for run in ours], PEERS[name]: [run["seconds"] for run in peers]}
    numbers = {key: median(run[key] for run in ours) for key in ours[0] if key != "seconds"}
    floor = {f"peer_{key}": median(run[key] for run in peers) for key in peers[0] if key in numbers}
    return compare(name, f"featurelab {COMMANDS[name][0]}", seconds, numbers=numbers | floor)


def once(command: Sequence[str]) -> dict[str, float]:
    """Run a command; return seconds in all, to the first point, from the last trial's end, and memory in MiB."""
    with tempfile.TemporaryDirectory() as folder:
        store, numbers, peaks = Path(folder) / "mlflow.db", {}, dict[int, float]()
        start = time.time()
        process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while process.poll() is None:
            time.sleep(EVERY_S)
            peaks |= {pid: _peak(pid) for pid in (process.pid, *_below(process.pid)) if _peak(pid)}
            if "first_point_s" not in numbers and _asked(store, FIRST):
                numbers["first_point_s"] = time.time() - start
        end = time.time()
        unexpected = process.returncode == 1 and command[1] == "reproduce"  # a verdict, at so few seeds
        if process.returncode and not unexpected:
            raise SystemExit(f"{command[:3]} ended with status {process.returncode}")
        if last := _asked(store, LAST):
            numbers["last_trial_to_prompt_s"] = end - last / 1000
        workers = [peak for pid, peak in peaks.items() if pid != process.pid]
        numbers |= {"command_mib": peaks[process.pid]} | ({"largest_other_mib": max(workers)} if workers else {})
        return {"seconds": end - start, **numbers}


def _asked(store: Path, query: str) -> float:
    with suppress(sqlite3.Error), closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True, timeout=0.1)) as file:
        return float(file.execute(query).fetchone()[0] or 0)
    return 0.0


def _below(pid: int) -> list[int]:
    """The processes that a process has started, and those that these have started."""
    with suppress(OSError):
        children = [
            int(child)
            for task in Path(f"/proc/{pid}/task").iterdir()
            for child in (task / "children").read_text().split()
        ]
        return [*children, *(further for child in children for further in _below(child))]
    return []


def _peak(pid: int) -> float:
    """The most memory that a process has had, in MiB; 0 once it has ended."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    return 0.0
