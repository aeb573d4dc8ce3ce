"""Random changes of training images, drawn from a seed: the same bits in every run and on any number of workers."""

from dataclasses import dataclass
from typing import Protocol

import torch
from jaxtyping import Float
from torch import Tensor


class Augmentation(Protocol):
    """A function of images and of `numbers` uniform random numbers in [0, 1) for each of them."""

    @property
    def numbers(self) -> int: ...

    def __call__(
        self, x: Float[Tensor, "n channels height width"], uniform: Float[Tensor, "n numbers"]
    ) -> Float[Tensor, "n channels height width"]: ...


@dataclass(frozen=True)
class CropAndFlip:
    """Shift by up to `pad` pixels both ways (what comes in is `fill`), then mirror left and right with chance 1/2.

    With uniform = (u, v, w) of an image, the crop starts floor((2 pad + 1) u) rows and floor((2 pad + 1) v) columns
    into the padded image, and the result is mirrored where w < 1/2.
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

    On standardised inputs the published practice pads with black before it standardises; `fill=0` pads with the
    mean. Raises ValueError for a negative `pad`.
    """
    if pad < 0:
        raise ValueError(f"pad must not be negative, got {pad}")
    return CropAndFlip(pad, flip, fill)
