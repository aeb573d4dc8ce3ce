"""Parities of groups of coordinates, and linearly separable data (Shi, Wei, Liang 2023, arXiv:2310.12408, B.5)."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from featurelab.modules.dtypes import Dtype

from ..core.tensors import TensorData, stream

Array = NDArray[np.float64]


class StructuredParity(TensorData):
    """y = sign(sum_j prod of the group A_j), with A_1, ..., A_r the first `groups` groups of `size` coordinates each.

    With probability 1 - 2 r p the r k coordinates of the groups are independent signs. Otherwise one group is all +1 or
    all -1, each with probability p = `aligned`, and the other groups are 0. Every further coordinate is +1 or -1, each
    with probability `noise`, and else 0. r and k are odd (section 3.4.2, M = I).

    Targets are (n, 1). Attributes: `directions` (r, dim), the unit vectors D_j along the groups; `mean_product` (dim,),
    E[y x] = 2 p sqrt(k) sum_j D_j, which the paper takes to be 0. The training and test set have separate streams.

    Raises ValueError for even sizes, 2 r p > 1, noise above 1/2 or groups that do not fit.
    """

    def __init__(
        self,
        n_train: int,
        n_test: int,
        dim: int,
        *,
        groups: int,
        size: int,
        aligned: float,
        noise: float,
        seed: int,
        dtype: Dtype = "float64",
        **options: Any,
    ) -> None:
        r, k = groups, size
        if r < 1 or k < 1 or r % 2 == 0 or k % 2 == 0 or r * k > dim:
            raise ValueError(
                f"groups and size must be odd with groups * size <= dim, got {r} groups of {k} in dim={dim}"
            )
        if not (0 <= 2 * r * aligned <= 1 and 0 <= noise <= 0.5):
            raise ValueError(
                f"need probabilities with 2 r aligned <= 1 and noise <= 1/2, got aligned={aligned}, noise={noise}"
            )

        def drawn(n: int, part: str) -> tuple[Tensor, Tensor]:
            chance = stream(seed, part)
            signs = chance.integers(0, 2, (n, r, k)) * 2.0 - 1.0
            u = chance.random(n)
            which = np.floor(u / (aligned or 1.0)).astype(int)  # 0 ... 2r - 1: group and sign of an aligned sample
            chosen = (u < 2 * r * aligned) & (which < 2 * r)
            only = np.zeros((n, r, k))
            rows = np.flatnonzero(chosen)
            only[rows, which[rows] // 2] = 1.0 - 2.0 * (which[rows] % 2)[:, None]
            phi = np.where(chosen[:, None, None], only, signs)
            y = np.sign(phi.prod(2).sum(1))
            v = stream(seed, f"{part} rest").random((n, dim - r * k))
            rest = np.where(v < noise, 1.0, np.where(v < 2 * noise, -1.0, 0.0))
            x = np.concatenate([phi.reshape(n, r * k), rest], 1)
            return torch.from_numpy(x), torch.from_numpy(y)[:, None]

        train, test = drawn(n_train, "train"), drawn(n_test, "test")
        super().__init__(train, test, dtype=dtype, name="structured_parity", **options)
        self.directions = group_directions(r, k, dim)
        self.mean_product: Tensor = 2 * aligned * k**0.5 * self.directions.sum(0)
        self.own = {"groups": r, "size": k, "aligned": aligned, "noise": noise, "seed": seed}

    def describe(self) -> dict[str, Any]:
        return super().describe() | self.own


class UniformParity(TensorData):
    """x uniform on {-1, +1}^dim, y = x_1 ... x_k: the sparse parity (section B.5.5, A the first k coordinates).

    Targets are (n, 1); `directions` (1, dim) is the unit vector along A. Raises ValueError unless 1 <= k <= dim.
    """

    def __init__(
        self, n_train: int, n_test: int, dim: int, size: int, *, seed: int, dtype: Dtype = "float64", **options: Any
    ) -> None:
        if not 1 <= size <= dim:
            raise ValueError(f"size must lie between 1 and dim={dim}, got {size}")

        def drawn(n: int, part: str) -> tuple[Tensor, Tensor]:
            x = torch.from_numpy(stream(seed, part).integers(0, 2, (n, dim)) * 2.0 - 1.0)
            return x, x[:, :size].prod(1, keepdim=True)

        super().__init__(drawn(n_train, "train"), drawn(n_test, "test"), dtype=dtype, name="uniform_parity", **options)
        self.directions = group_directions(1, size, dim)
        self.own = {"size": size, "seed": seed}

    def describe(self) -> dict[str, Any]:
        return super().describe() | self.own


class LinearMargin(TensorData):
    """y = +-1 with equal probability, x = y u w* + z, u uniform on [1/2, 3/2], z ~ N(0, I) orthogonal to w*.

    So E[y x] = rho w* with rho = 1, and the margin is 1/2 (section B.5.1). w* is uniform on the sphere: `direction`
    (dim,). Targets are (n, 1). Raises ValueError for dim < 2.
    """

    def __init__(
        self, n_train: int, n_test: int, dim: int, *, seed: int, dtype: Dtype = "float64", **options: Any
    ) -> None:
        if dim < 2:
            raise ValueError(f"dim must be at least 2, got {dim}")
        axis = stream(seed, "direction").standard_normal(dim)
        axis /= np.linalg.norm(axis)

        def drawn(n: int, part: str) -> tuple[Tensor, Tensor]:
            chance = stream(seed, part)
            y = chance.integers(0, 2, n) * 2.0 - 1.0
            z = stream(seed, f"{part} noise").standard_normal((n, dim))
            x = z + np.outer(y * chance.uniform(0.5, 1.5, n) - z @ axis, axis)
            return torch.from_numpy(x), torch.from_numpy(y)[:, None]

        super().__init__(drawn(n_train, "train"), drawn(n_test, "test"), dtype=dtype, name="linear_margin", **options)
        self.direction = torch.from_numpy(axis)
        self.seed = seed

    def describe(self) -> dict[str, Any]:
        return super().describe() | {"seed": self.seed}


def group_directions(groups: int, size: int, dim: int) -> Tensor:
    """D_j, (groups, dim): the normalised sum of the unit vectors of the j-th group of `size` coordinates."""
    directions = torch.zeros(groups, dim, dtype=torch.float64)
    for j in range(groups):
        directions[j, j * size : (j + 1) * size] = size**-0.5
    return directions
