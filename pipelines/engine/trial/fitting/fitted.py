"""Hand the learner of a fit to whoever wants it: a trial itself returns nothing."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import pytorch_lightning as pl


class Listener(Protocol):
    """Listens to the fits of a trial, and may end the trial by raising."""

    def fitting(self, learner: "pl.LightningModule") -> None:
        """Called before a fit of this learner."""

    def fitted(self, learner: "pl.LightningModule") -> None:
        """Called when a fit of this learner has ended."""


_listener: "ContextVar[Listener | None]" = ContextVar("listener", default=None)


def fitting(learner: "pl.LightningModule") -> None:
    """Tell the listener, if there is one, that a fit of this learner begins."""
    if listener := _listener.get():
        listener.fitting(learner)


def fitted(learner: "pl.LightningModule") -> None:
    """Tell the listener, if there is one, that a fit of this learner has ended."""
    if listener := _listener.get():
        listener.fitted(learner)


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Inside, `listener` is told of each fit."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)
