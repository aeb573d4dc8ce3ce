"""Random changes of training images, drawn from a seed: the same bits in every run and for any number of workers."""

from dataclasses import dataclass
from typing import Protocol

import torch
from jaxtyping import Float
from torch import Tensor


class Augmentation(Protocol):
    """A function of images and of `numbers` uniform random numbers in [0, 1) for each image."""

    @property
    def numbers(self) -> int: ...

    def __call__(
        self, x: Float[Tensor, "n channels height width"], uniform: Float[Tensor, "n numbers"]
    ) -> Float[Tensor, "n channels height width"]: ...


@dataclass(frozen=True)
class CropAndFlip:
    """Shift by up to `pad` pixels in both directions (filled with `fill`), then mirror with probability 1/2.

    With the uniform numbers (u, v, w) of an image, the crop starts floor((2 pad + 1) u) rows and floor((2 pad + 1) v)
    columns into the padded image, and the result is mirrored if w < 1/2.
    """

    pad: int = 4
    flip: bool = True
    fill: float = 0.0

    @property
    def numbers(self) -> int:
        return 3

    def __call__(self, x: Float[Tensor, " n *image"], uniform: Float[Tensor, "n 3"]) -> Float[Tensor, " n *image"]:
        if x.ndim != 4:
            raise ValueError(f"cropping needs images (n, channels, height, width), got {tuple(x.shape)}")
        n, _, height, width = x.shape
        padded = torch.nn.functional.pad(x, [self.pad] * 4, value=self.fill)
        start = ((2 * self.pad + 1) * uniform[:, :2]).long()  # truncation is floor here
        rows = start[:, :1] + torch.arange(height, device=x.device)
        columns = torch.arange(width, device=x.device).expand(n, -1)
        if self.flip:
            columns = torch.where(uniform[:, 2:] < 0.5, columns.flip(1), columns)
        columns = start[:, 1:2] + columns
        image = torch.arange(n, device=x.device)[:, None, None]
        return padded[image, :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2).contiguous()


def crop_and_flip(pad: int = 4, *, flip: bool = True, fill: float = 0.0) -> CropAndFlip:
    """The usual augmentation of 32-pixel images, for `TensorData(augment=...)`; see `CropAndFlip`.

    Common practice pads with black before it standardises; on standardised inputs `fill=0` pads with the mean. Raises
    ValueError for a negative `pad`.
    """
    if pad < 0:
        raise ValueError(f"pad must not be negative, got {pad}")
    return CropAndFlip(pad, flip, fill)


