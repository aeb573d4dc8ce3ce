"""Prompts of regression and of parities: what is drawn without the examples has the law of what is drawn with them."""

import itertools

import numpy as np
import pytest
import torch
from scipy import stats

from featurelab.modules import data


@pytest.fixture
def covariance():
    eigenvalues = torch.tensor([2.0, 1.0, 0.5], dtype=torch.float64)
    return data.token_covariance(eigenvalues, seed=3)[0]


def by_examples(w, covariance, length, n, noise, flipped, seed):
    """z of n prompts of one task, example by example."""
    chance = np.random.default_rng(seed)
    x = chance.multivariate_normal(np.zeros(len(w)), covariance.numpy(), (n, length))
    y = x @ w.numpy()
    y[:, :flipped] *= -1
    y = y + noise**0.5 * chance.standard_normal(y.shape)
    return torch.from_numpy((x * y[:, :, None]).mean(1))


@pytest.mark.parametrize(("noise", "flipped"), [(0.0, 0), (2.0, 0), (0.0, 3), (0.7, 2), (0.0, 5), (1.0, 4)])
def test_means_of_prompts_are_distributed_as_those_of_their_examples(covariance, noise, flipped):
    w = torch.tensor([0.5, -1.0, 2.0], dtype=torch.float64)
    slow = by_examples(w, covariance, 5, 20_000, noise, flipped, seed=1)
    quick = data.prompt_means(
        w.expand(20_000, 3), covariance, 5, np.random.default_rng(2), noise=noise, flipped=flipped
    )
    for direction in torch.randn(6, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)):
        assert stats.ks_2samp(slow @ direction, quick @ direction).pvalue > 1e-3
    assert stats.ks_2samp(slow.norm(dim=1), quick.norm(dim=1)).pvalue > 1e-3


def test_all_labels_flipped_are_all_labels_of_the_opposite_task(covariance):
    w = data.task_vectors(50, 3, np.random.default_rng(0))
    one = data.prompt_means(w, covariance, 4, np.random.default_rng(1), flipped=4)
    other = data.prompt_means(w, covariance, 4, np.random.default_rng(1))
    along = torch.linalg.eigh(covariance)
    root = along.eigenvectors * along.eigenvalues.sqrt() @ along.eigenvectors.T
    v = w @ root
    inverse = torch.linalg.inv(root)
    assert torch.allclose(((one + other) @ inverse * v).sum(1), torch.zeros(50).double(), atol=1e-9)


def test_bad_prompts_are_refused(covariance):
    w = torch.ones(2, 3, dtype=torch.float64)
    for wrong in ({"noise": -1.0}, {"flipped": 6}):
        with pytest.raises(ValueError, match="flipped at most 5"):
            data.prompt_means(w, covariance, 5, np.random.default_rng(0), **wrong)
    with pytest.raises(ValueError, match="length=0"):
        data.RegressionPrompts(2, 2, covariance, 0, seed=0)


def test_whole_prompts_hold_examples_and_a_query_without_its_label(covariance):
    task = data.RegressionPrompts(500, 3, covariance, 6, whole=True, seed=1)
    E, y = task.train
    assert E.shape == (500, 4, 7)
    assert (E[:, 3, 6] == 0).all()
    w = torch.linalg.lstsq(E[:, :3, :6].mT, E[:, 3, :6, None]).solution[..., 0]
    assert torch.allclose((w * E[:, :3, 6]).sum(1, keepdim=True), y)
    tokens = E[:, :3].mT.flatten(0, 1)
    assert torch.allclose(tokens.T @ tokens / len(tokens), covariance, atol=0.15)
    assert task.describe()["length"] == 6


