"""Plain deep convolutional networks (Simonyan, Zisserman 2015, arXiv:1409.1556), drawn from a seed."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from featurelab.modules.dtypes import Dtype

from .convolutional import GlobalMean, MeanGrid, TrunkHead, initialised

Layout = Sequence[int | str]

# widths of 3x3 convolutions; M is 2x2 max pooling
VGG_LAYOUTS: dict[str, Layout] = {
    "11": (64, "M", 128, "M", 256, 256, "M", 512, 512, "M", 512, 512, "M"),
    "13": (64, 64, "M", 128, 128, "M", 256, 256, "M", 512, 512, "M", 512, 512, "M"),
    "16": (64, 64, "M", 128, 128, "M", 256, 256, 256, "M", 512, 512, 512, "M", 512, 512, 512, "M"),
    "19": (64, 64, "M", 128, 128, "M", *[256] * 4, "M", *[512] * 4, "M", *[512] * 4, "M"),
}


def vgg(
    layout: str | Layout,
    classes: int,
    *,
    batch_norm: bool = True,
    channels: int = 3,
    seed: int,
    dtype: Dtype = "float32",
) -> TrunkHead:
    """A VGG for small images: convolutions, global means, and one linear layer instead of three wide ones.

    `layout` is "11", "13", "16", "19", or a tuple of channel numbers and "M". Features are the channels of the last
    convolution, (n, 512) for the named layouts. Convolutions are drawn from N(0, 2 / fan_out), the head by torch's
    default. Raises ValueError for an unknown name, a layout without convolutions, or anything but numbers and "M".
    """
    parts = _layout(layout)
    features = [part for part in parts if part != "M"][-1]

    def build() -> TrunkHead:
        trunk = nn.Sequential(_convolutions(parts, channels, batch_norm=batch_norm), GlobalMean())
        return TrunkHead(trunk, nn.Linear(int(features), classes))

    return initialised(build, seed=seed, init="he", dtype=dtype)


def vgg_trunk(
    channels: int = 3, *, width: int = 64, grid: int = 4, seed: int, dtype: Dtype = "float32"
) -> nn.Sequential:
    """VGG-11 up to the ReLU before its second-last pooling, then grid x grid means: -> (n, 8 width grid^2).

    width, M, 2 width, M, 4 width twice, M, 8 width twice, without batch normalisation; the first convolution has no
    bias. With the published width, 64, and a 4 x 4 grid there are 8192 features. Beaglehole et al. 2024
    (arXiv:2402.13728) put five linear layers on this trunk. Convolutions are drawn from N(0, 2 / fan_out).
    """
    layout: Layout = (width, "M", 2 * width, "M", 4 * width, 4 * width, "M", 8 * width, 8 * width)

    def build() -> nn.Sequential:
        convolutions = _convolutions(layout, channels, batch_norm=False)
        convolutions[0] = nn.Conv2d(channels, width, 3, padding=1, bias=False)
        return nn.Sequential(convolutions, MeanGrid(grid), nn.Flatten())

    return initialised(build, seed=seed, init="he", dtype=dtype)


def _layout(given: str | Layout) -> Layout:
    if isinstance(given, str):
        if given not in VGG_LAYOUTS:
            raise ValueError(f"unknown VGG {given!r}: choose one of {', '.join(VGG_LAYOUTS)}")
        return VGG_LAYOUTS[given]
    if not all(part == "M" or (isinstance(part, int) and part > 0) for part in given) or set(given) <= {"M"}:
        raise ValueError(f"layout must hold channel numbers and 'M', with at least one number, got {given!r}")
    return given


def _convolutions(layout: Layout, channels: int, *, batch_norm: bool) -> nn.Sequential:
    parts: list[nn.Module] = []
    before = channels
    for part in layout:
        if part == "M":
            parts.append(nn.MaxPool2d(2))
            continue
        width = int(part)
        parts.append(nn.Conv2d(before, width, 3, padding=1))
        parts += [nn.BatchNorm2d(width), nn.ReLU()] if batch_norm else [nn.ReLU()]
        before = width
    return nn.Sequential(*parts)
