"""Significance of agreement: permutation tests of Kendall's W, p-values of correlations, Fisher's method."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float64, Real
from scipy import special, stats
from torch import Tensor

Array = np.ndarray


def concordance_test(scores: Real[Array, "..."], *, draws: int = 2000, seed: int) -> tuple[float, float]:
    """Kendall's W of m raters on n items, averaged over T occasions, with its permutation p-value: (W in [0, 1], p).

    `scores` is (T, m, n), or (m, n) for one occasion. The null hypothesis is that the raters' scores are unrelated. For
    every rater but the first we permute the items, in the same way on all occasions, so that what persists from one
    occasion to the next is kept. p = (1 + #{draws with W >= the observed}) / (1 + draws), in (0, 1]. Under the null the
    mean of W is 1/m. Ties get average ranks and the corrected denominator.

    Raises ValueError for other shapes, fewer than two raters or items, or a rater who gives all items the same score on
    some occasion, where W is undefined.
    """
    scores = np.asarray(scores, dtype=np.float64)
    scores = scores[None] if scores.ndim == 2 else scores
    if scores.ndim != 3 or min(scores.shape[1:]) < 2 or not len(scores):
        raise ValueError(
            f"scores must be (occasions, raters, items) with at least two raters and two items, got {scores.shape}"
        )
    raters, items = scores.shape[1:]
    ranks = stats.rankdata(scores, axis=-1)
    # sum of t^3 - t over the groups of t tied items is n^3 - n - 12 sum (rank - mean rank)^2
    spread = 12.0 * np.square(ranks - (items + 1) / 2).sum(-1)  # (T, m)
    if not spread.all():
        raise ValueError("W is undefined: a rater gives all items the same score on some occasion")
    scale = raters * spread.sum(-1)  # m^2 (n^3 - n) - m T
    rng = np.random.default_rng(seed)
    observed = _mean_w(ranks[None], scale)[0]
    as_large = 0
    for start in range(0, draws, 500):
        count = min(500, draws - start)
        order = rng.permuted(np.broadcast_to(np.arange(items), (count, raters, items)), axis=-1)
        order[:, 0] = np.arange(items)
        shuffled = np.take_along_axis(ranks[None], order[:, None], axis=-1)
        as_large += int((_mean_w(shuffled, scale) >= observed - 1e-12).sum())
    return float(observed), (1 + as_large) / (1 + draws)


def pearson_p_value(r: float | Real[Array, "*shape"], n: int) -> Float64[Array, "*shape"]:
    """Two-sided p-value in [0, 1] of a Pearson correlation r in [-1, 1] of n independent normal pairs.

    t = r sqrt((n - 2) / (1 - r^2)) has Student's law with n - 2 degrees of freedom. Raises ValueError for n < 3.
    """
    if n < 3:
        raise ValueError(f"a p-value of a correlation needs at least 3 pairs, got {n}")
    square = np.square(np.asarray(r, dtype=np.float64))
    # P(|t| > t0) is the regularised incomplete beta function at nu / (nu + t0^2) = 1 - r^2
    return np.asarray(special.betainc((n - 2) / 2, 0.5, 1.0 - square))


def fisher_combine(p: Real[Array, "..."] | list[float]) -> tuple[float, float]:
    """Fisher's combined test of k independent p-values: X2 = -2 sum ln p, and P(chi^2 with 2k degrees > X2).

    A p below 1e-300 counts as 1e-300. A single p-value is returned unchanged. Raises ValueError without p-values, or
    for one outside [0, 1].
    """
    p = np.asarray(p, dtype=np.float64)
    if not p.size or not ((p >= 0) & (p <= 1)).all():
        raise ValueError("p must hold at least one p-value, all in [0, 1]")
    statistic = float(-2.0 * np.log(p.clip(1e-300)).sum())
    return statistic, float(stats.chi2.sf(statistic, 2 * p.size))


def shared_class_false_positives(
    classes: int, networks: int, shared: float, *, draws: int = 2000, level: float = 0.05, seed: int
) -> float:
    """Share of draws in which Fisher's method finds a correlation that is not there, if networks share their classes.

    Each network k gives class c two independent normal scores, u_ck = sqrt(s) u_c + sqrt(1 - s) e_ck, and v_ck
    likewise: the share s = `shared` of their variance belongs to the class and is the same in all networks. Each
    network has Pearson's r over classes with its two-sided p, and the p are combined. Returns the share of `draws` with
    a combined p below `level`: about `level` at s = 0, where the networks are independent, and more otherwise.

    Raises ValueError for shared outside [0, 1], fewer than three classes, or less than one network or draw.
    """
    if not 0 <= shared <= 1:
        raise ValueError(f"shared is a share of variance and must lie in [0, 1], got {shared}")
    if classes < 3 or networks < 1 or draws < 1:
        raise ValueError(f"at least 3 classes, 1 network and 1 draw are needed, got {classes}, {networks} and {draws}")
    rng = np.random.default_rng(seed)
    common = rng.standard_normal((2, draws, 1, classes))
    own = rng.standard_normal((2, draws, networks, classes))
    u, v = np.sqrt(shared) * common + np.sqrt(1 - shared) * own
    u, v = (w - w.mean(-1, keepdims=True) for w in (u, v))
    r = (u * v).sum(-1) / np.sqrt(np.square(u).sum(-1) * np.square(v).sum(-1))
    statistic = -2.0 * np.log(pearson_p_value(r, classes).clip(1e-300)).sum(-1)
    return float((stats.chi2.sf(statistic, 2 * networks) < level).mean())


def spearman(a: Real[Tensor, "... pairs"], b: Real[Tensor, "... pairs"]) -> Float64[Tensor, "..."]:
    """Spearman's rank correlation along the last dimension, average ranks for ties: in [-1, 1]; nan if all tie.

    Raises ValueError where the shapes do not broadcast to equal lengths of at least two.
    """
    if a.shape[-1] != b.shape[-1] or a.shape[-1] < 2:
        raise ValueError(
            f"rank correlation needs equal lengths of at least 2, got lengths {a.shape[-1]} and {b.shape[-1]}"
        )
    x, y = (torch.from_numpy(stats.rankdata(v.detach().cpu().double().numpy(), axis=-1)) for v in (a, b))
    x, y = x - x.mean(-1, keepdim=True), y - y.mean(-1, keepdim=True)
    return (x * y).sum(-1) / (x.square().sum(-1) * y.square().sum(-1)).sqrt()


def _mean_w(ranks: Array, scale: Array) -> Array:
    """W averaged over occasions: ranks (draws, T, m, n), scale (T,) its denominators; (draws,)."""
    totals = ranks.sum(-2)
    return np.asarray(
        (12.0 * np.square(totals - totals.mean(-1, keepdims=True)).sum(-1) / scale).mean(-1), dtype=np.float64
    )
