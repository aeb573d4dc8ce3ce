"""Theory of fine-grained structure: distances between clusters of one label (arXiv:2306.17105, section 7, appendix A).

Cluster means are orthogonal and of length tau, noise is N(0, kappa^2 I) in d dimensions, weights start as
N(0, omega^2); c = 8 kappa sqrt(d) / tau is the noise-to-signal ratio.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Integer, Real
from torch import Tensor


def separation_ratio(
    features: Real[Tensor, "n dim"], clusters: Integer[Tensor, " n"], groups: Integer[Tensor, " clusters"]
) -> dict[str, float]:
    """Distances between clusters of one group over distances inside clusters; Euclidean, not squared; in [0, inf].

    `mean`: the mean of |h_i - h_j| over i, j of two clusters of a group, over its mean for distinct i, j of one
    cluster, averaged over groups. `worst`: the smallest of the former over the largest of the latter, smallest over
    groups; theorem 7.1 states that it is large. Clusters are in [0, C).

    Raises ValueError if no group has both kinds of pairs.
    """
    h = features.detach().double()
    apart = torch.cdist(h, h, compute_mode="donot_use_mm_for_euclid_dist")
    clusters = clusters.to(h.device)
    group = groups.to(h.device)[clusters]
    together = clusters[:, None] == clusters[None, :]
    distinct = ~torch.eye(len(h), dtype=torch.bool, device=h.device)
    means, worsts = [], []
    for g in group.unique():
        inside = (group == g)[:, None] & (group == g)[None, :]
        inter, intra = apart[inside & ~together], apart[inside & together & distinct]
        if len(inter) and len(intra):
            means.append((inter.mean() / intra.mean()).item())
            worsts.append((inter.min() / intra.max()).item())
    if not means:
        raise ValueError("separation_ratio() needs a group with two clusters, one of them with two samples")
    return {"mean": sum(means) / len(means), "worst": min(worsts)}


def cubic_signal(
    initial: Float[Tensor, "..."], steps: float | Real[Tensor, "..."], *, lr: float, tau: float, factor: float = 1 / 8
) -> Float[Tensor, "..."]:
    """zeta(t) = 1 / (1/zeta(0) - lr tau^2 t factor), the projection w . mu on the mean of a cluster labelled +1.

    Solves zeta' = lr tau^2 factor zeta^2 (corollary A.11: factor 1/8, with bounds from 1/8 - c and 1/8 + c) for four
    clusters of equal size and |zeta| < 1. A positive zeta grows, and is inf from the time of blow-up on; a negative one
    rises towards 0; zeta(0) = 0 stays 0. For label -1 pass -zeta(0) and change the sign of the result.
    """
    growth = torch.as_tensor(lr * tau**2 * factor, dtype=initial.dtype, device=initial.device) * steps
    rest = 1 - initial * growth
    return torch.where(rest > 0, initial / rest.clamp(min=torch.finfo(initial.dtype).tiny), torch.inf)


def separation_time(*, c: float, lr: float, tau: float, omega: float, width: int) -> float:
    """t_0 = (1 - 4 omega tau L) / (1/8 + c) / (2 lr tau^3 omega L) steps, L = sqrt(log 4m): theorem A.15.

    Until then every projection stays in the cubic region. Theorem 7.1 prints Theta(1 / (lr omega^3)), which does not
    follow from the proof. Raises ValueError if omega tau is so large that t_0 <= 0.
    """
    bound = omega * tau * math.sqrt(math.log(4 * width))
    if not 4 * bound < 1:
        raise ValueError(f"omega tau sqrt(log 4m) must be below 1/4, got {bound:g}")
    return (1 - 4 * bound) / (1 / 8 + c) / (2 * lr * tau**2 * bound)


def separation_bound(*, c: float, dim: int, n: int, slope: float = 1.0, curvature: float = 1.0) -> float:
    """sqrt(1/(24 L')) (c/2 + (10 / sqrt(8 L)) c^3 sqrt(d) / n^1.5)^-3, a lower bound of the ratio of theorem A.15.

    L = `slope` bounds sigma', which is 1. The paper gives no value of L' = `curvature`; 1 is our reading.
    """
    noise = c / 2 + 10 / math.sqrt(8 * slope) * c**3 * math.sqrt(dim) / n**1.5
    bound: float = math.sqrt(1 / (24 * curvature)) * noise**-3
    return bound


def mixture_msdr(variance: float, n: float = math.inf) -> float:
    """Mean squared distance ratio of inputs N(mu_c, I), mu_c ~ N(0, s2 I), in many dimensions: (1 + s2) n / (n - 1).

    n samples of each cluster; 1 + s2 for n = inf, 1 + 1/(n - 1) without structure. Raises ValueError for n <= 1.
    """
    if not n > 1:
        raise ValueError(f"n must be at least 2 samples of each cluster, got {n}")
    return 1 + variance if math.isinf(n) else (1 + variance) * n / (n - 1)


def relu_msdr(variance: float, n: float = math.inf) -> float:
    """The same ratio after a wide random ReLU layer without biases: (1 - k(0)) / (1 - k(rho)), rho = s2 / (1 + s2).

    k(r) = (sqrt(1 - r^2) + r (pi - arccos r)) / pi is the normalised arc-cosine kernel (Cho, Saul 2009): inputs all
    have the length sqrt(d (1 + s2)), with cosine rho inside a cluster and 0 between. With n samples a cluster D_ii
    counts the n pairs of a sample with itself: the ratio is larger by n / (n - 1). Raises ValueError for n <= 1.
    """
    if not n > 1:
        raise ValueError(f"n must be at least 2 samples of each cluster, got {n}")
    rho = variance / (1 + variance)
    ratio = (1 - _arc_cosine(0.0)) / (1 - _arc_cosine(rho))
    return ratio if math.isinf(n) else ratio * n / (n - 1)


def _arc_cosine(r: float) -> float:
    return (math.sqrt(1 - r * r) + r * (math.pi - math.acos(r))) / math.pi
