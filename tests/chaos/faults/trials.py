"""Trials that end in every possible way, all in one sweep."""

from tests.chaos.faults.catalogue import Victim, fault

DIED = r"^its worker process died$"
TRIAL_TIMEOUT = 20
ENDINGS = {  # the expected status of the run, and a pattern of its reason
    "raise": ("failed", r"^ZeroDivisionError: the trial broke"),
    "nan": ("diverged", r"^loss/val is nan at step 6$"),
    "infinity": ("diverged", r"^loss/val is inf at step 6$"),
    "sys_exit": ("failed", r"^exit 3$"),
    "os_exit": ("failed", DIED),
    "abort": ("failed", DIED),
    "segfault": ("failed", DIED),
    "interrupt_itself": ("killed", r"^interrupted$"),
    "terminate_itself": ("failed", DIED),
    "recursion": ("failed", r"^RecursionError: "),
    "memory": ("failed", r"^MemoryError"),
    "close_descriptors": ("failed", r"[Bb]ad file descriptor|its worker process died|file descriptor"),
    "impossible_step": ("failed", rf"step.*{2**70}"),
    "hang": ("failed", rf"^did not end within {TRIAL_TIMEOUT} s$"),
}


def _happens_inside(victim: Victim) -> None:
    """Do nothing: the trial causes the fault itself."""


for _ending, (_status, _reason) in ENDINGS.items():
    fault("trial", f"trial_{_ending}", moment="trial", codes=(1,), reasons=(_reason,))(_happens_inside)
