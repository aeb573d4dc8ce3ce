"""Hermite expansions under Gaussians that need not be centred or of unit variance.

Probabilists' polynomials: He_0 = 1, He_1 = x, He_(k+1) = x He_k - k He_(k-1). The closed forms are those of appendix H
of "Emergence of Alignment and Local Elasticity in Two-Layer Neural Networks" (anonymous authors, under review), and
their corrections.
"""

from collections.abc import Callable
from functools import lru_cache
from math import comb, factorial

import numpy as np
import torch
from jaxtyping import Float, Float64, Int64
from torch import Tensor

Number = float | Float[Tensor, "..."]  # tensors are broadcast


@lru_cache
def gauss_hermite(nodes: int = 200) -> tuple[Float64[Tensor, " nodes"], Float64[Tensor, " nodes"]]:
    """Nodes and weights with sum_i w_i g(z_i) = E g(z), z ~ N(0, 1).

    Exact for polynomials g of degree below 2 * nodes. Raises ValueError for nodes outside 1..300, where weights
    underflow.
    """
    if not 1 <= nodes <= 300:
        raise ValueError(f"nodes must lie between 1 and 300, got {nodes}")
    z, w = np.polynomial.hermite_e.hermegauss(nodes)
    return torch.from_numpy(z), torch.from_numpy(w / w.sum())


def hermite_polynomial(degree: int, x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """He_degree(x), elementwise, by the recurrence. Raises ValueError for a negative degree."""
    if degree < 0:
        raise ValueError(f"degree must not be negative, got {degree}")
    before, now = torch.zeros_like(x), torch.ones_like(x)
    for k in range(degree):
        before, now = now, x * now - k * before
    return now


def hermite_coefficients(
    function: Callable[[Tensor], Tensor], degree: int, nodes: int = 200
) -> Float64[np.ndarray, " {degree}+1"]:
    """c_0 ... c_degree with c_k = E[function(z) He_k(z)] / k!, z ~ N(0, 1), by quadrature.

    Then function = sum_k c_k He_k in mean square, E function^2 = sum_k k! c_k^2, and c_1 = E function'. Exact for
    polynomials; functions with kinks converge slowly in `nodes`. Raises ValueError for a negative degree.
    """
    z, w = gauss_hermite(nodes)
    values = function(z) * w
    return np.array([float((values * hermite_polynomial(k, z)).sum()) / factorial(k) for k in range(degree + 1)])


def double_factorial(n: int) -> int:
    """n!! = n (n - 2) (n - 4) ..., with 0!! = (-1)!! = 1. Raises ValueError for n < -1."""
    if n < -1:
        raise ValueError(f"n must be at least -1, got {n}")
    return int(np.prod(np.arange(n, 0, -2, dtype=object))) if n > 0 else 1


def gaussian_moment(k: int, mean: Number, variance: Number) -> Number:
    """E Z^k for Z ~ N(mean, variance): sum over even i of C(k, i) mean^(k - i) variance^(i/2) (i - 1)!!."""
    return sum(
        comb(k, i) * mean ** (k - i) * variance ** (i // 2) * double_factorial(i - 1) for i in range(0, k + 1, 2)
    )


def hermite_expectation(n: int, mean: Number, variance: Number) -> Number:
    """E He_n(Z) for Z ~ N(mean, variance); mean^n where the variance is 1 (corollary H.12).

    sum_m sum_(i even) (-1)^m n! / (2^m m! (n - 2m)!) C(n - 2m, i) (i - 1)!! mean^(n - 2m - i) variance^(i/2).
    """
    total: Number = sum(
        (-1) ** m
        * (factorial(n) // (2**m * factorial(m) * factorial(n - 2 * m)))
        * gaussian_moment(n - 2 * m, mean, variance)
        for m in range(n // 2 + 1)
    )
    return total


def hermite_product_expectation(j: int, k: int, A: Number, B: Number, c: Number) -> Number:
    """E[He_j(Z_1) He_k(Z_2)] for centred Gaussians of variances A and B and covariance c; any degrees.

    sum over m, q with j - 2m = k - 2q = p >= 0 of
    C(j, 2m) (2m - 1)!! (A - 1)^m  C(k, 2q) (2q - 1)!! (B - 1)^q  p! c^p: from the generating function
    exp((A - 1) s^2 / 2 + (B - 1) t^2 / 2 + c s t) of the product. j! c^j 1[j = k] where A = B = 1.
    """
    total: Number = 0.0
    for p in range(min(j, k), -1, -1):
        if (j - p) % 2 or (k - p) % 2:
            continue
        m, q = (j - p) // 2, (k - p) // 2
        ways = comb(j, 2 * m) * double_factorial(2 * m - 1) * comb(k, 2 * q) * double_factorial(2 * q - 1)
        total = total + ways * factorial(p) * (A - 1) ** m * (B - 1) ** q * c**p
    return total


def printed_hermite_product(j: int, k: int, A: Number, B: Number, c: Number) -> Number:
    """The paper's closed form of `hermite_product_expectation` (theorem H.5), as printed; right only for j, k <= 3.

    j! c^j / (AB) 1[j = k] - (A - 1)(B - 1) / (AB) E[Z_1^j Z_2^k] + (B - 1)/B E[He_j(Z_1) Z_2^k]
    + (A - 1)/A E[He_k(Z_2) Z_1^j]. It treats the expectation as linear in A and B, which fails from degree 4 on.
    """
    powers = [hermite_in_monomials(n) for n in (j, k)]
    first = factorial(j) * c**j / (A * B) if j == k else 0.0
    both = (A - 1) * (B - 1) / (A * B) * product_moment(j, k, A, B, c)
    left = sum(int(h) * product_moment(i, k, A, B, c) for i, h in enumerate(powers[0]) if h)
    right = sum(int(h) * product_moment(j, i, A, B, c) for i, h in enumerate(powers[1]) if h)
    return first - both + (B - 1) / B * left + (A - 1) / A * right


def product_moment(j: int, k: int, A: Number, B: Number, c: Number) -> Number:
    """E[Z_1^j Z_2^k] for centred Gaussians of variances A and B and covariance c (Isserlis)."""
    total: Number = 0.0
    for p in range(min(j, k), -1, -1):
        if (j - p) % 2 or (k - p) % 2:
            continue
        pairs = double_factorial(j - p - 1) * double_factorial(k - p - 1)
        ways = comb(j, p) * comb(k, p) * factorial(p) * pairs
        total = total + ways * A ** ((j - p) // 2) * B ** ((k - p) // 2) * c**p
    return total


def hermite_in_monomials(n: int) -> Int64[np.ndarray, " {n}+1"]:
    """The coefficients of x^0 ... x^n in He_n."""
    coefficients = np.zeros(n + 1, dtype=np.int64)
    for m in range(n // 2 + 1):
        coefficients[n - 2 * m] = (-1) ** m * factorial(n) // (2**m * factorial(m) * factorial(n - 2 * m))
    return coefficients
