"""Random views of pictures, for losses that compare two views of the same picture, and unions of datasets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from ..core.augment import Augmentation, CropAndJitter
from ..core.tensors import TensorData


@dataclass(frozen=True)
class Views:
    """`count` views of each picture along a new dimension, (n, views, ...), for `TensorData(augment=...)`.

    - `clean` puts the unchanged picture first.
    - `shuffled`: the second view is of the next picture in the batch, so that positive pairs share nothing.
    - If samples are pairs (2, ...), views are of the second picture, and the clean one is the first.

    Pixels 0..255 (uint8) become numbers in [0, 1]. Raises ValueError unless count >= 1, or >= 2 if `shuffled`.
    """

    change: Augmentation
    count: int = 2
    clean: bool = False
    shuffled: bool = False

    def __post_init__(self) -> None:
        if self.count < 1 + self.shuffled:
            raise ValueError(f"count must be at least {1 + self.shuffled}, got {self.count}")

    @property
    def numbers(self) -> int:
        return self.count * self.change.numbers

    def __call__(
        self, x: Shaped[Tensor, " n *_picture"], uniform: Float[Tensor, "n numbers"]
    ) -> Float[Tensor, " n *_views"]:
        x = x if x.is_floating_point() else x.float() / 255
        own, source = (x[:, 0], x[:, 1]) if x.ndim == 5 else (x, x)
        parts = uniform.split(self.change.numbers, dim=1)
        views = [self.change(source, part) for part in parts]
        if self.shuffled:
            views[1] = views[1].roll(1, 0)
        return torch.stack([*[own] * self.clean, *views], dim=1)


@dataclass(frozen=True)
class SmallChanges:
    """Changes of small grey pictures: a shift, other contrast and brightness, a hole, noise.

    A shift by up to `shift` pixels in both directions (filled with 0); deviations of pixels from their mean times
    1 + `contrast` U[-1, 1], plus `brightness` U[-1, 1]; one square of side `hole` set to 0; Gaussian noise of standard
    deviation `noise` on all pixels. `edge` is the side of the pictures.
    """

    edge: int = 8
    shift: int = 1
    contrast: float = 0.4
    brightness: float = 0.1
    hole: int = 3
    noise: float = 0.1

    @property
    def numbers(self) -> int:
        return 6 + self.edge**2

    def __call__(
        self, x: Float[Tensor, "n 1 height width"], uniform: Float[Tensor, "n numbers"]
    ) -> Float[Tensor, "n 1 height width"]:
        uniform = uniform.to(x.dtype)
        at = torch.arange(self.edge, device=x.device)
        # single precision rounds one number in 2^25 to 1, which lies outside the picture
        start = ((2 * self.shift + 1) * uniform[:, :2]).long().clamp(max=2 * self.shift)
        padded = torch.nn.functional.pad(x[:, 0], [self.shift] * 4)
        rows, columns = start[:, :1, None] + at[:, None], start[:, 1:2, None] + at
        shown = padded[torch.arange(len(x), device=x.device)[:, None, None], rows, columns]
        strong, bright = (2 * uniform[:, 2:4] - 1).unsqueeze(2).unbind(1)
        mean = shown.mean((1, 2), keepdim=True)
        shown = mean + (1 + self.contrast * strong[:, None]) * (shown - mean) + self.brightness * bright[:, None]
        corner = ((self.edge - self.hole + 1) * uniform[:, 4:6]).long()
        hit = [(at >= corner[:, [d]]) & (at < corner[:, [d]] + self.hole) for d in (0, 1)]
        shown = shown.masked_fill(hit[0][:, :, None] & hit[1][:, None, :], 0.0)
        smallest = torch.finfo(x.dtype).eps
        normal = torch.special.ndtri(uniform[:, 6:].clamp(smallest, 1 - smallest)).view_as(shown)
        noisy: Tensor = shown + self.noise * normal
        return noisy.unsqueeze(1)


@dataclass(frozen=True)
class Blurred:
    """Another change, then with probability `chance` a Gaussian blur of standard deviation uniform in `widths` pixels.

    The kernel extends to 3 times the largest deviation. Borders are reflected.
    """

    change: Augmentation
    chance: float = 0.5
    widths: tuple[float, float] = (0.1, 2.0)

    @property
    def numbers(self) -> int:
        return self.change.numbers + 2

    def __call__(
        self, x: Float[Tensor, "n channels height width"], uniform: Float[Tensor, "n numbers"]
    ) -> Float[Tensor, "n channels height width"]:
        shown = self.change(x, uniform[:, :-2])
        chance, width = uniform[:, -2:].to(x.dtype).unbind(1)
        low, high = self.widths
        reach = round(3 * high)
        at = torch.arange(-reach, reach + 1, device=x.device, dtype=x.dtype)
        kernel = torch.softmax(-(at**2) / (2 * (low + (high - low) * width[:, None]) ** 2), dim=1)
        n, channels = shown.shape[:2]
        kernel = kernel.repeat_interleave(channels, 0)[:, None, :, None]
        folded = torch.nn.functional.pad(shown, [reach] * 4, mode="reflect").flatten(0, 1)[None]
        for weights in (kernel, kernel.mT):
            folded = torch.nn.functional.conv2d(folded, weights, groups=n * channels)
        blurred = folded[0].unflatten(0, (n, channels))
        return torch.where((chance < self.chance)[:, None, None, None], blurred, shown)


def simsiam_change(edge: int) -> Augmentation:
    """SimSiam's augmentation: a random part of 20% to 100% of a colour picture, mirrored, in changed colours.

    Brightness, contrast and saturation change by 0.4 and hue by 0.1 with probability 0.8, grey has probability 0.2;
    pictures of 224 or more pixels a side are also blurred with probability 0.5. X. Chen, K. He, arXiv:2011.10566,
    appendix A.
    """
    change = CropAndJitter(0.2, 0.4, 0.2, hue=0.1, chance=0.8)
    return Blurred(change) if edge >= 224 else change


def union(parts: Sequence[TensorData], **options: Any) -> TensorData:
    """The training pictures of all parts, one after the other, as a data module; targets are the numbers of the parts.

    `options` are those of `TensorData`. Raises ValueError without any part.
    """
    if not parts:
        raise ValueError("union() needs at least one part")
    x = torch.cat([part.train[0] for part in parts])
    place = torch.repeat_interleave(torch.arange(len(parts)), torch.tensor([len(part.train[0]) for part in parts]))
    return TensorData((x, place), name="+".join(part.name or "" for part in parts), **options)
