"""Kernel regression and the closed form of its predictor's AGOP, against autograd and slow loops."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.func import jacrev, vmap

from featurelab.modules import measures

KERNELS = [measures.LaplaceKernel(2.0), measures.GaussianKernel(1.5)]
each_kernel = pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)


def points(n, d, seed=0):
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def machine(kernel, n=12, d=5, outputs=3):
    x = points(n, d)
    return x, measures.kernel_regression(kernel(x), points(n, outputs, seed=1)).coefficients


def autograd_agop(kernel, x, centres, coefficients):
    """The mean over inputs of J^T J, differentiating the kernel expansion; the input's own term is left out."""

    def value(one, keep):
        r = (one - centres).square().sum(1)
        r = torch.where(keep, r, 1.0)
        k = (
            torch.exp(-r.sqrt() / kernel.bandwidth)
            if kernel.name == "laplace"
            else torch.exp(-r / 2 / kernel.bandwidth**2)
        )
        return torch.where(keep, k, 1.0) @ coefficients

    keep = (x[:, None] - centres).square().sum(2) > 0
    J = vmap(jacrev(value))(x, keep)
    return torch.einsum("ncd,nce->de", J, J) / len(x)


@each_kernel
def test_kernel_matrix_is_that_of_the_definition_with_a_diagonal_of_exactly_one(kernel):
    x, z = 1e4 + points(7, 3), 1e4 + points(4, 3, seed=2)
    r = (x[:, None] - z).square().sum(2).sqrt()
    expected = (
        (-r / kernel.bandwidth).exp() if kernel.name == "laplace" else (-(r**2) / (2 * kernel.bandwidth**2)).exp()
    )
    assert torch.allclose(kernel(x, z), expected, atol=1e-5)
    assert torch.allclose(kernel(x - 1e4, z - 1e4), expected, atol=1e-10)
    assert (kernel(x).diagonal() == 1).all()
    assert torch.linalg.eigvalsh(kernel(x - 1e4))[0] > -1e-12


@each_kernel
def test_agop_at_the_training_points_is_that_of_autograd_without_the_kink(kernel):
    x, alpha = machine(kernel)
    found = measures.kernel_agop(kernel, x, x, alpha)
    expected = autograd_agop(kernel, x, x, alpha)
    assert torch.linalg.norm(found - expected) <= 1e-12 * torch.linalg.norm(expected)


@each_kernel
def test_agop_at_other_points_is_that_of_the_predictor_as_any_function(kernel):
    x, alpha = machine(kernel)
    others = points(6, 5, seed=3)
    found = measures.kernel_agop(kernel, others, x, alpha)
    expected = measures.agop(lambda inputs: smooth(kernel, inputs, x) @ alpha, others)
    assert torch.allclose(found, expected, rtol=1e-11, atol=1e-14)
    assert torch.allclose(found, autograd_agop(kernel, others, x, alpha), rtol=1e-11, atol=1e-14)


def smooth(kernel, x, z):
    squares = (x[:, None] - z).square().sum(2)
    if kernel.name == "laplace":
        return (-squares.sqrt() / kernel.bandwidth).exp()
    return (-squares / (2 * kernel.bandwidth**2)).exp()


@settings(max_examples=25)
@given(n=st.integers(1, 9), m=st.integers(1, 9), d=st.integers(1, 6), outputs=st.integers(1, 4), rows=st.integers(1, 5))
def test_blocks_of_any_size_give_the_same(n, m, d, outputs, rows):
    kernel, x, z, alpha = KERNELS[n % 2], points(m, d, seed=1), points(n, d), points(n, outputs, seed=2)
    little = rows * 8 * (3 * n + 2 * outputs * d)
    whole = measures.kernel_agop(kernel, x, z, alpha)
    assert torch.allclose(measures.kernel_agop(kernel, x, z, alpha, block_bytes=little), whole, rtol=1e-12, atol=1e-14)
    own = measures.kernel_agop(kernel, z, z, alpha)
    assert torch.allclose(measures.kernel_agop(kernel, z, z, alpha, block_bytes=1), own, rtol=1e-12, atol=1e-14)
    predicted = measures.kernel_predict(kernel, x, z, alpha, block_bytes=little)
    assert torch.allclose(predicted, kernel(x, z) @ alpha, atol=1e-13)
    assert torch.linalg.eigvalsh(whole)[0] >= -1e-12 * whole.trace()


