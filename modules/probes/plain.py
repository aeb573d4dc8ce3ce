"""What a probe asks of Lightning, for a training loop without it."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any, Protocol

import torch
from torch import nn


class Logs(Protocol):
    """Records values at a step, as featurelab's recorders do."""

    def log(self, metrics: Mapping[str, float], step: int) -> Any: ...


class PlainLoop:
    """Stands for a Lightning trainer of one process that computes in the precision of the weights."""

    current_epoch = 0
    is_global_zero = True
    precision = "32-true"

    def __init__(self, device: torch.device) -> None:
        self.global_step, self.root_device = 0, device
        self.loggers: list[Any] = []
        self.precision_plugin = self.strategy = self


def device_of(module: nn.Module) -> torch.device:
    """The device of the first weight or buffer of a network; the CPU if it has none."""
    tensor = next(itertools.chain(module.parameters(), module.buffers()), None)
    return torch.device("cpu") if tensor is None else tensor.device
