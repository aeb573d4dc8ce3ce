"""Invariant and environmental features: their laws, and batches with as many samples of each domain."""

import numpy as np
import pytest
import torch

from featurelab.modules import data


def test_the_invariant_coordinate_has_the_labels_sign_and_the_other_as_often_as_said():
    task = data.InvariantAndEnvironmental(20000, 20000, in_domain=0.7, out_of_domain=0.2, seed=3)
    for (x, y), agreement in ((task.train, 0.7), (task.test, 0.7), (task.out_of_domain, 0.2)):
        assert ((x[:, :1] * y) >= 0).all()
        assert ((x[:, 1:] * y) > 0).double().mean().item() == pytest.approx(agreement, abs=0.015)
        assert x.abs().mean(0).tolist() == pytest.approx([0.5, 0.5], abs=0.01)
    assert not torch.equal(task.train[0], task.test[0])


def test_environmental_features_have_the_mean_and_the_variance_of_their_law():
    z = data.environmental_features(40000, 5, 2, -0.3, 0)
    assert z.mean(0).tolist() == pytest.approx([0.5, 0.5, -0.3, -0.3, -0.3], abs=0.01)
    assert z.var(0).tolist() == pytest.approx([1 / 12, 1 / 12, *[1 / 3 - 0.09] * 3], abs=0.01)
    assert (z[:, :2] >= 0).all()


def digits(**options):
    return data.coloured_digits((0.9, 0.8, 0.7), 0.1, seed=1, dtype="float64", **options)


def test_every_batch_has_as_many_samples_of_each_domain_and_an_epoch_has_all():
    task = digits(batch_size=32)
    each = len(task.train[0]) // 3
    place = {row.numpy().tobytes(): n for n, row in enumerate(task.train[0])}
    seen = []
    for x, _ in task.train_dataloader():
        rows = [place[row.numpy().tobytes()] for row in x]
        seen += rows
        size = len(rows) // 3
        assert [row // each for row in rows] == [0] * size + [1] * size + [2] * size
    assert sorted(seen) == list(range(3 * each))


def test_the_order_of_samples_differs_by_epoch_and_repeats_with_the_seed():
    loader, again = digits(order_seed=5).train_dataloader(), digits(order_seed=5).train_dataloader()
    first, second = next(iter(loader))[0], None
    loader.set_epoch(1)
    second = next(iter(loader))[0]
    assert not torch.equal(first, second)
    assert torch.equal(first, next(iter(again))[0])


def test_colours_agree_with_labels_as_often_as_the_domain_says():
    task = digits(noise=0.0, amplitude=2.0)
    each = len(task.train[0]) // 3
    for part, agreement in enumerate((0.9, 0.8, 0.7)):
        x, y = (one[part * each : (part + 1) * each] for one in task.train)
        assert set(x[:, 64:].flatten().tolist()) == {0.0, 2.0}
        share = (x[:, 64:].argmax(1) == y).double().mean().item()
        assert share == pytest.approx(agreement + (1 - agreement) / 10, abs=0.05)
    x, y = task.test
    assert (x[:, 64:].argmax(1) == y).double().mean().item() == pytest.approx(0.1 + 0.09, abs=0.06)


def test_no_digit_is_in_two_of_training_validation_and_test():
    task = digits(noise=0.0)
    parts = [{row[:64].numpy().tobytes() for row in x} for x in (task.train[0], task.validation[0], task.test[0])]
    assert not (parts[0] & parts[1])
    assert not (parts[0] & parts[2])
    assert not (parts[1] & parts[2])
    assert sum(map(len, parts)) == pytest.approx(1797, abs=3)


def test_what_makes_no_domains_is_refused():
    pair = (torch.zeros(4, 2), torch.zeros(4))
    with pytest.raises(ValueError, match="equally many samples, got \\[4, 3\\]"):
        data.Domains([pair, (torch.zeros(3, 2), torch.zeros(3))], pair, pair, batch_size=2)
    with pytest.raises(ValueError, match="probabilities"):
        data.coloured_digits((0.9, 1.2), 0.1, seed=0)
    with pytest.raises(ValueError, match="1797 digits are too few"):
        data.coloured_digits((0.9,), 0.1, n_test=1797, seed=0)
    with pytest.raises(ValueError, match="agreement"):
        data.InvariantAndEnvironmental(2, 2, in_domain=1.5, seed=0)
    with pytest.raises(ValueError, match="gamma"):
        data.environmental_features(2, 3, 4, 0.1, 0)
    assert np.unique(data.fair_signs(50, 0).numpy()).tolist() == [-1.0, 1.0]
