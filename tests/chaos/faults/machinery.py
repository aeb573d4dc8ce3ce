"""Faults of Ray: its workers, raylet, GCS server and session folder."""

import shutil
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

from tests.chaos import processes
from tests.chaos.faults.catalogue import Impossible, Victim, fault

DIED = (r"^its worker process died$",)
AGENTS = ("ray::IDLE", "ray::Dashboard", "ray::RuntimeEnv")  # of Ray itself
BROKEN = (r"^Ray's \w+ died", r"^Ray's session folder .* was removed", r"^Ray failed: ", *DIED)


def _of_ray(victim: Victim, name: str) -> list[int]:
    for _ in range(50):
        started = processes.started_in(victim.home.folder, name)
        if pids := [pid for pid in started if not processes.name_of(pid).startswith(AGENTS)]:
            return pids
        time.sleep(0.2)
    raise Impossible(f"there was no process {name}")


@fault("Ray", codes=(1,), reasons=DIED, weight=3)
def worker_killed(victim: Victim) -> None:
    processes.send(signal.SIGKILL, [victim.random.choice(_of_ray(victim, "ray::"))])


@fault("Ray", codes=(1,), reasons=DIED, weight=2)
def all_workers_killed(victim: Victim) -> None:
    processes.send(signal.SIGKILL, _of_ray(victim, "ray::"))


@fault("Ray", weight=2)
def worker_stopped_for_seconds(victim: Victim) -> None:
    worker = victim.random.choice(_of_ray(victim, "ray::"))
    processes.send(signal.SIGSTOP, [worker])
    time.sleep(victim.random.uniform(2, 5))
    processes.send(signal.SIGCONT, [worker])


@fault("Ray", codes=(1,), reasons=BROKEN, message=r"Ray's raylet died")
def raylet_killed(victim: Victim) -> None:
    processes.send(signal.SIGKILL, _of_ray(victim, "raylet"))
    _wait_for_the_end(victim)


@fault("Ray", codes=(1,), reasons=BROKEN, message=r"Ray")
def gcs_server_killed(victim: Victim) -> None:
    processes.send(signal.SIGKILL, _of_ray(victim, "gcs_server"))
    _wait_for_the_end(victim)


@fault("Ray", codes=(1,), reasons=BROKEN)
def session_folder_removed(victim: Victim) -> None:
    arguments = [part for pid in _of_ray(victim, "raylet") for part in processes.command_of(pid)]
    folders = {Path(part.partition("=")[2]) for part in arguments if part.startswith("--session_dir=")}
    if not folders:
        raise Impossible("the raylet does not name its session folder")
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
    _wait_for_the_end(victim)


def _wait_for_the_end(victim: Victim) -> None:
    """Wait until the driver ends, so that no other fault comes before Ray has noticed this one."""
    with suppress(subprocess.TimeoutExpired):
        victim.driver.process.wait(60)
