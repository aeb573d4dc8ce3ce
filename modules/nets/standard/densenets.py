"""Densely connected networks (Huang, Liu, van der Maaten, Weinberger 2017, arXiv:1608.06993), drawn from a seed."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from featurelab.modules.dtypes import Dtype

from .convolutional import GlobalMean, TrunkHead, initialised
from .resnets import Stem, _conv


class Dense(nn.Module):
    """x -> [x, conv3(relu(bn(conv1(relu(bn(x))))))]: `growth` more channels, through a bottleneck of 4 `growth`."""

    def __init__(self, before: int, growth: int) -> None:
        super().__init__()
        self.new = nn.Sequential(
            nn.BatchNorm2d(before),
            nn.ReLU(),
            _conv(before, 4 * growth, 1),
            nn.BatchNorm2d(4 * growth),
            nn.ReLU(),
            _conv(4 * growth, growth, 3),
        )

    def forward(self, x: Float[Tensor, "n before height width"]) -> Float[Tensor, "n after height width"]:
        return torch.cat([x, self.new(x)], 1)


def densenet(
    classes: int,
    *,
    blocks: Sequence[int] = (6, 12, 24, 16),
    growth: int = 32,
    stem: Stem = "small",
    channels: int = 3,
    seed: int,
    dtype: Dtype = "float32",
) -> TrunkHead:
    """Dense blocks of `blocks[b]` layers each, joined by 1x1 convolutions that halve the channels and 2x2 means.

    Starts with 2 `growth` channels; features are the global means after the last normalisation and ReLU. Stems as in
    `resnet`. Convolutions are drawn from N(0, 2 / fan_in), the head by torch's default. Raises ValueError for no
    blocks, sizes below 1, or an unknown stem.
    """
    if not blocks or min(*blocks, growth) < 1 or stem not in ("small", "imagenet"):
        raise ValueError(
            f"densenet() needs positive sizes and a stem 'small' or 'imagenet', got {tuple(blocks)}, {growth}, {stem!r}"
        )

    def build() -> TrunkHead:
        width = 2 * growth
        parts: list[nn.Module] = [_conv(channels, width, 3)]
        if stem == "imagenet":
            parts = [
                _conv(channels, width, 7, 2),
                nn.BatchNorm2d(width),
                nn.ReLU(),
                nn.MaxPool2d(3, stride=2, padding=1),
            ]
        for index, depth in enumerate(blocks):
            if index:
                parts += [nn.BatchNorm2d(width), nn.ReLU(), _conv(width, width // 2, 1), nn.AvgPool2d(2)]
                width //= 2
            parts.append(nn.Sequential(*(Dense(width + layer * growth, growth) for layer in range(depth))))
            width += depth * growth
        parts += [nn.BatchNorm2d(width), nn.ReLU(), GlobalMean()]
        return TrunkHead(nn.Sequential(*parts), nn.Linear(width, classes))

    return initialised(build, seed=seed, init="he_fan_in", dtype=dtype)


def densenet121(
    classes: int, *, channels: int = 3, stem: Stem = "small", growth: int = 32, seed: int, dtype: Dtype = "float32"
) -> TrunkHead:
    """DenseNet-121 with 32 `growth` features (1024): 7,978,856 parameters for ImageNet. See `densenet`."""
    return densenet(classes, growth=growth, stem=stem, channels=channels, seed=seed, dtype=dtype)
