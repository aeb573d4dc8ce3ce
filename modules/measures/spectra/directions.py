"""Cosines of vectors with given directions, and their energy in a subspace."""

from __future__ import annotations

import torch
from jaxtyping import Float, Real
from torch import Tensor


def direction_cosines(vectors: Float[Tensor, "m dim"], directions: Real[Tensor, "r dim"]) -> Float[Tensor, "m r"]:
    """cos(v_i, D_j) (m, r) in [-1, 1], and 0 where v_i = 0. Scaling v_i by c > 0 does not change it."""
    lengths = vectors.norm(dim=1, keepdim=True)
    units = torch.where(lengths > 0, vectors / lengths, torch.zeros_like(vectors))
    D = directions.to(vectors)
    cosines: Tensor = (units @ (D / D.norm(dim=1, keepdim=True)).T).clamp(-1.0, 1.0)
    return cosines


def subspace_energy(vectors: Float[Tensor, "m dim"], basis: Real[Tensor, "r dim"]) -> Float[Tensor, " m"]:
    """|P v|^2 / |v|^2 (m,) in [0, 1], P the projection on the span of the orthonormal rows of `basis`."""
    inside: Tensor = (vectors @ basis.to(vectors).T).square().sum(1)
    return inside / vectors.square().sum(1)
