"""What measuring neural collapse costs, next to the textbook formulas.

NC1 in both conventions, NC2, NC3 and NC4 of n = 50,000 features (float32) in 512 dimensions, of 10 classes:

    featurelab   class moments, computed in blocks that fit into the cache, and the measures from these; in float64
    textbook     means as a product with one-hot labels, then the residuals of all samples; in float64 or float32

Times are medians of interleaved repeats in one process.

    python -m benchmarks collapse
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

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
from torch import Tensor

from featurelab.modules import measures

SAMPLES, DIM, CLASSES = 50_000, 512, 10
Problem = tuple[Tensor, Tensor, Tensor]  # features, labels, weights of the readout


def problem() -> Problem:
    draw = torch.Generator().manual_seed(0)
    y = torch.arange(SAMPLES) % CLASSES
    means = torch.randn(CLASSES, DIM, generator=draw)
    return means[y] + torch.randn(SAMPLES, DIM, generator=draw), y, means


def featurelab(H: Tensor, y: Tensor, W: Tensor) -> list[float]:
    m = measures.class_moments(H, y, CLASSES)
    scores = [measures.nc1(m), measures.nc1_pinv(H, y, moments=m), measures.nc2(m), measures.nc3(W, m)]
    return [score.item() for score in [*scores, measures.nc4(H @ W.T, H, m)]]


def textbook(H: Tensor, y: Tensor, W: Tensor, dtype: torch.dtype = torch.float64) -> list[float]:
    outputs = H @ W.T
    H, W, n, K = H.to(dtype), W.to(dtype), len(H), len(W)
    Y = torch.nn.functional.one_hot(y, K).to(dtype)
    counts = Y.sum(0)
    means = (Y.T @ H) / counts[:, None]
    M, residuals = means - H.mean(0), H - means[y]
    within = residuals.T @ (residuals / counts[y, None]) / K
    between = M.T @ M / K
    simplex = (torch.eye(K, dtype=dtype) - 1 / K) / (K - 1) ** 0.5
    squares = means.square().sum(1) - 2 * H @ means.T
    G, WM = M @ M.T, W @ M.T
    scores = [
        residuals.square().sum() / n / (means - means.mean(0)).square().sum(1).mean(),
        (within @ torch.linalg.pinv(between, rtol=1e-6, hermitian=True)).trace() / K,
        (G / G.norm() - simplex).norm(),
        (WM / WM.norm() - simplex).norm(),
        (squares.argmin(1) != outputs.argmax(1)).to(dtype).mean(),
    ]
    return [score.item() for score in scores]


METHODS: dict[str, Callable[..., list[float]]] = {
    "featurelab": featurelab,
    "textbook, float64": textbook,
    "textbook, float32": lambda *given: textbook(*given, dtype=torch.float32),
}


def measure(repeats: int, threads: int) -> dict[str, Any]:
    torch.set_num_threads(threads)
    given = problem()
    expected = torch.tensor(featurelab(*given))
    for name, method in METHODS.items():
        if not torch.allclose(torch.tensor(method(*given)), expected, rtol=1e-3, atol=1e-6):
            raise SystemExit(f"{name} disagrees with featurelab")
    times: dict[str, list[float]] = {name: [] for name in METHODS}
    for _ in range(repeats):
        for name, method in METHODS.items():
            start = time.perf_counter()
            method(*given)
            times[name].append(time.perf_counter() - start)
    rows = [
        {
            "method": name,
            "seconds": median(taken),
            "ratio": median(b / a for a, b in zip(times["featurelab"], taken, strict=True)),
        }
        for name, taken in times.items()
    ]
    facts = {"n": SAMPLES, "dim": DIM, "classes": CLASSES, "threads": threads, "repeats": repeats}
    return {**facts, "methods": rows}


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of a table")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args(argv)
    results = measure(args.repeats, args.threads)
    if args.json:
        print(json.dumps(results))
        return
    print(f"Neural collapse: n = {SAMPLES}, d = {DIM}, {CLASSES} classes, {args.threads} thread(s)")
    print(f"{'':20}{'seconds':>9}{'ratio':>8}")
    for row in results["methods"]:
        print(f"{row['method']:20}{row['seconds']:9.3f}{row['ratio']:8.2f}")


if __name__ == "__main__":
    main()
