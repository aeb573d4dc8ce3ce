"""Where the current trial runs: alone, or as one of several data-parallel workers."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Runtime:
    """What a Lightning `Trainer` must be told of the place it runs in; the default is one process on its own."""

    rank: int = 0
    world_size: int = 1
    strategy: Any = "auto"
    plugins: tuple[Any, ...] = ()
    devices: Any = 1


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
