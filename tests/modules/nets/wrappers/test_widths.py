"""Networks of several widths side by side are what each is alone."""

import pytest
import torch

from featurelab.modules import data, learners, nets


def alone(width, seed=0, **options):
    given = {"outputs": 3, "activation": "quadratic", "seed": seed} | options
    return nets.mlp(5, width, 1, **given)


def problem():
    x = torch.randn(12, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return data.TensorData((x, torch.arange(12) % 3)).train


def trained(net, loss, steps=6):
    optimizer = learners.adam(0.05, weight_decay=0.01)(net)
    for _ in range(steps):
        optimizer.zero_grad()
        loss(net, problem()).backward()
        optimizer.step()
    return net


def test_outputs_are_those_of_each():
    together, x = nets.ParallelWidths([alone(2), alone(7), alone(1)]), problem()[0]
    assert together.sizes == (2, 7, 1)
    assert torch.allclose(together(x), torch.stack([alone(m)(x) for m in (2, 7, 1)], 1), atol=1e-13)
    assert sum(p.numel() for p in together.parameters()) == 10 * (5 + 3)


def test_each_is_trained_as_it_would_be_alone():
    together = trained(nets.ParallelWidths([alone(2), alone(7)]), learners.stacked_cross_entropy)
    apart = [trained(alone(m), learners.cross_entropy) for m in (2, 7)]
    x = problem()[0]
    assert torch.allclose(together(x), torch.stack([net(x) for net in apart], 1), atol=1e-9)


@pytest.mark.parametrize(
    "others",
    [
        [],
        [nets.mlp(5, 4, 2, outputs=3, seed=0)],
        [alone(2), alone(2, outputs=4)],
        [alone(2), alone(2, activation="relu")],
    ],
)
def test_networks_that_do_not_fit_together_are_refused(others):
    with pytest.raises(ValueError, match="one hidden layer each"):
        nets.ParallelWidths(others)
