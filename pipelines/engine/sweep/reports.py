"""What Ray Tune reports of trials, and who listens to its reports."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol


@dataclass
class Reports:
    """What Tune reports of the trials of one sweep, by index; a trial's own run may not say it."""

    errors: dict[int, str] = field(default_factory=dict)  # of trials that could not run to their end
    stopped: set[int] = field(default_factory=set)  # by the scheduler
    reasons: dict[int, str] = field(default_factory=dict)  # of trials that ended badly and said why


class Listener(Protocol):
    """Listens to the progress of several sweeps, told apart by their number."""

    @property
    def reports(self) -> Sequence[Reports]: ...

    def on_step(self) -> None:
        """Called again and again while trials run."""

    def on_sweep_start(self, number: int) -> None:
        """Called when the first trial of a sweep starts."""

    def on_trial_end(self, number: int) -> None:
        """Called soon after a trial of a sweep has ended without an error; once for several such trials."""

    def on_last_trial_end(self, number: int) -> None:
        """Called when no trial of a sweep is left to run."""
