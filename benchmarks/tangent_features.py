"""What the covariance of the tangent features costs, next to the usual alternatives.

Three ways to K = (1/n) J^T J of all layers of a float32 MLP: five hidden layers of width 256, ten outputs, n = 2000.

    featurelab       measures.tangent_covariance: one batched backward pass over (outputs x samples) for each chunk
    vmap(jacrev)     torch.func over samples, differentiating with respect to shifts of the pre-activations
    output loop      one autograd.grad for each output over all samples, all J in memory, then J^T J

Times are medians of interleaved repeats in one process. The fraction of peak is useful floating-point operations (a
forward pass, a backward pass through each hidden layer, J^T J as a full product) over what plain matrix products of the
same shapes reach in that process. Peak memory is that of a new process for each method, less its memory before.

    python benchmarks/tangent_features.py [--json] [--threads 1] [--repeats 7]
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402
from torch import Tensor  # noqa: E402

from featurelab.modules import measures, nets  # noqa: E402

WIDTH, HIDDEN, OUTPUTS, SAMPLES, MORE_SAMPLES = 256, 5, 10, 2000, 8000


def featurelab(net: nets.MLP, x: Tensor) -> list[Tensor]:
    return [layer.K for layer in measures.tangent_covariance(net, x).values()]


def vmap_jacrev(net: nets.MLP, x: Tensor) -> list[Tensor]:
    weights = [layer.weight.detach() for layer in measures.layer_names(net).values()]

    def shifted(shifts: list[Tensor], sample: Tensor) -> Tensor:
        h = weights[0] @ sample + shifts[0]
        for W, shift in zip(weights[1:], shifts[1:], strict=True):
            h = W @ net.activation(h) + shift
        return h

    J = torch.func.vmap(torch.func.jacrev(shifted), in_dims=(None, 0))([x.new_zeros(len(W)) for W in weights], x)
    return [gram(j, len(x)) for j in J]


def output_loop(net: nets.MLP, x: Tensor) -> list[Tensor]:
    h, hs = x, list[Tensor]()
    for layer in net.layers:
        hs.append(layer(net.activation(h) if hs else h))
        h = hs[-1]
    rows = [torch.autograd.grad(h[:, c].sum(), hs, retain_graph=True) for c in range(h.shape[1])]
    return [gram(torch.stack(j, 1), len(x)) for j in zip(*rows, strict=True)]


def gram(J: Tensor, n: int) -> Tensor:
    J = J.flatten(0, 1)
    return J.T @ J / n


METHODS: dict[str, Callable[[nets.MLP, Tensor], list[Tensor]]] = {
    "featurelab": featurelab,
    "vmap(jacrev)": vmap_jacrev,
    "output loop": output_loop,
}


def problem(n: int) -> tuple[nets.MLP, Tensor]:
    net = nets.mlp(WIDTH, WIDTH, HIDDEN, outputs=OUTPUTS, seed=0, dtype="float32")
    return net, torch.randn(n, WIDTH, generator=torch.Generator().manual_seed(0))


def useful_flops(n: int) -> int:
    sizes = [WIDTH] * (HIDDEN + 1) + [OUTPUTS]
    weights = [a * b for a, b in pairwise(sizes)]
    forward = 2 * n * sum(weights)
    # the readout's J is the identity, and its backward only copies rows of W
    backward = 2 * n * OUTPUTS * sum(weights[1:-1])
    covariance = 2 * n * OUTPUTS * HIDDEN * WIDTH**2
    return forward + backward + covariance


def products(rows: int = 4096, times: int = 5) -> float:
    """Return operations per second of the two matrix products in the work: (rows, k) @ (k, k) and J^T J."""
    J, W = torch.randn(rows, WIDTH), torch.randn(WIDTH, WIDTH)
    out, square = torch.empty(rows, WIDTH), torch.empty(WIDTH, WIDTH)
    start = time.perf_counter()
    for _ in range(times):
        torch.mm(J, W, out=out)
        torch.mm(J.T, J, out=square)
    return times * 4 * rows * WIDTH**2 / (time.perf_counter() - start)


def seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def own_peak_mib(method: str, n: int) -> float:
    """Return the peak memory of one call, less that of the process with data and network before."""
    net, x = problem(n)
    METHODS[method](*problem(8))  # loads code and libraries
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    METHODS[method](net, x)
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024


def peak_mib(method: str, n: int, threads: int) -> float:
    command = [sys.executable, __file__, "--threads", str(threads), "--peak", method, str(n)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def measure(repeats: int, threads: int) -> dict[str, Any]:
    # first, while this process is small: a child's ru_maxrss starts from its parent's
    peaks = {name: {n: peak_mib(name, n, threads) for n in (SAMPLES, MORE_SAMPLES)} for name in METHODS}
    net, x = problem(SAMPLES)
    expected = featurelab(net, x)
    times: dict[str, list[float]] = {name: [] for name in METHODS}
    rates = []
    for name, method in METHODS.items():
        for mine, theirs in zip(expected, method(net, x), strict=True):
            if not torch.allclose(mine, theirs, rtol=1e-4, atol=1e-5):
                raise SystemExit(f"{name} disagrees with featurelab")
    for _ in range(repeats):
        rates.append(products())
        for name, method in METHODS.items():
            times[name].append(seconds(partial(method, net, x)))
    peak = median(rates)
    rows = [
        {
            "method": name,
            "seconds": median(times[name]),
            "ratio": median(b / a for a, b in zip(times["featurelab"], times[name], strict=True)),
            "fraction_of_peak": useful_flops(SAMPLES) / median(times[name]) / peak,
            **{f"peak_mib_n{n}": mib for n, mib in peaks[name].items()},
        }
        for name in METHODS
    ]
    return {
        "threads": threads,
        "repeats": repeats,
        "gflop": useful_flops(SAMPLES) / 1e9,
        "matmul_gflop_per_second": peak / 1e9,
        "methods": rows,
    }


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of a table")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument(
        "--peak", nargs=2, metavar=("METHOD", "N"), help="print one method's peak memory in MiB, and stop"
    )
    args = parser.parse_args(argv)
    torch.set_num_threads(args.threads)
    if args.peak:
        print(own_peak_mib(args.peak[0], int(args.peak[1])))
        return
    results = measure(args.repeats, args.threads)
    if args.json:
        print(json.dumps(results))
        return
    print(
        f"K of all layers: {HIDDEN} hidden layers of {WIDTH}, {OUTPUTS} outputs, n = {SAMPLES}, float32, "
        f"{args.threads} thread(s); {results['gflop']:.1f} GFLOP; "
        f"matmul {results['matmul_gflop_per_second']:.0f} GFLOP/s"
    )
    print(f"{'':14}{'seconds':>9}{'ratio':>8}{'of peak':>9}{f'MiB n={SAMPLES}':>14}{f'MiB n={MORE_SAMPLES}':>14}")
    for row in results["methods"]:
        print(
            f"{row['method']:14}{row['seconds']:9.3f}{row['ratio']:8.2f}{row['fraction_of_peak']:9.0%}"
            f"{row[f'peak_mib_n{SAMPLES}']:14.0f}{row[f'peak_mib_n{MORE_SAMPLES}']:14.0f}"
        )


if __name__ == "__main__":
    main()
