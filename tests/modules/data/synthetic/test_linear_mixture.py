"""Positive pairs of mixtures of tasks: their law, their streams, what stays when something else changes."""

import numpy as np
import pytest
import torch

from featurelab.modules import data


def factors(task, n=20_000, seed=0):
    x, y = task.pairs(np.random.default_rng(seed), n)
    return x @ task.dictionary, y @ task.dictionary


def test_pairs_share_what_is_invariant_and_nothing_else():
    task = data.LinearMixture([0.5, 0.3, 0.2], 2, 3, 4, shared_scale=2.0, private_scale=0.5, seed=0)
    z, other = factors(task)
    assert torch.allclose(task.dictionary.T @ task.dictionary, torch.eye(15, dtype=torch.float64), atol=1e-12)
    assert torch.allclose(z[:, :11], other[:, :11], atol=1e-12)
    assert (z[:, 11:] * other[:, 11:]).mean(0).abs().max() < 0.04
    active = torch.stack([z[:, 2 + 3 * t : 5 + 3 * t].abs().amax(1) > 1e-9 for t in range(3)], 1)
    assert (active.sum(1) == 1).all()
    assert active.double().mean(0).tolist() == pytest.approx([0.5, 0.3, 0.2], abs=0.02)
    assert z[:, :2].std(0).tolist() == pytest.approx([2.0] * 2, rel=0.03)
    assert z[active[:, 0]][:, 2:5].std(0).tolist() == pytest.approx([0.5] * 3, rel=0.03)


def test_shuffled_pairs_share_nothing_and_have_the_same_law():
    plain, mixed = (data.LinearMixture([1], 2, 2, 1, shuffled_pairs=s, seed=0) for s in (False, True))
    (z, own), (w, other) = factors(plain), factors(mixed)
    assert torch.equal(z, w)
    assert (w * other).mean(0).abs().max() < 0.04
    assert torch.allclose(own[:, 0].sort().values, other[:, 0].sort().values)


def test_batches_are_drawn_anew_and_repeat_by_epoch():
    task = data.LinearMixture([1, 1], 1, 1, 1, batch_size=6, batches=2, order_seed=3, seed=0)
    loader, again = task.train_dataloader(), task.train_dataloader()
    first, second = list(loader), list(loader)
    assert len(first) == len(loader) == 2
    assert len({x.sum().item() for x, _ in [*first, *second]}) == 4
    again.set_epoch(1)
    assert all(torch.equal(a[0], b[0]) for a, b in zip(second, again, strict=True))


def test_labelled_samples_are_those_of_the_task_whatever_the_mixture():
    target = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
    small, large = (data.LinearMixture([1] * t, 1, 2, 2, seed=0) for t in (2, 5))
    (x, y), (_, again) = (task.task_samples(50, 1, target, noise=0.1, seed=7) for task in (small, large))
    assert torch.equal(y, again)
    z = x @ small.dictionary
    assert (z[:, small.own(1)] @ target - y).std().item() == pytest.approx(0.1, rel=0.3)
    assert z[:, 1:3].abs().max() < 1e-9
    with pytest.raises(ValueError, match="a task below 2"):
        small.task_samples(5, 2, target, seed=0)


def test_positives_are_no_labels():
    with data.permuted_labels(1):
        task = data.LinearMixture([1], 2, 2, 1, seed=0)
    z, other = (part @ task.dictionary for part in task.train)
    assert torch.allclose(z[:, :4], other[:, :4], atol=1e-12)


@pytest.mark.parametrize("wrong", [{"weights": [0, 0]}, {"weights": [1, -1]}, {"shared": 0}, {"spurious_scale": -1.0}])
def test_impossible_mixtures_are_refused(wrong):
    given = {"weights": [1], "shared": 1, "private": 1, "spurious": 1} | wrong
    with pytest.raises(ValueError, match="must"):
        data.LinearMixture(**given, seed=0)
