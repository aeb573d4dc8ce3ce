"""What the scores of many unseen classes cost, next to generating the samples of each class.

Alignment and Elasticity of 300 unseen classes, whose means are rotations of one vector, in float64: 400 samples a
class, dimension and width 512.

    featurelab   measures.unseen_scores: one product z W, and a rank-one correction of it for every class
    one by one   the samples of every class, their products with both weight matrices, and the same scores
"""

from __future__ import annotations

import torch
from torch import Tensor

from benchmarks._rows import OURS, Row, Size, alternate, compare
from featurelab.modules import data, learners, measures, nets

SAMPLES, LENGTH = 400, 5.0
SIZES: dict[Size, tuple[int, int, int]] = {"tiny": (32, 3, 1), "full": (512, 300, 3)}  # width, classes, repeats


def problem(size: int, classes: int) -> tuple[Tensor, measures.UnseenMeans, Tensor, Tensor]:
    task = data.SubGaussianClasses(size, size, "sphere", length=LENGTH, seed=0)
    net = nets.two_layer(size, size, seed=0)
    trained = learners.one_step_weights(net, *task.train, lr=size**0.25)
    axes = torch.nn.functional.normalize(data.gaussian_samples(classes, size, 0, "axes"), dim=1)
    means = measures.UnseenMeans(axes, torch.full((classes,), LENGTH).double(), torch.ones(classes).double())
    return data.gaussian_samples(SAMPLES, size, 0), means, net.hidden.weight.detach().T, trained


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


def rows(size: Size) -> list[Row]:
    torch.set_num_threads(1)
    width, classes, repeats = SIZES[size]
    inputs = problem(width, classes)
    if not torch.allclose(featurelab(*inputs), one_by_one(*inputs), rtol=1e-9):
        raise SystemExit("the two methods disagree")
    taken = alternate({OURS: lambda: featurelab(*inputs), "one by one": lambda: one_by_one(*inputs)}, repeats)
    return compare("scores", f"scores of {classes} unseen classes, width {width}, float64, 1 thread", taken)
