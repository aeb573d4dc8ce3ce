"""In-context parities with heads of linear attention: margins, hinge losses, and the noise that comes in.

The laws are those of `data.parity_prompts`. Shi, Wei, Xu, Liang 2024, arXiv:2405.19592; theorems 5.5.1 and 5.5.2 of
Z. Shi's dissertation (2024).
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Float64, Int64
from torch import Tensor

TIE = 1e-9  # outputs that are 0 to rounding say neither class


def hamming_distances(tasks: Int64[Tensor, "n 2"], bits: int) -> Int64[Tensor, " n"]:
    """Number of the low `bits` bits in which the two indices of each task differ, counting indices from 0."""
    places = torch.arange(bits)
    digits = tasks[:, :, None] >> places & 1
    return (digits[:, 0] != digits[:, 1]).sum(1)


def both_important(tasks: Int64[Tensor, "n 2"], important: int) -> Bool[Tensor, " n"]:
    """Whether tasks belong to S1: both features among the first `important`."""
    return (tasks < important).all(1)


def mean_hinge(
    margins: Float[Tensor, "n ..."], weights: Float64[Tensor, " n"], chosen: Bool[Tensor, " n"]
) -> Float64[Tensor, "..."]:
    """Weighted mean of max(0, 1 - margin) over the chosen prompts, one value for each network."""
    share = (weights * chosen).double()
    return (share @ (1 - margins.double()).clamp(min=0).flatten(1)) / share.sum()


def small_model_hinge(dim: int, important: int) -> float:
    """Hinge loss on S2 of the theorem's small model: the share of S2 with equal low bits, where its output is 0.

    d (d/k - 1) / (d (d - 1) - k (k - 1)), k = `important` a power of 2. Raises ValueError unless k < d.
    """
    d, k = dim, important
    if not 0 < k < d:
        raise ValueError(f"important must be below the number of features, {d}, got {k}")
    return d * (d / k - 1) / (d * (d - 1) - k * (k - 1))


def binary_heads_norm(dim: int, bits: int, gamma: float) -> float:
    """sum_h |V_h|_F^2 = d nu (nu + 1) / (8 gamma^2) of the theorem's heads."""
    return dim * bits * (bits + 1) / (8 * gamma**2)


def rare_share_bound(dim: int, gamma: float) -> float:
    """The share p_T of S2 below which the theorem holds: (1/4 - g) / (d (d - 1)/2 (1/4 + g) + 1/4 - g)."""
    rest = 0.25 - gamma
    return rest / (dim * (dim - 1) / 2 * (0.25 + gamma) + rest)


def tied_accuracy(margins: Float[Tensor, " n"]) -> float:
    """Share of margins above 0; a tie counts one half, since an output of 0 is a guess."""
    right = (margins > TIE).double() + 0.5 * (margins.abs() <= TIE).double()
    return right.mean().item()


def projected_power(
    heads: Float64[Tensor, "heads dim"], noise: Float64[Tensor, "n dim"]
) -> tuple[Float64[Tensor, " n"], int]:
    """|P xi|^2 of each row, with P the projection onto the span of the heads' diagonals, and the dimension of the span.

    Uses the pseudo-inverse: heads come in pairs V, -V, which make the Gram matrix singular.
    """
    P = torch.linalg.pinv(heads) @ heads
    return (noise @ P).square().sum(1), int(torch.linalg.matrix_rank(heads))
