"""Send signals to the process that drives a sweep, and move its clock."""

import signal
import time

from tests.chaos import processes
from tests.chaos.faults.catalogue import Impossible, Victim, fault

INTERRUPTED = (r"^the sweep was interrupted", r"^interrupted$")
ENDING = {signal.SIGTERM: 143, signal.SIGHUP: 129, signal.SIGINT: 130}


def _send(victim: Victim, number: signal.Signals) -> None:
    if not victim.driver.runs:
        raise Impossible("the sweep had ended")
    victim.driver.process.send_signal(number)


def _while_ray_starts(victim: Victim) -> None:
    """Wait until one of Ray's servers has started, and a little longer."""
    name = victim.random.choice(["gcs_server", "raylet"])
    deadline = time.monotonic() + 60
    while victim.driver.runs and time.monotonic() < deadline:
        if processes.started_in(victim.home.folder, name):
            break
        time.sleep(0.05)
    time.sleep(victim.random.choice([0.0, 0.3, 1.0]))


def _list_signals() -> None:
    for number, code in ENDING.items():
        name = number.name.lower()
        expected = {"codes": (code,), "reasons": INTERRUPTED, "message": "promised"}
        fault("driver", f"driver_{name}", weight=2, **expected)(lambda victim, n=number: _send(victim, n))

        def starting(victim: Victim, number: signal.Signals = number) -> None:
            _while_ray_starts(victim)
            _send(victim, number)

        fault("driver", f"driver_{name}_while_ray_starts", moment="starting", **expected)(starting)


_list_signals()


@fault("driver", codes=(-9,), weight=4)
def driver_killed(victim: Victim) -> None:
    _send(victim, signal.SIGKILL)


@fault("driver", codes=(-9,), moment="starting")
def driver_killed_while_it_starts(victim: Victim) -> None:
    time.sleep(victim.random.uniform(0.5, 8.0))
    _send(victim, signal.SIGKILL)


@fault("driver", codes=(-9,), moment="starting")
def driver_killed_while_ray_starts(victim: Victim) -> None:
    _while_ray_starts(victim)
    _send(victim, signal.SIGKILL)


@fault("driver", codes=(-9,), moment="closing", weight=2)
def driver_killed_while_it_closes(victim: Victim) -> None:
    time.sleep(victim.random.uniform(0.0, 2.0))
    _send(victim, signal.SIGKILL)


@fault("driver", codes=(-9,), moment="judging", weight=2)
def driver_killed_while_it_judges_or_draws(victim: Victim) -> None:
    _send(victim, signal.SIGKILL)


@fault("driver", codes=(143,), moment="judging")
def driver_sigterm_while_it_judges_or_draws(victim: Victim) -> None:
    _send(victim, signal.SIGTERM)


@fault("driver", weight=2)
def driver_stopped_for_seconds(victim: Victim) -> None:
    _send(victim, signal.SIGSTOP)
    time.sleep(victim.random.uniform(2, 6))
    victim.driver.process.send_signal(signal.SIGCONT)


@fault("clock", name="clock_two_hours_back", weight=1)
def clock_back(victim: Victim) -> None:
    _move_clock(victim, -7200)


@fault("clock", name="clock_two_hours_ahead", weight=1)
def clock_ahead(victim: Victim) -> None:
    _move_clock(victim, 7200)


def _move_clock(victim: Victim, seconds: int) -> None:
    victim.home.clock.write_text(str(seconds))
    time.sleep(victim.random.uniform(2, 4))
    victim.home.clock.unlink()
