"""Training without its updates: a control in which nothing is learned, on the whole schedule."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_withheld: ContextVar[bool] = ContextVar("updates withheld", default=False)


@contextmanager
def withheld_updates() -> Iterator[None]:
    """Learners that train in here take every step, measure and log, and leave their weights as they are.

    A layer-by-layer learner makes its layers without what it learned of the data: Deep RFM without its AGOP.
    """
    token = _withheld.set(True)
    try:
        yield
    finally:
        _withheld.reset(token)


def updates_withheld() -> bool:
    """Whether updates are withheld here."""
    return _withheld.get()
