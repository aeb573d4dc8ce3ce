"""Processes that the harness has started, directly or not: found by the folder that their environment names."""

import os
import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path


def started_in(folder: Path, name: str = "") -> list[int]:
    """The processes whose environment names this folder, oldest first; `name` is how the name of each must begin."""
    wanted = f"{folder}/".encode()
    found = []
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with suppress(OSError):
            if wanted in Path(entry.path, "environ").read_bytes() and named(int(entry.name)).startswith(name):
                found.append(int(entry.name))
    return sorted(found)


def named(pid: int) -> str:
    """The name of a process, or an empty text once it is gone."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def command_of(pid: int) -> list[str]:
    """The command line of a process, or an empty list once it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return []


def send(number: signal.Signals, pids: Iterable[int]) -> int:
    """Send a signal to processes and return how many were still there."""
    reached = 0
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)
            reached += 1
    return reached


def end_all(folder: Path, patience: float = 0.0) -> int:
    """Wait for the processes of a folder to end by themselves, then kill the others and return how many there were."""
    deadline = time.monotonic() + patience
    while (left := started_in(folder)) and time.monotonic() < deadline:
        time.sleep(0.3)
    send(signal.SIGCONT, left)
    return send(signal.SIGKILL, left)
