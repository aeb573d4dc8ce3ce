"""Answers of a proxy in place of the MLflow server."""

import time

from tests.chaos.faults.catalogue import Impossible, Victim, fault
from tests.chaos.proxy import ANSWERS

SECONDS = 12.0  # in which the proxy answers requests


def _answer(victim: Victim, kind: str) -> None:
    proxy = victim.store.proxy
    assert proxy
    proxy.disturb(kind, times=victim.random.randint(3, 10), seconds=SECONDS, writes_only=victim.random.random() < 0.7)
    while proxy.disturbed and victim.driver.runs:
        time.sleep(0.2)
    proxy.calm()
    if not proxy.n_answered:
        raise Impossible("the server got no request")


for _kind in ANSWERS:
    _weight = 2 if _kind == "json" else 1
    _act = lambda victim, kind=_kind: _answer(victim, kind)  # noqa: E731
    fault("answers", f"answer_{_kind}", stores=("server", "postgres"), weight=_weight)(_act)


@fault("answers", stores=("server", "postgres"), moment="closing", weight=2)
def answer_json_at_the_end(victim: Victim) -> None:
    _answer(victim, "json")
