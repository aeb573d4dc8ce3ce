"""What a representation encodes of the hidden factors of its inputs, by enumerating factors with finitely many values.

An input consists of invariant factors z_R, which a positive pair shares, and spurious factors z_U, which it does not
share. Section 7.2.1 of the dissertation of Z. Shi (2024). `H[r, u]` is the representation of the input with the r-th
value of z_R and the u-th of z_U; the outputs of any network on these inputs will do.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Real
from torch import Tensor

from .losses import PairLoss, pair_loss


def contrastive_by_enumeration(
    H: Float[Tensor, "*batch invariant spurious dim"],
    p_invariant: Float[Tensor, " invariant"],
    p_spurious: Float[Tensor, " spurious"],
    kind: PairLoss = "logistic",
) -> Float[Tensor, "*batch"]:
    """E l(phi(x) . (phi(x+) - phi(x-))) over all x, x+, x-, exactly: x+ shares z_R with x, x- is an independent x.

    z_R and z_U are independent, with these probabilities. Differentiable. O((R U)^2 U) terms.
    """
    R, U = H.shape[-3:-1]
    rows = H.flatten(-3, -2)
    products = rows @ rows.mT  # (..., RU, RU)
    own = products.unflatten(-2, (R, U)).unflatten(-1, (R, U))
    positive = own.diagonal(dim1=-4, dim2=-2).movedim(-1, -3)  # (..., R, U, U+)
    t = positive.flatten(-3, -2)[..., :, :, None] - products[..., :, None, :]
    p = (p_invariant[:, None] * p_spurious).flatten()
    weights = p[:, None, None] * p_spurious[:, None] * p
    return (weights * pair_loss(t, kind)).sum((-3, -2, -1))


def pca_objective(
    H: Float[Tensor, "*batch invariant spurious dim"],
    p_invariant: Float[Tensor, " invariant"],
    p_spurious: Float[Tensor, " spurious"],
) -> Float[Tensor, "*batch"]:
    """-E |E[phi | z_R] - E phi|^2 <= 0: the variance of the *conditional mean*, negated.

    Equal to `contrastive_by_enumeration` with l(t) = -t, for any representation (Theorem 7.1).
    """
    smoothed = (H * p_spurious[:, None]).sum(-2)
    centred = smoothed - (smoothed * p_invariant[:, None]).sum(-2, keepdim=True)
    return -(centred.square().sum(-1) * p_invariant).sum(-1)


def pair_energy(
    phi: Float[Tensor, "*n dim"], other: Float[Tensor, "*n dim"], weights: Real[Tensor, "*n"] | None = None
) -> Float[Tensor, ""]:
    """E |phi - phi'|^2 / (2 E |phi|^2 + 2 E |phi'|^2), in [0, 1], over pairs of representations of any network.

    For representations of norm B this is E |phi - phi'|^2 / (4 B^2). For positive pairs it is the *spurious energy*, 0
    at the optimum of Theorem 7.2; for inputs that differ in one factor, the *encoding strength* of that factor, 0 if it
    is not encoded. `weights` are the probabilities of the pairs, up to a factor. nan where all representations are
    zero.
    """
    p = torch.ones_like(phi[..., 0]) if weights is None else weights.to(phi)
    apart = (p * (phi - other).square().sum(-1)).sum()
    size = (p * (phi.square().sum(-1) + other.square().sum(-1))).sum()
    return apart / (2 * size)


def flipped_energy(H: Float[Tensor, "..."], p: Real[Tensor, "..."], axis: int) -> Float[Tensor, ""]:
    """`pair_energy` of inputs and the same with the binary factor `axis` flipped: the encoding strength of the factor.

    H is (n_1, ..., n_F, dim), one axis for each factor, and p (n_1, ..., n_F) their probabilities. Raises ValueError
    for a factor that does not have two values.
    """
    if H.shape[axis] != 2:
        raise ValueError(f"only a factor with 2 values can be flipped: the factor on axis {axis} has {H.shape[axis]}")
    return pair_energy(H, H.flip(axis), p)


def redrawn_energy(H: Float[Tensor, "..."], p: Real[Tensor, "..."], axis: int) -> Float[Tensor, ""]:
    """`pair_energy` of inputs and the same with the factor `axis` resampled: its spurious energy.

    Shapes as in `flipped_energy`; the factor is resampled from its law given the other factors. Equals
    (E |phi|^2 - E |E[phi | others]|^2) / (2 E |phi|^2).
    """
    p = p.to(H)
    conditional = p / p.sum(axis, keepdim=True)
    mean = (conditional[..., None] * H).sum(axis, keepdim=True)
    total = (p * H.square().sum(-1)).sum()
    return (total - (p * mean.square().sum(-1)).sum()) / (2 * total)


def best_planar_accuracy(
    points: Float[Tensor, "n 2"], labels: Real[Tensor, " n"], angles: int = 3600, *, bias: bool = False
) -> float:
    """Best accuracy of sign(u . phi [+ b]) for labels +-1 over `angles` directions u of the plane, in [0, 1].

    Tries every bias that separates points. A point on the line counts as wrong; the directions avoid the axes by half a
    step.
    """
    turn = (torch.arange(angles, dtype=points.dtype) + 0.5) * (2 * torch.pi / angles)
    along = torch.stack([turn.cos(), turn.sin()], 1) @ points.T  # (angles, n)
    thresholds = torch.zeros(angles, 1, dtype=points.dtype)
    if bias:
        order = along.sort(1).values
        thresholds = torch.cat([order[:, :1] - 1, (order[:, 1:] + order[:, :-1]) / 2, order[:, -1:] + 1], 1)
    right = (along[:, None] - thresholds[..., None]) * labels.to(points) > 0
    return right.double().mean(-1).max().item()
