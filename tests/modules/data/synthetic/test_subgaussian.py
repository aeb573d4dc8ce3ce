"""The sub-Gaussian classes, the unseen ones, and rotations."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import truncnorm

from featurelab.modules import data
from featurelab.modules.data.synthetic.subgaussian import TRUNCATED_MEAN, TRUNCATED_VARIANCE

DISTRIBUTIONS = ("ball", "truncated", "sphere")


def centred(task):
    x, y = task.train
    return x - task.length * y[:, :1] * task.axis


@pytest.mark.parametrize("n", [2, 7, 10])
def test_the_first_half_is_the_class_plus_one_and_the_heads_have_opposite_targets(n):
    _, y = data.SubGaussianClasses(n, 4, "sphere", seed=0).train
    assert y[:, 0].tolist() == [1.0] * (n // 2) + [-1.0] * (n - n // 2)
    assert torch.equal(y[:, 1], -y[:, 0])


def test_data_1_is_uniform_in_the_ball():
    radii = centred(data.SubGaussianClasses(4000, 6, "ball", length=3.0, seed=1)).norm(dim=1) / math.sqrt(6)
    assert radii.max() <= 1 + 1e-12
    # r^dim is uniform in [0, 1]
    assert np.allclose(np.quantile(radii.numpy() ** 6, [0.25, 0.5, 0.75]), [0.25, 0.5, 0.75], atol=0.03)


def test_data_3_lies_on_the_sphere_without_a_direction_of_its_own():
    x = centred(data.SubGaussianClasses(4000, 6, "sphere", length=3.0, seed=1))
    assert torch.allclose(x.norm(dim=1), torch.full((4000,), math.sqrt(6), dtype=torch.float64))
    assert torch.allclose(x.T @ x / 4000, torch.eye(6, dtype=torch.float64), atol=0.08)


def test_data_2_is_a_normal_truncated_at_one():
    task = data.SubGaussianClasses(1000, 8, "truncated", seed=2)
    x, y = task.train
    assert (x * y[:, :1]).min() >= 1
    law = truncnorm(1, np.inf)
    assert pytest.approx((law.mean(), law.var())) == (TRUNCATED_MEAN, TRUNCATED_VARIANCE)
    found = np.quantile((x * y[:, :1]).numpy(), [0.1, 0.5, 0.9])
    assert np.allclose(found, law.ppf([0.1, 0.5, 0.9]), rtol=0.02)
    assert torch.allclose(task.axis, torch.full((8,), 8**-0.5, dtype=torch.float64))
    assert task.length == pytest.approx(8**0.5)


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_more_test_samples_leave_training_data_as_they_are(distribution):
    few, many = (data.SubGaussianClasses(20, 5, distribution, n_test=n, seed=3) for n in (0, 30))
    assert torch.equal(few.train[0], many.train[0])
    assert len(many.test[0]) == 30
    assert not torch.equal(many.test[0][:10], many.train[0][:10])


def test_other_seeds_give_other_data_and_another_axis():
    first, second = (data.SubGaussianClasses(20, 5, "sphere", seed=seed) for seed in (0, 1))
    assert first.digest() != second.digest()
    assert not torch.allclose(first.axis, second.axis)


def test_bad_settings_are_named():
    with pytest.raises(ValueError, match="cube"):
        data.SubGaussianClasses(4, 4, "cube", seed=0)
    with pytest.raises(ValueError, match="n_train=1"):
        data.SubGaussianClasses(1, 4, "ball", seed=0)
    with pytest.raises(ValueError, match="growth"):
        data.class_mean_length(5.0, "cubic", 4)
    with pytest.raises(ValueError, match="noise"):
        data.SubGaussianRegression(4, 4, "ball", noise=-1.0, seed=0)
    with pytest.raises(ValueError, match="eps"):
        data.random_rotation(4, -0.1, seed=0)
    with pytest.raises(ValueError, match="divides by the length"):
        data.mean_shrinkage(torch.zeros(1), "literal")
    with pytest.raises(ValueError, match="oblique"):
        data.mean_shrinkage(torch.ones(1), "oblique")


def test_readings_of_the_mean_s_length():
    assert [data.class_mean_length(5.0, growth, 16) for growth in ("constant", "sqrt_dim", "dim")] == [5.0, 20.0, 80.0]


def test_regression_targets_are_the_noisy_link_of_one_class():
    task = data.SubGaussianRegression(2000, 6, "sphere", length=2.0, noise=0.1, seed=4)
    x, y = task.train
    assert torch.allclose(x.mean(0), 2.0 * task.axis, atol=0.1)
    assert task.theta.norm().item() == pytest.approx(1.0)
    noise = y[:, 0] - torch.tanh(x @ task.theta)
    assert noise.std().item() == pytest.approx(0.1, rel=0.1)


@settings(max_examples=25)
@given(length=st.floats(-4, 4), seed=st.integers(0, 1000), literal=st.booleans())
def test_unseen_class_has_the_stated_mean_and_covariance(length, seed, literal):
    projection = "literal" if literal and abs(length) > 0.3 else "orthogonal"
    axis = data.SubGaussianClasses(2, 4, "sphere", seed=seed).axis
    z = data.gaussian_samples(3, 4, seed)
    x = data.unseen_class(z, axis, length, projection)
    if projection == "orthogonal":
        assert torch.allclose(x @ axis, torch.full((3,), length, dtype=torch.float64))
    else:
        nu = length * axis
        printed = z - (z @ nu)[:, None] * nu / nu.norm() ** 4 + nu
        assert torch.allclose(x, printed)
    across = z - (z @ axis)[:, None] * axis
    assert torch.allclose(x - (x @ axis)[:, None] * axis, across)


@pytest.mark.parametrize("dim", [2, 5, 8])
@pytest.mark.parametrize("eps", [0.0, 0.01, 1.0])
@pytest.mark.parametrize("fix_signs", [True, False])
def test_rotations_are_rotations(dim, eps, fix_signs):
    R = data.random_rotation(dim, eps, seed=5, index=2, fix_signs=fix_signs)
    assert torch.allclose(R.T @ R, torch.eye(dim, dtype=torch.float64))
    assert torch.linalg.det(R).item() == pytest.approx(1.0)


def test_rotations_by_numpy_s_qr():
    noise = data.stream(6, "rotation 1").standard_normal((7, 7))
    q, r = np.linalg.qr(np.eye(7) + 0.3 * noise)
    q = q * np.sign(np.diag(r))
    q[:, 0] *= np.linalg.det(q)
    assert np.allclose(data.random_rotation(7, 0.3, seed=6, index=1).numpy(), q)


@pytest.mark.parametrize("fix_signs", [True, False])
def test_rotated_vectors_are_those_of_the_full_matrices(fix_signs):
    axis = data.SubGaussianClasses(2, 6, "sphere", seed=7).axis
    eps = [0.0, 0.1, 1.0, 3.0]
    found = data.rotated_axes(axis, eps, seed=7, fix_signs=fix_signs)
    for k, strength in enumerate(eps):
        full = data.random_rotation(6, strength, seed=7, index=k, fix_signs=fix_signs)
        assert torch.allclose(found[k], full @ axis)


def test_only_mended_signs_make_slight_rotations():
    v = torch.ones(64, dtype=torch.float64) / 8
    mended, printed = (data.random_rotation(64, 1e-3, seed=8, fix_signs=fix) for fix in (True, False))
    assert v @ mended @ v > 0.99
    assert v @ printed @ v < -0.9