@each_kernel
@pytest.mark.parametrize("block_bytes", [1, 2**28])
def test_agop_from_a_kernel_matrix_at_hand_is_the_same(kernel, block_bytes):
    x, alpha = machine(kernel)
    expected = measures.kernel_agop(kernel, x, x, alpha)
    found = measures.kernel_agop(kernel, x, x, alpha, K=kernel(x), block_bytes=block_bytes)
    assert torch.allclose(found, expected, rtol=1e-12, atol=1e-14)
    others = torch.cat([points(6, 5, seed=3), x[:2]])
    found = measures.kernel_agop(kernel, others, x, alpha, K=kernel(others, x), block_bytes=block_bytes)
    assert torch.allclose(found, autograd_agop(kernel, others, x, alpha), rtol=1e-11, atol=1e-14)


def test_a_kernel_value_that_underflows_adds_nothing_to_the_agop():
    x = torch.tensor([[0.0], [1.0], [1e4]], dtype=torch.float64)
    alpha = points(3, 2)
    near, kernel = x[:2].clone(), measures.LaplaceKernel(1.0)
    found = measures.kernel_agop(kernel, near, x, alpha)
    assert torch.allclose(found, measures.kernel_agop(kernel, near, near, alpha[:2]), rtol=1e-12)


def test_points_that_coincide_add_no_infinite_gradient():
    x = points(4, 3).repeat(2, 1)
    M = measures.kernel_agop(KERNELS[0], x, x, points(8, 2, seed=1))
    assert M.isfinite().all()


@each_kernel
def test_ridgeless_regression_interpolates(kernel):
    x, y = points(40, 5), points(40, 3, seed=1)
    K = kernel(x)
    solved = measures.kernel_regression(K, y)
    assert torch.allclose(K @ solved.coefficients, y, atol=1e-10)
    assert (solved.solver, solved.accurate) == ("cholesky", True)
    assert torch.allclose(measures.kernel_predict(kernel, x, x, solved.coefficients), y, atol=1e-8)


@each_kernel
def test_ridge_is_added_once(kernel):
    x, y = points(20, 5), points(20, 3, seed=1)
    solved = measures.kernel_regression(kernel(x), y, ridge=0.3)
    assert torch.allclose(
        solved.coefficients, torch.linalg.inv(kernel(x) + 0.3 * torch.eye(20, dtype=torch.float64)) @ y, atol=1e-12
    )
    assert solved.residual < 1e-14


def test_a_singular_matrix_is_solved_in_least_squares_and_the_residual_says_how_well():
    x = points(6, 3).repeat(2, 1)  # each point twice
    K = KERNELS[1](x)
    agreeing = measures.kernel_regression(K, points(6, 2, seed=1).repeat(2, 1))
    assert agreeing.solver == "eigen"
    assert agreeing.accurate
    assert torch.allclose(agreeing.coefficients, torch.linalg.pinv(K) @ points(6, 2, seed=1).repeat(2, 1), atol=1e-8)
    torn = measures.kernel_regression(K, points(12, 2, seed=1))
    assert not torn.accurate
    assert torn.residual == pytest.approx(
        (
            torch.linalg.norm(K @ torn.coefficients - points(12, 2, seed=1)) / torch.linalg.norm(points(12, 2, seed=1))
        ).item()
    )


@pytest.fixture
def decompositions(monkeypatch):
    """The sizes of what has been decomposed."""
    sizes = []
    eigh = torch.linalg.eigh
    monkeypatch.setattr(torch.linalg, "eigh", lambda K: sizes.append(len(K)) or eigh(K))
    return sizes


