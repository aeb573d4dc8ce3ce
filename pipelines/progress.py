"""How far a sweep is: trials done, running and failed, and the time left. Silent away from a terminal."""

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ray.tune.progress_reporter import TrialProgressCallback
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from pipelines.errors import tell


class SweepProgress(TrialProgressCallback):
    """A Tune callback that counts trials and, on a terminal, shows the count as a bar on standard error.

    It takes the place of the callback that it derives from, which Tune would add and which keeps every trial.
    """

    def __init__(
        self,
        title: str,
        trials: Sequence[tuple[int, int]],
        errors: dict[tuple[int, int], str],
        start: Callable[[int], None],
        over: Callable[[int], None],
        trouble: Callable[[], str | None] = lambda: None,
    ) -> None:
        """`trials` are (sweep, index); `start` and `over` are told when a sweep's first trial starts, its last ends.

        `trouble` is asked all the time for a line that the user should see.
        `errors` is filled with what Ray says of trials that it could not run to their end.
        """
        self.running: set[str] = set()
        self.finished = 0
        self.unsuccessful = 0
        self.errors = errors
        self.start, self.over = start, over
        self.trouble = trouble
        self.started: set[int] = set()
        self.left = Counter(part for part, _ in trials)
        console = Console(stderr=True)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[counts]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
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
        if line := self.trouble():
            tell(f"featurelab: {line}")

    def on_trial_result(self, *args: Any, **info: Any) -> None:
        pass  # what trials report goes into the store

    def on_trial_start(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        self.running.add(trial.trial_id)
        part = trial.config["trial"][0]
        if part not in self.started:
            self.started.add(part)
            self.start(part)
        self._show()

    def on_trial_complete(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        status = (trial.last_result or {}).get("status", "stopped")
        self._ended(trial, well=status in ("finished", "stopped"))

    def on_trial_error(self, iteration: int, trials: list[Any], trial: Any, **info: Any) -> None:
        if trial.error_file:
            self.errors[tuple(trial.config["trial"])] = Path(trial.error_file).read_text(errors="replace")
        self._ended(trial, well=False)

    def _ended(self, trial: Any, *, well: bool) -> None:
        self.running.discard(trial.trial_id)
        self.finished += 1
        self.unsuccessful += not well
        self._show()
        part = trial.config["trial"][0]
        self.left[part] -= 1
        if not self.left[part]:
            self.over(part)

    def _show(self) -> None:
        counts = f"{len(self.running)} running, {self.unsuccessful} failed"
        self._bar.update(self._task, completed=self.finished, counts=counts)
