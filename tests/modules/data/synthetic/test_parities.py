"""Parities and linear data: their laws, by counting, and what they refuse."""

import pytest
import torch

from featurelab.modules import data


def structured(n=40_000, **options):
    settings = {"groups": 3, "size": 3, "aligned": 0.08, "noise": 0.1, "seed": 0} | options
    return data.StructuredParity(n, 10, 14, **settings)


def test_structured_parities_follow_their_law():
    task = structured()
    x, y = task.train
    groups = x[:, :9].reshape(-1, 3, 3)
    products = groups.prod(2).sum(1)
    assert torch.equal(products.sign(), y[:, 0])
    aligned = (groups == 0).any((1, 2))
    assert aligned.double().mean().item() == pytest.approx(0.48, abs=0.01)
    one = groups[aligned]
    assert ((one != 0).all(2).sum(1) == 1).all()
    assert (one.sum((1, 2)).abs() == 3).all()
    for j in range(3):
        share = (one[:, j].sum(1) == 3).double().mean().item()
        assert share == pytest.approx(1 / 6, abs=0.01)
    rest = x[:, 9:]
    assert [(rest == v).double().mean().item() for v in (-1, 0, 1)] == pytest.approx([0.1, 0.8, 0.1], abs=0.01)
    free = groups[~aligned]
    assert free.abs().min() == 1
    assert abs(free.mean().item()) < 0.01


def test_the_mean_product_of_an_odd_parity_is_not_zero():
    task = structured()
    x, y = task.train
    assert torch.allclose((y * x).mean(0), task.mean_product, atol=0.02)
    assert task.mean_product[:9].tolist() == pytest.approx([0.16] * 9)


def test_a_parity_without_aligned_samples_is_uniform_in_its_groups():
    x, _ = structured(aligned=0.0, noise=0.5).train
    assert x.abs().min() == 1


def test_uniform_parities_are_products_of_signs():
    task = data.UniformParity(5000, 100, 7, 4, seed=1)
    x, y = task.train
    assert torch.equal(y[:, 0], x[:, :4].prod(1))
    assert x.abs().min() == 1
    assert x.mean(0).abs().max() < 0.06
    assert task.directions[0].tolist() == [0.5] * 4 + [0.0] * 3


def test_linear_data_has_its_margin_and_mean_along_the_direction():
    task = data.LinearMargin(40_000, 0, 6, seed=2)
    x, y = task.train
    along = (y * x) @ task.direction
    assert along.min() >= 0.5 - 1e-12
    assert along.max() <= 1.5 + 1e-12
    assert torch.allclose((y * x).mean(0), task.direction, atol=0.02)
    across = x - (x @ task.direction)[:, None] * task.direction
    assert across.square().sum(1).mean().item() == pytest.approx(5, abs=0.1)


@pytest.mark.parametrize(
    "make",
    [
        structured,
        lambda n: data.UniformParity(n, 3, 6, 2, seed=3),
        lambda n: data.LinearMargin(n, 3, 6, seed=3),
    ],
)
def test_the_test_set_does_not_depend_on_the_size_of_the_training_set(make):
    assert torch.equal(make(8).test[0], make(20).test[0])
    assert make(8).digest() != make(20).digest()
    assert {"seed"} <= make(8).describe().keys()


@pytest.mark.parametrize("wrong", [{"size": 2}, {"groups": 2}, {"aligned": 0.2}, {"noise": 0.6}, {"size": 9}])
def test_laws_that_are_none_are_refused(wrong):
    with pytest.raises(ValueError, match="got"):
        structured(**wrong)


def test_sizes_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="size"):
        data.UniformParity(4, 0, 3, 4, seed=0)
    with pytest.raises(ValueError, match="dim"):
        data.LinearMargin(4, 0, 1, seed=0)


def test_opposite_pairs_are_means_and_their_negatives():
    means = torch.arange(6.0).reshape(2, 3)
    assert torch.equal(data.opposite_pairs(means), torch.stack([means[0], -means[0], means[1], -means[1]]))
