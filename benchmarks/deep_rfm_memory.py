"""Time and peak memory of one layer of Deep RFM, by the number of training samples.

Gaussian mixture of ten classes, 64 coordinates, Laplace kernel, ridgeless, 512 ReLU features, float64: kernel matrix,
regression, AGOP, its square root, features, and the measures of collapse. The kernel matrix and its factor take
2 * 8 n^2 bytes; everything else is done in blocks. Peak memory is that of a new process, less its memory before.

    python benchmarks/deep_rfm_memory.py [--json] [--threads 1] [--n 2000 4000]

With `--n 20000` it takes minutes and 7 GiB.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402

from featurelab.modules import data, learners, measures, nets  # noqa: E402

CLASSES, DIM, WIDTH = 10, 64, 512


def layer(n: int) -> tuple[float, float]:
    """Return the seconds of one layer, and the residual of its regression."""
    task = data.ClassMixture(CLASSES, n // CLASSES, DIM, 1.0, targets="signs", seed=0)
    learner = learners.DeepRFM(
        measures.LaplaceKernel(2.0), lambda _, dim: nets.RandomFeatures("relu", dim, WIDTH, seed=0)
    )
    start = time.perf_counter()
    with torch.no_grad():
        values = learner.add_layer(1, *task.train)
    return time.perf_counter() - start, values["krr_residual/layer"]


def own_peak(n: int) -> dict[str, float]:
    layer(10 * CLASSES)  # loads code and libraries
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seconds, residual = layer(n)
    peak = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 2**20
    return {"seconds": seconds, "peak_gib": peak, "kernel_gib": 8 * n * n / 2**30, "residual": residual}


def measure(sizes: list[int], threads: int) -> dict[str, Any]:
    rows = []
    for n in sizes:
        command = [sys.executable, __file__, "--threads", str(threads), "--own", str(n)]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        rows.append({"method": f"n = {n}", **json.loads(done.stdout)})
    return {"threads": threads, "dim": DIM, "width": WIDTH, "classes": CLASSES, "methods": rows}


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of a table")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--n", type=int, nargs="+", default=[2000, 4000], help="training samples, multiples of ten")
    parser.add_argument("--own", type=int, help="measure this size in this process, print it as JSON, and stop")
    args = parser.parse_args(argv)
    torch.set_num_threads(args.threads)
    if args.own:
        print(json.dumps(own_peak(args.own)))
        return
    results = measure(args.n, args.threads)
    if args.json:
        print(json.dumps(results))
        return
    print(f"one layer of Deep RFM: d = {DIM}, D = {WIDTH}, {CLASSES} classes, float64, {args.threads} thread(s)")
    print(f"{'':12}{'seconds':>9}{'peak GiB':>10}{'kernel GiB':>12}{'residual':>10}")
    for row in results["methods"]:
        print(
            f"{row['method']:12}{row['seconds']:9.1f}{row['peak_gib']:10.2f}{row['kernel_gib']:12.2f}"
            f"{row['residual']:10.0e}"
        )


if __name__ == "__main__":
    main()
