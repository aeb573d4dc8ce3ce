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


@pytest.mark.parametrize("n", [50, 2], ids=["of many inputs", "of fewer inputs than directions"])
def test_the_map_from_one_law_to_the_other_is_the_root_of_the_covariance(n):
    x = X[:n]
    plain, matched = (data.gaussians_like(x, 8, law, seed=1, name="test") for law in ("gaussian", "covariance"))
    root = torch.linalg.lstsq(plain, matched - x.mean(0)).solution
    assert torch.allclose(root, root.T, atol=1e-9)
    assert torch.allclose(root @ root, torch.cov(x.T, correction=0), atol=1e-9)


def test_shape_and_dtype_are_those_of_the_inputs_and_names_are_streams_apart():
    pictures = X.float()[:, :2].reshape(50, 1, 2, 1)
    drawn = data.gaussians_like(pictures, 7, "gaussian", seed=1, name="train")
    assert (drawn.shape, drawn.dtype) == ((7, 1, 2, 1), torch.float32)
    assert torch.equal(drawn, data.gaussians_like(pictures, 7, "gaussian", seed=1, name="train"))
    assert not torch.equal(drawn, data.gaussians_like(pictures, 7, "gaussian", seed=1, name="test"))


def two_classes(n=(6, 5)):
    """Classes of three coordinates: the second has fewer inputs than directions, so its covariance has rank two."""
    y = torch.tensor([1.0] * 20 + [-1.0] * 3, dtype=torch.float64)[:, None]
    x = torch.cat([X[:20], 3 * X[20:23] - 1])
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(1))
    labels = torch.tensor([1.0] * n[0] + [-1.0] * n[1], dtype=torch.float64)[:, None]
    return data.TensorData((x[order], y[order]), (torch.zeros(len(labels), 3, dtype=torch.float64), labels))


def test_inputs_of_the_same_moments_are_the_mean_and_root_of_the_covariance_of_their_class():
    plain = two_classes()
    task = data.same_moments(two_classes(), seed=3)
    for name, (before, after) in {"train": (plain.train, task.train), "test": (plain.test, task.test)}.items():
        assert torch.equal(before[1], after[1])
        for label in (1.0, -1.0):
            known, own = (plain.train[1] == label).flatten(), (after[1] == label).flatten()
            x = plain.train[0][known]
            C = torch.cov(x.T, correction=0)
            white = data.stream(3, f"same moments {name} {[label]}").standard_normal((int(own.sum()), 3))
            assert torch.linalg.matrix_rank(C) == 2
            rest = after[0][own] - x.mean(0)
            # the closed form: (z C^(1/2)) (z C^(1/2))^T = z C z^T, whatever root is taken
            z = torch.from_numpy(white)
            assert torch.allclose(rest @ rest.T, z @ C @ z.T, atol=1e-9)
            outside = torch.linalg.svd(C)[2][2]
            assert torch.allclose(rest @ outside, torch.zeros(len(rest), dtype=torch.float64), atol=1e-6)
    assert torch.equal(task.labelled[0], task.train[0])


def test_many_inputs_of_the_same_moments_have_them():
    many = data.same_moments(two_classes(n=(40_000, 40_000)), seed=3)
    plain = two_classes()
    for label in (1.0, -1.0):
        x, z = plain.train[0][(plain.train[1] == label).flatten()], many.test[0][(many.test[1] == label).flatten()]
        C = torch.cov(x.T, correction=0)
        assert torch.allclose(z.mean(0), x.mean(0), atol=0.02 * C.diagonal().max().sqrt().item())
        assert torch.allclose(torch.cov(z.T), C, atol=0.03 * C.diagonal().max().item())


def test_inputs_of_the_same_moments_take_the_classes_before_labels_are_permuted():
    with data.permuted_labels(0):
        task = data.same_moments(two_classes(), seed=3)
    plain = data.same_moments(two_classes(), seed=3)
    assert torch.equal(task.train[0], plain.train[0])
    assert not torch.equal(task.train[1], plain.train[1])


def test_classes_that_are_named_have_their_moments_whatever_the_targets():
    plain, merged = two_classes(), two_classes()
    merged.labelled, merged.test = ((x, torch.zeros_like(y)) for x, y in (merged.labelled, merged.test))
    merged.train = merged.labelled
    task = data.same_moments(merged, seed=3, classes=(plain.labelled[1], plain.test[1]))
    assert torch.equal(task.train[0], data.same_moments(plain, seed=3).train[0])
    assert torch.equal(task.test[0], plain.test[0])
    assert not task.train[1].any()


def test_a_class_without_training_inputs_has_no_moments():
    x = torch.zeros(2, 3)
    with pytest.raises(ValueError, match="no training inputs"):
        data.same_moments(data.TensorData((x, torch.tensor([0, 1])), (x, torch.tensor([1, 2]))), seed=0)


def test_what_makes_no_sense_is_refused():
    with pytest.raises(ValueError, match="law"):
        data.gaussians_like(X, 3, "uniform", seed=0, name="x")
    with pytest.raises(ValueError, match="count"):
        data.gaussians_like(X, 0, "gaussian", seed=0, name="x")
