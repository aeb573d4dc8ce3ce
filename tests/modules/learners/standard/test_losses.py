"""Losses and accuracies as formulas."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from featurelab.modules.learners import accuracy, balanced_accuracy, balanced_hinge, hinge, loss, mse


def identity(x):
    return x


@given(n=st.integers(1, 8), c=st.integers(1, 5), seed=st.integers(0, 999), factor=st.sampled_from([0.5, 1.0, 3.0]))
@settings(max_examples=50)
def test_mse_is_the_mean_over_samples_of_sums_over_outputs(n, c, seed, factor):
    generator = torch.Generator().manual_seed(seed)
    f, y = torch.randn(2, n, c, generator=generator, dtype=torch.float64)
    slow = sum(sum((f[a, k] - y[a, k]) ** 2 for k in range(c)) for a in range(n)) / n
    assert mse(identity, (f, y), factor=factor).item() == pytest.approx(factor * slow.item(), rel=1e-12)
    assert loss("half_mse")(identity, (f, y)).item() == pytest.approx(0.5 * slow.item(), rel=1e-12)


def test_mse_takes_flat_targets_of_one_output_and_refuses_what_would_broadcast():
    f, y = torch.randn(6, 1), torch.randn(6)
    assert mse(identity, (f, y)).item() == pytest.approx((f[:, 0] - y).square().mean().item())
    for targets in (torch.randn(6, 2), torch.randn(1, 6), torch.randn(1, 1)):
        with pytest.raises(ValueError, match="outputs have shape"):
            mse(identity, (f, targets))


def test_cross_entropy_is_the_mean_negative_log_probability():
    f = torch.randn(7, 4, dtype=torch.float64)
    y = torch.tensor([0, 1, 2, 3, 0, 1, 2])
    slow = -sum(torch.log(f[a].exp()[y[a]] / f[a].exp().sum()) for a in range(7)) / 7
    one_hot = torch.nn.functional.one_hot(y, 4).double()
    assert loss("cross_entropy")(identity, (f, y)).item() == pytest.approx(slow.item())
    assert loss("cross_entropy")(identity, (f, one_hot)).item() == pytest.approx(slow.item())


def test_an_unknown_loss_names_the_nearest():
    with pytest.raises(ValueError, match="did you mean 'cross_entropy'"):
        loss("crossentropy")


def test_accuracy_knows_class_labels_from_other_targets():
    f = torch.tensor([[2.0, 1.0], [0.0, 1.0], [3.0, 1.0], [0.0, 5.0]])
    labels = torch.tensor([0, 1, 1, 1])
    assert accuracy(f, labels).item() == 0.75
    assert accuracy(f, torch.nn.functional.one_hot(labels, 2).float()).item() == 0.75
    signs, values = torch.tensor([1.0, -1.0, 1.0, -1.0]), torch.tensor([0.2, 3.0, 1.0, -4.0])
    assert accuracy(values[:, None], signs).item() == accuracy(values[:, None], signs[:, None]).item() == 0.75
    assert accuracy(f, f + 0.1) is None
    assert accuracy(values[:, None], signs + 1e-5) is None


def test_the_balanced_hinge_is_the_mean_of_the_losses_of_both_classes():
    f, y = torch.randn(9, 1, dtype=torch.float64), torch.tensor([1.0, -1, 1, 1, 1, -1, 1, 1, 1]).double()[:, None]
    slow = sum(hinge(identity, (f[y == label][:, None], y[y == label][:, None])) for label in (-1, 1)) / 2
    assert balanced_hinge(identity, (f, y)).item() == pytest.approx(slow.item())
    even = torch.cat([f, f]), torch.cat([y, -y])
    assert balanced_hinge(identity, even).item() == pytest.approx(hinge(identity, even).item())
    with pytest.raises(ValueError, match="both classes"):
        balanced_hinge(identity, (f, f.abs().sign()))


def test_balanced_accuracy_is_one_half_for_every_constant():
    y = torch.tensor([1.0, 1, 1, -1])
    for constant in (-1.0, 0.0, 2.0):
        assert balanced_accuracy(torch.full((4, 1), constant), y).item() == 0.5
    assert balanced_accuracy(torch.tensor([0.3, -1, 2, -0.1]), y[:, None]).item() == pytest.approx((2 / 3 + 1) / 2)
