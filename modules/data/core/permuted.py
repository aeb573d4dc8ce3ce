"""Training labels in a random order: a control in which nothing that is learned can be of the labels."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import numpy as np
from jaxtyping import Int64

_seed: ContextVar[int | None] = ContextVar("seed of permuted labels", default=None)


@contextmanager
def permuted_labels(seed: int) -> Iterator[None]:
    """Data modules made in here have their training labels permuted at random; test labels stay.

    The permutation is drawn from (seed, number of samples) alone, so that inputs and everything else that is drawn are
    those of the data module with its own labels.
    """
    token = _seed.set(seed)
    try:
        yield
    finally:
        _seed.reset(token)


def label_order(n: int) -> Int64[np.ndarray, " n"] | None:
    """Which label each of n training samples gets in place of its own; None where labels are not permuted."""
    seed = _seed.get()
    return None if seed is None else np.random.default_rng([seed, n, *b"permuted labels"]).permutation(n)
