"""What the AGOP of a kernel machine costs in closed form, next to autograd.

Three ways to M = (1/n) sum_a J(x_a) J(x_a)^T of f(x) = sum_j alpha_j k(x, x_j), Laplace kernel, ten outputs, float64,
at the centres themselves, n = 1000 points in 64 dimensions:

    featurelab       measures.kernel_agop: matrix products, blocks of rows
    vmap(jacrev)     torch.func over points, 50 at a time
    output loop      one autograd.grad for each output over all points at once
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.func import jacrev, vmap

from benchmarks._rows import OURS, Row, Size, alternate, compare
from featurelab.modules import measures

DIM, OUTPUTS, BANDWIDTH = 64, 10, 2.0
POINTS: dict[Size, int] = {"tiny": 20, "full": 1000}
REPEATS: dict[Size, int] = {"tiny": 1, "full": 5}


def problem(points: int) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(0)
    x = torch.nn.functional.normalize(torch.randn(points, DIM, generator=draw, dtype=torch.float64), dim=1)
    y = torch.randn(points, OUTPUTS, generator=draw, dtype=torch.float64)
    return x, measures.kernel_regression(measures.LaplaceKernel(BANDWIDTH)(x), y).coefficients


def featurelab(x: Tensor, alpha: Tensor) -> Tensor:
    return measures.kernel_agop(measures.LaplaceKernel(BANDWIDTH), x, x, alpha)


def values(inputs: Tensor, x: Tensor, others: Tensor, alpha: Tensor) -> Tensor:
    """f at the inputs without the terms of the inputs' own centres, at which the kernel has a kink."""
    squares = (inputs.square().sum(-1)[..., None] + x.square().sum(1) - 2 * inputs @ x.T).clamp(min=1e-30)
    return torch.where(others, torch.exp(-squares.sqrt() / BANDWIDTH), 0.0) @ alpha


def vmap_jacrev(x: Tensor, alpha: Tensor) -> Tensor:
    others = ~torch.eye(len(x), dtype=torch.bool)
    J = vmap(jacrev(lambda one, keep: values(one, x, keep, alpha)), chunk_size=50)(x, others).flatten(0, 1)
    return J.T @ J / len(x)


def output_loop(x: Tensor, alpha: Tensor) -> Tensor:
    inputs = x.clone().requires_grad_()
    outputs = values(inputs, x, ~torch.eye(len(x), dtype=torch.bool), alpha)
    total = x.new_zeros(x.shape[1], x.shape[1])
    for output in outputs.T:
        (gradient,) = torch.autograd.grad(output.sum(), inputs, retain_graph=True)
        total += gradient.T @ gradient
    return total / len(x)


METHODS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    OURS: featurelab,
    "vmap(jacrev)": vmap_jacrev,
    "output loop": output_loop,
}


def rows(size: Size) -> list[Row]:
    torch.set_num_threads(1)
    x, alpha = problem(POINTS[size])
    expected = featurelab(x, alpha)
    for name, method in METHODS.items():
        if not torch.allclose(method(x, alpha), expected, rtol=1e-9, atol=1e-12):
            raise SystemExit(f"{name} disagrees with featurelab")
    taken = alternate({name: lambda method=method: method(x, alpha) for name, method in METHODS.items()}, REPEATS[size])
    what = f"AGOP of a kernel machine, n = {len(x):,}, d = {DIM}, {OUTPUTS} outputs, float64, 1 thread"
    return compare("agop", what, taken)
