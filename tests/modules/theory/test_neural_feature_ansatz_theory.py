import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from featurelab.modules import measures, nets, theory

seeds = st.integers(0, 2**31)


def draw(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def t(*factors):
    return torch.linalg.multi_dot(factors).trace() / len(factors[0])


@given(st.integers(2, 12), st.integers(1, 8), st.integers(1, 8), seeds)
@settings(max_examples=50)
def test_derivative_correlation_equals_its_forms_in_the_ptk(n, k_out, k_in, seed):
    J, X, l = draw(n, k_out, seed=seed), draw(n, k_in, seed=seed + 1), draw(n, seed=seed + 2)  # noqa: E741
    ptk, D = J @ J.T, l.diag()
    Wdot = -J.T @ D @ X
    first, second = X.T @ D @ ptk @ D @ X, X.T @ D @ ptk @ ptk @ D @ X
    torch.testing.assert_close(Wdot.T @ Wdot, first, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(Wdot.T @ (J.T @ J) @ Wdot, second, rtol=1e-9, atol=1e-9)
    found = theory.neural_feature_ansatz.derivative_correlation(J, X, l)
    torch.testing.assert_close(found, measures.matrix_cosine(first, second), rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(
        theory.neural_feature_ansatz.mean_ptk_correlation(ptk, X, l), found, rtol=1e-8, atol=1e-8
    )
    torch.testing.assert_close(theory.neural_feature_ansatz.derivative_correlation(J[:, None], X, l[:, None]), found)


@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("layer", ["0", "1"])
def test_the_c_nfa_after_one_step_tends_to_the_derivative_correlation(layer, outputs):
    """C-NFA after a gradient step of size eta differs by O(eta)."""
    net, x, y = nets.mlp(6, 20, 2, outputs=outputs, activation="tanh", seed=0), draw(40, 6), draw(40, outputs, seed=1)
    J, X = measures.tangent_features(net, x)[layer], measures.layer_inputs(net, x)[layer]
    expected = theory.neural_feature_ansatz.derivative_correlation(J, X, net(x).detach() - y).item()
    errors = []
    for eta in (1e-2, 1e-3, 1e-4):
        stepped = copy.deepcopy(net)
        (stepped(x) - y).square().sum(1).mean().backward()
        with torch.no_grad():
            for p in stepped.parameters():
                p -= eta * p.grad
        after = measures.tangent_covariance(stepped, x, layers=[layer])[layer]
        W0 = net.layers[int(layer)].weight.detach()
        errors.append(abs(measures.ansatz_decomposition(after.W, W0, after.K)["cnfa"] - expected))
    assert errors[2] < 1e-4
    assert errors[0] / errors[1] == pytest.approx(10, rel=0.2)
    assert errors[1] / errors[2] == pytest.approx(10, rel=0.05)


def test_a_ptk_that_is_a_projector_aligns_completely():
    Q, _ = torch.linalg.qr(draw(10, 4))
    X, y = draw(10, 3, seed=1), draw(10, seed=2)
    assert theory.neural_feature_ansatz.derivative_correlation(7 * Q, X, y).item() == pytest.approx(1, abs=1e-12)
    assert theory.neural_feature_ansatz.mean_ptk_correlation(7 * Q @ Q.T, X, y).item() == pytest.approx(1, abs=1e-12)


def test_shapes_that_do_not_fit_are_refused():
    J, X = draw(5, 4), draw(5, 3)
    with pytest.raises(ValueError, match=r"do not fit.*\(5, 1, 4\), \(5, 3\), \(4, 1\)"):
        theory.neural_feature_ansatz.derivative_correlation(J, X, draw(4))
    with pytest.raises(ValueError, match="do not fit"):
        theory.neural_feature_ansatz.derivative_correlation(draw(5, 2, 4), X, draw(5))
    with pytest.raises(ValueError, match=r"y \(n,\)"):
        theory.neural_feature_ansatz.quadratic_correlation(X, draw(5, 1), torch.eye(3))
    with pytest.raises(ValueError, match="four moments"):
        theory.neural_feature_ansatz.free_probability_prediction(X, draw(5), [1.0, 4.0])
    with pytest.raises(ValueError, match="must be positive"):
        theory.neural_feature_ansatz.limit_r_moments(0)
    assert theory.neural_feature_ansatz.derivative_correlation(J, X, torch.zeros(5, dtype=torch.float64)).isnan()


def random_R(net):
    W, a = net.layers[0].weight.detach(), net.layers[1].weight.detach()[0]
    return W.T @ (a.square()[:, None] * W)


def test_the_quadratic_network_is_seen_through_r_alone():
    net, X, y = nets.quadratic_net(8, 12, seed=0), draw(15, 8), draw(15, seed=1)
    J = measures.tangent_features(net, X)["0"]
    observed = theory.neural_feature_ansatz.quadratic_correlation(X, y, random_R(net))
    torch.testing.assert_close(
        observed, theory.neural_feature_ansatz.derivative_correlation(J, X, y), rtol=1e-10, atol=1e-12
    )
    M, B, R = X.T @ y.diag() @ X, X.T @ X, random_R(net)
    A = M @ M
    formula = t(A, R, A, R, B, R) / (t(A, R, A, R) * t(A, R, B, R, A, R, B, R)).sqrt()
    torch.testing.assert_close(observed, formula, rtol=1e-10, atol=1e-12)


@given(st.integers(2, 10), st.integers(2, 12), seeds)
@settings(max_examples=40)
def test_free_probability_is_exact_when_r_is_the_identity(d, n, seed):
    X, y = draw(n, d, seed=seed), draw(n, seed=seed + 1)
    M, B = X.T @ y.diag() @ X, X.T @ X
    predicted = theory.neural_feature_ansatz.free_probability_prediction(X, y, [1, 1, 1, 1])
    torch.testing.assert_close(predicted, measures.matrix_cosine(M @ M, M @ B @ M), rtol=1e-7, atol=1e-7)
    eye = torch.eye(d, dtype=torch.float64)
    torch.testing.assert_close(
        theory.neural_feature_ansatz.quadratic_correlation(X, y, 3 * eye), predicted, rtol=1e-7, atol=1e-7
    )


@pytest.mark.parametrize("power", [1, 2])
def test_free_probability_predicts_a_rotated_r(power):
    """R = O D O^T with O Haar is free of the data as d grows, so the prediction holds to O(1/d) whatever the data."""
    d = 200
    X, y = draw(d, d), draw(d, seed=1).abs() + draw(d, seed=2)
    X = X * torch.linspace(0.3, 1, d, dtype=torch.float64)  # an anisotropic B, so that every term counts
    spectrum = torch.linspace(0, 1, d, dtype=torch.float64) ** power
    predicted = theory.neural_feature_ansatz.free_probability_prediction(
        X, y, theory.neural_feature_ansatz.r_moments(spectrum.diag())
    ).item()
    generator = torch.Generator().manual_seed(0)
    observed = []
    for _ in range(10):
        O = measures.haar_orthogonal(d, generator)  # noqa: E741
        observed.append(theory.neural_feature_ansatz.quadratic_correlation(X, y, (O * spectrum) @ O.T).item())
    assert sum(observed) / 10 == pytest.approx(predicted, abs=4e-3)
    assert predicted < 0.97


def test_the_prediction_is_the_formula_with_plain_traces():
    """All terms spelt out, nothing normalised."""
    X, y, (r1, r2, r3, r4) = draw(9, 6), draw(9, seed=1), (0.7, 2.0, 9.0, 50.0)
    M, B, eye = X.T @ y.diag() @ X, X.T @ X, torch.eye(6, dtype=torch.float64)
    A = M @ M
    a, b = A.trace() / 6, B.trace() / 6
    A1, B1 = A - a * eye, B - b * eye
    numerator = a**2 * b * r3 + 2 * a * r2 * r1 * t(A1, B1) + b * r1 * r2 * t(A1, A1) + r1**3 * t(A1, A1, B1)
    d1 = t(A, A) * r1**2 + a**2 * r2 - a**2 * r1**2
    d2 = (
        r1**4 * t(A1, B1, A1, B1)
        + 2 * r1**2 * (r2 - r1**2) * t(A1, B1) ** 2
        + 2 * r1**2 * r2 * (b * t(A1, A1, B1) + a * t(A1, B1, B1))
        + 4 * a * b * r3 * r1 * t(A1, B1)
        + a**2 * b**2 * r4
        + a**2 * t(B1, B1) * r2**2
        + b**2 * t(A1, A1) * r2**2
    )
    predicted = theory.neural_feature_ansatz.free_probability_prediction(X, y, (r1, r2, r3, r4))
    torch.testing.assert_close(predicted, numerator / (d1 * d2).sqrt(), rtol=1e-10, atol=0)
    for scale in (1e-8, 1e8):  # entries of 1e11 occur in the alignment-reversing data
        scaled = theory.neural_feature_ansatz.free_probability_prediction(
            scale * X, scale * y, [r * scale**m for m, r in enumerate((r1, r2, r3, r4), 1)]
        )
        torch.testing.assert_close(scaled, predicted, rtol=1e-9, atol=0)


def test_isotropic_data_reduce_the_numerator():
    X, _ = torch.linalg.qr(draw(20, 6))  # X^T X = I
    y, (r1, r2, r3, r4) = draw(20, seed=1), (1.0, 4.0, 25.0, 202.0)
    M = X.T @ y.diag() @ X
    A = M @ M
    a = A.trace() / 6
    A1 = A - a * torch.eye(6, dtype=torch.float64)
    numerator = a**2 * r3 + r1 * r2 * t(A1, A1)
    d1 = t(A, A) * r1**2 + a**2 * (r2 - r1**2)
    d2 = a**2 * r4 + t(A1, A1) * r2**2
    predicted = theory.neural_feature_ansatz.free_probability_prediction(X, y, (r1, r2, r3, r4))
    torch.testing.assert_close(predicted, numerator / (d1 * d2).sqrt(), rtol=1e-10, atol=0)


@given(st.integers(1, 7), st.integers(1, 6), seeds)
@settings(max_examples=30)
def test_r_moments_are_normalised_traces_of_powers(d, order, seed):
    R = draw(d, d, seed=seed)
    R = R + R.T
    expected = torch.stack([torch.linalg.matrix_power(R, m).trace() / d for m in range(1, order + 1)])
    torch.testing.assert_close(theory.neural_feature_ansatz.r_moments(R, order), expected, rtol=1e-8, atol=1e-8)


def test_limiting_moments_at_equal_width_and_dimension():
    assert theory.neural_feature_ansatz.limit_r_moments(1.0).tolist() == [1, 4, 25, 202]


@given(st.floats(0.01, 50))
@settings(max_examples=30)
def test_limiting_moments_follow_from_their_free_cumulants(c):
    k1, k2, k3, k4 = 1, 3 * c, 15 * c**2, 105 * c**3
    expected = [
        k1,
        k2 + k1**2,
        k3 + 3 * k2 * k1 + k1**3,
        k4 + 4 * k3 * k1 + 2 * k2**2 + 6 * k2 * k1**2 + k1**4,
    ]
    assert theory.neural_feature_ansatz.limit_r_moments(c).tolist() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("dim", "width"), [(400, 800), (800, 400)])
def test_wide_networks_have_the_limiting_moments(dim, width):
    moments = torch.stack(
        [theory.neural_feature_ansatz.r_moments(random_R(nets.quadratic_net(dim, width, seed=s)), 3) for s in range(4)]
    )
    expected = theory.neural_feature_ansatz.limit_r_moments(dim / width, 3)
    assert (moments.mean(0) / expected - 1).abs().max() < 0.15


def test_the_mean_squared_ptk_of_the_quadratic_network_is_the_corrected_one():
    """E[PTK] = X X^T and E[PTK^2] = (3/k) tr(X^T X) X X^T + (1 + 5/k) (X X^T)^2; proposition 12 prints another second
    moment."""
    n, d, k, draws = 5, 3, 6, 200_000
    X = draw(n, d, seed=9) / d**0.5
    generator = torch.Generator().manual_seed(0)
    first, second = torch.zeros(n, n, dtype=torch.float64), torch.zeros(n, n, dtype=torch.float64)
    for _ in range(10):
        W = torch.randn(draws // 10, k, d, dtype=torch.float64, generator=generator) / k**0.5
        a = torch.randn(draws // 10, k, dtype=torch.float64, generator=generator)
        kernels = torch.vmap(measures.ptk)(a[:, None, :] * (X @ W.mT))
        first, second = first + kernels.sum(0) / draws, second + (kernels @ kernels).sum(0) / draws
    gram, energy = X @ X.T, X.square().sum()
    corrected = (3 / k) * energy * gram + (1 + 5 / k) * gram @ gram
    printed = 3 * (energy * gram + 2 * gram @ gram)
    assert (first - gram).norm() < 0.02 * gram.norm()
    assert (second - corrected).norm() < 0.04 * corrected.norm()
    assert (second - printed).norm() > corrected.norm()
