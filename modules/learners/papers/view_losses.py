"""Losses of contrastive pre-training on two views of each sample: rows z1[a] and z2[a] belong to sample a."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn


def unit(z: Float[Tensor, "*n width"]) -> Float[Tensor, "*n width"]:
    """Scale rows to length 1; rows of zeros stay zero."""
    return nn.functional.normalize(z, dim=-1)


def nt_xent(z1: Float[Tensor, "n width"], z2: Float[Tensor, "n width"], temperature: float = 0.5) -> Float[Tensor, ""]:
    """-mean_i log(e^(u_i.u_j(i) / tau) / sum_(l != i) e^(u_i.u_l / tau)) over all 2n views, j(i) the partner of view i.

    u = z / |z|. T. Chen et al., SimCLR, arXiv:2002.05709, equation 1.
    """
    u = unit(torch.cat([z1, z2]))
    similarity = u @ u.T / temperature
    similarity = similarity.masked_fill(torch.eye(len(u), dtype=torch.bool, device=u.device), -torch.inf)
    own = torch.arange(len(u), device=u.device).roll(len(z1))
    return nn.functional.cross_entropy(similarity, own)


def pair_loss_in_batch(
    z1: Float[Tensor, "n width"], z2: Float[Tensor, "n width"], temperature: float = 0.05
) -> Float[Tensor, ""]:
    """-mean_a log(e^(u1_a.u2_a / tau) / sum_b e^(u1_a.u2_b / tau)), u = z / |z|: negatives are other second views.

    T. Gao et al., SimCSE, arXiv:2104.08821, equation 1.
    """
    similarity = unit(z1) @ unit(z2).T / temperature
    return nn.functional.cross_entropy(similarity, torch.arange(len(z1), device=z1.device))


def queue_loss(
    query: Float[Tensor, "n width"],
    key: Float[Tensor, "n width"],
    queue: Float[Tensor, "size width"],
    temperature: float = 0.2,
) -> Float[Tensor, ""]:
    """-mean_a log(e^(q_a.k_a / tau) / (e^(q_a.k_a / tau) + sum_m e^(q_a.queue_m / tau))), q and k of length 1.

    Rows of the queue are not normalised. K. He et al., MoCo, arXiv:1911.05722, equation 1.
    """
    q, k = unit(query), unit(key)
    logits = torch.cat([(q * k).sum(1, keepdim=True), q @ queue.T], dim=1) / temperature
    return nn.functional.cross_entropy(logits, torch.zeros(len(q), dtype=torch.int64, device=q.device))


def negative_cosine(p: Float[Tensor, "n width"], z: Float[Tensor, "n width"]) -> Float[Tensor, ""]:
    """-mean_a cos(p_a, z_a), z held fixed. X. Chen, K. He, SimSiam, arXiv:2011.10566, equation 1."""
    return -(unit(p) * unit(z.detach())).sum(1).mean()


def nearest_rows(z: Float[Tensor, "n width"], support: Float[Tensor, "size width"]) -> Float[Tensor, "n width"]:
    """For each row of z, scaled to length 1 and held fixed, the row of the support with the largest product."""
    return support[(unit(z.detach()) @ support.T).argmax(1)]


def neighbour_loss(
    z: Float[Tensor, "n width"],
    p: Float[Tensor, "n width"],
    support: Float[Tensor, "size width"],
    temperature: float = 0.1,
) -> Float[Tensor, ""]:
    """-mean_a log(e^(s_a.p_a / tau) / sum_b e^(s_a.p_b / tau)), s_a the row of the support nearest to z_a, fixed.

    z and p are first scaled to length 1; rows of the support are not normalised. D. Dwibedi et al., NNCLR,
    arXiv:2104.14548, equation 2.
    """
    p = unit(p)
    logits = nearest_rows(z, support) @ p.T / temperature
    return nn.functional.cross_entropy(logits, torch.arange(len(p), device=p.device))
