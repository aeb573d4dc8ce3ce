"""Batch normalisation whose statistics stay fixed while the rest of the network is fine-tuned."""

from __future__ import annotations

from typing import TypeVar

from torch import nn

Net = TypeVar("Net", bound=nn.Module)


class FixedStatistics(nn.BatchNorm2d):
    """Normalises by its running means and variances also in training, without updating them; trains scale and shift."""

    def train(self, mode: bool = True) -> FixedStatistics:
        super().train(False)
        return self


def freeze_statistics(net: Net) -> Net:
    """Replace the BatchNorm2d layers of a network by `FixedStatistics` with the same tensors; return it."""
    for parent in list(net.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.BatchNorm2d:
                fixed = FixedStatistics(
                    child.num_features, child.eps, child.momentum, affine=False, track_running_stats=False
                )
                fixed.__dict__ = child.__dict__ | {"training": False}
                setattr(parent, name, fixed)
    return net
