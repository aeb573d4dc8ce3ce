"""How far one trial is, for the person who waits for it: step, loss and time left, as a bar on a terminal."""

from collections.abc import Mapping
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from featurelab.tracking.lines import shortened


class TrialBar:
    """A bar on standard error, which is not drawn where that is no terminal.

    `heard` is a listener of the trial's recorder. `reached` is told by each fit how much of it is done; a trial that
    does not train has no measure of what is left, and shows its steps alone.
    """

    def __init__(self, title: str, metric: str) -> None:
        self._metric, self._loss = metric, ""
        console = Console(stderr=True)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=10),
            TextColumn("step {task.fields[step]} {task.fields[loss]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task(shortened(title, 24), total=None, step=0, loss="")

    def __enter__(self) -> "TrialBar":
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def heard(self, metrics: Mapping[str, float], step: int) -> None:
        """Show the metric that ranks trials where it is recorded, and else any loss."""
        losses = [name for name in metrics if name == self._metric or name.startswith("loss")]
        name = self._metric if self._metric in metrics else next(iter(losses), "")
        if name and (name == self._metric or not self._loss.startswith(self._metric)):
            self._loss = f"{name} {metrics[name]:.4g}"
        self._bar.update(self._task, step=step, loss=self._loss)

    def reached(self, step: int, share: float) -> None:
        """A fit has taken `step` steps, which are this share, in [0, 1], of it."""
        self._bar.update(self._task, total=1.0, completed=share, step=step)
