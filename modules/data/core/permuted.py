"""Training labels in random order: a control in which nothing can be learned about the labels."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import numpy as np
from jaxtyping import Int64

_seed: ContextVar[int | None] = ContextVar("seed of permuted labels", default=None)


@contextmanager
def permuted_labels(seed: int) -> Iterator[None]:
    """In this block, data modules permute their training labels at random; test labels do not change.

    The permutation depends only on (seed, number of samples), so inputs and all other random draws stay the same.
    """
    token = _seed.set(seed)
    try:
        yield
    finally:
        _seed.reset(token)


def label_order(n: int) -> Int64[np.ndarray, " n"] | None:
    """Index (n,) of the label that each training sample gets instead of its own; None unless labels are permuted."""
    seed = _seed.get()
    return None if seed is None else np.random.default_rng([seed, n, *b"permuted labels"]).permutation(n)
