"""Weights that a linear representation gives to shared, private and spurious features."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor


class FeatureWeights(NamedTuple):
    """alpha, beta_t, and how far the representation deviates from them: see `feature_weights`."""

    shared: Float[Tensor, ""]
    private: Float[Tensor, " tasks"]
    spurious: Float[Tensor, ""]
    within: Float[Tensor, ""]
    across: Float[Tensor, ""]
    spread: Float[Tensor, ""]


def feature_weights(F: Float[Tensor, "factors width"], shared: int, private: int, tasks: int) -> FeatureWeights:
    """Weights in G = F F^T, with F[j] the representation of factor j alone: the j-th column of M for inputs x = M z.

    Factors are ordered: shared, private of each task, spurious. `shared`: alpha, the mean of diag G over the shared
    factors; `private`: beta_t, the mean over the factors of task t; `spurious`: the largest value of diag G over
    spurious factors, 0 without any; `spread`: the largest distance of diag G from these means. `within`: the largest
    |G_ij|, i != j, among factors that occur together (shared ones and those of one task). `across`: the same between
    private factors of different tasks; these never occur together, so the loss does not determine it (proposition 7.3
    of the dissertation of Z. Shi, 2024, has zeros there).

    Raises ValueError if there are fewer factors than named, or none shared or private.
    """
    total = shared + tasks * private
    if min(shared, private, tasks) < 1 or total > len(F):
        raise ValueError(f"{shared} shared and {tasks} x {private} private factors do not fit {len(F)} factors")
    G = F @ F.T
    weights = G.diagonal()
    alpha, own = weights[:shared].mean(), weights[shared:total].view(tasks, private)
    owner = torch.full((len(F),), -1, device=F.device)
    owner[shared:total] = torch.arange(tasks, device=F.device).repeat_interleave(private)
    known = torch.arange(len(F), device=F.device) < total
    both, is_private = known[:, None] & known, owner >= 0
    apart = is_private[:, None] & is_private & (owner[:, None] != owner)
    itself = torch.eye(len(F), dtype=torch.bool, device=F.device)
    zero = G.new_zeros(1)
    spread = torch.cat([weights[:shared] - alpha, (own - own.mean(1, keepdim=True)).flatten()])
    return FeatureWeights(
        alpha,
        own.mean(1),
        torch.cat([zero, weights[total:]]).max(),
        torch.cat([zero, G[both & ~apart & ~itself].abs()]).max(),
        torch.cat([zero, G[apart].abs()]).max(),
        spread.abs().max(),
    )
