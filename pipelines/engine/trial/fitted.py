"""Hand the learner of a fit to whoever wants it: a trial itself returns nothing."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytorch_lightning as pl

_listener: "ContextVar[Callable[[pl.LightningModule], None] | None]" = ContextVar("on_fitted", default=None)


def fitted(learner: "pl.LightningModule") -> None:
    """Tell the listener, if there is one, that a fit of this learner has ended."""
    if listener := _listener.get():
        listener(learner)


@contextmanager
def listening(listener: "Callable[[pl.LightningModule], None]") -> Iterator[None]:
    """Inside, `listener` gets the learner of each fit when the fit has ended."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)
