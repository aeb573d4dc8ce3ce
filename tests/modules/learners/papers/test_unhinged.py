"""The unhinged loss, and gradient descent through inner products against the real thing."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from featurelab.modules import learners, nets


def test_unhinged_is_the_logistic_loss_to_first_order():
    y = torch.tensor([[1.0], [-1.0], [1.0]], dtype=torch.float64)
    x = torch.randn(3, 2, dtype=torch.float64)

    def value(scale):
        f = scale * x[:, :1]
        logistic = torch.nn.functional.softplus(-y * f).mean()
        return (logistic - learners.unhinged_loss(lambda _: f, (x, y))).item()

    assert value(0.0) == pytest.approx(torch.log(torch.tensor(2.0)).item(), rel=1e-6)
    assert abs(value(1e-3) - value(0.0)) < 1e-6


def test_unhinged_and_stacked_losses_refuse_or_sum_as_they_say():
    with pytest.raises(ValueError, match="targets"):
        learners.unhinged_loss(lambda x: x, (torch.zeros(3, 1), torch.zeros(3)))
    f, y = torch.randn(6, 2, 3, dtype=torch.float64), torch.tensor([0, 1, 2, 0, 1, 2])
    one_by_one = sum(learners.cross_entropy(lambda x, s=s: f[:, s], (f, y)) for s in range(2))
    assert torch.allclose(learners.stacked_cross_entropy(lambda _: f, (f, y)), one_by_one)


@settings(max_examples=15)
@given(st.integers(1, 4), st.integers(1, 30), st.floats(0.01, 0.5), st.sampled_from([0.0, 0.1]), st.floats(0.05, 2.0))
def test_descent_on_inner_products_is_descent_on_weights(samples, dim, lr, weight_decay, omega):
    chance = torch.Generator().manual_seed(dim)
    x = torch.randn(samples, dim, generator=chance, dtype=torch.float64)
    y = torch.where(torch.rand(samples, 1, generator=chance) < 0.5, -1.0, 1.0).double()
    others = torch.randn(2, dim, generator=chance, dtype=torch.float64)
    net = nets.cubic_net(dim, 3, omega=omega, seed=0)
    P = torch.cat([x, others])
    path = learners.cubic_descent(
        P @ x.T, (P @ net.layer.weight.T).detach(), y, lr=lr, weight_decay=weight_decay, steps=6
    )
    optimiser = learners.gd(lr, weight_decay=weight_decay)(net)
    for step, Z in path:
        expected = (P @ net.layer.weight.T).detach()
        assert torch.allclose(Z, expected, rtol=1e-9, atol=1e-12), step
        optimiser.zero_grad()
        learners.unhinged_loss(net, (x, y)).backward()
        optimiser.step()
    assert step == 6


def test_descent_on_inner_products_refuses_shapes_that_do_not_match():
    with pytest.raises(ValueError, match="gram"):
        next(learners.cubic_descent(torch.zeros(3, 2), torch.zeros(2, 1), torch.ones(2), lr=0.1, steps=1))
    with pytest.raises(ValueError, match="gram"):
        next(learners.cubic_descent(torch.zeros(1, 2), torch.zeros(1, 1), torch.ones(2), lr=0.1, steps=1))
