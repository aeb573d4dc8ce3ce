"""What the AGOP of a kernel machine costs in closed form, next to autograd.

Three ways to M = (1/n) sum_a J(x_a) J(x_a)^T of f(x) = sum_j alpha_j k(x, x_j), Laplace kernel, ten outputs, float64,
at the centres themselves, n = 1000 points in 64 dimensions:

    featurelab       measures.kernel_agop: matrix products, blocks of rows
    vmap(jacrev)     torch.func over points, 50 at a time
    output loop      one autograd.grad for each output over all points at once

Times are medians of interleaved repeats in one process.

    python benchmarks/kernel_agop.py [--json] [--threads 1] [--repeats 5]
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402
from torch import Tensor  # noqa: E402
from torch.func import jacrev, vmap  # noqa: E402

from featurelab.modules import measures  # noqa: E402

POINTS, DIM, OUTPUTS, BANDWIDTH = 1000, 64, 10, 2.0


def problem() -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(0)
    x = torch.nn.functional.normalize(torch.randn(POINTS, DIM, generator=draw, dtype=torch.float64), dim=1)
    y = torch.randn(POINTS, OUTPUTS, generator=draw, dtype=torch.float64)
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
    "featurelab": featurelab,
    "vmap(jacrev)": vmap_jacrev,
    "output loop": output_loop,
}


def measure(repeats: int) -> dict[str, Any]:
    x, alpha = problem()
    expected = featurelab(x, alpha)
    for name, method in METHODS.items():
        if not torch.allclose(method(x, alpha), expected, rtol=1e-9, atol=1e-12):
            raise SystemExit(f"{name} disagrees with featurelab")
    times: dict[str, list[float]] = {name: [] for name in METHODS}
    for _ in range(repeats):
        for name, method in METHODS.items():
            start = time.perf_counter()
            method(x, alpha)
            times[name].append(time.perf_counter() - start)
    rows = [
        {
            "method": name,
            "seconds": median(times[name]),
            "ratio": median(b / a for a, b in zip(times["featurelab"], times[name], strict=True)),
        }
        for name in METHODS
    ]
    return {"n": POINTS, "dim": DIM, "outputs": OUTPUTS, "repeats": repeats, "methods": rows}


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of a table")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args(argv)
    torch.set_num_threads(args.threads)
    results = measure(args.repeats)
    if args.json:
        print(json.dumps(results))
        return
    print(f"AGOP of a kernel machine: n = {POINTS}, d = {DIM}, {OUTPUTS} outputs, float64, {args.threads} thread(s)")
    print(f"{'':14}{'seconds':>9}{'ratio':>8}")
    for row in results["methods"]:
        print(f"{row['method']:14}{row['seconds']:9.3f}{row['ratio']:8.2f}")


if __name__ == "__main__":
    main()
