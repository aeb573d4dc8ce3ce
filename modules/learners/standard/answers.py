"""The loss of a language model on the answers alone that a prompt asks for."""

from functools import partial

import torch
from torch import Tensor

from .losses import Batch, Forward, Loss


def answer_loss(marker: int, *, behind: int = 0, tokens: int = 1) -> Loss:
    """The mean cross-entropy, over the whole vocabulary, of the `tokens` tokens that follow each token `marker`.

    `behind` more tokens stand between the marker and its answer, and are not asked for. A batch is (x, y): x (n,
    length) token ids, each row with as many markers; y (n, markers * tokens) the answers, in their order. `forward`
    maps x to logits (n, length, vocabulary). Raises ValueError for another number of answers than are asked for.
    """
    return partial(_answer_loss, marker, range(behind, behind + tokens))


def _answer_loss(marker: int, places: range, forward: Forward, batch: Batch) -> Tensor:
    x, y = batch
    asked = marked = x == marker
    if places != range(1):
        asked = torch.zeros_like(marked)
        for place in places:  # logits at a token are of the one after it
            asked[:, place:] |= marked[:, : marked.shape[1] - place]
    if int(asked.sum()) != y.numel():
        raise ValueError(f"{int(asked.sum())} answers to tokens {marker} in the prompts, and {y.numel()} are given")
    return torch.nn.functional.cross_entropy(forward(x)[asked], y.flatten())
