import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from featurelab.modules.data import (
    NuisanceMixture,
    Relabelled,
    TensorData,
    coarse_groups,
    fine_labels,
    groups_from_pairs,
    random_groups,
)


def base(n=40, classes=10):
    x = torch.arange(n, dtype=torch.float32)[:, None]
    y = torch.arange(n) % classes
    return TensorData((x, y), (x[:20] + 0.5, y[:20]), dtype="float32")


def test_ten_classes_in_five_labels_are_paired_at_distance_five():
    assert coarse_groups(10, 5).tolist() == [0, 1, 2, 3, 4, 0, 1, 2, 3, 4]


@given(st.integers(2, 60), st.data(), st.integers(0, 2**40))
def test_random_groups_are_as_large_as_the_plain_ones(classes, draw, seed):
    groups = draw.draw(st.integers(1, classes))
    sizes = torch.bincount(coarse_groups(classes, groups))
    found = random_groups(classes, groups, seed=seed)
    assert torch.equal(torch.bincount(found), sizes)
    assert torch.equal(found, random_groups(classes, groups, seed=seed))


def test_other_seeds_merge_other_classes():
    assert len({tuple(random_groups(10, 5, seed=seed).tolist()) for seed in range(20)}) > 15


def test_fine_labels_keep_the_class_and_toss_a_fair_coin():
    y = torch.arange(10).repeat(1000)
    fine = fine_labels(y, 10, seed=3)
    assert torch.equal(fine % 10, y)
    assert ((fine >= 10).double().mean() - 0.5).abs() < 0.02
    assert torch.equal(fine[:100], fine_labels(y[:100], 10, seed=3))
    other = fine_labels(y, 10, seed=3, name="test")
    assert ((fine == other).double().mean() - 0.5).abs() < 0.02


def test_groups_are_read_off_samples():
    y = torch.tensor([2, 0, 1, 2, 3])
    assert groups_from_pairs(y, y % 2).tolist() == [0, 1, 0, 1]
    with pytest.raises(ValueError, match="class 2 has samples of different coarse labels"):
        groups_from_pairs(y, torch.tensor([0, 0, 1, 1, 1]))
    with pytest.raises(ValueError, match="class 1 has no sample"):
        groups_from_pairs(torch.tensor([0, 2]), torch.tensor([0, 0]))
    with pytest.raises(ValueError, match="equal length"):
        groups_from_pairs(y, y[:2])


@pytest.mark.parametrize(
    ("treatment", "outputs"), [("original", 10), ("coarse", 5), ("random_coarse", 5), ("fine", 20)]
)
def test_each_treatment_labels_samples_by_its_groups(treatment, outputs):
    data = Relabelled(base(), treatment, classes=10, seed=1)
    y, y_test = data.original
    targets = data.train[1]
    assert torch.equal(data.train[0], base().train[0])
    assert torch.equal(y, torch.arange(40) % 10)
    assert torch.equal(y_test, torch.arange(20) % 10)
    assert data.outputs == outputs
    if treatment == "original":
        assert torch.equal(targets, y)
    elif treatment == "fine":
        assert torch.equal(targets, data.parts)
        assert torch.equal(data.groups[data.parts], y)
    else:
        assert torch.equal(targets, data.groups[y])
        assert torch.equal(data.test[1], data.groups[y_test])
    assert data.describe()["groups"] == data.groups.tolist()
    assert data.describe()["treatment"] == treatment


def test_a_batch_holds_inputs_and_the_new_labels_only():
    data = Relabelled(base(), "coarse", classes=10, seed=1, batch_size=8)
    for x, y in data.train_dataloader():
        assert x.shape == (8, 1)
        assert torch.equal(y, (x[:, 0].long() % 10) % 5)


def test_what_is_trained_on_does_not_know_the_classes_inside_a_label():
    y = torch.arange(40) % 10
    swapped = (y + 5) % 10  # the other class of the same label
    x = torch.randn(40, 3)
    one, other = (
        Relabelled(TensorData((x, labels), (x, labels)), "coarse", classes=10, seed=1) for labels in (y, swapped)
    )
    assert one.digest() == other.digest()
    assert not torch.equal(one.original[0], other.original[0])


def test_given_groups_are_taken():
    groups = torch.tensor([0] * 5 + [1] * 5)
    data = Relabelled(base(), "coarse", classes=10, groups=groups, seed=1)
    assert torch.equal(data.train[1], data.original[0] // 5)


def test_one_hot_targets_are_taken_for_the_classes_they_mark():
    plain = base()
    rows = [torch.eye(10)[y] for y in (plain.train[1], plain.test[1])]
    marked = TensorData((plain.train[0], rows[0]), (plain.test[0], 2 * rows[1] - 1))
    one, other = (Relabelled(data, "coarse", classes=10, coarse=5, seed=1) for data in (plain, marked))
    assert torch.equal(one.train[1], other.train[1])
    assert torch.equal(one.original[1], other.original[1])
    with pytest.raises(ValueError, match="class indices"):
        Relabelled(TensorData((plain.train[0], torch.randn(len(rows[0])))), "coarse", classes=10, coarse=5, seed=1)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (lambda: Relabelled(base(), "merged", classes=10, seed=0), "treatment must be"),
        (lambda: Relabelled(base(), "coarse", classes=10, groups=torch.zeros(3).long(), seed=0), "10 classes"),
        (lambda: coarse_groups(4, 5), "groups must lie between 1 and classes=4"),
        (lambda: fine_labels(torch.tensor([0, 4]), 4, seed=0), r"labels must lie in \[0, 4\)"),
    ],
)
def test_what_cannot_be_is_refused(fault, message):
    with pytest.raises(ValueError, match=message):
        fault()


def test_a_mixture_has_the_moments_that_it_promises():
    data = NuisanceMixture(20_000, 0, dim=8, nuisance_dim=4, mean_variance=4.0, nuisance_variance=9.0, seed=2)
    x, y = data.train
    assert torch.equal(torch.bincount(y), torch.full((10,), 2000))
    for c in range(10):
        rows = x[y == c]
        torch.testing.assert_close(rows[:, :8].mean(0), data.means[c], atol=0.1, rtol=0)
        torch.testing.assert_close(rows[:, :8].var(0), torch.ones(8).double(), atol=0.15, rtol=0)
        torch.testing.assert_close(rows[:, 8:].mean(0), torch.zeros(4).double(), atol=0.3, rtol=0)
    torch.testing.assert_close(x[:, 8:].var(0), torch.full((4,), 9.0).double(), rtol=0.05, atol=0)


def test_a_larger_mixture_begins_with_the_smaller_one():
    small, large = NuisanceMixture(50, 20, seed=7), NuisanceMixture(90, 60, seed=7)
    assert torch.equal(large.train[0][:50], small.train[0])
    assert torch.equal(large.test[0][:20], small.test[0])
    assert not torch.equal(small.train[0][:20], small.test[0])
    wider = NuisanceMixture(50, 20, nuisance_dim=3, seed=7)
    assert torch.equal(wider.train[0][:, :16], small.train[0][:, :16])


def test_faulty_mixtures_are_refused():
    for fault, message in (
        ({"n_train": 55}, "multiple of the 10 classes"),
        ({"dim": 0}, "dim must be at least 1"),
        ({"mean_variance": -1.0}, "mean_variance must not be negative"),
    ):
        with pytest.raises(ValueError, match=message):
            NuisanceMixture(**({"n_train": 50, "n_test": 10, "seed": 0} | fault))
