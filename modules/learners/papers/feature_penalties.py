"""Supervised training with a penalty on the features of a whole batch, such as the nuclear norm."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from featurelab.modules.measures import nuclear_norm

from ..standard.losses import Batch, Forward
from ..standard.supervised import Supervised
from .scaling import POWERS, Scaling

Penalty = Callable[[Float[Tensor, "n width"]], Float[Tensor, ""]]


class FeaturePenalised(Supervised):
    """Minimises loss + strength * penalty(F) / B^power, with F the (B, width) input of the layer `head` of `net`.

    `scaling` sets the power of the batch size B that divides the penalty: "per_sample" 1, "per_root" 1/2, "sum" 0. The
    penalty starts after `start_step` optimiser steps; that of `beside`, if given, is added at once and with factor 1.
    `change(batch, step)` changes a training batch before its step, as `mixup` does. Validation and testing log the loss
    alone. A penalty and a change see the batch as a whole, so several workers cannot share it.

    arXiv:2303.07527, equation (6.3): the printed objective is "sum", its authors' code "per_sample". Raises ValueError
    for a negative strength, an unknown scaling, or more than one worker.
    """

    def __init__(
        self,
        net: nn.Module,
        *,
        head: nn.Module,
        penalty: Penalty,
        strength: float,
        scaling: Scaling = "per_sample",
        start_step: int = 0,
        beside: Penalty | None = None,
        change: Callable[[Batch, int], Batch] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(net, **options)
        if strength < 0:
            raise ValueError(f"strength must not be negative, got {strength}")
        if scaling not in POWERS:
            raise ValueError(f"scaling must be one of {', '.join(POWERS)}, got {scaling!r}")
        self.penalty, self.strength, self.start_step, self.change = penalty, strength, start_step, change
        self._power = POWERS[scaling]
        self.beside = beside
        self._head, self._without = [head], self.loss  # in a list, so that its weights are not registered twice
        self.loss = self._with

    def on_fit_start(self) -> None:
        super().on_fit_start()
        if self.trainer.world_size > 1 and (self.strength or self.beside or self.change):
            what = "penalty on the features" if self.strength or self.beside else "change"
            raise ValueError(f"a {what} of a whole batch needs one worker, got {self.trainer.world_size}")

    def _with(self, forward: Forward, batch: Batch) -> Float[Tensor, ""]:
        if forward is not self.net:
            return self._without(forward, batch)
        step = self.trainer.global_step
        batch = batch if self.change is None else self.change(batch, step)
        terms = [(1.0, self.beside)] if self.beside else []
        if self.strength and step >= self.start_step:
            terms.append((self.strength, self.penalty))
        if not terms:
            return self._without(forward, batch)
        seen: list[Tensor] = []
        (head,) = self._head
        handle = head.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
        try:
            value = self._without(forward, batch)
        finally:
            handle.remove()
        features = seen[0].flatten(1)
        for factor, penalty in terms:
            value = value + factor * penalty(features) / len(features) ** self._power
        return value


def mixup(alpha: float, classes: int, seed: int, domains: int | None = None) -> Callable[[Batch, int], Batch]:
    """Mixup: a batch plus itself in another order, with weights s and 1 - s, s ~ Beta(alpha, alpha); labels too.

    Without `domains` the order is random and all samples share one s (H. Zhang et al., arXiv:1710.09412). With them, as
    in DomainBed, the domains of the batch, equally many samples of each, one domain after the other, form a random
    circle, and each is mixed with the next one, with an s of its own. Labels are class numbers and become probabilities
    (n, classes), so that cross entropy is the mixture of both. Random numbers depend only on (seed, step). Raises
    ValueError for alpha <= 0, fewer than two domains, or a batch that they do not divide.
    """
    if alpha <= 0:
        raise ValueError(f"alpha must be above 0, got {alpha}")
    if domains is not None and domains < 2:
        raise ValueError(f"need at least two domains to mix, got {domains}")

    def change(batch: Batch, step: int) -> Batch:
        chance = np.random.default_rng([seed, step, *b"mixup"])
        x, y = batch
        if domains is None:
            shares, order = np.full(len(x), chance.beta(alpha, alpha)), chance.permutation(len(x))
        else:
            if len(x) % domains:
                raise ValueError(f"a batch of {len(x)} does not divide into {domains} domains")
            circle, each = chance.permutation(domains), len(x) // domains
            after = np.empty(domains, dtype=int)
            after[circle] = np.roll(circle, -1)
            order = (after[:, None] * each + np.arange(each)).ravel()
            shares = chance.beta(alpha, alpha, domains).repeat(each)
        other, share = torch.from_numpy(order).to(x.device), torch.from_numpy(shares).to(x)
        one_hot = nn.functional.one_hot(y, classes).to(x)
        of_x = share.view(-1, *[1] * (x.ndim - 1))
        return of_x * x + (1 - of_x) * x[other], share[:, None] * one_hot + (1 - share[:, None]) * one_hot[other]

    return change


def frobenius_norm(F: Float[Tensor, "n width"]) -> Float[Tensor, ""]:
    """|F|_F: a penalty on the size of features, whatever their rank."""
    norm: Tensor = torch.linalg.matrix_norm(F)
    return norm


def domain_covariances(domains: int) -> Penalty:
    """CORAL: distance of means and covariances of the features, averaged over pairs of domains.

    The batch holds equally many samples of each domain, one domain after the other. The penalty adds the mean squared
    entries of the differences of covariances (divided by n - 1) and of means, as in DomainBed (Gulrajani and Lopez-Paz,
    arXiv:2007.01434), times the batch size, because `FeaturePenalised` divides by it. Raises ValueError for fewer than
    two domains or a batch that they do not divide.
    """
    if domains < 2:
        raise ValueError(f"need at least two domains to compare, got {domains}")

    def penalty(F: Float[Tensor, "n width"]) -> Float[Tensor, ""]:
        if len(F) % domains:
            raise ValueError(f"a batch of {len(F)} does not divide into {domains} domains")
        parts = F.unflatten(0, (domains, -1))
        means = parts.mean(1)
        centred = parts - means[:, None]
        covariances = centred.mT @ centred / (parts.shape[1] - 1)
        one, other = torch.triu_indices(domains, domains, 1)
        apart = (covariances[one] - covariances[other]).square().mean((1, 2))
        total: Tensor = len(F) * (apart + (means[one] - means[other]).square().mean(1)).mean()
        return total

    return penalty


PENALTIES: dict[str, Penalty] = {"nuclear": nuclear_norm, "frobenius": frobenius_norm}
