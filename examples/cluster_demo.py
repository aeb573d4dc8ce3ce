"""Compare a sweep that loses its MLflow server and one of its machines with the same sweep left undisturbed.

A Ray cluster of three nodes on this machine (a head without trials, two workers with one CPU each) and an MLflow server
run 48 trials of Figure 2 of the neural feature ansatz: learning rate x width x weight decay. Then the sweep runs again;
meanwhile the server is killed for half a minute, and one worker node for good. At the end every point of every metric
of the two sweeps is compared.

    make demo-cluster
"""

import argparse
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd
import requests

EXPERIMENT = "neural_feature_ansatz/init_scale"
AXES = ["lr=0.0125,0.025,0.05,0.1", "width=32,64,128", "weight_decay=0,1e-4,1e-3,1e-2"]
KEYS = ["trial", "metric", "step"]


class Server:
    """An MLflow server on this machine, with its own store and artifacts."""

    def __init__(self, home: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.home, self.uri = home, f"http://127.0.0.1:{self.port}"
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(self.port)]
        command += ["--backend-store-uri", f"sqlite:///{self.home}/server.db", "--workers", "1"]
        command += ["--artifacts-destination", str(self.home / "artifacts")]
        environment = os.environ | {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
        with (self.home / "server.log").open("ab") as log:
            self.process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
        until(self._answers, 120, "the MLflow server answers")

    def kill(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def _answers(self) -> bool:
        try:
            return requests.get(f"{self.uri}/health", timeout=5).ok
        except requests.ConnectionError:
            return False


@contextmanager
def cluster() -> Iterator[tuple[str, Callable[[], None]]]:
    """Start a Ray cluster of three nodes, and give its address and a function that kills one of its workers."""
    os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    from ray.cluster_utils import Cluster

    ray_cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    workers = [ray_cluster.add_node(num_cpus=1) for _ in range(2)]
    try:
        yield ray_cluster.address, lambda: ray_cluster.remove_node(workers[0], allow_graceful=False)
    finally:
        ray_cluster.shutdown()


def sweep(name: str, address: str, home: Path, *more: str) -> "subprocess.Popen[str]":
    """Start the sweep called `name`, or resume it."""
    featurelab = str(Path(sys.executable).with_name("featurelab"))
    command = [featurelab, "sweep", EXPERIMENT, "--address", address, "--json", *more]
    with (home / f"{name}.log").open("ab") as log:  # Ray writes a lot about a node that dies
        return subprocess.Popen(command, cwd=home, stdout=subprocess.PIPE, stderr=log, text=True)


def until(condition: Callable[[], bool], seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(f"gave up after {seconds:g} s of waiting until {what}")
        time.sleep(0.3)


def trials(name: str, uri: str) -> pd.DataFrame:
    """Return the runs of a sweep so far: run_id, trial, status."""
    from featurelab.tracking.store import query
    from featurelab.tracking.store.connect import connect

    runs = query.runs(connect(uri), EXPERIMENT, tags={"sweep": name})
    if runs.empty:
        return pd.DataFrame(columns=["run_id", "trial", "status"])
    runs = runs[~runs["tags.sweep_run_id"].str.startswith("superseded")]
    runs = runs[["run_id", "tags.trial", "tags.status"]]
    return runs.set_axis(["run_id", "trial", "status"], axis="columns")


def points(name: str, uri: str) -> pd.DataFrame:
    """Return every stored point of a sweep: trial, metric, step, value."""
    from featurelab.tracking.store import query
    from featurelab.tracking.store.connect import connect

    runs = trials(name, uri)
    histories = query.histories(connect(uri), list(runs.run_id))
    return histories.merge(runs, on="run_id")[[*KEYS, "value"]]


def finished(process: "subprocess.Popen[str]") -> dict[str, Any]:
    out, _ = process.communicate(timeout=1800)
    return json.loads(out) if out else {}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("demo"), help="a folder to create for the store")
    parser.add_argument("--over", nargs="*", default=AXES, help="axes of the sweep")
    args = parser.parse_args()
    home = args.out.absolute()
    home.mkdir(parents=True)
    server = Server(home)
    os.environ["MLFLOW_TRACKING_URI"] = server.uri
    over = [word for axis in args.over for word in ("--over", axis)]
    try:
        with cluster() as (address, kill_node):
            print(f"a cluster of three nodes at {address}, MLflow at {server.uri}", flush=True)
            began = time.monotonic()
            total = len(finished(sweep("calm", address, home, *over, "--name", "calm"))["trials"])
            print(f"calm: {total} trials in {time.monotonic() - began:.0f} s", flush=True)

            began = time.monotonic()
            process = sweep("stormy", address, home, *over, "--name", "stormy")
            done = lambda: int((trials("stormy", server.uri).status == "finished").sum())  # noqa: E731
            until(lambda: done() >= total // 6, 600, "a sixth of the trials is done")
            print(f"stormy: the MLflow server is killed after {done()} trials", flush=True)
            server.kill()
            time.sleep(30)
            server.start()
            print("stormy: the server is back after 30 s", flush=True)
            until(lambda: done() >= total // 2, 600, "half of the trials are done")
            print(f"stormy: a worker node is killed after {done()} trials", flush=True)
            kill_node()
            finished(process)
            resumed = [line for line in (home / "stormy.log").read_text().splitlines() if "resuming elsewhere" in line]
            print("\n".join(f"stormy: {line}" for line in resumed), flush=True)
            print(f"stormy: ended after {time.monotonic() - began:.0f} s", flush=True)
        raise SystemExit(compare(server.uri, total))
    finally:
        server.kill()


def compare(uri: str, total: int) -> int:
    """Compare the two sweeps point by point, and return the exit status."""
    calm, stormy = points("calm", uri), points("stormy", uri)
    twice = int(calm.duplicated(KEYS).sum() + stormy.duplicated(KEYS).sum())
    both = calm.merge(stormy, on=KEYS, how="outer", suffixes=("_calm", "_stormy"), indicator=True)
    lost, added = int((both["_merge"] == "left_only").sum()), int((both["_merge"] == "right_only").sum())
    differing = int((both["_merge"].eq("both") & both.value_calm.ne(both.value_stormy)).sum())
    statuses = {name: trials(name, uri).status.value_counts().to_dict() for name in ("calm", "stormy")}
    print(f"trials of {total} each: {statuses}")
    print(
        f"points: {len(calm)} calm, {len(stormy)} stormy; {lost} lost, {added} more, {twice} twice, {differing} differ"
    )
    all_finished = all(counts == {"finished": total} for counts in statuses.values())
    identical = all_finished and not (lost or added or twice or differing)
    print("identical" if identical else "NOT identical")
    return 0 if identical else 1


if __name__ == "__main__":
    main()
