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


def test_a_probe_by_descent_is_torchs_and_finds_what_logistic_regression_finds():
    rng = np.random.default_rng(2)
    y = np.arange(60) % 3
    H = torch.from_numpy(rng.standard_normal((60, 4)) + np.eye(4)[y]).float()
    labels, test = torch.from_numpy(y), torch.from_numpy(rng.standard_normal((200, 4))).float()
    net = torch.nn.Linear(4, 3)
    torch.nn.init.zeros_(net.weight)
    torch.nn.init.zeros_(net.bias)
    descent = torch.optim.SGD(net.parameters(), lr=0.5, momentum=0.9)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(descent, 30)
    chance = np.random.default_rng([7, *b"probe"])
    for _ in range(30):
        for rows in torch.from_numpy(chance.permutation(60)).split(25):
            descent.zero_grad()
            torch.nn.functional.cross_entropy(net(H[rows]), labels[rows]).backward()
            descent.step()
        schedule.step()
    found = measures.sgd_probe(H, labels, test, lr=0.5, epochs=30, batch_size=25, seed=7)
    assert found.tolist() == net(test).argmax(1).tolist()
    long = measures.sgd_probe(H, labels, test, lr=0.5, epochs=300, seed=7)
    best = LogisticRegression(C=1e4, max_iter=5000).fit(H.numpy(), y).predict(test.numpy())
    assert (long == best).mean() > 0.97


def test_a_plane_keeps_clusters_apart():
    rng = np.random.default_rng(3)
    y = np.arange(40) % 2
    H = torch.from_numpy(rng.standard_normal((40, 5)) * 0.1 + 2 * np.eye(5)[y])
    plane = measures.tsne_plane(H, seed=0)
    assert plane.shape == (40, 2)
    assert measures.silhouette(torch.from_numpy(plane - plane.mean(0)), torch.from_numpy(y)) > 0.5
