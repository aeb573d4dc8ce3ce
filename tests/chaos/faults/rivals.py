"""Other commands at the same time, on the same sweep, figure or outbox."""

import signal
import time

from tests.chaos.faults.catalogue import Impossible, Victim, fault
from tests.chaos.home import Result


def _check(victim: Victim, result: Result, what: str, codes: tuple[int, ...]) -> None:
    if result.code not in codes:
        victim.notice(f"{what} ended with {result.code}: {result.last_line[:200]}")
    if "Traceback" in result.err:
        victim.notice(f"{what} printed a traceback")


@fault("rivals", weight=2)
def rival_sync(victim: Victim) -> None:
    _check(victim, victim.home.run("sync"), "sync beside a sweep", (0, 1))


@fault("rivals")
def rival_sweep_of_the_same_name(victim: Victim) -> None:
    """Start a second sweep of the same name, which is refused."""
    _check(victim, victim.home.run(*victim.arguments()), "a second sweep of the same name", (2,))


@fault("rivals")
def rival_resume(victim: Victim) -> None:
    """Resume the running sweep, which is refused."""
    if not victim.driver.runs:
        raise Impossible("the sweep had ended")
    result = victim.home.run("sweep", "chaos/curves", "--resume", victim.name())
    # a sweep that ended meanwhile is refused too, or has nothing left to do
    _check(victim, result, "resuming a running sweep", (2,) if victim.driver.runs else (0, 1, 2))


@fault("rivals", codes=(-9,))
def two_resumes_at_once(victim: Victim) -> None:
    """Kill the driver and resume twice: one command resumes, the other is refused or has nothing to do."""
    victim.driver.process.send_signal(signal.SIGKILL)
    victim.driver.process.wait()
    request = ("sweep", "chaos/curves", "--resume", victim.name())
    first = victim.home.start(*request)
    time.sleep(victim.random.choice([0.0, 0.5, 2.0]))
    second = victim.home.start(*request)
    for resumed in (first.ended(240), second.ended(240)):
        _check(victim, resumed, "one of two resumes", (0, 2))


@fault("rivals")
def rival_sweep_of_the_same_figure(victim: Victim) -> None:
    """Run another sweep of the same figure: both finish."""
    request = ["sweep", "chaos/curves", "points=5", "pause=0", "--over", "level=1.0", "--over", "seed=0"]
    _check(victim, victim.home.run(*request, "--name", f"rival-{victim.name()}"), "a rival sweep", (0,))
