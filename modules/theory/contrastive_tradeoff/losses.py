"""Pair losses of contrastive learning, functions of how much closer a sample is to its positive than to a negative.

Z. Shi et al., "The Trade-off between Universality and Label Efficiency of Representations from Contrastive Learning",
ICLR 2023; chapter 7 of the dissertation of Z. Shi (2024).
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

PairLoss = Literal["logistic", "exp", "linear"]

# l(t) and its slope; t = phi(x) . (phi(x+) - phi(x-))
PAIR_LOSSES: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]] = {
    "logistic": (lambda t: torch.nn.functional.softplus(-t), lambda t: -torch.sigmoid(-t)),
    "exp": (lambda t: torch.exp(-t), lambda t: -torch.exp(-t)),
    "linear": (torch.neg, lambda t: -torch.ones_like(t)),
}


def pair_loss(t: Float[Tensor, "*shape"], kind: PairLoss = "logistic") -> Float[Tensor, "*shape"]:
    """l(t), elementwise: log(1 + exp(-t)), exp(-t) or -t, all convex and decreasing. ValueError for another kind."""
    return _known(kind)[0](t)


def pair_loss_slope(t: Float[Tensor, "*shape"], kind: PairLoss = "logistic") -> Float[Tensor, "*shape"]:
    """l'(t) < 0, elementwise. Raises ValueError for another kind."""
    return _known(kind)[1](t)


def _known(kind: str) -> tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]:
    if kind not in PAIR_LOSSES:
        nearest = difflib.get_close_matches(kind, PAIR_LOSSES, n=1, cutoff=0.0)[0]
        raise ValueError(
            f"unknown pair loss {kind!r}; did you mean {nearest!r}? Choose one of {', '.join(PAIR_LOSSES)}"
        )
    return PAIR_LOSSES[kind]
