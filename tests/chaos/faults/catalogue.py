"""The declaration of a fault, and the list of all faults."""

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
        """Return the command-line arguments that started the sweep."""

    def name(self) -> str:
        """Return the name of the sweep."""

    def notice(self, what: str) -> None:
        """Report something wrong that the fault itself observed."""


class Impossible(Exception):
    """The fault cannot be caused here; the message says why."""


Act = Callable[[Victim], None]


@dataclass(frozen=True)
class Fault:
    """A fault and its expected effects: `codes` that the command may return and `reasons` that its trials may give.

    `message` is a pattern of the command's last line; "promised" means that it writes exactly one line. A fault that
    `destroys` recorded points must leave their run tagged as damaged. A fault that `spoils` writes to the journal of a
    running trial, which counts as damage although nothing is lost.
    """

    name: str
    group: str
    act: Act
    stores: tuple[str, ...] = KINDS
    moment: str = "running"  # or launch, starting, closing, judging, settled (the driver is dead), trial
    codes: tuple[int, ...] = ()
    reasons: tuple[str, ...] = ()
    message: str = ""
    destroys: bool = False
    spoils: bool = False
    replaces: bool = False  # runs of a trial may be started again
    disk: bool | None = None  # True: the outbox needs its own disk; False: it must not have one
    weight: int = 1
    environment: dict[str, str] = field(default_factory=dict)

    def allows(self, reason: str) -> bool:
        return any(re.search(pattern, reason) for pattern in self.reasons)


CATALOGUE: dict[str, Fault] = {}


def fault(group: str, name: str = "", **expected: object) -> Callable[[Act], Act]:
    """List a function as a fault, under `name` or its own."""

    def listed(act: Act) -> Act:
        fault_name = name or act.__name__
        assert fault_name not in CATALOGUE, fault_name
        CATALOGUE[fault_name] = Fault(fault_name, group, act, **expected)  # type: ignore[arg-type]
        return act

    return listed
