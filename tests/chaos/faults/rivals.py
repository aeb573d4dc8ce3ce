"""Other commands at the same time: of the same sweep, of the same figure, of the same outbox."""

import signal
import time

from tests.chaos.faults.catalogue import Impossible, Victim, fault
from tests.chaos.home import Said


def _look_at(victim: Victim, said: Said, what: str, codes: tuple[int, ...]) -> None:
    if said.code not in codes:
        victim.notice(f"{what} ended with {said.code}: {said.last_line[:200]}")
    if "Traceback" in said.err:
        victim.notice(f"{what} printed a traceback")


@fault("rivals", weight=2)
def rival_sync(victim: Victim) -> None:
    _look_at(victim, victim.home.run("sync"), "sync beside a sweep", (0, 1))


@fault("rivals")
def rival_sweep_of_the_same_name(victim: Victim) -> None:
    """Refused: the name is taken."""
    _look_at(victim, victim.home.run(*victim.arguments()), "a second sweep of the same name", (2,))


@fault("rivals")
def rival_resume(victim: Victim) -> None:
    """Refused: the sweep is being run."""
    if not victim.driver.runs:
        raise Impossible("the sweep was over")
    said = victim.home.run("sweep", "chaos/curves", "--resume", victim.name())
    # one that was over meanwhile is refused too, or has nothing to do
    _look_at(victim, said, "resuming a sweep that is being run", (2,) if victim.driver.runs else (0, 1, 2))


@fault("rivals", codes=(-9,))
def two_resumes_at_once(victim: Victim) -> None:
    """One of them resumes what a killed driver left, the other is refused, or finds nothing to do."""
    victim.driver.process.send_signal(signal.SIGKILL)
    victim.driver.process.wait()
    request = ("sweep", "chaos/curves", "--resume", victim.name())
    first = victim.home.start(*request)
    time.sleep(victim.random.choice([0.0, 0.5, 2.0]))
    second = victim.home.start(*request)
    for resumed in (first.ended(240), second.ended(240)):
        _look_at(victim, resumed, "one of two resumes", (0, 2))


@fault("rivals")
def rival_sweep_of_the_same_figure(victim: Victim) -> None:
    """Both come to their end."""
    request = ["sweep", "chaos/curves", "points=5", "pause=0", "--over", "level=1.0", "--over", "seed=0"]
    _look_at(victim, victim.home.run(*request, "--name", f"rival-{victim.name()}"), "a rival sweep", (0,))
