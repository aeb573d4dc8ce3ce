"""Find and signal the processes that the harness started, by the folder that their environment names."""

import os
import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path


def started_in(folder: Path, name: str = "") -> list[int]:
    """Return the sorted ids of processes whose environment names the folder and whose names begin with `name`."""
    marker = f"{folder}/".encode()
    pids = []
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with suppress(OSError):
            if marker in Path(entry.path, "environ").read_bytes() and name_of(int(entry.name)).startswith(name):
                pids.append(int(entry.name))
    return sorted(pids)


def name_of(pid: int) -> str:
    """Return the name of a process; an empty text if it has ended."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def command_of(pid: int) -> list[str]:
    """Return the command line of a process; an empty list if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return []


def send(number: signal.Signals, pids: Iterable[int]) -> int:
    """Send a signal to processes and return how many were still running."""
    n_running = 0
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)
            n_running += 1
    return n_running


def end_all(folder: Path, patience: float = 0.0) -> int:
    """Wait up to `patience` seconds for the processes of a folder to end, kill the rest, and return their number."""
    deadline = time.monotonic() + patience
    while (running := started_in(folder)) and time.monotonic() < deadline:
        time.sleep(0.3)
    send(signal.SIGCONT, running)
    return send(signal.SIGKILL, running)
