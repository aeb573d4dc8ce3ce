"""The methods with which a trial records: they check what they are given, and leave keeping it to a subclass."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from featurelab.tracking.store import artifacts
from featurelab.tracking.values import check_name, check_step, integer, number

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

Listener = Callable[[Mapping[str, float], int], None]


class Diverged(Exception):
    """A loss became infinite or not a number. Attributes: `metric`, `step`, `value`."""

    def __init__(self, metric: str, step: int, value: float) -> None:
        super().__init__(f"{metric} is {value} at step {step}")
        self.metric, self.step, self.value = metric, step, value

    def __reduce__(self) -> tuple[Any, ...]:  # so that it can be raised in another process
        return type(self), (self.metric, self.step, self.value)


class Recording(ABC):
    """Checks what a trial records.

    `listeners` are called with (metrics, step) after each `log`. Their exceptions are not caught.
    """

    def __init__(self, listeners: Sequence[Listener] = ()) -> None:
        self._listeners = tuple(listeners)
        self._checked_names: set[str] = set()
        self._nonfinite: set[str] = set()  # metrics that have the tag `nonfinite/<name>`

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        """Record the values of some metrics at one step.

        Values are numbers, including numpy and torch scalars. Raises TypeError for any other value and ValueError for
        an invalid name or a step beyond 64 bits; then nothing is recorded. A value that is not finite is stored as nan,
        with the first step at which this happened in the tag `nonfinite/<name>`. If the metric is a loss, raises
        Diverged after recording it.
        """
        known = self._checked_names
        values = {
            name: value if type(value) is float and name in known else self._number(name, value)
            for name, value in metrics.items()
        }
        if type(step) is not int:
            step = integer(step)
        check_step(step, values)
        self._keep(values, step)
        diverged: Diverged | None = None
        for name, value in () if all(map(math.isfinite, values.values())) else values.items():
            if not math.isfinite(value):
                self._tag_nonfinite(name, step)
                if diverged is None and name.split("/", 1)[0] == "loss":
                    diverged = Diverged(name, step, value)
        for listener in self._listeners:
            listener(values, step)
        if diverged:
            raise diverged

    def array(self, name: str, **arrays: Any) -> None:
        """Store named arrays as `arrays/<name>.npz`. Raises ValueError for arrays of Python objects."""
        with self.files() as root:
            artifacts.write_arrays(root, f"arrays/{name}.npz", **arrays)

    def table(self, name: str, table: pd.DataFrame) -> None:
        """Store a table as `tables/<name>.csv`, which MLflow shows. Numbers are read back exactly."""
        with self.files() as root:
            artifacts.write_table(root, f"tables/{name}.csv", table)

    def json(self, name: str, obj: Any) -> None:
        """Store `obj` as `<name>.json`. Raises TypeError for what JSON cannot hold."""
        with self.files() as root:
            artifacts.write_json(root, f"{name}.json", obj)

    def text(self, name: str, text: str) -> None:
        """Store `text` as `<name>.txt`."""
        with self.files() as root:
            artifacts.place(root, f"{name}.txt").write_text(text, encoding="utf-8")

    def figure(self, name: str, figure: Figure) -> None:
        """Store a matplotlib figure as `figures/<name>.png` and `.svg`."""
        with self.files() as root:
            artifacts.write_figure(root, f"figures/{name}", figure)

    def files(self) -> AbstractContextManager[Path]:
        """Give an empty directory. Files written to it inside the context are stored at the same relative paths."""
        return self._spooling()

    def file(self, path: Path, directory: str = "") -> None:
        """Store a copy, made now, of a file or a directory under `directory`. Raises FileNotFoundError."""
        with self.files() as root:
            artifacts.copy(root, Path(path), directory)

    def discard(self, directory: str) -> None:
        """Delete an artifact directory of this run when the run ends, if the store can."""
        self._append({"discard": directory})

    def dataset(self, name: str, digest: str, profile: Mapping[str, Any], context: str = "train") -> None:
        """Name the data that the run uses, with a digest of its content. Raises ValueError beyond 36 characters."""
        if not 0 < len(digest) <= 36:
            raise ValueError(f"the digest of dataset {name!r} must have 1 to 36 characters, got {len(digest)}")
        plain = {key: artifacts.jsonable(value) for key, value in profile.items()}
        self._append({"dataset": {"name": name, "digest": digest, "profile": plain, "context": context}})

    def params(self, params: Mapping[str, Any]) -> None:
        """Set params of the run, which MLflow never changes again. Raises ValueError for an invalid name."""
        for name in params:
            check_name(name)
        self._append({"params": {name: str(value) for name, value in params.items()}})

    def tags(self, tags: Mapping[str, Any]) -> None:
        """Set tags of the run. Raises ValueError for an invalid name."""
        for name in tags:
            check_name(name)
        self._append({"tags": {name: str(value) for name, value in tags.items()}})

    @abstractmethod
    def _keep(self, values: Mapping[str, float], step: int) -> None:
        """Keep the values of some metrics at one step."""

    @abstractmethod
    def _append(self, entry: Mapping[str, Any]) -> None:
        """Keep one line of the journal."""

    @abstractmethod
    def _spooling(self) -> AbstractContextManager[Path]:
        """Give a directory for artifacts, and keep what was written to it."""

    def _number(self, name: str, value: Any) -> float:
        if name not in self._checked_names:
            check_name(name)
            self._checked_names.add(name)
        return value if type(value) is float else number(name, value)

    def _tag_nonfinite(self, name: str, step: int) -> None:
        if name not in self._nonfinite:
            self._nonfinite.add(name)
            self._append({"tags": {f"nonfinite/{name}": str(step)}})
