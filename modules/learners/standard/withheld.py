"""Training with updates withheld: a control that runs the whole schedule but learns nothing."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_withheld: ContextVar[bool] = ContextVar("updates withheld", default=False)


@contextmanager
def withheld_updates() -> Iterator[None]:
    """In this block learners take every step, measure and log, but do not change their weights.

    A layer-by-layer learner builds its layers without what it learned from the data: Deep RFM without its AGOP.
    """
    token = _withheld.set(True)
    try:
        yield
    finally:
        _withheld.reset(token)


def updates_withheld() -> bool:
    """Whether updates are withheld at present."""
    return _withheld.get()
