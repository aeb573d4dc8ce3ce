"""A network that is measured but not trained."""

from collections.abc import Callable, Mapping

import pytorch_lightning as pl
from torch import Tensor, nn


class Measurement(pl.LightningModule):
    """Runs `measure(net, *batch) -> {name: number}` on an untrained network through `Trainer.test`.

    So measurements at initialisation use the same devices, precision and callbacks as a fit. With several batches
    Lightning averages the values, weighted by batch size.
    """

    def __init__(self, net: nn.Module, measure: Callable[..., Mapping[str, float]]) -> None:
        super().__init__()
        self.net = net
        self.measure = measure

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.net(x)
        return outputs

    def test_step(self, batch: tuple[Tensor, ...], batch_idx: int) -> None:
        self.log_dict(dict(self.measure(self.net, *batch)), batch_size=len(batch[0]))
