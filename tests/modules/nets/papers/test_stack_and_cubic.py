"""A stack trains as its copies would alone; the cubic network is the formula of its docstring."""

import pytest
import torch

from featurelab.modules import learners, nets


def losses_of(net, x, y, loss, steps=5, lr=0.1, weight_decay=0.01):
    optimiser = learners.gd(lr, weight_decay=weight_decay)(net)
    for _ in range(steps):
        optimiser.zero_grad()
        loss(net, (x, y)).backward()
        optimiser.step()
    return net


def test_a_stack_trains_each_copy_as_it_would_train_alone():
    chance = torch.Generator().manual_seed(0)
    x = torch.randn(30, 3, 5, generator=chance, dtype=torch.float64)
    y = torch.randint(0, 4, (30,), generator=chance)
    stack = nets.PerceptronStack(nets.perceptron([5, 7, 4], seed=1), 3)
    before = stack(x).detach()
    losses_of(stack, x, y, learners.stacked_cross_entropy)
    for s in range(3):
        alone = nets.perceptron([5, 7, 4], seed=1)
        assert torch.allclose(before[:, s], alone(x[:, s]))
        losses_of(alone, x[:, s], y, learners.cross_entropy)
        assert torch.allclose(stack.features(x)[:, s], alone.features(x[:, s]), rtol=1e-12)
        assert torch.allclose(stack(x)[:, s], alone(x[:, s]), rtol=1e-12)


def test_a_stack_refuses_what_it_cannot_be_made_of():
    one = nets.perceptron([5, 7, 4], seed=1)
    with pytest.raises(ValueError, match="copies"):
        nets.PerceptronStack(one, 0)
    with pytest.raises(ValueError, match="one hidden layer"):
        nets.PerceptronStack(nets.perceptron([5, 7, 7, 4], seed=1), 2)
    with pytest.raises(ValueError, match=r"\(n, 2, 5\)"):
        nets.PerceptronStack(one, 2)(torch.zeros(3, 5))


def test_cubic_near_zero_is_odd_smooth_and_has_derivative_at_most_one():
    z = torch.linspace(-3, 3, 601, dtype=torch.float64, requires_grad=True)
    sigma = nets.CubicNearZero()(z)
    (slope,) = torch.autograd.grad(sigma.sum(), z)
    assert torch.allclose(slope, z.square().clamp(max=1))
    assert torch.allclose(sigma, -sigma.flip(0))
    expected = torch.where(z.abs() <= 1, z**3 / 3, z - torch.sign(z) * 2 / 3)
    assert torch.allclose(sigma, expected)


def test_cubic_network_sums_its_features_and_keeps_its_head():
    net = nets.cubic_net(6, 4, omega=0.5, seed=0)
    x = torch.randn(10, 6, dtype=torch.float64)
    assert torch.allclose(net(x)[:, 0], net.features(x).sum(1))
    assert torch.allclose(net.features(x), net.activation(x @ net.layer.weight.T))
    trained = [name for name, p in net.named_parameters() if p.requires_grad]
    assert trained == ["layer.weight"]
    wide = nets.cubic_net(400, 300, omega=0.1, seed=1).layer.weight
    assert wide.std().item() == pytest.approx(0.1, rel=0.02)
    with pytest.raises(ValueError, match="omega"):
        nets.cubic_net(6, 4, omega=-1.0, seed=0)
    with pytest.raises(ValueError, match="width"):
        nets.cubic_net(6, 0, omega=1.0, seed=0)