def test_reduced_prompts_have_the_moments_of_whole_ones(covariance):
    whole = data.RegressionPrompts(40_000, 0, covariance, 6, whole=True, seed=1)
    reduced = data.RegressionPrompts(40_000, 0, covariance, 6, seed=2)
    E, y = whole.train
    z = (E[:, :3, :6] @ E[:, 3, :6, None])[..., 0] / 6
    slow, quick = (
        (m[:, :, None] * q[:, None] * t[:, :, None])
        for m, q, t in ((z, E[:, :3, 6], y), (reduced.train[0][:, 0], reduced.train[0][:, 1], reduced.train[1]))
    )
    error = (slow.std(0) ** 2 + quick.std(0) ** 2).sqrt() / 200
    assert ((slow.mean(0) - quick.mean(0)).abs() < 4 * error).all()


def parity_by_examples(task, n, dim, gamma, length, flipped, seed):
    chance = np.random.default_rng(seed)
    phi = 2.0 * chance.integers(0, 2, (n, length, dim)) - 1
    kinds = np.array([(1, 1), (1, -1), (-1, 1), (-1, -1)])
    drawn = kinds[chance.choice(4, size=(n, length), p=[0.25 + gamma, 0.25, 0.25, 0.25 - gamma])]
    phi[:, :, list(task)] = drawn
    y = drawn.prod(2)
    y[:, :flipped] *= -1
    return (phi * y[:, :, None]).mean(1)


@pytest.mark.parametrize("flipped", [0, 3, 8])
def test_parity_prompts_are_distributed_as_those_of_their_examples(flipped):
    slow = parity_by_examples((0, 2), 20_000, 4, 0.2, 8, flipped, seed=0)
    found = data.parity_prompts([(0, 2)], 20_000, 4, 0.2, 8, np.random.default_rng(1), flipped=flipped)
    quick = found.x[:, 0].numpy()
    for a, b in [(0, 0), (2, 2), (1, 1), (0, 2), (0, 1), (1, 3)]:
        for combined in (lambda m, a=a, b=b: m[:, a] + 0.3 * m[:, b], lambda m, a=a, b=b: m[:, a] * m[:, b]):
            one, other = combined(slow), combined(quick)
            assert abs(one.mean() - other.mean()) < 4.5 * np.hypot(one.std(), other.std()) / 20_000**0.5
            assert abs(one.var() / other.var() - 1) < 0.08
    query = found.x[:, 1].numpy()
    assert (query[:, 0] * query[:, 2] == found.y[:, 0].numpy()).all()
    assert abs((query[:, [0, 2]] == 1).all(1).mean() - 0.45) < 0.015


def test_endless_prompts_are_what_long_ones_come_to():
    known = data.endless_parity_prompts(4, 0.1)
    assert known.x.shape == (24, 2, 4)
    long = data.parity_prompts([(1, 3)], 50, 4, 0.1, 10**8, np.random.default_rng(0))
    mean = known.x[(known.tasks == torch.tensor([1, 3])).all(1), 0][0]
    assert torch.allclose(long.x[:, 0], mean.expand(50, 4), atol=1e-3)


@pytest.mark.parametrize("whole", [False, True])
def test_endless_prompts_have_every_task_with_total_weight_one(whole):
    known = data.endless_parity_prompts(4, 0.2, whole=whole)
    for i, j in itertools.combinations(range(4), 2):
        rows = (known.tasks == torch.tensor([i, j])).all(1)
        assert rows.sum() == (16 if whole else 4)
        assert known.weights[rows].sum() == pytest.approx(1)
        query = known.x[rows, 1]
        assert (query[:, i] * query[:, j] == known.y[rows, 0]).all()
        assert known.weights[rows] @ known.y[rows, 0] == pytest.approx(0, abs=1e-12)
        assert known.weights[rows] @ query[:, i] == pytest.approx(0.4)


def test_pairs_are_split_by_the_important_features():
    one, other = data.parity_pairs(8, 4)
    assert (len(one), len(other)) == (6, 22)
    with pytest.raises(ValueError, match="gamma"):
        data.endless_parity_prompts(4, 0.25)
    with pytest.raises(ValueError, match="flipped"):
        data.parity_prompts(one, 3, 8, 0.1, 4, np.random.default_rng(0), flipped=5)
