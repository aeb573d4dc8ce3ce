"""Simplified gradients of two-layer ReLU networks, and the directions that they hit: gradient features.

    G(w, b) = E[y x 1(w.x > b)],    C(D, gamma) = {v: |<v, D>| > (1 - gamma) |v|},  |D| = 1

At an initialisation with f = 0, the gradient of a loss l(y f) with respect to the weights of neuron (a, w, b) is
l'(0) a G(w, b). Shi, Wei, Liang 2023, arXiv:2310.12408, section 3.3 and appendix B.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Real
from torch import Tensor

from featurelab.modules.measures.spectra.directions import direction_cosines

BLOCK_BYTES = 128 * 2**20


def simplified_gradient(
    x: Float[Tensor, "n dim"],
    y: Float[Tensor, " n"] | Float[Tensor, "n 1"],
    neurons: Float[Tensor, "m dim"],
    thresholds: Float[Tensor, " m"],
    *,
    block_bytes: int = BLOCK_BYTES,
) -> Float[Tensor, "m dim"]:
    """G_n(w_i, b_i) = (1/n) sum_a y_a x_a 1(w_i.x_a > b_i), the mean over the sample, one row for each neuron (B.124).

    Works in blocks of samples, so that about `block_bytes` are held beside the arguments and the result.
    """
    y = y.flatten()
    total = torch.zeros_like(neurons)
    rows = max(1, block_bytes // (max(len(neurons), 1) * x.element_size()))
    for start in range(0, len(x), rows):
        block = x[start : start + rows]
        active = torch.addmm(-thresholds, block, neurons.T) > 0
        total.addmm_(active.to(x.dtype).T, y[start : start + rows, None] * block)
    return total / len(x)


def mixture_gradient(
    neurons: Float[Tensor, "m dim"],
    thresholds: Float[Tensor, " m"],
    means: Float[Tensor, "c dim"],
    labels: Float[Tensor, " c"],
    *,
    std: float,
    weights: Float[Tensor, " c"] | None = None,
) -> Float[Tensor, "m dim"]:
    """G(w, b) in expectation for x ~ N(mu_j, std^2 I) with label y_j and probability p_j (equal by default).

        G = sum_j p_j y_j [mu_j Phi(t_j) + std w/|w| phi(t_j)],    t_j = (w.mu_j - b) / (std |w|)

    with phi and Phi the density and distribution function of N(0, 1), by Stein's lemma. Not in the paper, which bounds
    it.
    """
    p = torch.full_like(labels, 1 / len(labels)) if weights is None else weights
    lengths = neurons.norm(dim=1, keepdim=True)
    t = (neurons @ means.T - thresholds[:, None]) / (std * lengths)
    signed = p * labels
    density = torch.exp(-t.square() / 2) / (2 * torch.pi) ** 0.5
    along = std * (density @ signed)[:, None] / lengths
    G: Tensor = (signed * torch.special.ndtr(t)) @ means + along * neurons
    return G


def hit_probability(
    gradients: Float[Tensor, "m dim"], directions: Real[Tensor, "r dim"], *, gamma: float, least: float = 0.0
) -> Float[Tensor, " r"]:
    """Share (r,) of neurons with G in the cone C(D_j, gamma) and |G| >= least: p of definition 3.7 by Monte Carlo.

    Rises with gamma, falls with `least`, and is the same for D and -D. Raises ValueError unless 0 < gamma < 1.
    """
    if not 0 < gamma < 1:
        raise ValueError(f"gamma must lie between 0 and 1, got {gamma}")
    inside = direction_cosines(gradients, directions).abs() > 1 - gamma
    hit: Tensor = inside & (gradients.norm(dim=1) >= least)[:, None]
    return hit.to(gradients.dtype).mean(0)


def nice_neurons(
    gradients: Float[Tensor, "m dim"],
    heads: Float[Tensor, " m"],
    direction: Real[Tensor, " dim"],
    *,
    gamma: float,
    least: float = 0.0,
) -> Bool[Tensor, " m"]:
    """Whether (m,) loss gradients g_i of neurons have <g_i, D> > (1 - gamma) |g_i|, |g_i| >= |a_i| least (eq. 3.14).

    Unlike for the cone, the sign of the inner product counts. The caller selects neurons with one sign of threshold.
    """
    along = direction_cosines(gradients, direction[None])[:, 0]
    nice: Tensor = (along > 1 - gamma) & (gradients.norm(dim=1) >= heads.abs() * least)
    return nice


def sure_neurons(
    neurons: Float[Tensor, "m dim"],
    thresholds: Float[Tensor, " m"],
    features: Real[Tensor, "r dim"],
    *,
    own: float,
    other: float,
    both_signs: bool = False,
) -> Bool[Tensor, "m r"]:
    """Whether (m, r) neuron i surely fires on feature j alone: w.v_j >= own b, and w.v_l <= other b for all l != j.

    v_j are the rows of `features`: the cluster means (definition B.29), or sqrt(k) D_j of parity groups; `both_signs`
    requires |w.v_l| <= other b (definition B.46). In opposite pairs of clusters, the partner -v_j always satisfies it.
    """
    products = neurons @ features.to(neurons).T
    bound = thresholds[:, None]
    high = products >= own * bound
    low = (products.abs() if both_signs else products) <= other * bound
    others_low = low.sum(1, keepdim=True) - low.to(torch.long) == low.shape[1] - 1
    return high & others_low


def quadratic_gradient(neurons: Float[Tensor, "m dim"], hessian: Real[Tensor, "dim dim"]) -> Float[Tensor, "m dim"]:
    """G(w, 0) of y = (x'Hx - tr H)/2, x ~ N(0, I): (H u - (u'Hu) u/2) / sqrt(2 pi), u = w/|w|. Not in the paper."""
    u = neurons / neurons.norm(dim=1, keepdim=True)
    Hu = u @ hessian.to(neurons)
    form = (u * Hu).sum(1, keepdim=True)
    G: Tensor = (Hu - form * u / 2) / (2 * torch.pi) ** 0.5
    return G
