"""The handwritten digits: splits, targets, scales, and the same bits as ever."""

import pytest
import torch

from featurelab.modules.data import Digits

PICTURES = {"split": "stratified", "targets": "labels", "pixels": "overall", "flatten": False}


@pytest.mark.parametrize(
    ("n_train", "options", "name", "digest"),
    [
        (None, {"digit": 8, "pixels": "unit", "seed": 0}, "digits_one_vs_rest", "b6f5b3b98e30f1eb"),
        (201, {"digit": 3, "pixels": "unit", "seed": 7}, "digits_one_vs_rest", "77c358c0a2a72d64"),
        (None, {"seed": 0}, "digits_all", "e4f885154cfc9204"),
        (96, {"seed": 7}, "digits_all", "6f9e4665e2f7db7c"),
        (300, PICTURES | {"seed": 0}, "digits", "33cbd13e2543c758"),
        (300, PICTURES | {"seed": 7}, "digits", "df6acde83119a9c1"),
        (200, {"split": "balanced", "seed": 0}, "digits_balanced", "53f4348ad3c3d052"),
        (1740, {"split": "balanced", "targets": "signs", "seed": 1}, "digits_balanced", "2893061b38a94096"),
        (10, {"split": "balanced", "targets": "labels", "seed": 7}, "digits_balanced", "eefe63eaa4a82e53"),
    ],
)  # bits and names that stored runs have, from when these were three classes
def test_a_seed_gives_the_bits_that_it_always_gave(n_train, options, name, digest):
    task = Digits(n_train, **options)
    assert task.digest()[:16] == digest
    assert task.describe()["name"] == name


def test_describing_the_digits_says_what_stored_runs_say():
    common = {"n_test": 1597, "dim": 64, "outputs": 10, "dtype": "float64", "seed": 3, "n_train": 200}
    assert Digits(200, seed=3).describe() == common | {"name": "digits_all", "task": "all", "digit": None}
    assert Digits(200, **PICTURES, seed=3).describe() == common | {"name": "digits"}
    assert Digits(200, split="balanced", seed=3).describe() == common | {"name": "digits_balanced", "per_class": 20}


def test_digits_one_against_the_rest_is_balanced():
    task = Digits(seed=0, digit=8, pixels="unit")
    x, y = task.train
    assert (tuple(x.shape), tuple(y.shape), len(task.test[0])) == ((348, 64), (348, 1), 0)
    assert y.sum() == 0
    assert set(y.flatten().tolist()) == {-1.0, 1.0}
    assert (x.min(), x.max()) == (0.0, 1.0)
    part = Digits(200, seed=0, digit=8, pixels="unit")
    assert part.train[1].sum() == 0
    assert torch.equal(torch.cat([part.train[0], part.test[0]]), x)


def test_all_digits_are_standardised_on_the_training_set():
    task = Digits(500, seed=2)
    x, y = task.train
    spread = x.std(0, correction=0)
    constant = spread == 0
    assert 0 < constant.sum() < 20
    assert torch.allclose(spread[~constant], torch.ones(1, dtype=torch.float64))
    assert x.mean(0).abs().max() < 1e-12
    assert torch.equal(y.sum(1), torch.ones(500, dtype=torch.float64))
    assert (len(task.test[0]), y.shape[1]) == (1297, 10)
    assert torch.isfinite(task.test[0]).all()


def test_digits_are_split_by_class_and_standardised_as_one():
    task = Digits(1257, **PICTURES, seed=5)
    (x, y), (x_test, y_test) = task.train, task.test
    assert x.shape == (1257, 1, 8, 8)
    assert len(x) + len(x_test) == 1797
    share = torch.bincount(y) / (torch.bincount(y) + torch.bincount(y_test))
    assert (share - 1257 / 1797).abs().max() < 0.01
    assert abs(x.mean()) < 1e-12
    assert abs(x.std(correction=0) - 1) < 1e-12
    smaller = Digits(300, **PICTURES, seed=5)
    assert torch.equal(smaller.train[1], y[:300])


def test_digits_are_balanced_sorted_standardised_and_nested():
    task = Digits(200, split="balanced", seed=0, targets="labels")
    x, y = task.train
    assert torch.equal(y, torch.arange(10).repeat_interleave(20))
    assert torch.allclose(x.mean(0), torch.zeros(64).double(), atol=1e-12)
    spread = x.std(0, correction=0)
    assert torch.allclose(spread[spread > 0], torch.ones(int((spread > 0).sum())).double())
    assert len(task.test[0]) == 1797 - 200
    few = Digits(50, split="balanced", seed=0, targets="labels")
    of_few, of_many = few.train[0].reshape(10, 5, 64), x.reshape(10, 20, 64)[:, :5]
    varying = (of_few.flatten(0, 1).std(0) > 0) & (spread > 0)
    assert torch.allclose(ranks(of_few[..., varying]), ranks(of_many[..., varying]))
    assert not torch.equal(Digits(200, split="balanced", seed=1).train[0], x)


def ranks(x):
    """Orders of grey levels, which standardisation leaves as they are."""
    return x.flatten(0, 1).T.contiguous().sub(x.flatten(0, 1).T[:, :1]).sign()


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"digit": 11}, "digit must be 0..9, got 11"),
        ({"digit": 8, "n_train": 349}, "n_train must lie between 1 and 348, got 349"),
        ({"n_train": 0}, "n_train"),
        ({"n_train": 1798}, "got 1798"),
        ({"n_train": 9, "split": "balanced"}, "between 10 and 1740, got 9"),
        ({"n_train": 1750, "split": "balanced"}, "n_train"),
        ({"split": "odd"}, "split must be one of random, stratified, balanced, got 'odd'"),
        ({"targets": "ranks"}, "targets"),
        ({"pixels": "none"}, "pixels"),
        ({"digit": 8, "split": "balanced"}, "digit=8 fixes split and targets"),
    ],
)
def test_what_the_digits_do_not_have_is_refused_by_name(options, named):
    with pytest.raises(ValueError, match=named):
        Digits(**options, seed=0)
