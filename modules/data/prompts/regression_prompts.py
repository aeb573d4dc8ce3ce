"""Prompts of in-context linear regression: x_i ~ N(0, Lambda), y_i = <w, x_i>, a query x_q and its label <w, x_q>.

Shi, Wei, Xu, Liang 2024, arXiv:2405.19592, section "Theory of linear attention"; chapter 5 of the dissertation of
Z. Shi (2024).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from jaxtyping import Float64
from torch import Tensor

from featurelab.modules.dtypes import Dtype

from ..core.tensors import TensorData, stream
from ..synthetic.polynomials import decaying_covariance


def token_covariance(
    eigenvalues: Float64[Tensor, " dim"], seed: int | None = None
) -> tuple[Float64[Tensor, "dim dim"], Float64[Tensor, "dim dim"]]:
    """Lambda = Q diag(eigenvalues) Q^T and its Q: Haar distributed from `seed`, or the identity without one."""
    dim = len(eigenvalues)
    Q = torch.eye(dim, dtype=torch.float64)
    if seed is not None:
        Q = torch.from_numpy(decaying_covariance(dim, 0.0, seed)[0])
    return Q * eigenvalues @ Q.T, Q


def prompt_means(
    w: Float64[Tensor, "n dim"],
    covariance: Float64[Tensor, "dim dim"],
    length: int,
    chance: np.random.Generator,
    *,
    noise: float = 0.0,
    flipped: int = 0,
) -> Float64[Tensor, "n dim"]:
    """z = X^T y / N (n, dim) of n prompts of `length` N examples, y_i = <w, x_i> + N(0, noise), without examples.

    `noise` is a variance. The first `flipped` examples have the label -<w, x_i>. Exact in law, in O(dim) for each
    prompt: with x_i = Lambda^(1/2) g_i and u along v = Lambda^(1/2) w, the u . g_i determine the labels, and the rest
    of the g_i is Gaussian and independent of them. Raises ValueError for a negative noise, or more flipped examples
    than there are.
    """
    if noise < 0 or not 0 <= flipped <= length or length < 1:
        raise ValueError(f"noise must not be negative and flipped at most {length}, got {noise} and {flipped}")
    n, dim = w.shape
    values, vectors = torch.linalg.eigh(covariance)
    root = vectors * values.clamp(min=0).sqrt() @ vectors.T
    v = w @ root
    size = v.norm(dim=1).numpy()
    along, squared = np.zeros(n), np.zeros(n)  # (u . g_i) with the labels h_i, and h_i with themselves
    for count, sign in ((length - flipped, 1.0), (flipped, -1.0)):
        if count:
            g, t = np.sqrt(chance.chisquare(count, n)), noise**0.5 * chance.standard_normal(n)
            rest = noise * (chance.chisquare(count - 1, n) if count > 1 else 0.0)
            along += sign * size * g**2 + g * t
            squared += (size * g) ** 2 + 2 * sign * size * g * t + t**2 + rest
    u = v / v.norm(dim=1, keepdim=True).clamp(min=1e-300)
    other = torch.from_numpy(chance.standard_normal((n, dim)))
    other = other - (other * u).sum(1, keepdim=True) * u
    total = torch.from_numpy(along)[:, None] * u + torch.from_numpy(squared).sqrt()[:, None] * other
    z: Tensor = total @ root / length
    return z


def task_vectors(n: int, dim: int, chance: np.random.Generator) -> Float64[Tensor, "{n} {dim}"]:
    """w ~ N(0, I), one for each prompt: (n, dim)."""
    return torch.from_numpy(chance.standard_normal((n, dim)))


class RegressionPrompts(TensorData):
    """Prompts with tasks w ~ N(0, I) and no noise; targets (n, 1) are <w, x_q>.

    With `whole`, x is (n, dim + 1, N + 1): columns (x_i; y_i), the last one (x_q; 0). Otherwise x (n, 2, dim) holds
    z = X^T y / N and x_q, which is all that a reduced linear attention sees of a prompt, drawn by `prompt_means`. The
    training and test set have separate streams. Raises ValueError for a length below 1.
    """

    def __init__(
        self,
        n_train: int,
        n_test: int,
        covariance: Float64[Tensor, "dim dim"],
        length: int,
        *,
        whole: bool = False,
        seed: int,
        dtype: Dtype = "float64",
        **options: Any,
    ) -> None:
        if length < 1:
            raise ValueError(f"a prompt has at least one example, got length={length}")
        dim = len(covariance)
        values, vectors = torch.linalg.eigh(covariance)
        root = vectors * values.clamp(min=0).sqrt() @ vectors.T

        def drawn(n: int, part: str) -> tuple[Tensor, Tensor]:
            chance = stream(seed, part)
            w = task_vectors(n, dim, chance)
            query = torch.from_numpy(chance.standard_normal((n, dim))) @ root
            y = (w * query).sum(1, keepdim=True)
            if not whole:
                return torch.stack([prompt_means(w, covariance, length, chance), query], 1), y
            X = torch.from_numpy(chance.standard_normal((n, length, dim))) @ root
            E = torch.zeros(n, dim + 1, length + 1, dtype=torch.float64)
            E[:, :dim, :length], E[:, dim, :length] = X.mT, (X @ w[:, :, None])[..., 0]
            E[:, :dim, length] = query
            return E, y

        train, test = drawn(n_train, "train"), drawn(n_test, "test")
        super().__init__(train, test, dtype=dtype, name="regression_prompts", **options)
        self.length, self.seed = length, seed

    def describe(self) -> dict[str, Any]:
        return super().describe() | {"length": self.length, "seed": self.seed}
