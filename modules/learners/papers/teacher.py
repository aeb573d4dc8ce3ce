"""A teacher with balanced, confident labels on other inputs: supervised training with a regulariser on inputs alone.

Algorithm 3 of Shi, Wei, Liang 2022 (ICLR), equations (A.289) to (A.291). With p = softmax(f) on m unlabelled inputs and
q its mean over them,

    R = R_1 + lambda R_2,      R_1 = sum_j q_j ln q_j,      R_2 = -(1/m) sum_i sum_j p_ij ln p_ij.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from ..standard.losses import Batch, Forward
from ..standard.supervised import Supervised


def label_imbalance(logits: Float[Tensor, "m classes"]) -> Float[Tensor, ""]:
    """R_1 = sum_j q_j ln q_j, in [-ln C, 0]: smallest if all labels are equally probable on average."""
    log_q = torch.logsumexp(torch.log_softmax(logits, 1), 0) - np.log(len(logits))
    total: Tensor = (log_q.exp() * log_q).sum()
    return total


def label_entropy(logits: Float[Tensor, "m classes"]) -> Float[Tensor, ""]:
    """R_2 = -(1/m) sum_i sum_j p_ij ln p_ij, in [0, ln C]: smallest if every label is certain."""
    log_p = torch.log_softmax(logits, 1)
    total: Tensor = -(log_p.exp() * log_p).sum(1).mean()
    return total


class BalancedTeacher(Supervised):
    """Minimises loss + weight * (R_1 + sureness * R_2), with the regulariser on a batch of `unlabelled` inputs.

    This batch has the size of the labelled one and is drawn with replacement from (seed, step) alone. Validation and
    testing log the loss alone. R_1 sees its batch as a whole, so several workers cannot share it. Raises ValueError for
    a negative weight or sureness, no unlabelled inputs, or more than one worker.
    """

    unlabelled: Tensor

    def __init__(
        self,
        net: nn.Module,
        *,
        unlabelled: Float[Tensor, "m ..."],
        weight: float,
        sureness: float,
        seed: int,
        **options: Any,
    ) -> None:
        super().__init__(net, **options)
        if weight < 0 or sureness < 0:
            raise ValueError(f"weight and sureness must not be negative, got {weight} and {sureness}")
        if not len(unlabelled):
            raise ValueError("unlabelled must hold at least one input")
        self.register_buffer("unlabelled", unlabelled, persistent=False)
        self.weight, self.sureness, self.seed = weight, sureness, seed
        self._without = self.loss
        self.loss = self._with

    def on_fit_start(self) -> None:
        super().on_fit_start()
        if self.trainer.world_size > 1 and self.weight:
            raise ValueError(f"a regulariser on a whole batch needs one worker, got {self.trainer.world_size}")

    def _with(self, forward: Forward, batch: Batch) -> Float[Tensor, ""]:
        value = self._without(forward, batch)
        if forward is not self.net or not self.weight:
            return value
        chance = np.random.default_rng([self.seed, self.trainer.global_step, *b"unlabelled"])
        rows = torch.from_numpy(chance.integers(len(self.unlabelled), size=len(batch[0])))
        logits = forward(self.unlabelled[rows.to(self.unlabelled.device)])
        regulariser = label_imbalance(logits) + self.sureness * label_entropy(logits)
        total: Tensor = value + self.weight * regulariser
        return total
