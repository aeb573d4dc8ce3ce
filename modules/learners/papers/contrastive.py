"""Contrastive losses as functions of (forward, batch), for batches of positive pairs (x, x+).

These are the forms used in the theory (sections 7.2 and 7.2.2 of the dissertation of Z. Shi, 2024). They fit any
network with outputs (n, k), and do not normalise the outputs.
"""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from featurelab.modules.theory.contrastive_tradeoff import contrastive_by_enumeration, pair_loss
from featurelab.modules.theory.contrastive_tradeoff.losses import PairLoss

from ..standard.losses import Batch, Forward, Loss


def one_negative_loss(kind: PairLoss = "logistic") -> Loss:
    """mean_a l(phi(x_a) . (phi(x+_a) - phi(x_(a+1)))): the next sample of the batch is the negative.

    The last sample takes the first one. Raises ValueError for a batch of one sample, which has no negative.
    """

    def value(forward: Forward, batch: Batch) -> Float[Tensor, ""]:
        phi, positive = forward(batch[0]), forward(batch[1])
        if len(phi) < 2:
            raise ValueError("one_negative_loss() needs at least 2 samples in a batch, got 1")
        return pair_loss((phi * (positive - phi.roll(-1, 0))).sum(1), kind).mean()

    return value


def mean_negative_loss(
    kind: PairLoss = "logistic", mean: Float[Tensor, " width"] | None = None, temperature: float = 1.0
) -> Loss:
    """mean_a l(phi(x_a) . (phi(x+_a) - E phi(x-)) / temperature), with the expectation inside l.

    `mean` is E phi(x-). It defaults to 0, its value for a linear phi and inputs of mean 0; the mean of a batch would
    bias the objective. Raises ValueError for a temperature that is not positive.
    """
    if not temperature > 0:
        raise ValueError(f"temperature must be positive, got {temperature}")

    def value(forward: Forward, batch: Batch) -> Float[Tensor, ""]:
        phi, positive = forward(batch[0]), forward(batch[1])
        if mean is not None:
            positive = positive - mean.to(positive)
        return pair_loss((phi * positive).sum(1) / temperature, kind).mean()

    return value


def enumerated_loss(
    p_invariant: Float[Tensor, " invariant"], p_spurious: Float[Tensor, " spurious"], kind: PairLoss = "logistic"
) -> Loss:
    """The loss with one negative, exactly, over all values of the hidden factors: `contrastive_by_enumeration`.

    The x of a batch are all R U inputs, grouped by the value of z_R; its targets are ignored.
    """

    def value(forward: Forward, batch: Batch) -> Float[Tensor, ""]:
        phi = forward(batch[0])
        H = phi.unflatten(0, (len(p_invariant), len(p_spurious)))
        return contrastive_by_enumeration(H, p_invariant.to(phi), p_spurious.to(phi), kind)

    return value
