"""How well one representation serves several tasks, and how far apart it puts classes."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import torch
from jaxtyping import Float64, Int64, Integer, Real
from numpy.typing import NDArray
from sklearn.manifold import TSNE
from sklearn.metrics import silhouette_score
from torch import Tensor

Floats = np.ndarray


def weighted_accuracy(accuracies: Mapping[str, float], classes: Mapping[str, int]) -> float:
    """sum_k C_k a_k / sum_k C_k over tasks k with accuracy a_k and C_k classes.

    Z. Shi et al., ICLR 2023, section 4.1. Raises ValueError without tasks, or where one has no number of classes.
    """
    if not accuracies or set(accuracies) - set(classes):
        raise ValueError(
            f"every task needs an accuracy and a number of classes: got {sorted(accuracies)} and {sorted(classes)}"
        )
    total = sum(classes[name] for name in accuracies)
    return sum(classes[name] * value for name, value in accuracies.items()) / total


def silhouette(features: Real[Tensor, "n ..."], labels: Integer[Tensor, " n"]) -> float:
    """Mean over samples of (b - a) / max(a, b), in [-1, 1], for features scaled to length 1.

    a is the mean distance to the other samples of the same class, b the smallest mean distance to another class
    (P. Rousseeuw, 1987). Raises ValueError unless there are at least two classes and more samples than classes.
    """
    return float(silhouette_score(_unit_rows(features), labels.cpu().numpy()))


def tsne_plane(features: Real[Tensor, "n ..."], *, perplexity: float = 30.0, seed: int) -> Float64[Floats, "n 2"]:
    """t-SNE (n, 2) of samples, with features scaled to length 1; perplexity is at most (n - 1) / 3."""
    rows = _unit_rows(features)
    fit = TSNE(2, perplexity=min(perplexity, (len(rows) - 1) / 3), init="pca", random_state=seed % 2**32, n_jobs=1)
    placed: Floats = fit.fit_transform(rows).astype(np.float64)
    return placed


def _unit_rows(features: Tensor) -> Floats:
    rows = features.detach().flatten(1).double().cpu().numpy()
    unit: Floats = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), np.finfo(float).tiny)
    return unit


def sgd_probe(
    features: Real[Tensor, "n ..."],
    labels: Integer[Tensor, " n"],
    test: Real[Tensor, "m ..."],
    *,
    lr: float = 5.0,
    momentum: float = 0.9,
    epochs: int = 200,
    batch_size: int = 256,
    seed: int,
) -> Int64[np.ndarray, " m"]:
    """Predictions for `test` of a linear classifier trained by SGD on raw features, from zero weights.

    The learning rate is lr (1 + cos(pi epoch / epochs)) / 2; `seed` draws the order of batches. The cross-entropy is
    convex, so with a small ridge `linear_probe` finds the same minimum, if there is one. Z. Shi et al., ICLR 2023,
    appendix.
    """
    H, T = features.detach().flatten(1).float(), test.detach().flatten(1).float()
    y = labels.to(H.device)
    W = torch.zeros(H.shape[1], int(y.max()) + 1, device=H.device)
    b = torch.zeros(W.shape[1], device=H.device)
    speeds = [torch.zeros_like(W), torch.zeros_like(b)]
    one_hot = torch.nn.functional.one_hot(y, W.shape[1]).to(H)
    chance = np.random.default_rng([seed, *b"probe"])
    for epoch in range(epochs):
        rate = lr * (1 + math.cos(math.pi * epoch / epochs)) / 2
        for rows in torch.from_numpy(chance.permutation(len(y))).to(H.device).split(batch_size):
            wrong = (torch.softmax(H[rows] @ W + b, 1) - one_hot[rows]) / len(rows)
            for weight, speed, gradient in zip((W, b), speeds, (H[rows].T @ wrong, wrong.sum(0)), strict=True):
                weight.sub_(speed.mul_(momentum).add_(gradient), alpha=rate)
    predicted: NDArray[np.int64] = (T @ W + b).argmax(1).cpu().numpy()
    return predicted