@pytest.mark.parametrize(
    ("kernel", "condition"),
    [(measures.LaplaceKernel(2.0), 1e3), (measures.LaplaceKernel(20.0), 2e4)],
    ids=["well", "moderately"],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_nothing_is_decomposed_where_cholesky_solves_as_well_as_the_dtype_can(kernel, condition, dtype, decompositions):
    x, y = points(400, 5), points(400, 3, seed=1)
    values = torch.linalg.eigvalsh(kernel(x))
    assert condition / 3 < values[-1] / values[0] < condition * 3
    solved = measures.kernel_regression(kernel(x).to(dtype), y.to(dtype))
    assert (solved.solver, solved.accurate, decompositions) == ("cholesky", True, [])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_singular_matrix_is_decomposed_in_any_dtype(dtype, decompositions):
    x, y = points(20, 3).repeat(2, 1).to(dtype), points(20, 2, seed=1).repeat(2, 1).to(dtype)
    solved = measures.kernel_regression(measures.LaplaceKernel(2.0)(x), y)
    assert (solved.solver, solved.accurate, decompositions) == ("eigen", True, [40])
    torn = measures.kernel_regression(measures.LaplaceKernel(2.0)(x), points(40, 2, seed=1).to(dtype))
    assert not torn.accurate


@pytest.mark.parametrize(
    ("dtype", "n", "limit"), [(torch.float64, 10**6, 1e-8), (torch.float32, 10, 2.3e-4), (torch.float32, 20000, 2.4e-3)]
)
def test_accurate_means_as_small_a_residual_as_the_dtype_can_reach(dtype, n, limit):
    coefficients = torch.zeros(n, 1, dtype=dtype)
    for residual in (0.98 * limit, 1.02 * limit):
        assert measures.KernelSolution(coefficients, residual, "cholesky").accurate == (residual < limit)


def test_the_arguments_are_left_as_they_were():
    x, y = points(6, 3), points(6, 2, seed=1)
    K = KERNELS[0](x)
    before = K.clone(), x.clone(), y.clone()
    alpha = measures.kernel_regression(K, y, ridge=0.1).coefficients
    measures.kernel_agop(KERNELS[0], x, x, alpha)
    assert all(torch.equal(a, b) for a, b in zip(before, (K, x, y), strict=True))


def test_a_linear_predictor_s_agop_has_at_most_the_rank_of_its_outputs_in_the_limit_of_a_wide_kernel():
    x, y = points(30, 8), points(30, 2, seed=1)
    kernel = measures.GaussianKernel(1e3)
    alpha = measures.kernel_regression(kernel(x), y, ridge=1e-3).coefficients
    values = torch.linalg.eigvalsh(measures.kernel_agop(kernel, x, x, alpha)).flip(0)
    assert values[2] < 1e-3 * values[1]


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: measures.radial_kernel("cauchy", 1.0), "unknown kernel 'cauchy'"),
        (lambda: measures.LaplaceKernel(0.0), "bandwidth must be positive, got 0.0"),
        (lambda: measures.kernel_regression(torch.eye(3), torch.ones(3, 1), ridge=-1.0), "ridge"),
        (lambda: measures.kernel_regression(torch.eye(3), torch.ones(3)), "targets"),
        (lambda: measures.kernel_regression(torch.eye(3), torch.ones(2, 1)), "kernel matrix"),
        (lambda: measures.kernel_regression(torch.full((2, 2), float("nan")), torch.ones(2, 1)), "not finite"),
    ],
)
def test_what_cannot_be_is_refused_by_name(call, named):
    with pytest.raises(ValueError, match=named):
        call()


@each_kernel
def test_inputs_that_are_centres_in_another_tensor_or_order_are_recognised(kernel):
    x, alpha = machine(kernel)
    rows = torch.tensor([7, 2, 2, 9])
    found = measures.kernel_agop(kernel, x[rows], x, alpha)
    assert torch.allclose(found, autograd_agop(kernel, x[rows], x, alpha), rtol=1e-12, atol=1e-15)
    every_other = measures.kernel_agop(kernel, x[::2], x, alpha)
    assert torch.allclose(every_other, autograd_agop(kernel, x[::2], x, alpha), rtol=1e-12, atol=1e-15)
