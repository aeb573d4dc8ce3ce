"""The one step and its gradient."""

import math

import pytest
import pytorch_lightning as pl
import torch

from featurelab.modules import data, learners, nets

NAMES = ["tanh", "tanh_squared", "erf", "sigmoid", "sin", "relu"]


def problem(n=10, dim=6, width=8, heads=2, activation="tanh", seed=0):
    net = nets.two_layer(dim, width, heads=heads, activation=activation, seed=seed)
    if heads == 2:
        return net, *data.SubGaussianClasses(n, dim, "sphere", length=1.5, seed=seed).train
    return net, *data.SubGaussianRegression(n, dim, "sphere", length=1.5, seed=seed).train


def trainer(steps):
    return pl.Trainer(
        max_steps=steps,
        accelerator="cpu",
        precision="64-true",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )


@pytest.mark.parametrize("activation", NAMES)
@pytest.mark.parametrize("heads", [1, 2])
def test_explicit_gradient_is_that_of_autograd(activation, heads):
    net, x, y = problem(heads=heads, activation=activation)
    (slope,) = torch.autograd.grad(learners.half_squared_loss(net, x, y), net.hidden.weight)
    assert torch.allclose(learners.negative_gradient(net, x, y), -slope.T, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("activation", NAMES)
def test_slopes_are_derivatives_and_activations_are_centred(activation):
    function = nets.CentredActivation(activation)
    h = torch.linspace(-2, 2, 31, dtype=torch.float64).add(0.01).requires_grad_()
    (slope,) = torch.autograd.grad(function(h).sum(), h)
    assert torch.allclose(function.slope(h), slope)
    z = torch.linspace(-12, 12, 200_001, dtype=torch.float64)
    mean = torch.trapezoid(function(z) * torch.exp(-z.square() / 2), z) / math.sqrt(2 * math.pi)
    assert mean.item() == pytest.approx(0.0, abs=1e-9)


def test_loss_and_outputs_are_as_defined():
    net, x, y = problem()
    W, a = net.hidden.weight.T, net.head.weight
    f = torch.stack([torch.tanh(x @ W) @ a[c] / math.sqrt(8) for c in range(2)], 1)
    assert torch.allclose(net(x), f)
    assert learners.half_squared_loss(net, x, y).item() == pytest.approx(((y - f) ** 2).sum().item() / 20)


def test_neurons_have_unit_norm_and_heads_variance_one_over_width():
    net = nets.two_layer(30, 4000, seed=1)
    assert torch.allclose(net.hidden.weight.norm(dim=1), torch.ones(4000, dtype=torch.float64))
    assert (net.head.weight.square().sum(1)).tolist() == pytest.approx([1.0, 1.0], rel=0.1)
    assert not net.head.weight.requires_grad
    other = nets.two_layer(12, 4000, seed=1)
    assert torch.equal(other.head.weight, net.head.weight)  # another dim leaves the heads as they are


def test_one_step_in_a_trainer_moves_every_network_by_the_formula():
    networks = [problem(seed=seed)[0] for seed in (0, 1)]
    task = data.SubGaussianClasses(10, 6, "sphere", seed=2)
    expected = [learners.one_step_weights(net, *task.train, lr=0.7, weight_decay=0.01) for net in networks]
    by_hand = [
        W + 0.7 * math.sqrt(8) * (learners.negative_gradient(net, *task.train) - 0.01 * W)
        for net, W in ((net, net.hidden.weight.T) for net in networks)
    ]
    heads = [net.head.weight.clone() for net in networks]
    start = [net.hidden.weight.detach().clone().T for net in networks]
    learner = learners.OneStep(networks, lr=0.7, weight_decay=0.01)
    trainer(1).fit(learner, task)
    for k, (net, before, after) in enumerate(learner.weights()):
        assert torch.allclose(after, expected[k], rtol=1e-13)
        assert torch.allclose(after, by_hand[k], rtol=1e-13)
        assert torch.equal(before, start[k])
        assert torch.equal(net.head.weight, heads[k])
    assert learner(task.train[0]).shape == (2, 10, 2)


def test_networks_of_one_learner_do_not_disturb_one_another():
    task = data.SubGaussianClasses(10, 6, "sphere", seed=2)
    alone, together = (learners.OneStep([problem(seed=s)[0] for s in seeds], lr=1.0) for seeds in ([1], [0, 1]))
    for learner in (alone, together):
        trainer(2).fit(learner, task)
    assert torch.equal(alone.weights()[0][2], together.weights()[1][2])


def test_a_rate_of_zero_moves_nothing():
    net, x, y = problem()
    assert torch.equal(learners.one_step_weights(net, x, y, lr=0.0), net.hidden.weight.T)


def test_weights_that_are_not_finite_are_reported():
    task = data.SubGaussianClasses(10, 6, "sphere", seed=2)
    learner = learners.OneStep([problem()[0]], lr=1e308)
    with pytest.raises(learners.Diverged):
        trainer(2).fit(learner, task)


def test_bad_settings_are_named():
    with pytest.raises(ValueError, match="network"):
        learners.OneStep([], lr=1.0)
    with pytest.raises(ValueError, match="lr"):
        learners.OneStep([problem()[0]], lr=-1.0)
    with pytest.raises(ValueError, match="tanh"):
        nets.two_layer(3, 3, activation="tan", seed=0)
    with pytest.raises(ValueError, match="width"):
        nets.two_layer(3, 0, seed=0)
    with pytest.raises(ValueError, match="dtype"):
        nets.two_layer(3, 3, seed=0, dtype="int64")
