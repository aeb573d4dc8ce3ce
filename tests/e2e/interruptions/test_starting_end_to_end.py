"""A signal that comes while a sweep starts ends it at once: one line, nothing written, no process of Ray left."""

import os
import random
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from commandline import CommandLine, Process, below, ended, until

SWEEP = ["sweep", "stranger/curves", "--over", "seed=0,1"]
LINE = {
    signal.SIGINT: "featurelab: interrupted before anything was recorded\n",
    signal.SIGTERM: "featurelab: terminated before anything was recorded\n",
    signal.SIGHUP: "featurelab: terminated before anything was recorded\n",
}


@pytest.fixture
def sessions() -> Iterator[Path]:
    """Where Ray of these commands has its folders, and by which its processes are known."""
    with tempfile.TemporaryDirectory(dir="/tmp", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@pytest.fixture(autouse=True)
def hang_ups_are_heard() -> Iterator[None]:
    """Tests under nohup would hand down that these are ignored."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


def test_where_ray_cannot_start_one_line_says_why_and_nothing_is_written(
    featurelab: CommandLine, sessions: Path
) -> None:
    too_little_memory = {"RAY_DEFAULT_OBJECT_STORE_MAX_MEMORY_BYTES": "1"}
    here = featurelab.elsewhere(featurelab.home / "here", RAY_TMPDIR=str(sessions), **too_little_memory)
    said = here(*SWEEP, code=1)
    assert said.out == ""
    assert said.err.startswith("featurelab: Ray did not start on this machine"), said.err
    assert said.err.count("\n") == 1, said.err
    assert "memory" in said.err
    assert list(here.home.iterdir()) == []
    until(lambda: not processes(sessions), patience=5)


def check_ends_at_once(here: CommandLine, process: Process, number: signal.Signals) -> None:
    process.send_signal(number)
    said = ended(process)
    assert (said.code, said.out, said.err) == (128 + number, "", LINE[number])
    assert list(here.home.iterdir()) == []


def processes(folder: Path) -> list[bytes]:
    """The commands that name the folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            found.append(path.read_bytes())
    return [command for command in found if os.fsencode(folder) in command]


@pytest.mark.parametrize("server", ["gcs_server", pytest.param("raylet/raylet", marks=pytest.mark.heavy)])
def test_a_signal_while_ray_starts_ends_the_command_at_once(
    featurelab: CommandLine, sessions: Path, tmp_path: Path, server: str
) -> None:
    here = [
        featurelab.elsewhere(tmp_path / number.name, RAY_TMPDIR=str(sessions))
        for number in (signal.SIGTERM, signal.SIGHUP)
    ]
    started = [each.start(*SWEEP) for each in here]
    for each, process, number in zip(here, started, (signal.SIGTERM, signal.SIGHUP), strict=True):
        until(lambda process=process: below(process.pid, server), patience=60)  # type: ignore[misc]
        check_ends_at_once(each, process, number)
    until(lambda: not processes(sessions), patience=5)


@pytest.mark.heavy
@pytest.mark.parametrize("seed", range(24))
def test_a_signal_at_any_moment_of_the_start_ends_the_command_at_once(
    featurelab: CommandLine, sessions: Path, tmp_path: Path, seed: int
) -> None:
    """Imports, Ray's processes, Ray's driver in this one: the store is made after them."""
    drawn = random.Random(seed)
    here = featurelab.elsewhere(tmp_path / "desk", RAY_TMPDIR=str(sessions))
    process = here.start_cold(*SWEEP)
    until(lambda: b"\0" in Path(f"/proc/{process.pid}/cmdline").read_bytes())
    time.sleep(1.0)  # until our own handlers are there
    if drawn.random() < 0.5:
        until(lambda: below(process.pid, "raylet/raylet"), patience=60)
    time.sleep(drawn.uniform(0, 2))
    if here.runs("verdicts"):
        process.kill()
        ended(process)
        pytest.skip("it had begun")
    check_ends_at_once(here, process, drawn.choice(list(LINE)))
    until(lambda: not processes(sessions), patience=5)
