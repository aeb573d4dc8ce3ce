"""What a fault is, and the list of all of them."""

import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from tests.chaos.home import Command, Home
from tests.chaos.stores import KINDS, SqliteStore


class Victim(Protocol):
    """The sweep that a fault meets."""

    home: Home
    store: SqliteStore  # or one of those with a server
    driver: Command
    random: random.Random

    def arguments(self) -> list[str]:
        """The request that began the sweep."""

    def name(self) -> str:
        """The sweep's name."""

    def notice(self, what: str) -> None:
        """Add something untrue or wrong that the fault itself has seen."""


class Impossible(Exception):
    """The fault cannot be caused here; the message says why."""


Act = Callable[[Victim], None]


@dataclass(frozen=True)
class Fault:
    """A fault and what is expected of it: which statuses the command may end with, which reasons its trials may state.

    `said` is promised as the command's only message of its own. `destroys` is for a fault that itself destroys recorded
    points: their run must be tagged as damaged. One that `spoils` writes to a journal that a trial holds, which counts
    as damage though nothing is lost.
    """

    name: str
    group: str
    act: Act
    stores: tuple[str, ...] = KINDS
    moment: str = "running"  # or launch, starting, closing, judging, settled (the driver is dead), trial
    codes: tuple[int, ...] = ()
    reasons: tuple[str, ...] = ()
    said: str = ""
    destroys: bool = False
    spoils: bool = False
    replaces: bool = False  # runs of a trial may be begun anew
    disk: bool | None = None  # the outbox must be on a disk of its own, or must not
    weight: int = 1
    environment: dict[str, str] = field(default_factory=dict)

    def allows(self, reason: str) -> bool:
        return any(re.search(pattern, reason) for pattern in self.reasons)


CATALOGUE: dict[str, Fault] = {}


def fault(group: str, name: str = "", **expected: object) -> Callable[[Act], Act]:
    """List a function as a fault, under its own name unless told otherwise."""

    def listed(act: Act) -> Act:
        known_as = name or act.__name__
        assert known_as not in CATALOGUE, known_as
        CATALOGUE[known_as] = Fault(known_as, group, act, **expected)  # type: ignore[arg-type]
        return act

    return listed
