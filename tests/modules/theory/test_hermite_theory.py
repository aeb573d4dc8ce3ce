"""Hermite expansions and moments against quadrature, sampling and closed forms."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import eval_hermitenorm

from featurelab.modules import nets, theory
from featurelab.modules.theory.alignment_elasticity.hermite import (
    double_factorial,
    hermite_in_monomials,
    product_moment,
)


def expectation(function, mean, variance):
    z, w = theory.alignment_elasticity.gauss_hermite(60)
    return (w * function(mean + variance**0.5 * z)).sum().item()


def pair_expectation(first, second, A, B, c):
    z, w = theory.alignment_elasticity.gauss_hermite(40)
    z1 = A**0.5 * z[:, None]
    z2 = c / A**0.5 * z[:, None] + (B - c**2 / A) ** 0.5 * z[None, :]
    return (w[:, None] * w[None, :] * first(z1) * second(z2)).sum().item()


def he(n):
    return lambda x: theory.alignment_elasticity.hermite_polynomial(n, x)


@pytest.mark.parametrize("n", range(9))
def test_polynomials_are_scipy_s_and_their_own_monomials(n):
    x = torch.linspace(-3, 3, 7, dtype=torch.float64)
    assert np.allclose(he(n)(x), eval_hermitenorm(n, x.numpy()))
    assert np.allclose(np.polynomial.polynomial.polyval(x.numpy(), hermite_in_monomials(n)), he(n)(x))


@pytest.mark.parametrize("name", ["tanh", "erf", "sigmoid", "sin", "tanh_squared"])
def test_coefficients_are_those_of_an_orthogonal_expansion(name):
    activation = nets.CentredActivation(name)
    c = theory.alignment_elasticity.hermite_coefficients(activation, 40)
    squares = sum(math.factorial(k) * value**2 for k, value in enumerate(c))
    assert squares == pytest.approx(expectation(lambda z: activation(z).square(), 0.0, 1.0), rel=1e-3)
    assert c[0] == pytest.approx(0.0, abs=1e-12)
    assert c[1] == pytest.approx(theory.alignment_elasticity.mean_slope(activation.slope), rel=1e-8)


def test_coefficients_of_known_functions():
    assert theory.alignment_elasticity.hermite_coefficients(torch.tanh, 5) == pytest.approx(
        [0, 0.605706, 0, -0.060599, 0, 0.005710], abs=1e-6
    )
    assert theory.alignment_elasticity.hermite_coefficients(lambda z: z**3, 4) == pytest.approx([0, 3, 0, 1, 0])
    relu = theory.alignment_elasticity.hermite_coefficients(torch.relu, 2, nodes=300)
    assert relu == pytest.approx([1 / math.sqrt(2 * math.pi), 0.5, 0.5 / math.sqrt(2 * math.pi)], abs=2e-3)


def test_double_factorials():
    assert [double_factorial(n) for n in range(-1, 8)] == [1, 1, 1, 2, 3, 8, 15, 48, 105]
    with pytest.raises(ValueError, match="-2"):
        double_factorial(-2)


def test_what_quadrature_cannot_do_is_refused():
    with pytest.raises(ValueError, match="nodes"):
        theory.alignment_elasticity.gauss_hermite(400)
    with pytest.raises(ValueError, match="degree"):
        theory.alignment_elasticity.hermite_polynomial(-1, torch.ones(1))


@settings(max_examples=40)
@given(n=st.integers(0, 8), mean=st.floats(-2, 2), variance=st.floats(0.01, 3))
def test_moments_and_hermite_expectations_by_quadrature(n, mean, variance):
    assert theory.alignment_elasticity.gaussian_moment(n, mean, variance) == pytest.approx(
        expectation(lambda x: x**n, mean, variance), rel=1e-7, abs=1e-7
    )
    assert theory.alignment_elasticity.hermite_expectation(n, mean, variance) == pytest.approx(
        expectation(he(n), mean, variance), rel=1e-6, abs=1e-6
    )


@pytest.mark.parametrize("n", range(7))
def test_at_unit_variance_the_hermite_expectation_is_a_power_of_the_mean(n):
    assert theory.alignment_elasticity.hermite_expectation(n, 0.7, 1.0) == pytest.approx(0.7**n)


@settings(max_examples=40)
@given(
    j=st.integers(0, 6), k=st.integers(0, 6), A=st.floats(0.1, 2.5), B=st.floats(0.1, 2.5), share=st.floats(-0.95, 0.95)
)
def test_corrected_product_formula_by_quadrature(j, k, A, B, share):
    c = share * (A * B) ** 0.5
    exact = pair_expectation(he(j), he(k), A, B, c)
    assert theory.alignment_elasticity.hermite_product_expectation(j, k, A, B, c) == pytest.approx(
        exact, rel=1e-7, abs=1e-7
    )
    powers = pair_expectation(lambda x: x**j, lambda x: x**k, A, B, c)
    assert product_moment(j, k, A, B, c) == pytest.approx(powers, rel=1e-7, abs=1e-7)
    if max(j, k) <= 3:
        assert theory.alignment_elasticity.printed_hermite_product(j, k, A, B, c) == pytest.approx(
            exact, rel=1e-7, abs=1e-7
        )


def test_printed_product_formula_is_wrong_from_degree_four():
    A, B, c = 1.7, 0.6, 0.4
    right = {
        (j, k): theory.alignment_elasticity.hermite_product_expectation(j, k, A, B, c)
        for j in range(6)
        for k in range(6)
    }
    wrong = {
        jk
        for jk, value in right.items()
        if abs(theory.alignment_elasticity.printed_hermite_product(*jk, A, B, c) - value) > 1e-9
    }
    assert wrong == {(0, 4), (4, 0), (4, 4), (1, 5), (5, 1), (5, 5)}
    assert right[4, 4] == pytest.approx(-1.9056, abs=1e-4)
    assert theory.alignment_elasticity.printed_hermite_product(4, 4, A, B, c) == pytest.approx(0.6144, abs=1e-4)
    assert right[4, 0] == pytest.approx(1.47)
    assert theory.alignment_elasticity.printed_hermite_product(4, 0, A, B, c) == pytest.approx(4.97)


def test_at_unit_variances_products_are_orthogonal():
    for j in range(5):
        for k in range(5):
            expected = math.factorial(j) * 0.3**j if j == k else 0.0
            assert theory.alignment_elasticity.hermite_product_expectation(j, k, 1.0, 1.0, 0.3) == pytest.approx(
                expected
            )
