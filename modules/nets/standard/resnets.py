"""Residual networks (He, Zhang, Ren, Sun 2016, arXiv:1512.03385), drawn from a seed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from jaxtyping import Float
from torch import Tensor, nn

from featurelab.modules.dtypes import Dtype

from .convolutional import GlobalMean, TrunkHead, initialised

Stem = Literal["small", "imagenet"]


class Basic(nn.Module):
    """relu(x' + bn(conv(relu(bn(conv(x)))))), 3x3 convolutions; x' = x, or a strided 1x1 projection of it."""

    expansion = 1

    def __init__(self, before: int, width: int, stride: int) -> None:
        super().__init__()
        self.residual = nn.Sequential(
            _conv(before, width, 3, stride),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            _conv(width, width, 3),
            nn.BatchNorm2d(width),
        )
        self.shortcut = _shortcut(before, width, stride)
        self.relu = nn.ReLU()

    def forward(self, x: Float[Tensor, "n before height width"]) -> Float[Tensor, "n after _height _width"]:
        outputs: Tensor = self.relu(self.residual(x) + self.shortcut(x))
        return outputs


class Bottleneck(nn.Module):
    """The block of deeper networks: 1x1 to `width`, strided 3x3, 1x1 to 4 `width`; shortcut as in `Basic`."""

    expansion = 4

    def __init__(self, before: int, width: int, stride: int) -> None:
        super().__init__()
        self.residual = nn.Sequential(
            _conv(before, width, 1),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            _conv(width, width, 3, stride),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            _conv(width, 4 * width, 1),
            nn.BatchNorm2d(4 * width),
        )
        self.shortcut = _shortcut(before, 4 * width, stride)
        self.relu = nn.ReLU()

    def forward(self, x: Float[Tensor, "n before height width"]) -> Float[Tensor, "n after _height _width"]:
        outputs: Tensor = self.relu(self.residual(x) + self.shortcut(x))
        return outputs


BLOCKS: dict[str, type[Basic] | type[Bottleneck]] = {"basic": Basic, "bottleneck": Bottleneck}


def resnet(
    classes: int,
    *,
    depths: Sequence[int] = (2, 2, 2, 2),
    widths: Sequence[int] = (64, 128, 256, 512),
    block: Literal["basic", "bottleneck"] = "basic",
    stem: Stem = "small",
    channels: int = 3,
    seed: int,
    dtype: Dtype = "float32",
) -> TrunkHead:
    """A residual network of `depths[s]` blocks of `widths[s]` channels in stage s; stages after the first halve sides.

    Its features, (n, widths[-1]) with basic blocks and (n, 4 widths[-1]) with bottlenecks, are the global means of the
    last stage. `stem="imagenet"` is the published one: a 7x7 convolution and a 3x3 max pooling, both with stride 2.
    "small", for images of some 32 pixels, is one 3x3 convolution. Convolutions are drawn from N(0, 2 / fan_out), the
    head by torch's default.

    Raises ValueError for an unknown block or stem, and if depths and widths differ in number or are not positive.
    """
    if block not in BLOCKS or stem not in ("small", "imagenet"):
        raise ValueError(
            f"block must be one of {sorted(BLOCKS)} and stem 'small' or 'imagenet', got {block!r}, {stem!r}"
        )
    if len(depths) != len(widths) or not depths or min(*depths, *widths) < 1:
        raise ValueError(f"each stage needs a positive depth and width, got {tuple(depths)} and {tuple(widths)}")
    kind = BLOCKS[block]

    def build() -> TrunkHead:
        first = (
            [_conv(channels, widths[0], 3), nn.BatchNorm2d(widths[0]), nn.ReLU()]
            if stem == "small"
            else [
                _conv(channels, widths[0], 7, 2),
                nn.BatchNorm2d(widths[0]),
                nn.ReLU(),
                nn.MaxPool2d(3, stride=2, padding=1),
            ]
        )
        parts, before = [nn.Sequential(*first)], widths[0]
        for stage, (depth, width) in enumerate(zip(depths, widths, strict=True)):
            blocks = []
            for index in range(depth):
                blocks.append(kind(before, width, 2 if stage and not index else 1))
                before = width * kind.expansion
            parts.append(nn.Sequential(*blocks))
        return TrunkHead(nn.Sequential(*parts, GlobalMean()), nn.Linear(before, classes))

    return initialised(build, seed=seed, init="he", dtype=dtype)


def resnet18(
    classes: int, *, channels: int = 3, stem: Stem = "small", width: int = 64, seed: int, dtype: Dtype = "float32"
) -> TrunkHead:
    """ResNet-18 with 8 `width` features (512): 11,689,512 parameters for ImageNet. See `resnet`."""
    widths = [width * factor for factor in (1, 2, 4, 8)]
    return resnet(classes, widths=widths, stem=stem, channels=channels, seed=seed, dtype=dtype)


def resnet50(
    classes: int, *, channels: int = 3, stem: Stem = "imagenet", width: int = 64, seed: int, dtype: Dtype = "float32"
) -> TrunkHead:
    """ResNet-50 with 32 `width` features (2048): 25,557,032 parameters for ImageNet. See `resnet`.

    The 3x3 convolutions have the strides, as in the published weights that `pretrained_resnet50` reads, and not the
    first 1x1 convolutions as in the paper's table.
    """
    widths = [width * factor for factor in (1, 2, 4, 8)]
    return resnet(
        classes,
        depths=(3, 4, 6, 3),
        widths=widths,
        block="bottleneck",
        stem=stem,
        channels=channels,
        seed=seed,
        dtype=dtype,
    )


def _conv(before: int, after: int, kernel: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(before, after, kernel, stride=stride, padding=kernel // 2, bias=False)


def _shortcut(before: int, after: int, stride: int) -> nn.Module:
    if before == after and stride == 1:
        return nn.Identity()
    return nn.Sequential(_conv(before, after, 1, stride), nn.BatchNorm2d(after))
