import math

import pytest
import torch

from featurelab.modules import data, learners, nets


def test_steps_are_those_of_the_formula_with_a_rate_that_rises_linearly():
    net = torch.nn.Linear(3, 1, bias=False, dtype=torch.float64)
    lr, b1, b2, decay, warmup = 0.1, 0.8, 0.95, 0.3, 4
    optimizer = learners.adamw(lr, betas=(b1, b2), weight_decay=decay, warmup=warmup)(net)
    w = net.weight.detach().clone()
    m, v = torch.zeros_like(w), torch.zeros_like(w)
    chance = torch.Generator().manual_seed(0)
    for t in range(1, 8):
        g = torch.randn(w.shape, dtype=w.dtype, generator=chance)
        net.weight.grad = g.clone()
        optimizer.step()
        m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g * g
        rate = lr * min(1, t / warmup)
        w = w - rate * decay * w - rate * (m / (1 - b1**t)) / ((v / (1 - b2**t)).sqrt() + 1e-8)
        torch.testing.assert_close(net.weight.detach(), w)


def test_a_transposed_gradient_counts_as_what_it_is():
    """The fused kernel goes through memory in order, and autograd may return a view."""
    nets_ = [torch.nn.Linear(3, 5, bias=False, dtype=torch.float64) for _ in range(2)]
    nets_[1].load_state_dict(nets_[0].state_dict())
    gradient = torch.randn(3, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for net, g in zip(nets_, (gradient.T, gradient.T.contiguous()), strict=True):
        optimizer = learners.adamw(0.1)(net)
        for _ in range(3):
            net.weight.grad = g
            optimizer.step()
    torch.testing.assert_close(nets_[0].weight, nets_[1].weight)
    assert not gradient.T.is_contiguous()


def test_the_warm_up_goes_on_where_a_checkpoint_was_taken():
    def stepped(optimizer, net, times):
        for _ in range(times):
            net.weight.grad = torch.ones_like(net.weight)
            optimizer.step()
        return optimizer.param_groups[0]["lr"]

    factory, net = learners.adamw(0.1, warmup=10), torch.nn.Linear(2, 1)
    first = factory(net)
    assert stepped(first, net, 3) == pytest.approx(0.03)
    second = factory(net)
    second.load_state_dict(first.state_dict())
    assert stepped(second, net, 2) == pytest.approx(0.05)
    assert stepped(second, net, 20) == pytest.approx(0.1)


def test_a_penalty_is_added_to_any_loss_and_its_gradient_reaches_the_weights():
    net = nets.polynomial_net(3, 2, 4, seed=0)
    x, y = data.ModularAddition(3, 2, seed=0).train
    plain = learners.cross_entropy(net, (x, y))
    loss = learners.penalised_loss("cross_entropy", lambda: net.neurons.square().sum(), 0.25)
    value = loss(net, (x, y))
    norm = sum(w.square().sum() for w in net.parameters())
    torch.testing.assert_close(value, plain + 0.25 * norm)
    (gradient,) = torch.autograd.grad(value - plain, [net.head.weight])
    torch.testing.assert_close(gradient, 0.5 * net.head.weight.detach())
    none = learners.penalised_loss("cross_entropy", lambda: torch.tensor(math.nan), 0.0)
    torch.testing.assert_close(none(net, (x, y)), plain)


def test_negative_strengths_and_warm_ups_are_refused():
    with pytest.raises(ValueError, match="strength"):
        learners.penalised_loss("mse", lambda: torch.tensor(0.0), -1.0)
    with pytest.raises(ValueError, match="warmup"):
        learners.adamw(0.1, warmup=-1)
