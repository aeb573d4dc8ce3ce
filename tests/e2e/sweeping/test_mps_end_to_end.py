"""Trials on one GPU share an MPS daemon, which ends with their sweep; they store what they store without it.

Ray is told of a GPU, and the daemon is a program that only answers and keeps a log: nothing here computes on a GPU.
"""

import os
import shutil
import signal
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from commandline import CommandLine, ended, until
from machines import one_machine
from mps_daemon import calls, install, running

DEVICES = "stranger/devices"
HALF = ["--cpus-per-trial", "1", "--gpus-per-trial", "0.5"]


@dataclass
class Node:
    """A machine with a GPU: where its MPS has its executable and its pipes, and the command on it."""

    bin: Path
    pipes: Path
    command: CommandLine


@pytest.fixture(scope="module")
def machine(environment: dict[str, str], template: Path) -> Iterator[Node]:
    folder = Path(tempfile.mkdtemp(prefix="mps", dir="/tmp"))  # its sockets need a short path
    there = environment | {
        "PATH": f"{install(folder / 'bin')}{os.pathsep}{environment['PATH']}",
        "RAY_TMPDIR": str(folder),
        "FEATURELAB_MPS": "1",
        "FEATURELAB_CHECKPOINT_SECONDS": "0.5",
        "FAULTS": str(folder),
    }
    pipes = folder / f"featurelab-{os.geteuid()}" / "mps" / "pipes"
    with one_machine(there, cpus=2, gpus=1) as address:
        yield Node(folder / "bin", pipes, CommandLine(folder, there | {"RAY_ADDRESS": address}, template))
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def node(machine: Node, tmp_path: Path) -> Iterator[Node]:
    """The machine without a trial, a daemon or a call of the executable yet."""
    for name in ("log", "broken"):
        (machine.bin / name).unlink(missing_ok=True)
    yield replace(machine, command=machine.command.desk(tmp_path.name))
    until(lambda: not running(machine.pipes), 60)


def test_trials_share_a_daemon_which_ends_with_the_sweep_and_store_what_they_store_without(node: Node) -> None:
    settings = ["points=6", "pause=0"]
    said = node.command("sweep", "patient/training", "--over", "seed=0,1", *settings, *HALF, "--json")
    for trial in said.document["trials"]:
        run = node.command.client.get_run(trial["run_id"])
        stored: Counter[tuple[str, int, float]] = Counter()
        for metric in run.data.metrics:
            if not metric.startswith("best."):  # the store derives these
                stored.update((metric, *point) for point in node.command.history(trial["run_id"], metric))
        assert stored == alone(trial["config"]["seed"])
    until(lambda: not running(node.pipes), 60)
    assert [len(calls(node.bin, command)) for command in ("-d", "quit")] == [1, 1]
    assert "MPS" not in said.err


def alone(seed: int) -> Counter[tuple[str, int, float]]:
    """Every point of such a training in this process: no Ray, no MPS, no MLflow."""
    import patient_lab

    from featurelab.pipelines.engine.trial.run import perform
    from featurelab.tracking.outbox.null import NullRecorder

    said: Counter[tuple[str, int, float]] = Counter()

    def listen(metrics: Mapping[str, float], step: int) -> None:
        said.update((name, step, value) for name, value in metrics.items())

    config = patient_lab.training.laptop.but(seed=seed, points=6, pause=0.0)
    perform(patient_lab.training, config, NullRecorder([listen]))
    return said


def test_a_trial_that_loses_its_gpu_ends_its_process_and_resumes_as_one_whose_process_died(node: Node) -> None:
    # one trial at a time, so that the second would have the process of the first
    one_by_one = ["--cpus-per-trial", "2", "--gpus-per-trial", "0.5"]
    axes = ["--over", "fault=True,False", "--over", "seed=0"]
    said = node.command("sweep", DEVICES, *axes, *one_by_one, "--name", "faulty", "--json", code=1)
    lost, well = said.document["trials"]
    reason = "RuntimeError: CUDA error: an illegal memory access was encountered"
    assert (lost["status"], well["status"]) == ("failed", "finished")
    assert "1 trial failed: " + reason in said.err
    assert lost["metrics"]["mps"] == well["metrics"]["mps"] == 0o700
    assert lost["metrics"]["pid"] != well["metrics"]["pid"]
    tags = node.command.client.get_run(lost["run_id"]).data.tags
    assert (tags["status"], tags["cut_short"]) == ("failed", "true")
    assert tags["reason"].startswith(reason)
    (node.bin.parent / "repaired").touch()
    again = node.command("sweep", DEVICES, "--resume", "faulty", "--json").document["trials"]
    assert [(trial["run_id"], trial["status"]) for trial in again] == [
        (lost["run_id"], "finished"),
        (well["run_id"], "finished"),
    ]
    until(lambda: len(calls(node.bin, "quit")) == len(calls(node.bin, "-d")), 60)


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGKILL, marks=pytest.mark.heavy)])
def test_the_daemon_ends_with_a_sweep_that_is_interrupted_or_killed(node: Node, number: signal.Signals) -> None:
    process = node.command.start("sweep", DEVICES, "--over", "seed=0,1", "pause=300", *HALF)
    node.command.wait_for_point(DEVICES, "mps", process=process)
    assert running(node.pipes)
    process.send_signal(number)
    ended(process)
    until(lambda: not running(node.pipes), 60)
    assert len(calls(node.bin, "quit")) == 1


@pytest.mark.heavy
def test_without_the_daemon_the_sweep_says_so_once_while_it_runs_and_finishes(node: Node) -> None:
    (node.bin / "broken").touch()
    said = node.command("sweep", DEVICES, "--over", "seed=0,1,2", *HALF, "--json")
    assert [trial["status"] for trial in said.document["trials"]] == ["finished"] * 3
    (line,) = [line for line in said.err.splitlines() if "MPS" in line]
    assert line.startswith("featurelab: trials share GPUs without MPS on ")
    assert "mps" not in said.document["trials"][0]["metrics"]
