"""Fine-tuning with a contrastive loss beside the classification loss."""

from __future__ import annotations

from typing import Any, Literal, get_args

from jaxtyping import Float
from torch import Tensor, nn

from featurelab.modules.nets.wrappers.siamese import FineTuned

from ..standard.losses import Batch, Forward
from ..standard.supervised import Supervised
from .view_pretraining import ViewPretraining

Shown = Literal["clean", "view", "views", "both", "own"]


class ContrastivelyRegularised(Supervised):
    """Fine-tunes by minimising cross-entropy + strength * the loss of `contrast` on two views of the same samples.

    The trained network is `FineTuned`: the encoder and projector of `contrast.net`, and a linear `head` on the encoder.
    A batch is (x, y) with x (n, 3, ...): a sample and two views of it, as `data.Views(clean=True)` provides, or (n, m,
    ...), of which the last two are contrasted. `shown` says which are used to learn labels: "view" is the first of the
    two alone, as in the authors' program, and "own" all before them. Each has the same weight. Strength 0 is plain
    fine-tuning.

    Z. Shi et al., ICLR 2023, section 4 (chapter 7 of the dissertation of Z. Shi, 2024). Raises ValueError for a
    negative strength, an unknown `shown`, or more than one worker if the strength is positive.
    """

    def __init__(
        self, contrast: ViewPretraining, head: nn.Module, *, strength: float, shown: Shown = "clean", **options: Any
    ) -> None:
        if strength < 0:
            raise ValueError(f"strength must not be negative, got {strength}")
        if shown not in get_args(Shown):
            raise ValueError(f"shown must be one of {', '.join(get_args(Shown))}, got {shown!r}")
        (siamese,) = contrast.siamese
        super().__init__(FineTuned(siamese, head), loss=self._both, **options)
        self.strength, self.shown = strength, shown
        self.contrast = contrast

    def on_fit_start(self) -> None:
        super().on_fit_start()
        if self.trainer.world_size > 1 and self.strength:
            raise ValueError(f"a loss of a whole batch of views needs one worker, got {self.trainer.world_size}")

    def training_step(self, batch: Batch, batch_index: int) -> None:
        if self.strength:
            self.contrast.before_step()
        super().training_step(batch, batch_index)
        if self.strength:
            self.contrast.after_step()

    def _both(self, forward: Forward, batch: Batch) -> Float[Tensor, ""]:
        if forward is not self.net:
            return nn.functional.cross_entropy(forward(batch[0]), batch[1])
        x, y = batch
        seen = {"clean": x[:, :1], "view": x[:, -2:-1], "views": x[:, 1:], "both": x, "own": x[:, :-2]}[self.shown]
        outputs = self.net(seen.flatten(0, 1))
        value = nn.functional.cross_entropy(outputs, y.repeat_interleave(seen.shape[1]))
        if self.strength:
            value = value + self.strength * self.contrast.compare(x[:, -2], x[:, -1])
        return value