@dataclass(frozen=True)
class CropAndJitter:
    """A random part of each picture, mirrored with probability 1/2, in changed colours: the augmentation of DomainBed.

    The part has a share U[`scale`, 1] of the area and an aspect ratio of 3/4 to 4/3 (log-uniform among those that fit),
    and is resized to the whole picture (bilinear). Then brightness, contrast and saturation are multiplied by U[1 -
    `jitter`, 1 + `jitter`], the hue is turned by U[-`jitter`, `jitter`] of a circle, in this order, and with
    probability `grey` the picture becomes grey. `hue` sets another bound for the hue, and colours change only with
    probability `chance`. Pictures are RGB in [0, 1]. I. Gulrajani, D. Lopez-Paz, arXiv:2007.01434, where the order of
    the colour changes is random and hues turn in HSV; here they turn about the grey axis.
    """

    scale: float = 0.7
    jitter: float = 0.3
    grey: float = 0.1
    hue: float | None = None
    chance: float = 1.0

    @property
    def numbers(self) -> int:
        return 10 + (self.chance < 1)

    def __call__(
        self, x: Float[Tensor, " n *image"], uniform: Float[Tensor, "n numbers"]
    ) -> Float[Tensor, " n *image"]:
        if x.ndim != 4 or x.shape[1] != 3:
            raise ValueError(f"pictures must be (n, 3, height, width), got {tuple(x.shape)}")
        area, proportion, top, left, side, bright, strong, vivid, hue, grey, *chance = uniform.to(x.dtype).unbind(1)
        shown = plain = self._cropped(x, area, proportion, top, left, side)
        bright, strong, vivid = (1 + self.jitter * (2 * u - 1) for u in (bright, strong, vivid))
        turn = 2 * torch.pi * (self.jitter if self.hue is None else self.hue) * (2 * hue - 1)
        shown = self._coloured(shown, bright, strong, vivid, turn)
        if chance:
            shown = torch.where(_column(chance[0] < self.chance), shown, plain)
        return torch.where(_column(grey < self.grey), _luma(shown), shown)

    def _cropped(self, x: Tensor, area: Tensor, proportion: Tensor, top: Tensor, left: Tensor, side: Tensor) -> Tensor:
        area = self.scale + (1 - self.scale) * area
        widest = torch.log(torch.clamp(1 / area, max=4 / 3))
        stretch = torch.exp(widest * (2 * proportion - 1))
        across, down = (area * stretch).sqrt(), (area / stretch).sqrt()
        # affine maps go from [-1, 1]^2 of the result into that of the picture
        maps = torch.zeros(len(x), 2, 3, dtype=x.dtype, device=x.device)
        maps[:, 0, 0] = across * torch.where(side < 0.5, -1.0, 1.0)
        maps[:, 1, 1] = down
        maps[:, 0, 2], maps[:, 1, 2] = (1 - across) * (2 * left - 1), (1 - down) * (2 * top - 1)
        grid = torch.nn.functional.affine_grid(maps, list(x.shape), align_corners=False)
        return torch.nn.functional.grid_sample(x, grid, padding_mode="border", align_corners=False)

    @staticmethod
    def _coloured(x: Tensor, brightness: Tensor, contrast: Tensor, saturation: Tensor, turn: Tensor) -> Tensor:
        x = (_column(brightness) * x).clamp(0, 1)
        grey = _luma(x).mean((1, 2, 3), keepdim=True)
        x = (grey + _column(contrast) * (x - grey)).clamp(0, 1)
        # saturation and hue are linear in RGB: one 3x3 map a picture
        luma = torch.tensor(LUMA, dtype=x.dtype, device=x.device).expand(3, 3)
        about = torch.tensor([[0.0, -1, 1], [1, 0, -1], [-1, 1, 0]], dtype=x.dtype, device=x.device) / 3**0.5
        cosine, sine = turn.cos()[:, None, None], turn.sin()[:, None, None]
        identity = torch.eye(3, dtype=x.dtype, device=x.device)
        turned = cosine * identity + (1 - cosine) / 3 + sine * about
        share = saturation[:, None, None]
        maps = turned @ (share * identity + (1 - share) * luma)
        return (maps @ x.flatten(2)).clamp(0, 1).view_as(x)


LUMA = (0.299, 0.587, 0.114)


def _luma(x: Float[Tensor, "n 3 height width"]) -> Float[Tensor, "n 1 height width"]:
    weights = torch.tensor(LUMA, dtype=x.dtype, device=x.device)
    return (x * weights[:, None, None]).sum(1, keepdim=True)


def _column(numbers: Tensor) -> Tensor:
    """Reshape one number for each picture to multiply (n, channels, height, width)."""
    return numbers[:, None, None, None]


def crop_and_jitter(scale: float = 0.7, *, jitter: float = 0.3, grey: float = 0.1) -> CropAndJitter:
    """DomainBed's augmentation of pictures in [0, 1]; see `CropAndJitter`.

    Raises ValueError for a scale outside (0, 1], or a jitter or grey outside [0, 1].
    """
    if not (0 < scale <= 1 and 0 <= jitter <= 1 and 0 <= grey <= 1):
        raise ValueError(f"need 0 < scale <= 1 and jitter and grey in [0, 1], got {scale}, {jitter}, {grey}")
    return CropAndJitter(scale, jitter, grey)
