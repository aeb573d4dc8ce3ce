"""Random fields, symmetric digits, clouds, and the two ways in which classes are kept from training."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from featurelab.modules import data


def test_random_fields_are_prototypes_under_noise_of_the_class():
    x, labels = data.random_fields(4, 4000, noise=(0.3, 1.5), seed=1)
    assert tuple(x.shape) == (16000, 1, 8, 8)
    assert labels.bincount().tolist() == [4000] * 4
    for label in range(4):
        own = x[labels == label]
        prototype, noise = own.mean(0), own.std(0)
        assert prototype.std(correction=0).item() == pytest.approx(1, abs=0.03)
        assert 0.3 <= noise.mean() <= 1.5
        assert noise.std() < 0.05 * noise.mean()  # white: the same at every pixel
    one = data.random_fields(3, 2, noise=0.0, seed=1)[0]
    torch.testing.assert_close(one[::2], one[1::2])
    torch.testing.assert_close(one[::2], x.unflatten(0, (4, 4000)).mean(1)[:3], atol=0.1, rtol=0)


def test_more_classes_or_pictures_leave_those_that_are_there_as_they_are():
    small = data.random_fields(3, 5, noise=(0.5, 1.0), seed=0)[0].unflatten(0, (3, 5))
    large = data.random_fields(6, 9, noise=(0.5, 1.0), seed=0)[0].unflatten(0, (6, 9))
    assert torch.equal(small, large[:3, :5])
    assert not torch.equal(small, data.random_fields(3, 5, noise=(0.5, 1.0), seed=1)[0].unflatten(0, (3, 5)))


def test_random_fields_are_smooth():
    """A 4x4 field has no structure finer than two pixels: neighbouring pixels of a prototype are alike."""
    x, _ = data.random_fields(200, 1, noise=0.0, seed=0)
    near = (x[..., 1:] * x[..., :-1]).mean() / x.square().mean()
    far = (x[..., 4:] * x[..., :-4]).mean() / x.square().mean()
    assert near > 0.7
    assert far < 0.2


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"classes": 0}, "at least one class"),
        ({"coarse": 9}, "coarse"),
        ({"noise": -0.1}, "noise"),
        ({"noise": (1.0, 0.5)}, "noise"),
    ],
)
def test_random_fields_refuse_what_makes_no_sense(options, named):
    with pytest.raises(ValueError, match=named):
        data.random_fields(**({"classes": 3, "per_class": 2, "seed": 0} | options))


def test_the_eight_symmetries_are_different_and_closed_under_composition():
    square = torch.arange(16.0).reshape(1, 4, 4)
    images = [data.square_symmetry(square, which) for which in range(8)]
    assert len({tuple(image.flatten().tolist()) for image in images}) == 8
    for first in range(8):
        for second in range(8):
            both = data.square_symmetry(images[first], second)
            assert any(torch.equal(both, image) for image in images)
    with pytest.raises(ValueError, match="symmetry of the square"):
        data.square_symmetry(square, 8)


def test_symmetric_digits_are_eighty_classes_of_disjoint_pictures():
    x, labels = data.symmetric_digits(seed=3)
    assert set(labels.bincount().tolist()) == {21, 22}
    assert labels.bincount().shape == (80,)
    pictures, digits = data.digit_pictures()
    known = {
        picture.numpy().tobytes(): (i, int(d)) for i, (picture, d) in enumerate(zip(pictures, digits, strict=True))
    }
    seen = set()
    for picture, label in zip(x, labels.tolist(), strict=True):
        # undo the symmetry: turn back, then mirror back
        back = torch.rot90(picture, -(label % 4), dims=(-2, -1))
        back = back.flip(-1) if label % 8 >= 4 else back
        index, digit = known[back.contiguous().numpy().tobytes()]
        assert digit == label // 8
        seen.add(index)
    assert len(seen) == len(x)
    with pytest.raises(ValueError, match="per_class"):
        data.symmetric_digits(per_class=23, seed=0)


def test_digit_pictures_are_standardised_by_two_numbers():
    x, labels = data.digit_pictures()
    assert x.mean().abs() < 1e-12
    assert x.std(correction=0).item() == pytest.approx(1)
    assert len(x) == len(labels) == 1797
    assert x.min() == x[:, 0, 0, 0].mode().values  # the background


def test_clouds_differ_in_nothing_but_their_noise():
    x, _ = data.class_clouds(30, 500, 16, noise=0.8, heterogeneity=0.5, seed=0)
    clouds = x.unflatten(0, (30, 500))
    noise = (clouds - clouds.mean(1, keepdim=True)).square().mean((1, 2)).sqrt()
    assert 0.4 * 0.97 < noise.min() < 0.55
    assert 1.05 < noise.max() < 1.2 * 1.03
    torch.testing.assert_close(
        clouds.mean(1).norm(dim=1), torch.full((30,), 4.0, dtype=torch.float64), atol=0.15, rtol=0
    )
    alike = data.class_clouds(30, 500, 16, noise=0.8, seed=0)[0].unflatten(0, (30, 500))
    spread = (alike - alike.mean(1, keepdim=True)).square().mean((1, 2)).sqrt()
    torch.testing.assert_close(spread, torch.full_like(spread, 0.8), atol=0.02, rtol=0)
    for options in ({"dim": 0}, {"noise": -1.0}, {"heterogeneity": 1.5}):
        with pytest.raises(ValueError, match=r"dim|noise|heterogeneity"):
            data.class_clouds(**({"classes": 2, "per_class": 2, "dim": 2, "seed": 0} | options))


def pool(classes, per_class, offset=0):
    """Samples that say which class and which row they are."""
    labels = torch.arange(classes).repeat_interleave(per_class) + offset
    return torch.stack([labels.double(), torch.arange(len(labels)).double()], dim=1), labels


@given(st.integers(0, 2**40), st.sampled_from(["a", "b"]), st.integers(1, 6))
@settings(max_examples=25)
def test_unseen_classes_are_never_training_classes(seed, train_on, per_class):
    pools = {"a": pool(8, 6), "b": pool(9, 7)}
    task = data.TwoClasses(pools, train_on, per_class=per_class, unseen=5, seed=seed, dtype="float64")
    x, y = task.train
    assert tuple(y.shape) == (2 * per_class, 2)
    assert torch.equal(y[:, 0], -y[:, 1])
    assert y[:, 0].tolist() == [1.0] * per_class + [-1.0] * per_class
    assert x[:per_class, 0].unique().tolist() == [task.train_classes[0]]
    assert x[per_class:, 0].unique().tolist() == [task.train_classes[1]]
    assert len(x[:, 1].unique()) == 2 * per_class
    for name, (pictures, labels) in task.evaluation.items():
        assert labels.bincount().tolist() == [per_class] * 5
        original = [task.classes[name][k] for k in labels.tolist()]
        assert pictures[:, 0].tolist() == original
        assert len(set(task.classes[name])) == 5
        if name == train_on:
            assert not set(task.classes[name]) & set(task.train_classes)


def test_the_number_of_unseen_classes_leaves_the_training_set_alone():
    pools = {"a": pool(9, 6), "b": pool(9, 6)}
    few, many = (data.TwoClasses(pools, "a", per_class=4, unseen=k, seed=5) for k in (3, 6))
    assert torch.equal(few.train[0], many.train[0])
    assert few.classes["b"] == many.classes["b"][:3]


def test_evaluation_pools_may_be_a_split_made_beforehand():
    task = data.TwoClasses(
        {"a": pool(2, 4)}, "a", per_class=4, evaluation_pools={"a": pool(5, 4, offset=10), "b": pool(5, 3)}, seed=0
    )
    assert sorted(task.classes["a"]) == [10, 11, 12, 13, 14]
    assert sorted(task.train_classes) == [0, 1]
    assert len(task.evaluation["b"][0]) == 15  # a class with fewer samples gives all


@pytest.mark.parametrize(
    ("pools", "options", "named"),
    [
        ({"a": pool(8, 3)}, {}, "class .* of a has only 3 samples"),
        ({"a": pool(6, 4)}, {}, "4 classes to choose from"),
        ({"b": pool(8, 4)}, {}, "train_on"),
    ],
)
def test_two_classes_refuse_pools_that_are_too_small(pools, options, named):
    with pytest.raises(ValueError, match=named):
        data.TwoClasses(pools, "a", per_class=4, unseen=5, seed=0, **options)


def test_a_class_split_halves_the_classes_and_keeps_every_sample():
    task = data.ClassSplit(pool(9, 4, offset=3), split=1, dtype="float64")
    assert (len(task.train_classes), len(task.test_classes)) == (5, 4)
    assert sorted(task.train_classes + task.test_classes) == list(range(3, 12))
    for (x, labels), classes in ((task.train, task.train_classes), (task.unseen, task.test_classes)):
        assert labels.bincount().tolist() == [4] * len(classes)
        assert x[:, 0].tolist() == [classes[k] for k in labels.tolist()]
    assert data.ClassSplit(pool(9, 4), split=2).train_classes != data.ClassSplit(pool(9, 4), split=1).train_classes
    assert task.describe()["unseen_classes"] == 4
    with pytest.raises(ValueError, match="two classes"):
        data.ClassSplit(pool(3, 4))


def test_balanced_batches_hold_as_many_samples_of_each_of_their_classes():
    task = data.ClassSplit(pool(12, 5), batch_size=9, per_class=3, order_seed=4)
    loader = task.train_dataloader()
    batches = list(loader)
    assert len(batches) == len(loader) == 30 // 9
    for x, y in batches:
        assert sorted(np.unique(y.numpy(), return_counts=True)[1].tolist()) == [3, 3, 3]
        assert len(x[:, 1].unique()) == 9
    again = list(task.train_dataloader())
    assert all(torch.equal(a, b) for (a, _), (b, _) in zip(batches, again, strict=True))
    assert not all(torch.equal(a, b) for (a, _), (b, _) in zip(batches, loader, strict=True))  # the next epoch
    with pytest.raises(ValueError, match="per_class"):
        data.ClassSplit(pool(12, 5), batch_size=10, per_class=3)
