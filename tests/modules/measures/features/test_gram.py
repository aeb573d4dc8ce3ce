import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from featurelab.modules import measures

seeds = st.integers(0, 2**31)


def draw(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def labels(n, K, seed=0):
    rest = torch.randint(K, (n - K,), generator=torch.Generator().manual_seed(seed))
    return torch.cat([torch.arange(K), rest])


@given(seeds, st.integers(2, 5), st.sampled_from([(8, 12), (30, 3), (12, 6)]))
@settings(max_examples=30)
def test_the_summary_is_that_of_the_matrix_it_never_forms(seed, K, shape):
    x, y = draw(*shape, seed=seed), labels(shape[0], K, seed)
    x += 2 * draw(K, shape[1], seed=seed + 1)[y]
    G = torch.corrcoef(torch.cat([x - x.mean(0), -(x - x.mean(0))], 1))  # rows of mean 0: correlations are cosines
    G = G.reshape(len(x), len(x))
    torch.testing.assert_close(measures.centred_cosines(x), G, rtol=1e-10, atol=1e-12)
    together, itself = y[:, None] == y[None, :], torch.eye(len(y), dtype=torch.bool)
    target = together.double() - (~together).double() / (K - 1)
    expected = {
        "within": G[together & ~itself].mean().item(),
        "between": G[~together].mean().item(),
        "relative_error": (torch.linalg.matrix_norm(G - target) / torch.linalg.matrix_norm(target)).item(),
    }
    assert measures.gram_summary(x, y) == pytest.approx(expected, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("d", [5, 200])
def test_collapse_to_a_simplex_has_no_error_down_to_rounding(d):
    y = torch.arange(5).repeat(20)
    x = torch.zeros(100, d).double()
    x[torch.arange(100), y] = 1
    summary = measures.gram_summary(x, y)
    assert summary["within"] == pytest.approx(1)
    assert summary["between"] == pytest.approx(-1 / 4)
    assert summary["relative_error"] < 1e-14
    near = measures.gram_summary(x + 1e-12 * draw(100, d), y)
    assert 1e-14 < near["relative_error"] < 1e-10


def test_the_error_is_the_same_in_pieces(monkeypatch):
    import featurelab.modules.measures.features.gram as gram

    for shape in [(40, 3), (40, 60)]:
        x, y = draw(*shape), labels(40, 4)
        whole = measures.gram_summary(x, y)
        monkeypatch.setattr(gram, "CHUNK", 100)
        assert measures.gram_summary(x, y) == pytest.approx(whole, rel=1e-12)
        monkeypatch.undo()


def test_labels_that_leave_classes_out_count_those_that_occur():
    x, y = draw(20, 4), labels(20, 3)
    assert measures.gram_summary(x, y) == measures.gram_summary(x, 10 * y)
    single = measures.gram_summary(draw(3, 4), torch.arange(3))
    assert math.isnan(single["within"])
    with pytest.raises(ValueError, match="at least two classes"):
        measures.gram_summary(x, torch.zeros(20, dtype=torch.long))


@given(seeds, st.integers(2, 5))
@settings(max_examples=30)
def test_nc1_is_found_from_the_gram_matrix_alone(seed, K):
    x, y = draw(15, 4, seed=seed) + 1, labels(15, K, seed)
    found = measures.scatter_traces_from_gram(x @ x.T, y)
    expected = measures.scatter_traces(measures.class_moments(x, y))
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)


def test_wrong_gram_matrices_are_refused():
    with pytest.raises(ValueError, match=r"\(4, 4\) with n > 0"):
        measures.scatter_traces_from_gram(torch.eye(3), torch.arange(4))
    with pytest.raises(ValueError, match="no samples of class 1"):
        measures.scatter_traces_from_gram(torch.eye(3), torch.tensor([0, 2, 2]))


@given(seeds, st.integers(1, 8), st.integers(1, 8))
@settings(max_examples=30)
def test_powers_of_a_psd_matrix_multiply_out(seed, k, rank):
    J = draw(rank, k, seed=seed)
    M = J.T @ J
    root = measures.psd_power(M, 0.5)
    torch.testing.assert_close(root @ root, M, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(root, root.T)
    assert torch.linalg.eigvalsh(root).min() > -1e-9
    torch.testing.assert_close(measures.psd_power(M, 1.0), M, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(measures.psd_power(M, 3), M @ M @ M, rtol=1e-8, atol=1e-8)


def test_powers_count_negative_eigenvalues_as_zero_and_refuse_what_has_none():
    M = torch.diag(torch.tensor([4.0, -1e-9, 9.0]))
    torch.testing.assert_close(measures.psd_power(M, 0.5), torch.diag(torch.tensor([2.0, 0, 3.0])).double())
    with pytest.raises(ValueError, match="power must be above 0"):
        measures.psd_power(M, -1)
    with pytest.raises(ValueError, match="square matrix"):
        measures.psd_power(torch.ones(2, 3), 0.5)
