"""A recorder for those who have nothing to record with, or nothing to keep."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from featurelab.tracking.outbox.record import STATUSES, Listener, Recorder


class NullRecorder(Recorder):
    """Checks what it is given as a Recorder does, and keeps nothing: for the other ranks of a distributed fit."""

    def __init__(self, listeners: Sequence[Listener] = ()) -> None:
        self.run_id = ""
        self._prepare(listeners)

    @property
    def broken(self) -> None:
        return None

    def check(self) -> None:
        pass

    def flush(self, timeout: float = 30.0) -> bool:
        return True

    def close(self, status: str = "FINISHED", *, tags: Mapping[str, Any] | None = None, timeout: float = 60.0) -> bool:
        if status not in STATUSES:
            raise ValueError(f"a run ends as one of {', '.join(STATUSES)}, not {status!r}")
        return True

    def _keep(self, values: Mapping[str, float], step: int) -> None:
        pass

    def _append(self, entry: Mapping[str, Any]) -> None:
        pass

    @contextmanager
    def _spooling(self) -> Iterator[Path]:
        with TemporaryDirectory() as root:
            yield Path(root)


class NamingRecorder(NullRecorder):
    """Keeps nothing, but names the datasets that it is told of to another recorder."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._recorder = recorder

    def dataset(self, *named: Any, **details: Any) -> None:
        self._recorder.dataset(*named, **details)
