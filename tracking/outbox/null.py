"""Recorders that store nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from featurelab.tracking.outbox.record import STATUSES, Listener, Recorder
from featurelab.tracking.outbox.recording import Recording


class NullRecorder(Recorder):
    """Checks what it is given as a Recorder does, and stores nothing: for tests, and ranks other than the first."""

    def __init__(self, listeners: Sequence[Listener] = ()) -> None:
        Recording.__init__(self, listeners)
        self.run_id = ""
        self._earlier = None

    @property
    def broken(self) -> None:
        return None

    def check(self) -> None:
        pass

    def flush(self, timeout: float = 30.0) -> bool:
        return True

    def close(self, status: str = "FINISHED", *, tags: Mapping[str, Any] | None = None, timeout: float = 60.0) -> bool:
        if status not in STATUSES:
            raise ValueError(f"the status of a run that ends must be one of {', '.join(STATUSES)}, not {status!r}")
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
    """Stores nothing, but passes the datasets that it is told of to another recorder."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._recorder = recorder

    def dataset(self, *named: Any, **details: Any) -> None:
        self._recorder.dataset(*named, **details)
