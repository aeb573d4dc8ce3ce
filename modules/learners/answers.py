"""The loss of a language model on the answers alone that a prompt asks for."""

from functools import partial

import torch
from torch import Tensor

from .losses import Batch, Forward, Loss


def answer_loss(marker: int) -> Loss:
    """The mean cross-entropy, over the whole vocabulary, of the tokens that follow each token `marker`.

    A batch is (x, y): x (n, length) token ids, each row with as many markers; y (n, markers) the ids that follow them.
    `forward` maps x to logits (n, length, vocabulary). Raises ValueError for another number of markers.
    """
    return partial(_answer_loss, marker)


def _answer_loss(marker: int, forward: Forward, batch: Batch) -> Tensor:
    x, y = batch
    asked = x == marker
    if int(asked.sum()) != y.numel():
        raise ValueError(f"{int(asked.sum())} tokens {marker} in the prompts, and {y.numel()} answers")
    return torch.nn.functional.cross_entropy(forward(x)[asked], y.flatten())
