"""One layer of Deep RFM, next to the libraries of recursive feature machines.

A layer solves a ridgeless kernel regression with a Laplace kernel on n points in 128 coordinates, of ten classes, and
computes the AGOP of its predictor, divided by its largest entry:

    featurelab   measures.kernel_regression and measures.kernel_agop, as learners.DeepRFM calls them
    xRFM         the package `xrfm`: its solver and its `fit_M`; without opt_einsum too, which `xrfm` does not install
    RFM          the package `rfm` of the authors of Deep RFM, which is on GitHub only

The rows name what the layer cannot do without: the product of (n, n) by (n, d c), the Cholesky factorisation, and the
kernel matrix. Peak memory is that of our layer in a new process, less its memory before, beside that of the matrix.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from collections.abc import Callable
from statistics import median

import torch
from torch import Tensor

from benchmarks._rows import OURS, Row, Size, alternate, available, compare
from featurelab.modules import measures

DIM, CLASSES, KERNEL, THREADS = 128, 10, measures.LaplaceKernel(2.0), 2
SIZES: dict[Size, dict[int, int]] = {"tiny": {60: 1}, "full": {2000: 5, 10_000: 1}}  # repeats by n
DTYPES = {"float64": torch.float64, "float32": torch.float32}
XRFM, SLOW_XRFM, RFM = "xRFM", "xRFM without opt_einsum", "RFM"
NEEDED = {XRFM: "xrfm opt_einsum", RFM: "git+https://github.com/aradha/recursive_feature_machines"}
Method = Callable[[Tensor, Tensor], Tensor]


def problem(n: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(0)
    labels, means = torch.arange(n) % CLASSES, torch.randn(CLASSES, DIM, generator=draw)
    x = torch.nn.functional.normalize(means[labels] + torch.randn(n, DIM, generator=draw), dim=1)
    return x.to(dtype), 2 * torch.nn.functional.one_hot(labels, CLASSES).to(dtype) - 1


def featurelab(x: Tensor, y: Tensor) -> Tensor:
    K = KERNEL(x)
    alpha = measures.kernel_regression(K, y).coefficients
    M = measures.kernel_agop(KERNEL, x, x, alpha, K=K)
    return M / M.max()


def xrfm(x: Tensor, y: Tensor) -> Tensor:
    from xrfm.rfm_src import RFM as Machine

    machine = Machine(kernel="l2", bandwidth=KERNEL.bandwidth, exponent=1.0, device="cpu", verbose=False)
    machine.reg, machine.center_grads, machine.total_points_to_sample = 0.0, False, len(x)
    machine.centers = x
    machine.weights = machine.fit_predictor_lstsq(x, y)
    return machine.fit_M(x, CLASSES, M_batch_size=10_000, inplace=False)


def xrfm_alone(x: Tensor, y: Tensor) -> Tensor:
    with torch.backends.opt_einsum.flags(enabled=False):
        return xrfm(x, y)


def rfm(x: Tensor, y: Tensor) -> Tensor:
    from rfm import LaplaceRFM

    machine = LaplaceRFM(bandwidth=KERNEL.bandwidth, reg=0.0)
    machine.fit_using_eigenpro = False
    machine.fit_predictor(x, y)
    machine.fit_M(x, y, verbose=False, M_batch_size=10_000)
    return machine.M


def peers(n: int) -> tuple[dict[str, Method], dict[str, str]]:
    """The peers that can run, and what is missing for the others."""
    methods: dict[str, Method] = {}
    if available("xrfm"):
        if torch.backends.opt_einsum.is_available():
            methods[XRFM] = xrfm
        if n <= 2000:  # it holds an array of n x n x c numbers
            methods[SLOW_XRFM] = xrfm_alone
    if available("rfm") and torch.backends.opt_einsum.is_available():
        methods[RFM] = rfm
    return methods, {name: needed for name, needed in NEEDED.items() if name not in methods}


def rows(size: Size) -> list[Row]:
    torch.set_num_threads(THREADS)
    memory = {n: peak_mib(n) for n in SIZES[size]}  # first, while this process is small: a child's peak starts from it
    rows = []
    for n, repeats in SIZES[size].items():
        for name, dtype in DTYPES.items():
            rows += measured(n, name, problem(n, dtype), repeats, {"peak_mib": memory[n]} if name == "float64" else {})
    return rows


def measured(n: int, dtype: str, data: tuple[Tensor, Tensor], repeats: int, numbers: dict[str, float]) -> list[Row]:
    methods, missing = peers(n)
    calls = {OURS: lambda: featurelab(*data)}
    calls |= {name: lambda method=method: method(*data) for name, method in methods.items()}
    if n <= 2000:
        expected, tolerance = featurelab(*data), 1e-6 if dtype == "float64" else 1e-2
        for name, call in calls.items():
            if not torch.linalg.norm(call() - expected) <= tolerance * torch.linalg.norm(expected):
                raise SystemExit(f"{name} disagrees with featurelab at n = {n} in {dtype}")
    taken = alternate(calls, repeats, warm=n <= 2000)
    what = f"layer of Deep RFM, n = {n:,}, d = {DIM}, {dtype}, {THREADS} threads"
    return compare(f"layer/{n}/{dtype}", what, taken, numbers=numbers | parts(*data), missing=missing)


def parts(x: Tensor, y: Tensor) -> dict[str, float]:
    """Seconds of what the layer cannot do without."""
    K, columns = KERNEL(x), torch.ones(len(x), DIM * CLASSES, dtype=x.dtype)
    out = torch.empty_like(columns)
    calls = {
        "product_s": lambda: torch.mm(K, columns, out=out),
        "cholesky_s": lambda: torch.linalg.cholesky_ex(K),
        "kernel_s": lambda: KERNEL(x),
    }
    parts = {name: median(seconds) for name, seconds in alternate(calls, 3 if len(x) <= 2000 else 1).items()}
    return parts | {"floor_s": sum(parts.values())}


def peak_mib(n: int) -> float:
    command = [sys.executable, "-m", "benchmarks.mathematics.deep_rfm", str(n)]
    return float(json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout))


def own_peak_mib(n: int) -> float:
    featurelab(*problem(10 * CLASSES, torch.float64))  # loads code and libraries
    data = problem(n, torch.float64)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    featurelab(*data)
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024


if __name__ == "__main__":
    torch.set_num_threads(THREADS)
    print(json.dumps(own_peak_mib(int(sys.argv[1]))))
