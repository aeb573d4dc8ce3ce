"""Faults of the outbox and of its disk."""

import shutil
import subprocess
import time

from tests.chaos.faults.catalogue import Impossible, Victim, fault

FULL = (r"disk is full",)
READ_ONLY = (r"[Rr]ead-only file system",)
REMOVED = (r"was removed or replaced while the run was recorded", r"^its worker process died$")


@fault("outbox", codes=(1,), reasons=FULL, disk=True, weight=3)
def outbox_disk_full(victim: Victim) -> None:
    ballast = victim.home.folder / ".featurelab" / "ballast"
    try:
        with open(ballast, "wb", buffering=0) as file:
            while file.write(b"x" * 4096):
                pass
    except OSError:
        pass
    time.sleep(victim.random.uniform(1, 4))
    ballast.unlink(missing_ok=True)


@fault("outbox", codes=(1,), reasons=READ_ONLY, disk=True, weight=2)
def outbox_disk_read_only(victim: Victim) -> None:
    deadline = time.monotonic() + 10
    while not victim.home.remount("ro"):  # refused while a journal is open, so wait for a moment between two trials
        if time.monotonic() > deadline:
            raise Impossible("the kernel refused because a journal was always open")
        time.sleep(0.02)
    time.sleep(2)
    victim.home.remount("rw")


@fault("outbox", codes=(1,), reasons=REMOVED, disk=False, weight=2)
def outbox_removed(victim: Victim) -> None:
    shutil.rmtree(victim.home.folder / ".featurelab", ignore_errors=True)


@fault("outbox", codes=(1,), reasons=(r"[Oo]peration not permitted", r"[Pp]ermission denied"), disk=False)
def journals_immutable(victim: Victim) -> None:
    """Make the existing journals immutable: nothing can be appended, and they cannot be deleted."""
    journals = [str(path) for path in victim.home.journals()]
    if not journals or subprocess.run(["chattr", "+i", *journals], capture_output=True).returncode:
        raise Impossible("chattr is not permitted here")
    time.sleep(victim.random.uniform(1, 3))
    subprocess.run(["chattr", "-i", *journals], capture_output=True)


@fault("outbox", moment="launch", environment={"FEATURELAB_OUTBOX_LIMIT": "30K"})
def outbox_bound_reached(victim: Victim) -> None:
    """Do nothing: the environment sets a low bound. Artifacts and checkpoints are dropped, points are kept."""
