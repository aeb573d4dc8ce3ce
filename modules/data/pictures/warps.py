"""Random changes of a picture's position and shape that keep its class: rotation, shift, perspective."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

CORNERS = ((-1.0, -1.0), (1.0, -1.0), (1.0, 1.0), (-1.0, 1.0))


@dataclass(frozen=True)
class Warps:
    """Rotate, shift and project each picture at random; pixels from outside continue the border.

    A rotation by U[-1, 1] `turn` degrees about the centre, a shift by U[-1, 1] `shift` of the side in both directions,
    and each corner moved independently by U[-1, 1] `bend` of the side in both directions. The projective map that takes
    the corners there gives the picture (bilinear). Never mirrors, because mirroring may change the class.
    """

    turn: float = 15.0
    shift: float = 0.1
    bend: float = 0.1

    @property
    def numbers(self) -> int:
        return 11

    def __call__(
        self, x: Float[Tensor, "n channels height width"], uniform: Float[Tensor, "n numbers"]
    ) -> Float[Tensor, "n channels height width"]:
        n, _, height, width = x.shape
        H = self.maps(uniform).to(x.device)
        rows, columns = (
            (2 * torch.arange(side, dtype=H.dtype, device=x.device) + 1) / side - 1 for side in (height, width)
        )
        grid = torch.stack(torch.meshgrid(columns, rows, indexing="xy"), dim=-1)
        points = torch.cat([grid, torch.ones(height, width, 1, dtype=H.dtype, device=x.device)], dim=-1)
        moved = points.view(-1, 3) @ H.mT
        places = (moved[..., :2] / moved[..., 2:]).view(n, height, width, 2).to(x.dtype)
        return torch.nn.functional.grid_sample(x, places, padding_mode="border", align_corners=False)

    def maps(self, uniform: Float[Tensor, "n numbers"]) -> Float[Tensor, "n 3 3"]:
        """Projective maps (n, 3, 3) on (across, down, 1) in [-1, 1], from the place of a pixel to its source."""
        signed = 2 * uniform.double() - 1
        angle = math.radians(self.turn) * signed[:, 0]
        corners = torch.tensor(CORNERS, dtype=torch.float64, device=uniform.device)
        rotation = torch.stack([angle.cos(), -angle.sin(), angle.sin(), angle.cos()], dim=1).view(-1, 2, 2)
        moved = corners @ rotation.mT + 2 * self.shift * signed[:, None, 1:3]
        return projective_maps(corners.expand_as(moved), moved + 2 * self.bend * signed[:, 3:].view(-1, 4, 2))


def projective_maps(points: Float[Tensor, "n 4 2"], images: Float[Tensor, "n 4 2"]) -> Float[Tensor, "n 3 3"]:
    """The maps H, H_33 = 1, with H (p, 1) proportional to (q, 1) for four points p and their images q."""
    (x, y), (u, v) = points.unbind(-1), images.unbind(-1)
    one, none = torch.ones_like(x), torch.zeros_like(x)
    first = torch.stack([x, y, one, none, none, none, -u * x, -u * y], dim=-1)
    second = torch.stack([none, none, none, x, y, one, -v * x, -v * y], dim=-1)
    h = torch.linalg.solve(torch.cat([first, second], dim=1), torch.cat([u, v], dim=1))
    return torch.cat([h, torch.ones_like(h[:, :1])], dim=1).view(-1, 3, 3)
