"""What theory says of learning from patterns in a dictionary (Shi, Wei, Liang 2022, ICLR)."""

from __future__ import annotations

import math


def predicted_cosine(n: int, *, patterns: int, size: int, gamma: float) -> float:
    """cos(w, s*) of a neuron whose weights are the mean of y x over n samples: 1 / sqrt(1 + v^2), in (0, 1].

    v = sqrt(D/n) / (2 gamma sqrt(k)) is the noise of D fair patterns, 1 / (2 sig sqrt(n)) in each, over the signal
    |E[y x]| = gamma sqrt(k) / sig. That is what is left of a gradient with erased weights where all neurons are active.
    Not in the paper, which says "> 0.99". Raises ValueError for n or gamma that are not positive.
    """
    if n < 1 or not gamma > 0:
        raise ValueError(f"n and gamma must be positive, got {n} and {gamma}")
    v = math.sqrt(patterns / n) / (2 * gamma * math.sqrt(size))
    return 1 / math.sqrt(1 + v * v)


def extreme_cosine(neurons: int, dim: int) -> float:
    """sqrt(2 ln m / d): about the largest cosine of m random directions in d dimensions with a given one, m << e^d."""
    return math.sqrt(2 * math.log(neurons) / dim)


def fixed_feature_bound(features: int, norm: float, *, size: int, unstructured: float) -> float:
    """p_o (1 - sqrt(2N) B / 2^k): a hinge loss that no linear model of N features and weights of norm B goes below.

    On the worst member of the family of parities of 3 < k <= D/16 patterns, k odd. It says nothing where
    it is not positive, which is so unless 2^k > sqrt(2N) B. Raises ValueError for an even k or k <= 3.
    """
    if size % 2 == 0 or size <= 3:
        raise ValueError(f"the bound is for odd sizes above 3, got {size}")
    bound: float = unstructured * (1 - math.sqrt(2 * features) * norm / 2**size)
    return bound


def queries_needed(patterns: int, size: int) -> float:
    """C(D, k)^(1/3) / 2: statistical queries, or the inverse of their tolerance, without structure.

    An algorithm with fewer, and tolerance no finer, has an error of at least 1/2 - C(D, k)^-3 on some parity.
    """
    queries: float = math.comb(patterns, size) ** (1 / 3) / 2
    return queries
