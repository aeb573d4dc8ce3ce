"""Small pictures of several kinds, their random views, and unions of them."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from featurelab.modules import data
from featurelab.modules.data import TensorData, permuted_labels


@pytest.mark.parametrize("kind", data.PICTURE_KINDS)
def test_pictures_lie_in_the_unit_interval_and_classes_come_in_turn(kind):
    task = data.small_pictures(kind, 60, 30, seed=3)
    x, y = task.train
    assert x.shape == (60, 1, 8, 8)
    assert task.test[0].shape == (30, 1, 8, 8)
    assert x.min() >= 0
    assert x.max() <= 1
    counts = torch.bincount(y, minlength=data.PICTURE_KINDS[kind])
    assert counts.max() - counts.min() <= 1
    again = data.small_pictures(kind, 40, 20, seed=3)
    assert again.digest() == data.small_pictures(kind, 40, 20, seed=3).digest()
    assert again.digest() != data.small_pictures(kind, 40, 20, seed=4).digest()


def test_digits_are_all_there_once_and_turned_ones_are_the_same_digits():
    plain, turned = (data.small_pictures(kind, 1000, seed=1, dtype="float64") for kind in ("digits", "turned"))
    x = torch.cat([plain.train[0], plain.test[0]])
    theirs = torch.from_numpy(load_digits().data / 16)
    assert torch.equal(x.flatten(1).sum(1).sort().values, theirs.sum(1).sort().values)
    assert torch.equal(turned.train[0], plain.train[0].rot90(dims=(2, 3)))
    assert torch.equal(turned.train[1], plain.train[1])


def test_gratings_turn_by_an_eighth_of_half_a_circle_from_class_to_class():
    task = data.small_pictures("gratings", 400, 0, seed=0, dtype="float64")
    x, y = task.train
    spectrum = torch.fft.fft2(x[:, 0] - x.mean((2, 3), keepdim=True)[:, 0], s=(64, 64)).abs()
    peak = spectrum.flatten(1).argmax(1)
    rows, columns = ((part + 32) % 64 - 32 for part in (peak // 64, peak % 64))
    angle = torch.atan2(rows.double(), columns.double()) % torch.pi
    off = (angle - torch.pi * y / 8 + torch.pi / 2) % torch.pi - torch.pi / 2
    assert off.abs().median() < 0.1


def test_photos_are_patches_of_two_photographs():
    task = data.small_pictures("photos", 1000, seed=0)
    assert len(task.train[0]) + len(task.test[0]) == 2080
    assert task.train[0].amin((1, 2, 3)).abs().max() == 0
    assert set(task.train[1].tolist()) == {0, 1}


def test_fewer_classes_are_the_first_ones_and_what_is_not_there_is_refused():
    assert set(data.small_pictures("gratings", 20, 0, classes=2, seed=0).train[1].tolist()) == {0, 1}
    wrong = {"one of": {"kind": "cats"}, "between 1 and 6 for shapes": {"kind": "shapes", "classes": 7}}
    for why, options in (wrong | {"1797 pictures": {"kind": "digits", "n_train": 1800}}).items():
        with pytest.raises(ValueError, match=why):
            data.small_pictures(**options, seed=0)


def test_labels_of_training_are_permuted_where_they_shall_be():
    plain = data.small_pictures("shapes", 60, seed=0)
    with permuted_labels(5):
        other = data.small_pictures("shapes", 60, seed=0)
    assert torch.equal(plain.train[0], other.train[0])
    assert not torch.equal(plain.train[1], other.train[1])
    assert torch.equal(plain.test[1], other.test[1])


def test_an_order_in_turn_has_each_class_as_often_as_it_can():
    labels = np.repeat([0, 1, 2], [5, 50, 9])
    order = data.balanced_order(labels, np.random.default_rng(0))
    assert sorted(order) == list(range(64))
    for n in range(1, 16):
        counts = np.bincount(labels[order[:n]], minlength=3)
        assert counts.max() - counts.min() <= 1


def test_views_are_those_of_one_change_after_another():
    change = data.SmallChanges()
    x, uniform = torch.rand(5, 1, 8, 8), torch.rand(5, 2 * change.numbers)
    views = data.Views(change)(x, uniform)
    first, second = uniform.chunk(2, dim=1)
    assert torch.equal(views[:, 0], change(x, first))
    assert torch.equal(views[:, 1], change(x, second))
    shown = data.Views(change, clean=True)(x, uniform)
    assert torch.equal(shown[:, 0], x)
    assert torch.equal(shown[:, 1:], views)
    shuffled = data.Views(change, shuffled=True)(x, uniform)
    assert torch.equal(shuffled[:, 1], views[:, 1].roll(1, 0))
    assert torch.equal(shuffled[:, 0], views[:, 0])
    pairs = torch.stack([x, x.flip(0)], dim=1)
    other = data.Views(change, clean=True)(pairs, uniform)
    assert torch.equal(other[:, 0], x)
    assert torch.equal(other[:, 1], change(x.flip(0), first))
    with pytest.raises(ValueError, match="at least 2"):
        data.Views(change, count=1, shuffled=True)


def test_bytes_become_numbers():
    views = data.Views(data.crop_and_flip(0, flip=False))
    x = torch.randint(0, 256, (3, 3, 4, 4), dtype=torch.uint8)
    assert torch.allclose(views(x, torch.rand(3, 6))[:, 1], x.float() / 255)


def test_small_changes_are_those_of_a_loop():
    change = data.SmallChanges()
    x, uniform = torch.rand(20, 1, 8, 8, dtype=torch.float64), torch.rand(20, change.numbers, dtype=torch.float64)
    found = change(x, uniform)
    for picture, u, shown in zip(x[:, 0], uniform, found[:, 0], strict=True):
        down, across = int(3 * u[0]) - 1, int(3 * u[1]) - 1
        moved = torch.zeros(8, 8, dtype=torch.float64)
        for i in range(8):
            for j in range(8):
                if 0 <= i + down < 8 and 0 <= j + across < 8:
                    moved[i, j] = picture[i + down, j + across]
        mean = moved.mean()
        expected = mean + (1 + 0.4 * (2 * u[2] - 1)) * (moved - mean) + 0.1 * (2 * u[3] - 1)
        top, left = int(6 * u[4]), int(6 * u[5])
        expected[top : top + 3, left : left + 3] = 0
        expected += 0.1 * torch.distributions.Normal(0, 1).icdf(u[6:]).view(8, 8).double()
        assert torch.allclose(shown, expected, atol=1e-6)


def test_blur_is_a_weighted_mean_of_neighbours_and_comes_with_its_chance():
    change = data.Blurred(data.crop_and_flip(0, flip=False), widths=(1.0, 1.0))
    x, uniform = torch.rand(2, 3, 16, 16, dtype=torch.float64), torch.rand(2, 5, dtype=torch.float64)
    uniform[:, 3] = torch.tensor([0.2, 0.8])
    found = change(x, uniform)
    assert torch.equal(found[1], x[1])
    at = np.arange(-3, 4)
    weights = np.exp(-(at**2) / 2)
    weights /= weights.sum()
    padded = np.pad(x[0, 1].numpy(), 3, mode="reflect")
    assert found[0, 1, 5, 9].item() == pytest.approx((np.outer(weights, weights) * padded[5:12, 9:16]).sum())


def test_colours_change_with_their_chance_only():
    x = torch.rand(4, 3, 8, 8)
    plain = data.CropAndJitter(0.2, 0.0, 0.0, hue=0.0)
    some = data.CropAndJitter(0.2, 0.4, 0.0, hue=0.1, chance=0.8)
    uniform = torch.rand(4, 11)
    uniform[:, 10] = torch.tensor([0.1, 0.7, 0.81, 0.99])
    found, cropped = some(x, uniform), plain(x, uniform[:, :10])
    same = [torch.allclose(a, b, atol=1e-5) for a, b in zip(found, cropped, strict=True)]
    assert same == [False, False, True, True]
    assert isinstance(data.simsiam_change(224), data.Blurred)
    assert data.simsiam_change(32).numbers == 11


def test_a_union_has_all_training_pictures_of_its_parts():
    parts = [TensorData((torch.full((n, 2), float(n)), torch.zeros(n).long()), name=str(n)) for n in (2, 3)]
    whole = data.union(parts, batch_size=2)
    assert whole.train[0][:, 0].tolist() == [2, 2, 3, 3, 3]
    assert whole.train[1].tolist() == [0, 0, 1, 1, 1]
    assert whole.name == "2+3"
    with pytest.raises(ValueError, match="at least one part"):
        data.union([])


@pytest.mark.parametrize("name", ["SmallChanges", "CropAndJitter", "Warps", "simsiam_change", "crop_and_flip"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_numbers_next_to_one_lead_to_no_place_outside_a_picture(name, dtype):
    given = {"simsiam_change": (8,), "crop_and_flip": (1,)}.get(name, ())
    change = getattr(data, name)(*given)
    x = torch.rand(2, 1 if name == "SmallChanges" else 3, 8, 8, dtype=dtype)
    most = np.nextafter(1, 0)
    found = change(x, torch.full((2, change.numbers), most, dtype=torch.float64))
    assert found.shape == x.shape
    assert found.isfinite().all()


def test_the_greatest_shift_is_that_of_numbers_next_to_one():
    change = data.SmallChanges(contrast=0, brightness=0, hole=0, noise=0)
    x = torch.rand(2, 1, 8, 8)
    found = change(x, torch.full((2, change.numbers), np.nextafter(1, 0), dtype=torch.float64))
    assert torch.allclose(found, torch.nn.functional.pad(x[:, :, 1:, 1:], (0, 1, 0, 1)), atol=1e-6)
