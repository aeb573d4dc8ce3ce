"""The laws of the synthetic datasets."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from featurelab.modules.data import (
    AlignmentReversing,
    ChainMonomials,
    HighRankPolynomial,
    chain_egop,
    decaying_covariance,
    stream,
)

MAKERS = {
    "chain": lambda n_test, seed: ChainMonomials(40, n_test, 8, 5, seed=seed),
    "chain with decay": lambda n_test, seed: ChainMonomials(40, n_test, 8, 5, decay=1.0, seed=seed),
    "high rank": lambda n_test, seed: HighRankPolynomial(40, n_test, 8, decay=2.0, seed=seed),
    "reversing": lambda n_test, seed: AlignmentReversing(16, 0.5, seed=seed),
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_one_seed_gives_the_same_bits_and_another_seed_other_data(make):
    assert make(10, 3).digest() == make(10, 3).digest()
    assert make(10, 3).digest() != make(10, 4).digest()


@pytest.mark.parametrize("kind", ["chain", "chain with decay", "high rank"])
def test_training_set_does_not_depend_on_the_size_of_the_test_set(kind):
    small, large = MAKERS[kind](3, 0), MAKERS[kind](50, 0)
    assert all(torch.equal(a, b) for a, b in zip(small.train, large.train, strict=True))
    # but for rounding: some processors multiply matrices of few rows in another order
    torch.testing.assert_close(small.test[0], large.test[0][:3], rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize(
    ("rank", "eigenvalues"),
    [(3, [4, 1, 1]), (4, [4, 4]), (5, [4, 2.618034, 2.618034, 0.381966, 0.381966]), (6, [4, 4, 1, 1, 1, 1])],
)
def test_chain_egop_has_the_known_spectrum(rank, eigenvalues):
    spectrum = torch.linalg.eigvalsh(chain_egop(9, rank)).flip(0)
    expected = torch.tensor(eigenvalues + [0] * (9 - len(eigenvalues)), dtype=torch.float64)
    assert torch.allclose(spectrum, expected, atol=1e-6)


def test_chain_egop_counts_coincidences_of_neighbours():
    rank = 5
    neighbours = [{(i - 1) % rank, (i + 1) % rank} for i in range(rank)]
    expected = torch.zeros(7, 7, dtype=torch.float64)
    for i, j in itertools.product(range(rank), repeat=2):
        expected[i, j] = len(neighbours[i] & neighbours[j])
    assert torch.equal(chain_egop(7, rank), expected)


@given(rank=st.integers(1, 6), decay=st.sampled_from([None, 0.0, 1.0]), seed=st.integers(0, 1000))
@settings(max_examples=25)
def test_labels_are_the_chain_over_its_training_deviation(rank, decay, seed):
    data = ChainMonomials(50, 20, 6, rank, decay=decay, seed=seed)
    for x, y in (data.train, data.test):
        slow = torch.stack([sum(row[i] * row[(i + 1) % rank] for i in range(rank)) for row in x])
        assert torch.allclose(y[:, 0] * data.label_scale, slow, rtol=1e-12, atol=1e-12)
    assert data.train[1].std(correction=0).item() == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("decay", [None, 1.0])
@pytest.mark.parametrize("kind", [ChainMonomials, HighRankPolynomial])
def test_egop_is_the_mean_outer_product_of_autograd_gradients(kind, decay):
    extra = (5,) if kind is ChainMonomials else ()
    data = kind(60_000, 0, 6, *extra, decay=decay, seed=0)
    x = data.train[0].requires_grad_()
    # the target again in torch, independent of the closed form
    if kind is ChainMonomials:
        y = (x[:, :5] * x[:, :5].roll(-1, 1)).sum(1)
    else:
        y = (x @ torch.from_numpy(stream(0, "target").standard_normal((6, 6))).T).square().sum(1)
    gradient = torch.autograd.grad(y.sum(), x)[0]
    sampled = gradient.T @ gradient / len(x)
    assert torch.linalg.norm(sampled - data.egop) / torch.linalg.norm(data.egop) < 0.03


def test_inputs_have_the_decaying_covariance():
    q, eigenvalues = decaying_covariance(6, 1.0, seed=4)
    assert np.allclose(q.T @ q, np.eye(6), atol=1e-12)
    assert eigenvalues == pytest.approx([1 / (1 + k) for k in range(1, 7)])
    data = ChainMonomials(100_000, 0, 6, 3, decay=1.0, seed=4)
    x = data.train[0].numpy()
    assert np.linalg.norm(x.T @ x / len(x) - data.covariance) / np.linalg.norm(data.covariance) < 0.02
    assert np.allclose(ChainMonomials(5, 0, 6, 3, decay=0.0, seed=4).covariance, np.eye(6) / 2, atol=1e-12)


def test_rotation_is_haar_distributed():
    # diag(Q) has mean zero under Haar; QR without the sign fix makes its first entry negative in every draw
    corners = [decaying_covariance(4, 1.0, seed)[0][0, 0] for seed in range(300)]
    assert abs(np.mean(corners)) < 0.1


@pytest.mark.parametrize("balance", [0.25, 0.75, 1.0])
def test_alignment_reversing_follows_its_recipe(balance):
    n, n1 = 48, round(48 * balance)
    data = AlignmentReversing(n, balance, s_floor=1e-3, eps2=0.0, seed=1)
    x, y = data.train[0].numpy(), data.train[1].squeeze(1)
    assert y.tolist() == [1 + 1e-5] * n1 + [1e-5] * (n - n1)
    x1, x2 = x[:n1], x[n1:]
    _, s1, u1_t = np.linalg.svd(x1.T @ x1)
    # V2 is orthogonal, so X2^T X2 = U1 S1^-2 U1^T over the leading triples, whatever V2 was
    inverse = 1 / np.maximum(s1[: n - n1], 1e-3)
    assert np.allclose(np.linalg.svd(x2, compute_uv=False), np.sort(inverse)[::-1], rtol=1e-6)
    if balance >= 0.5:  # no null direction is inverted
        assert np.allclose(x2.T @ x2, u1_t[: n - n1].T * inverse**2 @ u1_t[: n - n1], rtol=1e-6, atol=1e-14)


def test_alignment_reversing_inverts_null_singular_values_down_to_the_floor():
    for floor in (1e-3, 1e-11):
        data = AlignmentReversing(48, 0.25, s_floor=floor, eps2=0.0, seed=1)
        assert np.linalg.norm(data.train[0].numpy()[12:], 2) == pytest.approx(1 / floor)


def test_bad_sizes_are_refused():
    with pytest.raises(ValueError, match="between 1 and dim=4, got 5"):
        ChainMonomials(8, 0, 4, 5, seed=0)
    with pytest.raises(ValueError, match=r"got 0\.01"):
        AlignmentReversing(16, 0.01, seed=0)
    with pytest.raises(ValueError, match="positive"):
        AlignmentReversing(16, 0.5, s_floor=0.0, seed=0)
