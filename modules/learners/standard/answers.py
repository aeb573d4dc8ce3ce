"""The loss of a language model on the answers that a prompt asks for."""

from functools import partial

import torch
from torch import Tensor

from .losses import Batch, Forward, Loss


def answer_loss(marker: int, *, behind: int = 0, tokens: int = 1) -> Loss:
    """Mean cross-entropy, over the whole vocabulary, of the `tokens` tokens that follow each token `marker`.

    `behind` tokens between the marker and its answer are skipped. A batch is (x, y): x (n, length) token ids, each row
    with equally many markers; y (n, markers * tokens) the answers in order. `forward` maps x to logits (n, length,
    vocabulary). Raises ValueError if y does not hold as many answers as the prompts ask for.
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
        raise ValueError(f"the prompts ask for {int(asked.sum())} tokens after {marker}, but y holds {y.numel()}")
    return torch.nn.functional.cross_entropy(forward(x)[asked], y.flatten())
