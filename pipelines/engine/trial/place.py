"""Where the current trial runs: alone, or as one of several data-parallel workers."""

import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from featurelab.pipelines.engine.errors import RequestError

CHECKPOINT_SECONDS = "FEATURELAB_CHECKPOINT_SECONDS"
OUTBOX_LIMIT = "FEATURELAB_OUTBOX_LIMIT"
UMASK = "FEATURELAB_UMASK"  # of the process that started Ray, for its workers
SETTINGS = (CHECKPOINT_SECONDS, OUTBOX_LIMIT)  # environment variables that trials elsewhere shall have too


OnStep = Callable[[int, int], None]  # called with the step and the number of steps


@dataclass(frozen=True)
class Runtime:
    """What a Lightning `Trainer` must be told of the place it runs in; the default is one process on its own."""

    rank: int = 0
    world_size: int = 1
    strategy: Any = "auto"
    plugins: tuple[Any, ...] = ()
    devices: Any = 1
    on_step: OnStep | None = None  # called as a fit progresses


_current: ContextVar[Runtime] = ContextVar("runtime", default=Runtime())  # noqa: B039 - frozen, so safe to share


def current() -> Runtime:
    return _current.get()


@contextmanager
def running_in(runtime: Runtime) -> Iterator[None]:
    token = _current.set(runtime)
    try:
        yield
    finally:
        _current.reset(token)


def checkpoint_seconds() -> float:
    """Seconds between two checkpoints of training, infinite for none; raises `RequestError` for a bad setting."""
    text = os.environ.get(CHECKPOINT_SECONDS, "30")
    try:
        seconds = math.inf if text == "off" else float(text)
    except ValueError:
        seconds = math.nan
    if not seconds >= 0:
        raise RequestError(f"{CHECKPOINT_SECONDS}={text[:40]!r}: write seconds, or off")
    return seconds
