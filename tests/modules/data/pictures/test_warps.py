"""Turned, shifted and projected pictures against maps point by point."""

import math

import pytest
import torch

from featurelab.modules.data import Warps, projective_maps

MIDDLE = torch.full((1, 11), 0.5, dtype=torch.float64)


def pictures(n=3, height=9, width=7):
    return torch.rand(n, 2, height, width, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def bilinear(picture, across, down):
    """The value at (across, down) in [-1, 1], the border continued."""
    height, width = picture.shape
    column = min(max((across + 1) * width / 2 - 0.5, 0), width - 1)
    row = min(max((down + 1) * height / 2 - 0.5, 0), height - 1)
    i, j = min(int(row), height - 2), min(int(column), width - 2)
    a, b = row - i, column - j
    top = (1 - b) * picture[i, j] + b * picture[i, j + 1]
    below = (1 - b) * picture[i + 1, j] + b * picture[i + 1, j + 1]
    return (1 - a) * top + a * below


def test_each_pixel_is_that_of_the_map_through_the_corners():
    x, uniform = pictures(), torch.rand(3, 11, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    warps = Warps(20.0, 0.15, 0.2)
    shown = warps(x, uniform)
    for n in range(3):
        signed = (2 * uniform[n] - 1).tolist()
        angle = math.radians(20.0) * signed[0]
        H = warps.maps(uniform[n : n + 1])[0]
        for corner, (u, v) in enumerate(((-1, -1), (1, -1), (1, 1), (-1, 1))):
            expected = (
                u * math.cos(angle) - v * math.sin(angle) + 0.3 * signed[1] + 0.4 * signed[3 + 2 * corner],
                u * math.sin(angle) + v * math.cos(angle) + 0.3 * signed[2] + 0.4 * signed[4 + 2 * corner],
            )
            a, b, c = (H @ torch.tensor([u, v, 1.0], dtype=torch.float64)).tolist()
            assert (a / c, b / c) == pytest.approx(expected)
        for i in range(9):
            for j in range(7):
                a, b, c = (H @ torch.tensor([(2 * j + 1) / 7 - 1, (2 * i + 1) / 9 - 1, 1.0]).double()).tolist()
                assert shown[n, 1, i, j].item() == pytest.approx(bilinear(x[n, 1], a / c, b / c).item(), abs=1e-6)


def test_nothing_moves_in_the_middle_and_whole_pixels_shift_as_they_are():
    x = pictures(1)
    torch.testing.assert_close(Warps()(x, MIDDLE), x, rtol=1e-12, atol=1e-12)
    uniform = MIDDLE.clone()
    uniform[0, 1] = 1.0  # by all of 2 / 7 of the side: two pixels
    moved = Warps(shift=2 / 7)(x, uniform)
    torch.testing.assert_close(moved[..., :5], x[..., 2:], rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(moved[..., 5:], x[..., -1:].expand(-1, -1, -1, 2), rtol=1e-6, atol=1e-6)


def test_a_quarter_turn_is_that_of_the_array():
    x = pictures(1, 6, 6)
    uniform = MIDDLE.clone()
    uniform[0, 0] = 1.0
    torch.testing.assert_close(Warps(turn=90.0)(x, uniform), x.rot90(1, (2, 3)), rtol=1e-6, atol=1e-6)


def test_maps_there_and_back_are_the_identity():
    chance = torch.Generator().manual_seed(2)
    square = torch.tensor([[-1.0, -1], [1, -1], [1, 1], [-1, 1]], dtype=torch.float64).expand(5, 4, 2)
    images = square + 0.3 * torch.rand(5, 4, 2, generator=chance, dtype=torch.float64)
    both = projective_maps(images, square) @ projective_maps(square, images)
    torch.testing.assert_close(both / both[:, 2:, 2:], torch.eye(3, dtype=torch.float64).expand(5, 3, 3))
