"""Networks with subtracted thresholds: the symmetric initialisation and the explicit solutions."""

import pytest
import torch

from featurelab.modules import data, learners, nets, theory


def test_outputs_are_as_defined_and_thresholds_are_not_trained():
    W, a = nets.random_neurons(3, 5, seed=0)
    b = torch.linspace(-1, 1, 5, dtype=torch.float64)
    net, x = nets.thresholded_net(W, a, b), torch.randn(7, 3, dtype=torch.float64)
    slow = [sum(a[i] * max(float(W[i] @ p) - float(b[i]), 0.0) for i in range(5)) for p in x]
    assert torch.allclose(net(x)[:, 0], torch.stack(slow))
    assert torch.equal(net.thresholds, b)
    assert [name for name, p in net.named_parameters() if p.requires_grad] == ["hidden.weight", "head.weight"]


def test_a_symmetric_initialisation_is_zero_everywhere():
    W, a = nets.random_neurons(4, 3, seed=1)
    net = nets.symmetric_thresholded(W, a, torch.tensor([0.3, -0.2, 0.0], dtype=torch.float64))
    x = torch.randn(50, 4, dtype=torch.float64)
    assert net(x).abs().max() < 1e-14
    assert len(net.thresholds) == 12
    assert torch.equal(net.hidden.weight[3:6], -W)
    assert torch.equal(net.head.weight[0, 6:9], -a)


def test_more_neurons_leave_the_first_ones_alone():
    few, many = (nets.random_neurons(4, count, weights="signs", seed=2) for count in (3, 8))
    assert torch.equal(few[0], many[0][:3])
    assert torch.equal(few[1], many[1][:3])
    assert set(many[0].unique().tolist()) == {-1.0, 1.0}
    with pytest.raises(ValueError, match="gaussian"):
        nets.random_neurons(4, 3, weights="cauchy", seed=0)
    with pytest.raises(ValueError, match="at least 1"):
        nets.random_neurons(0, 3, seed=0)


@pytest.mark.parametrize(("groups", "size"), [(1, 5), (3, 3), (1, 9)])
@pytest.mark.parametrize("printed", [False, True])
def test_the_explicit_network_computes_structured_parities(groups, size, printed):
    task = data.StructuredParity(600, 0, 20, groups=groups, size=size, aligned=0.1, noise=0.2, seed=3)
    net = nets.parity_solution(task.directions, size, printed=printed)
    assert len(net.thresholds) == 3 * groups * (size + 1)
    assert learners.hinge(net, task.train).item() < 1e-12


@pytest.mark.parametrize("size", [2, 4])
def test_the_explicit_network_computes_even_parities_but_not_with_the_printed_sign(size):
    x = theory.gradient_features.sign_vectors(8)
    y = x[:, :size].prod(1, keepdim=True)
    net, printed = (nets.parity_solution(data.group_directions(1, size, 8), size, printed=p) for p in (False, True))
    assert torch.allclose(net(x), y, atol=1e-12)
    assert torch.allclose(printed(x), -y, atol=1e-12)


def test_the_explicit_network_of_a_mixture_is_sure_at_its_means():
    means = data.opposite_pairs(4.0 * torch.eye(3, dtype=torch.float64)[:2])
    labels = torch.tensor([1.0, 1.0, -1.0, -1.0], dtype=torch.float64)
    net = nets.mixture_solution(means / 4.0, labels, 1.0)
    assert torch.allclose(net(means)[:, 0], 2 * labels)
