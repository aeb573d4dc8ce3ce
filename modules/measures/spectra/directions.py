"""How vectors lie to given directions and subspaces: cosines, and shares of energy."""

from __future__ import annotations

import torch
from jaxtyping import Float, Real
from torch import Tensor


def direction_cosines(vectors: Float[Tensor, "m dim"], directions: Real[Tensor, "r dim"]) -> Float[Tensor, "m r"]:
    """cos(v_i, D_j) in [-1, 1], and 0 where v_i = 0, which is in no cone. Invariant to v -> c v, c > 0."""
    lengths = vectors.norm(dim=1, keepdim=True)
    units = torch.where(lengths > 0, vectors / lengths, torch.zeros_like(vectors))
    D = directions.to(vectors)
    cosines: Tensor = (units @ (D / D.norm(dim=1, keepdim=True)).T).clamp(-1.0, 1.0)
    return cosines


def subspace_energy(vectors: Float[Tensor, "m dim"], basis: Real[Tensor, "r dim"]) -> Float[Tensor, " m"]:
    """|P v|^2 / |v|^2 in [0, 1], P the projection on the span of the rows of `basis`, which are orthonormal."""
    inside: Tensor = (vectors @ basis.to(vectors).T).square().sum(1)
    return inside / vectors.square().sum(1)
