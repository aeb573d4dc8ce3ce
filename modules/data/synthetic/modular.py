"""Sums of residues: addition of k terms modulo p, as a whole or split at random.

Li, Liang, Shi, Song, Zhou 2024, arXiv:2402.09469, section "Problem Setup".
"""

from typing import Literal

import numpy as np
import torch
from jaxtyping import Int64, Integer
from torch import Tensor

from ..core.tensors import TensorData, stream


def residue_tuples(ids: Int64[Tensor, " n"], terms: int, modulus: int) -> Int64[Tensor, "n {terms}"]:
    """The tuples (a_1, ..., a_k) whose digits to base p are the ids: id = sum_j a_j p^(k - j), in [0, p^k)."""
    powers = modulus ** torch.arange(terms - 1, -1, -1)
    return ids[:, None] // powers % modulus


def residue_sum(x: Integer[Tensor, "n terms"], modulus: int) -> Int64[Tensor, " n"]:
    """(a_1 + ... + a_k) mod p of each row."""
    return x.long().sum(1) % modulus


class ModularAddition(TensorData):
    """The tuples (a_1, ..., a_k) of residues modulo p, with (a_1 + ... + a_k) mod p as the class.

    x (n, k) holds residues as int16, y (n,) classes as int64. All p^k tuples are put into a random order, drawn from
    the stream "tuples" of `seed`; the first `n_train` are the training set, the next `n_test` the test set.
    """

    def __init__(
        self,
        modulus: int,
        terms: int,
        n_train: int | None = None,
        n_test: int | None = None,
        *,
        seed: int,
        batch_size: int | None = None,
        order_seed: int = 0,
    ) -> None:
        """`n_train=None` trains on all tuples; `n_test=None` tests on all remaining ones.

        Raises ValueError for fewer than two residues or terms, more than 2^31 tuples, or more samples than tuples.
        """
        if modulus < 2 or terms < 2 or modulus**terms > 2**31:
            raise ValueError(f"modulus and terms must be at least 2 and modulus^terms at most 2^31: {modulus}, {terms}")
        total = modulus**terms
        n_train = total if n_train is None else n_train
        n_test = total - n_train if n_test is None else n_test
        if n_train < 1 or n_test < 0 or n_train + n_test > total:
            raise ValueError(f"there are only {total} tuples: got n_train={n_train} and n_test={n_test}")
        order = stream(seed, "tuples").permutation(total)[: n_train + n_test]
        x = residue_tuples(torch.from_numpy(order.astype(np.int64)), terms, modulus)
        y = residue_sum(x, modulus)
        x = x.to(torch.int16)
        train, test = (x[:n_train], y[:n_train]), (x[n_train:], y[n_train:])
        options = {"batch_size": batch_size, "order_seed": order_seed}
        super().__init__(train, test, name="modular addition", **options)  # type: ignore[arg-type]
        self.modulus = modulus
        self.terms = terms


def renamed(task: ModularAddition, what: Literal["classes", "residues"], *, seed: int) -> ModularAddition:
    """Rename the classes of `task`, or the residues in its tuples, by one random permutation of 0, ..., p - 1.

    The task is as hard to learn as before, and has the same margins: only the names no longer follow the addition.
    Samples keep their places. The permutation depends only on (seed, what, p). Returns `task`, which is changed.
    """
    names = torch.from_numpy(stream(seed, f"names of {what}").permutation(task.modulus))

    def after(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        return (x, names[y]) if what == "classes" else (names.to(x.dtype)[x.long()], y)

    task.labelled, task.train, task.test = after(*task.labelled), after(*task.train), after(*task.test)
    return task
