"""Contrastive losses as functions of (forward, batch), for batches of positive pairs (x, x+); no temperature, no norm.

The theory's forms (sections 7.2 and 7.2.2 of the dissertation of Z. Shi, 2024). Any network whose outputs are (n, k).
"""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from featurelab.modules.theory.contrastive_tradeoff import contrastive_by_enumeration, pair_loss
from featurelab.modules.theory.contrastive_tradeoff.losses import PairLoss

from ..standard.losses import Batch, Forward, Loss


def one_negative_loss(kind: PairLoss = "logistic") -> Loss:
    """mean_a l(phi(x_a) . (phi(x+_a) - phi(x_(a+1)))): the next sample of the batch is the negative.

    The last one has the first. Raises ValueError for a batch of one, which has no negative.
    """

    def value(forward: Forward, batch: Batch) -> Float[Tensor, ""]:
        phi, positive = forward(batch[0]), forward(batch[1])
        if len(phi) < 2:
            raise ValueError("a negative is another sample of the batch, which has one")
        return pair_loss((phi * (positive - phi.roll(-1, 0))).sum(1), kind).mean()

    return value


def mean_negative_loss(
    kind: PairLoss = "logistic", mean: Float[Tensor, " width"] | None = None, temperature: float = 1.0
) -> Loss:
    """mean_a l(phi(x_a) . (phi(x+_a) - E phi(x-)) / temperature), the expectation inside l.

    `mean` is E phi(x-), by default 0, which it is for a linear phi and inputs of mean 0: a batch's own mean would bias
    the objective. Raises ValueError for a temperature that is not positive.
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
    """The loss with one negative over all values of the hidden factors, exactly: `contrastive_by_enumeration`.

    A batch's x are all R U inputs, those of one value of z_R together; its targets are not looked at.
    """

    def value(forward: Forward, batch: Batch) -> Float[Tensor, ""]:
        phi = forward(batch[0])
        H = phi.unflatten(0, (len(p_invariant), len(p_spurious)))
        return contrastive_by_enumeration(H, p_invariant.to(phi), p_spurious.to(phi), kind)

    return value
