"""Columns of a progress bar: the time elapsed, and the time left."""

from datetime import timedelta

from rich.progress import ProgressColumn, Task
from rich.text import Text


class Elapsed(ProgressColumn):
    """`0:07 elapsed`, since the first start of a bar that may be reset."""

    def __init__(self) -> None:
        super().__init__()
        self._first_starts: dict[int, float] = {}

    def render(self, task: Task) -> Text:
        first = self._first_starts.setdefault(task.id, task.start_time or task.get_time())
        return Text(f"{_shown(task.get_time() - first)} elapsed", style="progress.elapsed")


class Left(ProgressColumn):
    """`0:16 left`; nothing while that is unknown."""

    max_refresh = 0.5

    def render(self, task: Task) -> Text:
        left = task.time_remaining if task.total and not task.finished else None
        return Text(f"{_shown(left)} left{task.fields.get('of', '')}" if left is not None else "", style="cyan")


def _shown(seconds: float) -> str:
    """`0:07`, or from an hour on `1:00:07`: a bar has to fit into 80 columns."""
    text = str(timedelta(seconds=max(0, round(seconds))))
    return text.removeprefix("0:").removeprefix("0") if seconds < 3600 else text
