"""Prompts of labelled sentences of a dataset, each sentence one token, to learn in-context classification from."""

import numpy as np
import torch
from jaxtyping import Int64

from featurelab.modules.dtypes import Dtype

from ..core.tensors import TensorData, stream

FIRST_LABEL = 1  # the id of class 0; 0 is padding
Ids = np.ndarray


class SentencePrompts(TensorData):
    """Prompts of `exemplars` + 1 random sentences with labels of `classes` classes between them.

    `labels` are those of the training and of the test sentences. Ids are 1 + class for labels, and continue with the
    training and then the test sentences. x (n, 2 exemplars + 1) int32 alternates sentences and labels and ends with a
    sentence; y (n, exemplars + 1) int64 are the ids of the labels that follow the sentences. In a share `inverted` of
    the prompts all labels, the last one too, are inverted: class c becomes classes - 1 - c. Prompts of the test set
    have test sentences. All numbers come from streams of `seed`, and training keeps the order of the prompts. Raises
    ValueError for a share outside [0, 1].
    """

    def __init__(
        self,
        labels: tuple[Ids, Ids],
        n_train: int,
        n_test: int = 0,
        *,
        seed: int,
        exemplars: int = 8,
        inverted: float = 0.3,
        classes: int = 2,
        batch_size: int = 64,
        dtype: Dtype = "float32",
        name: str = "labelled sentences",
    ) -> None:
        if not 0 <= inverted <= 1:
            raise ValueError(f"inverted must lie in [0, 1], got {inverted}")
        first = FIRST_LABEL + classes
        parts = []
        for own, n, part, begin in zip(
            labels, (n_train, n_test), ("train", "test"), (first, first + len(labels[0])), strict=True
        ):
            parts.append(_prompts(own, n, exemplars, inverted, classes, begin, stream(seed, f"sentences {part}")))
        train, test = parts
        super().__init__(
            train,
            test if n_test else None,
            batch_size=batch_size,
            order_seed=None,  # type: ignore[arg-type]
            dtype=dtype,
            name=name,
        )


def _prompts(
    labels: Int64[Ids, " sentences"],
    n: int,
    exemplars: int,
    inverted: float,
    classes: int,
    begin: int,
    rng: np.random.Generator,
) -> tuple[torch.Tensor, torch.Tensor]:
    chosen = rng.integers(0, len(labels), (n, exemplars + 1))
    own = labels[chosen]
    shown = FIRST_LABEL + np.where(rng.random((n, 1)) < inverted, classes - 1 - own, own)
    x = np.empty((n, 2 * exemplars + 1), dtype=np.int32)
    x[:, ::2], x[:, 1::2] = begin + chosen, shown[:, :-1]
    return torch.from_numpy(x), torch.from_numpy(shown)
