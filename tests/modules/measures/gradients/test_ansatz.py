import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from featurelab.modules import measures

seeds = st.integers(0, 2**31)
sizes = st.integers(1, 9)


def draw(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def psd(k, seed=0, rank=None):
    J = draw(rank or 3 * k, k, seed=seed)
    return J.T @ J / len(J)


def cosine(A, B):
    return (A.T @ B).trace() / ((A.T @ A).trace() * (B.T @ B).trace()).sqrt()


@given(sizes, sizes, seeds)
@settings(max_examples=50)
def test_rho_is_the_trace_cosine(rows, columns, seed):
    A, B = draw(rows, columns, seed=seed), draw(rows, columns, seed=seed + 1)
    torch.testing.assert_close(measures.matrix_cosine(A, B), cosine(A, B), rtol=1e-10, atol=1e-12)
    assert -1 <= measures.matrix_cosine(A, B) <= 1
    assert measures.matrix_cosine(A, A).item() == pytest.approx(1, abs=1e-12)


@given(sizes, seeds, st.floats(1e-150, 1e150), st.floats(1e-150, 1e150), st.sampled_from([1, -1]))
@settings(max_examples=80)
def test_rho_ignores_scale_and_follows_sign(k, seed, a, b, sign):
    A, B = draw(k, k, seed=seed), draw(k, k, seed=seed + 1)
    expected = sign * measures.matrix_cosine(A, B)
    torch.testing.assert_close(measures.matrix_cosine(a * A, sign * b * B), expected, rtol=1e-9, atol=1e-12)


@given(st.integers(2, 9), seeds)
@settings(max_examples=50)
def test_rho_ignores_a_common_rotation_and_is_not_negative_on_psd_matrices(k, seed):
    A, B = psd(k, seed), psd(k, seed + 1, rank=2)
    O = measures.haar_orthogonal(k, torch.Generator().manual_seed(seed))  # noqa: E741
    torch.testing.assert_close(
        measures.matrix_cosine(O @ A @ O.T, O @ B @ O.T), measures.matrix_cosine(A, B), rtol=1e-9, atol=1e-12
    )
    assert 0 <= measures.matrix_cosine(A, B) <= 1


def test_rho_in_float32_survives_tiny_and_huge_entries():
    A, B = psd(4).float(), psd(4, 1).float()
    torch.testing.assert_close(
        measures.matrix_cosine(A * 1e-30, B * 1e30), measures.matrix_cosine(A, B), rtol=1e-5, atol=0
    )


def test_correlations_of_nothing_are_nan_and_of_unlike_shapes_are_refused():
    assert measures.matrix_cosine(torch.zeros(3, 3), torch.eye(3)).isnan()
    assert measures.pearson(torch.ones(3), torch.arange(3.0)).isnan()
    assert measures.nfa(torch.zeros(3, 4), torch.eye(3)).isnan()
    assert measures.nfa(torch.ones(3, 4), torch.zeros(3, 3)).isnan()
    for correlation in (measures.matrix_cosine, measures.pearson):
        with pytest.raises(ValueError, match="same shape"):
            correlation(torch.eye(3), torch.ones(3))


@given(st.integers(3, 30), seeds)
@settings(max_examples=30)
def test_pearson_is_the_correlation_coefficient(n, seed):
    a, b = draw(n, seed=seed), draw(n, seed=seed + 1)
    expected = torch.corrcoef(torch.stack([a, b]))[0, 1]
    torch.testing.assert_close(measures.pearson(a, b), expected, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(measures.pearson(3 * a + 7, b - 2), expected, rtol=1e-8, atol=1e-10)


@given(st.integers(1, 12), st.integers(1, 12), st.integers(1, 12), seeds)
@settings(max_examples=80)
def test_nfa_equals_the_cosine_of_the_matrices_it_never_forms(k_out, k_in, rank, seed):
    W, K = draw(k_out, k_in, seed=seed), psd(k_out, seed + 1, rank=rank)
    F, G = W.T @ W, W.T @ K @ W
    torch.testing.assert_close(measures.neural_feature_matrix(W), F)
    torch.testing.assert_close(measures.nfa(W, K), measures.matrix_cosine(F, G), rtol=1e-8, atol=1e-8)
    f, g = measures.ansatz_diagonals(W, K)
    torch.testing.assert_close((f, g), (F.diagonal(), G.diagonal()))


@given(st.integers(2, 8), st.integers(1, 8), seeds, st.floats(1e-30, 1e30), st.floats(1e-30, 1e30))
@settings(max_examples=60)
def test_nfa_ignores_scales_and_rotations_of_the_layer(k_out, k_in, seed, a, b):
    W, K = draw(k_out, k_in, seed=seed), psd(k_out, seed + 1)
    O = measures.haar_orthogonal(k_out, torch.Generator().manual_seed(seed))  # noqa: E741
    expected = measures.nfa(W, K)
    torch.testing.assert_close(measures.nfa(a * O @ W, b * O @ K @ O.T), expected, rtol=1e-8, atol=1e-10)


def test_the_neural_feature_matrix_of_a_convolution_acts_on_patches():
    W = draw(4, 3, 2, 2)
    assert measures.neural_feature_matrix(W).shape == (12, 12)


def test_an_isotropic_k_satisfies_the_ansatz_exactly():
    W, W0, K = draw(6, 9), draw(6, 9, seed=1), 0.3 * torch.eye(6, dtype=torch.float64)
    scores = measures.ansatz_decomposition(W, W0, K)
    assert scores["nfa"] == pytest.approx(1, abs=1e-12)
    assert scores["cnfa"] == pytest.approx(1, abs=1e-12)


def test_from_zero_weights_centring_changes_nothing():
    W, K = draw(6, 9), psd(6)
    scores = measures.ansatz_decomposition(W, torch.zeros_like(W), K, psd(6, 1))
    assert scores["cnfa"] == pytest.approx(scores["nfa"], abs=1e-12)
    assert scores["centered_ratio"] == pytest.approx(1, abs=1e-12)
    assert "ptk_centered_nfa" not in scores


@given(st.integers(2, 8), st.integers(1, 8), seeds)
@settings(max_examples=40)
def test_decomposition_equals_its_formulas(k_out, k_in, seed):
    W, W0 = draw(k_out, k_in, seed=seed), draw(k_out, k_in, seed=seed + 1)
    K, Kb = psd(k_out, seed + 2), psd(k_out, seed + 3)
    Wb = W - W0

    def inner(V, M):
        return (V.T @ V @ V.T @ M @ V).trace()

    expected = {
        "nfa": cosine(W.T @ W, W.T @ K @ W),
        "cnfa": cosine(Wb.T @ Wb, Wb.T @ K @ Wb),
        "double_centered_nfa": cosine(Wb.T @ Wb, Wb.T @ Kb @ Wb),
        "ptk_centered_nfa": cosine(W0.T @ W0, W0.T @ Kb @ W0),
        "centered_ratio": inner(Wb, K) / inner(W, K),
        "double_centered_ratio": inner(Wb, Kb) / inner(Wb, K),
    }
    scores = measures.ansatz_decomposition(W, W0, K, Kb)
    assert scores == pytest.approx({name: value.item() for name, value in expected.items()}, rel=1e-8)
    assert measures.ansatz_decomposition(W, W0, K) == {
        name: scores[name] for name in scores if not name.startswith(("double", "ptk"))
    }


def test_what_is_undefined_at_initialisation_is_absent():
    W, K = draw(5, 4), psd(5)
    scores = measures.ansatz_decomposition(W, W, K, torch.zeros_like(K))
    assert set(scores) == {"nfa", "centered_ratio"}
    assert scores["centered_ratio"] == 0


def test_the_control_keeps_the_spectrum_and_loses_the_directions():
    W = draw(40, 6)
    K = W @ W.T  # the ansatz's K is aligned to W as well as can be
    control = measures.random_kernel_control(W, K, draws=20, generator=torch.Generator().manual_seed(0))
    assert control.shape == (20,)
    assert ((control >= 0) & (control <= 1)).all()
    assert control.max() < measures.nfa(W, K) - 0.05
    isotropic = torch.eye(40, dtype=torch.float64)
    untouched = measures.random_kernel_control(W, isotropic, draws=3, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(untouched, torch.ones(3, dtype=torch.float64))


def test_the_control_equals_explicit_rotations_of_k():
    W, K = draw(4, 3), psd(4, 1, rank=2)
    eigenvalues, _ = torch.linalg.eigh(K)
    generator = torch.Generator().manual_seed(0)
    expected = []
    for _ in range(4):
        O = measures.haar_orthogonal(4, generator)  # noqa: E741
        Q = O @ eigenvalues.diag() @ O.T
        assert Q.trace().item() == pytest.approx(K.trace().item())
        expected.append(measures.matrix_cosine(W.T @ W, W.T @ Q @ W))
    control = measures.random_kernel_control(W, K, draws=4, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(control, torch.stack(expected))
