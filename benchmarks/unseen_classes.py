"""What the scores of many unseen classes cost, next to generating the samples of each class.

Alignment and Elasticity of 300 unseen classes, whose means are rotations of one vector, in float64: 400 samples a
class, dimension and width 512.

    featurelab   measures.unseen_scores: one product z W, and a rank-one correction of it for every class
    one by one   the samples of every class, their products with both weight matrices, and the same scores

Times are medians of interleaved repeats in one process.

    python -m benchmarks unseen_classes
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

from featurelab.modules import data, learners, measures, nets

SIZE, SAMPLES, CLASSES, LENGTH = 512, 400, 300, 5.0


def problem(classes: int) -> tuple[Tensor, measures.UnseenMeans, Tensor, Tensor]:
    task = data.SubGaussianClasses(SIZE, SIZE, "sphere", length=LENGTH, seed=0)
    net = nets.two_layer(SIZE, SIZE, seed=0)
    trained = learners.one_step_weights(net, *task.train, lr=SIZE**0.25)
    axes = torch.nn.functional.normalize(data.gaussian_samples(classes, SIZE, 0, "axes"), dim=1)
    means = measures.UnseenMeans(axes, torch.full((classes,), LENGTH).double(), torch.ones(classes).double())
    return data.gaussian_samples(SAMPLES, SIZE, 0), means, net.hidden.weight.detach().T, trained


def featurelab(z: Tensor, means: measures.UnseenMeans, before: Tensor, after: Tensor) -> Tensor:
    scores = measures.unseen_scores(z, means, before, after, torch.tanh)
    return torch.stack([scores["alignment/trained"], scores["elasticity/unseen"]], 1)


def one_by_one(z: Tensor, means: measures.UnseenMeans, before: Tensor, after: Tensor) -> Tensor:
    scores = []
    for axis, length in zip(means.axes, means.lengths, strict=True):
        x = data.unseen_class(z, axis, length)
        F0, F = torch.tanh(x @ before), torch.tanh(x @ after)
        scores.append(torch.stack([measures.alignment(F), measures.elasticity(F, F0)]))
    return torch.stack(scores)


def seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def measure(repeats: int, threads: int, classes: int) -> dict[str, Any]:
    torch.set_num_threads(threads)
    inputs = problem(classes)
    if not torch.allclose(featurelab(*inputs), one_by_one(*inputs), rtol=1e-9):
        raise SystemExit("the two methods disagree")
    times: dict[str, list[float]] = {"featurelab": [], "one by one": []}
    for _ in range(repeats):
        times["featurelab"].append(seconds(lambda: featurelab(*inputs)))
        times["one by one"].append(seconds(lambda: one_by_one(*inputs)))
    ratio = median(b / a for a, b in zip(*times.values(), strict=True))
    rows = [
        {"method": name, "seconds": median(taken), "ratio": 1.0 if name == "featurelab" else ratio}
        for name, taken in times.items()
    ]
    return {"threads": threads, "repeats": repeats, "classes": classes, "size": SIZE, "methods": rows}


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of a table")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--classes", type=int, default=CLASSES)
    args = parser.parse_args(argv)
    results = measure(args.repeats, args.threads, args.classes)
    if args.json:
        print(json.dumps(results))
        return
    for row in results["methods"]:
        print(f"{row['method']:12}{row['seconds']:9.3f} s{row['ratio']:8.2f}")


if __name__ == "__main__":
    main()
