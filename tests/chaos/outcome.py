"""The outcome of a series of sweeps, and of each fault that it met."""

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass
class Encounter:
    """A fault that a sweep met, or the reason why it could not be caused."""

    name: str
    group: str
    store: str
    sweep: str
    skipped: str = ""
    ended_with: int | None = None  # the status of the command that this fault ended


@dataclass
class Outcome:
    """Everything that was observed in an episode."""

    number: int
    store: str
    what: str
    seconds: float = 0.0
    sweeps: int = 0
    resumed: int = 0
    expected: int = 0
    lost: int = 0
    lost_and_tagged: int = 0
    doubled: int = 0
    different: int = 0
    running: int = 0
    checked_before_resuming: int = 0
    met: list[Encounter] = field(default_factory=list)
    untrue: list[str] = field(default_factory=list)  # every expectation that was not met, in words
    reasons: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)  # messages of the commands

    @property
    def clean(self) -> bool:
        return not (self.lost or self.doubled or self.different or self.running or self.untrue)

    def __str__(self) -> str:
        return (
            f"{self.seconds:.0f} s: {self.expected} points, {self.lost} lost, {self.lost_and_tagged} lost and tagged, "
            f"{self.doubled} doubled, {self.different} different, {self.running} running, {len(self.untrue)} untrue"
        )

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)
