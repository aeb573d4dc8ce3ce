"""Closed forms for learning from patterns in a dictionary (Shi, Wei, Liang 2022, ICLR)."""

from __future__ import annotations

import math


def predicted_cosine(n: int, *, patterns: int, size: int, gamma: float) -> float:
    """cos(w, s*) of a neuron whose weights are the mean of y x over n samples: 1 / sqrt(1 + v^2), in (0, 1].

    v = sqrt(D/n) / (2 gamma sqrt(k)) is the noise of D fair patterns, 1 / (2 sig sqrt(n)) in each, over the signal |E[y
    x]| = gamma sqrt(k) / sig. A gradient step that erases the weights leaves this mean if all neurons are active. Not
    in the paper, which says "> 0.99". Raises ValueError unless n and gamma are positive.
    """
    if n < 1 or not gamma > 0:
        raise ValueError(f"n and gamma must be positive, got {n} and {gamma}")
    v = math.sqrt(patterns / n) / (2 * gamma * math.sqrt(size))
    return 1 / math.sqrt(1 + v * v)


def extreme_cosine(neurons: int, dim: int) -> float:
    """sqrt(2 ln m / d): approximate largest cosine of m random directions in d dimensions with one, m << e^d."""
    return math.sqrt(2 * math.log(neurons) / dim)


def fixed_feature_bound(features: int, norm: float, *, size: int, unstructured: float) -> float:
    """p_o (1 - sqrt(2N) B / 2^k): lower bound on the hinge loss of linear models of N fixed features with norm <= B.

    For the worst parity of 3 < k <= D/16 patterns, k odd. It is positive, and so informative, only if 2^k > sqrt(2N) B.
    Raises ValueError for an even k or k <= 3.
    """
    if size % 2 == 0 or size <= 3:
        raise ValueError(f"size must be odd and above 3, got {size}")
    bound: float = unstructured * (1 - math.sqrt(2 * features) * norm / 2**size)
    return bound


def queries_needed(patterns: int, size: int) -> float:
    """C(D, k)^(1/3) / 2: statistical queries, or the inverse of their tolerance, that learning needs without structure.

    With fewer queries of no finer tolerance, an algorithm has an error of at least 1/2 - C(D, k)^-3 on some parity.
    """
    queries: float = math.comb(patterns, size) ** (1 / 3) / 2
    return queries
