"""A sweep on a Slurm cluster whose job is preempted and requeued twice: every point is there once, with its bits.

Needs Slurm and munge (Debian: slurm-wlm, munge).
"""

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import slurm
from commandline import CommandLine, until
from mlflow_server import Points, Server

pytestmark = pytest.mark.heavy

SWEEP = ["sweep", "patient/training", "pause=0.2", "--over", "seed=0,1,2,3", "--over", "points=150", "--name", "night"]


@pytest.fixture
def nodes() -> Iterator[dict[str, str]]:
    if lacking := slurm.missing():
        pytest.skip(f"not installed: {', '.join(lacking)}")
    with slurm.cluster() as environment:
        yield environment


def told(here: CommandLine, *command: str) -> str:
    done = subprocess.run(command, cwd=here.home, env=here.environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stdout}{done.stderr}"
    return done.stdout.strip()


def test_a_sweep_that_slurm_preempts_and_requeues_twice_loses_nothing(
    nodes: dict[str, str], server: Server, patient: dict[str, str], tmp_path: Path, undisturbed: Points
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    here = CommandLine(tmp_path, patient | nodes | {"HOME": str(home), "MLFLOW_TRACKING_URI": server.uri})
    (tmp_path / "sweep.yaml").write_text(here(*SWEEP, "--print-file").out)
    submitted = here("slurm", "sweep.yaml", "--nodes", "2", "--time", "1:00:00", "--submit").out
    job = submitted.split()[-1]

    def state() -> str:
        return told(here, "squeue", "-h", "-j", job, "-t", "all", "-o", "%T")

    def log() -> str:
        return (tmp_path / f"night-{job}.log").read_text()

    def steps() -> int:
        """The steps that trials under way have stored."""
        under_way = [run for run in here.runs("patient/training") if run.data.tags["status"] == "running"]
        return sum(len(here.history(run.info.run_id, "loss/train")) for run in under_way)

    for restarts in (1, 2):
        before = steps()
        until(lambda before=before: steps() > before + 10, 300)  # type: ignore[misc]
        told(here, "sbatch", "--partition=high", "--nodes=2", "--exclusive", "--output=/dev/null", "--wrap=sleep 1")
        until(lambda: state() in ("PENDING", "REQUEUED"), 120)
        told(here, "scontrol", "update", f"jobid={job}", "StartTime=now")
        until(lambda: state() == "RUNNING", 300)
        assert f"Restarts={restarts}" in told(here, "scontrol", "show", "job", job)
    deadline = time.monotonic() + 600
    while state() in ("RUNNING", "COMPLETING") and time.monotonic() < deadline:
        time.sleep(2)
    assert state() == "COMPLETED", log()

    assert "Traceback" not in log()
    runs = here.runs("patient/training")
    assert [(run.info.status, run.data.tags["status"]) for run in runs] == [("FINISHED", "finished")] * 4
    assert sum("attempt" in run.data.tags for run in runs) >= 2
    assert not [tag for run in runs for tag in run.data.tags if tag.startswith("differs/")]
    assert server.stored("night") == undisturbed
