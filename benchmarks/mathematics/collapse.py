"""What measuring neural collapse costs, next to the library and the textbook formulas.

NC1 in both conventions, NC2, NC3 and NC4 of n = 50,000 features in 512 dimensions, of 10 classes:

    featurelab       class moments, computed in blocks that fit into the cache, and the measures from these; in float64
    neural-collapse  the package `neural_collapse`, which is on GitHub only: NC1 with the pseudoinverse, NC2, NC3, NC4
    textbook         means as a product with one-hot labels, then the residuals of all samples
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from benchmarks._rows import OURS, Row, Size, alternate, available, compare
from featurelab.modules import measures

CLASSES, THREADS = 10, 2
SIZES: dict[Size, tuple[int, int, int]] = {"tiny": (200, 16, 1), "full": (50_000, 512, 5)}  # samples, dim, repeats
LIBRARY = "neural-collapse"
Problem = tuple[Tensor, Tensor, Tensor]  # features, labels, weights of the readout


def problem(samples: int, dim: int, dtype: torch.dtype) -> Problem:
    draw = torch.Generator().manual_seed(0)
    y = torch.arange(samples) % CLASSES
    means = torch.randn(CLASSES, dim, generator=draw)
    features = means[y] + torch.randn(samples, dim, generator=draw)
    return features.to(dtype), y, means.to(dtype)


def featurelab(H: Tensor, y: Tensor, W: Tensor) -> list[float]:
    m = measures.class_moments(H, y, CLASSES)
    scores = [measures.nc1(m), measures.nc1_pinv(H, y, moments=m), measures.nc2(m), measures.nc3(W, m)]
    return [score.item() for score in [*scores, measures.nc4(H @ W.T, H, m)]]


def textbook(H: Tensor, y: Tensor, W: Tensor) -> list[float]:
    outputs, dtype, n, K = H @ W.T, H.dtype, len(H), len(W)
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


def library(H: Tensor, y: Tensor, W: Tensor) -> list[float]:
    from neural_collapse.accumulate import CovarAccumulator, DecAccumulator, MeanAccumulator
    from neural_collapse.measure import clf_ncc_agreement, covariance_pinv, self_duality_error, simplex_etf_error

    sizes = {"n_classes": len(W), "d_vectors": H.shape[1], "dtype": H.dtype}
    of_means = MeanAccumulator(**sizes)
    of_means.accumulate(H, y)
    means, mean = of_means.compute()
    within, decisions = CovarAccumulator(**sizes, M=means), DecAccumulator(**sizes, M=means, W=W)
    within.accumulate(H, y, means)
    decisions.accumulate(H, y, W, means)
    nc1 = covariance_pinv(means, within.compute(), mean)
    return [nc1, simplex_etf_error(means, mean), self_duality_error(means, W, mean), clf_ncc_agreement(decisions)]


def rows(size: Size) -> list[Row]:
    torch.set_num_threads(THREADS)
    return [row for dtype in (torch.float32, torch.float64) for row in measured(size, dtype)]


def measured(size: Size, dtype: torch.dtype) -> list[Row]:
    samples, dim, repeats = SIZES[size]
    data = problem(samples, dim, dtype)
    methods: dict[str, Callable[..., list[float]]] = {OURS: featurelab, "textbook": textbook}
    methods |= {LIBRARY: library} if available("neural_collapse") else {}
    missing = {} if LIBRARY in methods else {LIBRARY: "git+https://github.com/rhubarbwu/neural-collapse"}
    if not torch.allclose(*(torch.tensor(methods[name](*data)) for name in (OURS, "textbook")), rtol=1e-3, atol=1e-6):
        raise SystemExit(f"the textbook disagrees with featurelab in {dtype}")
    name = str(dtype).removeprefix("torch.")
    what = f"NC1 to NC4, {samples:,} x {dim}, {CLASSES} classes, {name}, {THREADS} threads"
    calls = {name: lambda method=method: method(*data) for name, method in methods.items()}
    return compare(name, what, alternate(calls, repeats), missing=missing)
