"""Progress of a long measurement, for a caller that wants to show it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Report = Callable[[int, int], None]

_listener: ContextVar[Report | None] = ContextVar("listener", default=None)


@contextmanager
def listening(report: Report) -> Iterator[None]:
    """Call `report(done, total)` as the measures inside this block proceed, first with done = 0.

    The measure chooses the unit of work.
    """
    token = _listener.set(report)
    try:
        yield
    finally:
        _listener.reset(token)


@contextmanager
def part(index: int, parts: int) -> Iterator[None]:
    """Report the progress inside this block as part `index` of `parts` equal parts of a longer measurement."""
    whole = _listener.get()
    if whole is None or parts <= 1:
        yield
        return
    with listening(lambda done, total: whole(1000 * index + 1000 * done // total, 1000 * parts)):
        yield


def progress(done: int, total: int) -> None:
    """Report that `done` of `total` units of work are done, if anybody listens."""
    report = _listener.get()
    if report is not None:
        report(done, total)
