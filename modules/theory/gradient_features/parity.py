"""The gradient of a neuron on the uniform sparse parity, by the Fourier coefficients of majority.

Shi, Wei, Liang 2023, arXiv:2310.12408, lemma B.63, after lemma 3 of Barak et al. 2022.
"""

from __future__ import annotations

import itertools
from math import comb

import torch
from jaxtyping import Float
from torch import Tensor


def majority_coefficient(dim: int, size: int) -> float:
    """xi_K, the Fourier coefficient of the majority of d votes on a set of K, for odd d and K.

        xi_K = (-1)^((K-1)/2) C((d-1)/2, (K-1)/2) / C(d-1, K-1) 2^-(d-1) C(d-1, (d-1)/2)

    Equation B.480 prints the argument (d-1)/2 twice in the first binomial coefficient. Raises ValueError for an even d
    or K, or K > d.
    """
    if dim % 2 == 0 or size % 2 == 0 or not 1 <= size <= dim:
        raise ValueError(f"dim and size must be odd with 1 <= size <= dim, got {dim} and {size}")
    half, j = (dim - 1) // 2, (size - 1) // 2
    magnitude: float = comb(half, j) * comb(dim - 1, half) / (comb(dim - 1, size - 1) * 2 ** (dim - 1))
    return -magnitude if j % 2 else magnitude


def uniform_parity_gradient(
    neurons: Float[Tensor, "m dim"], size: int, *, printed: bool = False
) -> Float[Tensor, "m dim"]:
    r"""G(w, b) of y = x_1 ... x_k, x uniform on {-1, 1}^d, for neurons w in {-1, 1}^d and |b| < 1; d odd, k even.

        G_j = xi_(k-1)/2 prod of w over A \ {j} for j in A;    G_j = xi_(k+1)/2 prod of w over A and j for j not in A

    with A the first k coordinates. `printed` returns lemma B.63 as printed: without the factors 1/2, and with xi_(k-1)
    in both. Raises ValueError for an odd k.
    """
    d = neurons.shape[1]
    if size % 2:
        raise ValueError(f"size must be even, got {size}")
    inside = majority_coefficient(d, size - 1)
    outside = inside if printed else majority_coefficient(d, size + 1)
    product = neurons[:, :size].prod(1, keepdim=True)
    G = product * neurons  # w is its own inverse
    G[:, :size] *= inside
    G[:, size:] *= outside
    return G if printed else G / 2


def sign_vectors(dim: int) -> Float[Tensor, "points {dim}"]:
    """All 2^dim vectors of signs, for exact expectations. Raises ValueError for dim > 20."""
    if not 1 <= dim <= 20:
        raise ValueError(f"dim must lie between 1 and 20, got {dim}")
    return torch.tensor(list(itertools.product((1.0, -1.0), repeat=dim)), dtype=torch.float64)
