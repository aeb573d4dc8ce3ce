"""Damage journals while they are written or before they are sent."""

import json
import os
import signal
import time
from pathlib import Path

from tests.chaos import processes
from tests.chaos.faults.catalogue import Impossible, Victim, fault

DAMAGED = (r"damaged", r"journal", r"^its worker process died$")


def _live(victim: Victim) -> Path:
    """Return a journal that contains points."""
    for _ in range(50):
        large = [path for path in victim.home.journals() if path.exists() and path.stat().st_size > 800]
        if large:
            return victim.random.choice(large)
        time.sleep(0.1)
    raise Impossible("there was no journal with points")


def _add(path: Path, content: bytes) -> None:
    """Append to a journal with one write, as its recorder does."""
    file = os.open(path, os.O_WRONLY | os.O_APPEND)
    try:
        os.write(file, content)
    finally:
        os.close(file)


@fault("journal", codes=(1,), reasons=DAMAGED, destroys=True, weight=2)
def journal_line_overwritten(victim: Victim) -> None:
    path = _live(victim)
    content = path.read_bytes()
    start = content.rfind(b"\n", 0, len(content) - 1) + 1
    with open(path, "r+b", buffering=0) as file:
        file.seek(start)
        file.write(b"#garbage\xff\x00")


@fault("journal", codes=(1,), reasons=DAMAGED, destroys=True, weight=2)
def journal_cut_while_it_is_written(victim: Victim) -> None:
    path = _live(victim)
    os.truncate(path, path.stat().st_size - victim.random.randint(1, 30))


@fault("journal", codes=(-9, 1), reasons=DAMAGED, destroys=True, weight=2)
def driver_killed_and_journals_cut(victim: Victim) -> None:
    _kill_all(victim)
    for path in victim.home.journals():
        if path.stat().st_size > 400:
            os.truncate(path, path.stat().st_size - victim.random.randint(1, 30))


@fault("journal", codes=(1,), reasons=DAMAGED, destroys=True)
def journal_gets_a_line_of_garbage(victim: Victim) -> None:
    _add(_live(victim), b"#garbage\xff\x00\n")


@fault("journal", codes=(1,), reasons=DAMAGED, destroys=True, weight=2)
def journal_says_that_all_is_sent(victim: Victim) -> None:
    _add(_live(victim), b'{"sent":1000000000}\n')


@fault("journal", codes=(-9, 1), reasons=DAMAGED, destroys=True)
def driver_killed_and_header_lost(victim: Victim) -> None:
    _kill_all(victim)
    path = _live(victim)
    path.write_bytes(path.read_bytes().partition(b"\n")[2])


@fault("journal", codes=(1,), reasons=(*DAMAGED, r"step"), spoils=True)
def journal_gets_an_impossible_step(victim: Victim) -> None:
    line = {"t": time.time_ns() // 1_000_000, "s": 2**80, "m": {"twice": 1.0}}
    _add(_live(victim), json.dumps(line).encode() + b"\n")


def _kill_all(victim: Victim) -> None:
    """Kill the driver and its workers, so that nothing is written any more."""
    victim.driver.process.send_signal(signal.SIGKILL)
    victim.driver.process.wait()
    processes.send(signal.SIGKILL, processes.started_in(victim.home.folder, "ray::"))
    time.sleep(0.5)
