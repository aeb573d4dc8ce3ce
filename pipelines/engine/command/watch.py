"""A progress bar for one trial: step, loss, elapsed time and time left."""

from collections.abc import Mapping
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from featurelab.pipelines.engine.errors import is_quiet
from featurelab.pipelines.engine.sweep.times import Elapsed, Left
from featurelab.tracking.lines import shortened


class TrialBar:
    """A bar on standard error, drawn only if that is a terminal.

    The trial's recorder calls `on_metrics`, and each fit calls `on_step`. A trial that does not train shows its steps,
    but no time left.
    """

    def __init__(self, title: str, metric: str) -> None:
        self._metric, self._loss = metric, ""
        self._fits, self._step = 0, 0
        console = Console(stderr=True)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=6),
            TextColumn("{task.fields[at]}"),
            TextColumn("{task.fields[loss]}"),
            Elapsed(),
            Left(),
            console=console,
            disable=is_quiet() or not console.is_terminal,
        )
        short = shortened(title, max(10, min(24, console.width - 66)))  # the whole bar fits into 80 columns
        self._task = self._bar.add_task(short, total=None, at="starting", loss="", of="")

    def __enter__(self) -> "TrialBar":
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def on_metrics(self, metrics: Mapping[str, float], step: int) -> None:
        """Show the metric that ranks trials if it was recorded, otherwise a loss."""
        losses = [name for name in metrics if name == self._metric or name.startswith("loss")]
        name = self._metric if self._metric in metrics else next(iter(losses), "")
        if name and (name == self._metric or not self._loss.startswith(self._metric)):
            self._loss = f"{name} {metrics[name]:.4g}"
        self._bar.update(self._task, loss=self._loss)
        if not self._fits:
            self._bar.update(self._task, at=f"step {step}")

    def on_step(self, step: int, steps: int) -> None:
        """Show that a fit has taken `step` of its `steps` optimiser steps; a smaller step begins the next fit."""
        if not self._fits or step < self._step:
            self._fits += 1
            self._bar.reset(self._task, total=steps, completed=step) if self._fits > 1 else None
        self._step = step
        fit = f"fit {self._fits}, " if self._fits > 1 else ""
        of = " of this fit" if self._fits > 1 else ""  # nobody knows how many more fits there are
        self._bar.update(self._task, total=steps, completed=step, at=f"{fit}step {step}/{steps}", of=of)
