"""Prompts of linear regression for a looped transformer: n examples of a linear rule, and a query.

Chen, Li, Liang, Shi, Song, "Bypassing the Exponential Dependency: Looped Transformers Efficiently Learn In-context by
Multi-step Gradient Descent", 2024, section 3; the spectra and the noise are ours.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from featurelab.modules.dtypes import Dtype

from ..core.permuted import label_order
from ..core.tensors import Pair, TensorData, stream

Array = NDArray[np.float64]


def linear_prompt(
    X: Float[Tensor, "*batch n dim"],
    y: Float[Tensor, "*batch n"],
    q: Float[Tensor, "*batch dim"],
    alpha: Float[Tensor, "*batch"],
) -> Float[Tensor, "*batch rows columns"]:
    """Z = [[X, y], [q^T, alpha]], (*batch, n + 1, dim + 1)."""
    query = torch.cat([q, alpha[..., None]], -1)
    return torch.cat([torch.cat([X, y[..., None]], -1), query[..., None, :]], -2)


def prompt_examples(
    count: int,
    n: int,
    dim: int,
    *,
    variances: Sequence[float] = (),
    condition: float | None = None,
    seed: int,
    part: str = "train",
) -> Float[Tensor, "count n dim"]:
    """Examples X (count, n, dim) of `count` prompts: rows N(0, I), or N(0, diag(variances)).

    With `condition`, X = U diag(s) V^T for Haar frames U, V, and s^2 evenly spaced on a log scale from n down to n /
    condition, so that X^T X has exactly that condition number. Raises ValueError for sizes below 1, variances that are
    not `dim` positive numbers, variances together with a condition, a condition below 1, or one with n < dim.
    """
    if min(count, n, dim) < 1:
        raise ValueError(f"prompts, examples and coordinates must be at least 1, got {count}, {n} and {dim}")
    if len(variances) not in (0, dim) or not all(v > 0 for v in variances):
        raise ValueError(f"variances must be {dim} positive numbers, got {tuple(variances)}")
    X: Array = stream(seed, f"{part} examples").standard_normal((count, n, dim))
    if condition is None:
        return torch.from_numpy(X * np.sqrt(np.asarray(variances)) if len(variances) else X)
    if len(variances) or not condition >= 1 or n < dim:
        raise ValueError("condition must be at least 1, with n >= dim and without variances")
    U = np.linalg.qr(X)[0]
    V = np.linalg.qr(stream(seed, f"{part} axes").standard_normal((count, dim, dim)))[0]
    s = np.sqrt(n * np.geomspace(1, 1 / condition, dim))
    return torch.from_numpy((U * s) @ V.transpose(0, 2, 1))


class LinearPrompts(TensorData):
    """Inputs: prompts Z = [[X, y], [q^T, alpha]] (n + 1, dim + 1). Targets: theta* (dim,), uniform on the unit sphere.

    X comes from `prompt_examples`, and y = X theta* + noise N(0, 1). The query starts at q = 0, or q ~ N(0, query^2 I);
    `alpha` is the number given, or uniform in +-[0.5, 2] if it is None. There are `n_test` test prompts.

    Within `permuted_labels` the labels y of all training examples are permuted, across prompts too; theta* does not
    change. Raises ValueError as `prompt_examples` does, and for alpha = 0.
    """

    def __init__(
        self,
        count: int,
        n: int,
        dim: int,
        *,
        n_test: int = 0,
        variances: Sequence[float] = (),
        condition: float | None = None,
        noise: float = 0.0,
        query: float = 0.0,
        alpha: float | None = 1.0,
        seed: int,
        dtype: Dtype = "float64",
        **options: Any,
    ) -> None:
        if alpha == 0:
            raise ValueError("alpha must not be 0, because the answer is proportional to it")

        def drawn(size: int, part: str) -> Pair:
            X = prompt_examples(size, n, dim, variances=variances, condition=condition, seed=seed, part=part)
            theta = torch.from_numpy(stream(seed, f"{part} rules").standard_normal((size, dim)))
            theta = theta / theta.norm(dim=1, keepdim=True)
            y = (X @ theta[..., None])[..., 0]
            y = y + noise * torch.from_numpy(stream(seed, f"{part} noise").standard_normal((size, n)))
            draw = stream(seed, f"{part} queries")
            q = query * torch.from_numpy(draw.standard_normal((size, dim)))
            signed = torch.from_numpy(draw.choice([-1.0, 1.0], size) * draw.uniform(0.5, 2.0, size))
            return linear_prompt(X, y, q, signed if alpha is None else torch.full_like(signed, alpha)), theta

        empty = torch.empty(0, n + 1, dim + 1), torch.empty(0, dim)
        super().__init__(
            drawn(count, "train"),
            drawn(n_test, "test") if n_test else empty,
            dtype=dtype,
            name="linear_prompts",
            **options,
        )
        order = label_order(count * n)
        Z, theta = self.labelled
        if order is not None:
            Z = Z.clone()
            Z[:, :-1, -1] = Z[:, :-1, -1].reshape(-1)[torch.from_numpy(order)].reshape(count, n)
        self.train = Z, theta
        self.seed = seed

    def describe(self) -> dict[str, Any]:
        return super().describe() | {"examples": self.train[0].shape[1] - 1, "seed": self.seed}
