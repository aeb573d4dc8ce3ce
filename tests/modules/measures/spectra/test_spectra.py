import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from featurelab.modules import measures


def draw(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=12).filter(lambda v: sum(v) > 1e-3), st.integers(0, 99))
@settings(max_examples=60)
def test_spectral_measures_follow_from_the_eigenvalues(eigenvalues, seed):
    k, values = len(eigenvalues), torch.tensor(eigenvalues, dtype=torch.float64)
    O = measures.haar_orthogonal(k, torch.Generator().manual_seed(seed))  # noqa: E741
    K = (O * values) @ O.T
    mean = values.mean()
    shares = values / values.sum()
    entropy = -sum(p * p.log() for p in shares if p > 0)
    expected = {
        "eigenvalue_dispersion": ((values - mean).square().mean().sqrt() / mean, (0, (k - 1) ** 0.5)),
        "participation_ratio": (values.sum() ** 2 / (values**2).sum(), (1, k)),
        "effective_rank": (torch.as_tensor(entropy).exp(), (1, k)),
        "stable_rank": ((values**2).sum() / values.max() ** 2, (1, k)),
    }
    for name, (value, (low, high)) in expected.items():
        measured = getattr(measures, name)(K)
        assert measured.item() == pytest.approx(float(value), rel=1e-6, abs=1e-6), name
        assert low - 1e-6 <= measured <= high + 1e-6, name


def test_a_multiple_of_the_identity_has_no_dispersion_and_full_rank():
    K = 3.0 * torch.eye(7, dtype=torch.float64)
    assert measures.eigenvalue_dispersion(K) < 1e-12
    for rank in (measures.participation_ratio, measures.effective_rank, measures.stable_rank):
        assert rank(K).item() == pytest.approx(7)


def test_the_zero_matrix_has_no_rank():
    zero = torch.zeros(3, 3)
    assert all(
        f(zero).isnan()
        for f in (
            measures.eigenvalue_dispersion,
            measures.participation_ratio,
            measures.effective_rank,
            measures.stable_rank,
        )
    )


def test_stable_and_effective_rank_take_rectangular_matrices():
    W = draw(5, 1) @ draw(1, 9, seed=1)
    assert measures.stable_rank(W).item() == pytest.approx(1)
    assert measures.effective_rank(W).item() == pytest.approx(1)


def test_haar_matrices_are_orthogonal_and_repeatable():
    O = measures.haar_orthogonal(20, torch.Generator().manual_seed(0))  # noqa: E741
    torch.testing.assert_close(O @ O.T, torch.eye(20, dtype=torch.float64))
    assert torch.equal(O, measures.haar_orthogonal(20, torch.Generator().manual_seed(0)))
    assert measures.haar_orthogonal(3, torch.Generator(), dtype=torch.float32).dtype == torch.float32


def test_haar_matrices_have_the_haar_law():
    """tr O is asymmetric without the sign fix: the Haar law has E tr O = 0 and E (tr O)^2 = 1."""
    generator = torch.Generator().manual_seed(0)
    traces = torch.stack([measures.haar_orthogonal(4, generator).trace() for _ in range(3000)])
    assert traces.mean().abs() < 4 / 3000**0.5
    assert (traces.square().mean() - 1).abs() < 0.15


def test_isospectral_matrix_keeps_eigenvalues_and_loses_directions():
    generator = torch.Generator().manual_seed(0)
    K = torch.diag(torch.arange(1.0, 13.0, dtype=torch.float64))
    Q = measures.random_isospectral(K, generator)
    torch.testing.assert_close(torch.linalg.eigvalsh(Q), K.diagonal())
    torch.testing.assert_close(Q, Q.T)
    assert measures.matrix_cosine(Q, K) < 0.95


def test_spectra_of_a_singular_float32_covariance_are_finite():
    J = torch.randn(500, 128, generator=torch.Generator().manual_seed(0))
    J[:, 40:] = 0  # dead units
    K = J.T @ J
    assert measures.eigenvalue_dispersion(K).isfinite()
    assert measures.random_isospectral(K, torch.Generator().manual_seed(1)).isfinite().all()
