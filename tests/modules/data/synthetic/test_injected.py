"""Gaussian inputs to mix in: their moments, and that they are drawn by name."""

import pytest
import torch

from featurelab.modules import data

MIX = torch.tensor([[1.0, 0.5, 0.0], [0.0, 0.2, 1.0], [0.0, 0.0, 0.0]], dtype=torch.float64)
X = torch.randn(50, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64) @ MIX.T + 2.0


def test_one_law_has_no_structure_and_the_other_the_covariance_of_the_inputs():
    plain = data.gaussians_like(X, 40_000, "gaussian", seed=1, name="test")
    assert torch.allclose(torch.cov(plain.T), torch.eye(3, dtype=torch.float64), atol=0.03)
    assert torch.allclose(plain.mean(0), torch.zeros(3, dtype=torch.float64), atol=0.02)
    matched = data.gaussians_like(X, 40_000, "covariance", seed=1, name="test")
    assert torch.allclose(torch.cov(matched.T), torch.cov(X.T, correction=0), atol=0.03)
    assert torch.allclose(matched.mean(0), X.mean(0), atol=0.03)


def test_the_map_from_one_law_to_the_other_is_the_root_of_the_covariance():
    plain, matched = (data.gaussians_like(X, 8, law, seed=1, name="test") for law in ("gaussian", "covariance"))
    root = torch.linalg.lstsq(plain, matched - X.mean(0)).solution
    assert torch.allclose(root @ root, torch.cov(X.T, correction=0), atol=1e-9)


def test_shape_and_dtype_are_those_of_the_inputs_and_names_are_streams_apart():
    pictures = X.float()[:, :2].reshape(50, 1, 2, 1)
    drawn = data.gaussians_like(pictures, 7, "gaussian", seed=1, name="train")
    assert (drawn.shape, drawn.dtype) == ((7, 1, 2, 1), torch.float32)
    assert torch.equal(drawn, data.gaussians_like(pictures, 7, "gaussian", seed=1, name="train"))
    assert not torch.equal(drawn, data.gaussians_like(pictures, 7, "gaussian", seed=1, name="test"))


def test_what_makes_no_sense_is_refused():
    with pytest.raises(ValueError, match="law"):
        data.gaussians_like(X, 3, "uniform", seed=0, name="x")
    with pytest.raises(ValueError, match="count"):
        data.gaussians_like(X, 0, "gaussian", seed=0, name="x")
