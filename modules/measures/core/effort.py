"""How far a long measurement has come, for whoever wants to show it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Report = Callable[[int, int], None]

_listener: ContextVar[Report | None] = ContextVar("listener", default=None)


@contextmanager
def listening(report: Report) -> Iterator[None]:
    """Inside, measures call `report(done, total)` as they go, first with done = 0; the unit of work is theirs."""
    token = _listener.set(report)
    try:
        yield
    finally:
        _listener.reset(token)


@contextmanager
def part(index: int, parts: int) -> Iterator[None]:
    """Inside, measures tell of part `index` of `parts` equal ones of a longer measurement."""
    whole = _listener.get()
    if whole is None or parts <= 1:
        yield
        return
    with listening(lambda done, total: whole(1000 * index + 1000 * done // total, 1000 * parts)):
        yield


def progress(done: int, total: int) -> None:
    """Tell the listener, if there is one, that `done` of `total` units of work are done."""
    report = _listener.get()
    if report is not None:
        report(done, total)
