"""Accuracy over several tasks, silhouettes, and probes on features of length 1."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from featurelab.modules import measures


def test_tasks_count_by_their_classes():
    found = measures.weighted_accuracy({"a": 0.5, "b": 1.0}, {"a": 10, "b": 30, "c": 5})
    assert found == pytest.approx((10 * 0.5 + 30 * 1.0) / 40)
    for wrong in ({}, {"d": 1.0}):
        with pytest.raises(ValueError, match="number of classes"):
            measures.weighted_accuracy(wrong, {"a": 10})


def test_a_silhouette_is_that_of_a_loop_and_does_not_see_lengths():
    rng = np.random.default_rng(0)
    H, y = rng.standard_normal((15, 3)), np.arange(15) % 3
    U = H / np.linalg.norm(H, axis=1, keepdims=True)
    scores = []
    for i in range(15):
        far = [np.linalg.norm(U[i] - U[j]) for j in range(15)]
        mean = [np.mean([far[j] for j in range(15) if y[j] == c and j != i]) for c in range(3)]
        a, b = mean[y[i]], min(mean[c] for c in range(3) if c != y[i])
        scores.append((b - a) / max(a, b))
    lengths = rng.uniform(0.5, 2, (15, 1))
    found = measures.silhouette(torch.from_numpy(H * lengths), torch.from_numpy(y))
    assert found == pytest.approx(np.mean(scores))


def test_a_probe_on_rows_of_length_one_does_not_see_lengths():
    rng = np.random.default_rng(1)
    H, y = rng.standard_normal((40, 4)), np.arange(40) % 3
    H[:, 0] += y
    lengths = rng.uniform(0.5, 2, (40, 1))
    train, test = (torch.from_numpy(H[rows] * lengths[rows]) for rows in (slice(30), slice(30, 40)))
    found = measures.linear_probe(train, torch.from_numpy(y[:30]), test, ridge=0.1, scale="rows")
    U = H / np.linalg.norm(H, axis=1, keepdims=True)
    expected = LogisticRegression(C=10.0, max_iter=2000).fit(U[:30], y[:30]).predict(U[30:])
    assert found.tolist() == expected.tolist()
