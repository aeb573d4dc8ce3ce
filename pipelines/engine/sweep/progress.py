"""How far a sweep is: trials done, running and failed, and the time left: a bar, or away from a terminal some lines."""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from ray.tune.progress_reporter import TrialProgressCallback
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from featurelab.pipelines.engine.errors import tell
from featurelab.pipelines.engine.sweep.settle import Told
from featurelab.pipelines.engine.sweep.times import Elapsed, Left

EVERY = 30.0  # seconds between two lines where nobody watches a bar


class Conducting(Protocol):
    """Who is told what becomes of the trials; sweeps are told apart by their place."""

    @property
    def told(self) -> Sequence[Told]: ...

    def start(self, part: int) -> None: ...

    def trial_ended(self, part: int) -> None: ...

    def over(self, part: int) -> None: ...

    def look_after_ray(self) -> None: ...


class SweepProgress(TrialProgressCallback):
    """A Tune callback that counts trials and, on a terminal, shows the count as a bar on standard error.

    It takes the place of the callback that it derives from, which Tune would add and which keeps every trial.
    """

    def __init__(
        self,
        title: str,
        trials: Sequence[tuple[int, int]],
        conducted: Conducting,
        trouble: Callable[[], str | None] = lambda: None,
    ) -> None:
        """`trials` are (sweep, index); `conducted` is told what becomes of each.

        `trouble` is asked all the time for a line that the user should see.
        """
        self.running: set[str] = set()
        self.finished = 0
        self.unsuccessful = 0
        self.conducted = conducted
        self.trouble = trouble
        self.started: set[int] = set()
        self.ended: set[int] = set()  # sweeps of which a trial has ended since we last looked
        self.left = Counter(part for part, _ in trials)
        self.title, self.total = title, len(trials)
        self._began = self._said = time.monotonic()
        console = Console(stderr=True)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=12),
            MofNCompleteColumn(),
            TextColumn("{task.fields[counts]}"),
            Elapsed(),
            Left(),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task(title, total=len(trials), counts="")

    def __getstate__(self) -> dict[str, Any]:
        return {}  # Tune keeps a pickle of its callbacks to restore a sweep from; ours are restored from the store

    def __enter__(self) -> "SweepProgress":
        self._bar.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._bar.stop()

    def on_step_end(self, iteration: int, trials: list[Any], **info: Any) -> None:
        self.conducted.look_after_ray()
        if line := self.trouble():
            tell(f"featurelab: {line}")
        if self._bar.disable and time.monotonic() - self._said >= EVERY:
            self._said = time.monotonic()
            tell(self.line())
        while self.ended:
            self.conducted.trial_ended(self.ended.pop())

    def line(self) -> str:
        """How far it is, in words."""
        passed = time.monotonic() - self._began
        counts = f"{len(self.running)} running, {self.unsuccessful} failed"
        said = f"{self.title}: {self.finished} of {self.total} trials, {counts}, {_shown(passed)}"
        if not self.finished:
            return said
        return f"{said}, about {_shown(passed / self.finished * (self.total - self.finished))} left"

    def on_trial_result(self, *args: Any, **info: Any) -> None:
        pass  # what trials report goes into the store

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self.running.add(trial.trial_id)
        part = trial.config["trial"][0]
        if part not in self.started:
            self.started.add(part)
            self.conducted.start(part)
        self._show()

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        part, index = trial.config["trial"]
        result = trial.last_result or {}
        status = result.get("status", "stopped")  # only the last one has it
        if status == "stopped":
            self.conducted.told[part].stopped.add(index)
        elif status != "finished":
            self.conducted.told[part].reasons[index] = result["reason"]
        self.ended.add(part)
        self._over(trial, well=status in ("finished", "stopped"))

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        if trial.error_file:
            part, index = trial.config["trial"]
            self.conducted.told[part].errors[index] = Path(trial.error_file).read_text(errors="replace")
        self._over(trial, well=False)

    def _over(self, trial: Any, *, well: bool) -> None:
        self.running.discard(trial.trial_id)
        self.finished += 1
        self.unsuccessful += not well
        self._show()
        part = trial.config["trial"][0]
        self.left[part] -= 1
        if not self.left[part]:
            self.conducted.over(part)

    def _show(self) -> None:
        counts = f"{len(self.running)} running, {self.unsuccessful} failed"
        self._bar.update(self._task, completed=self.finished, counts=counts)


def _shown(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"
