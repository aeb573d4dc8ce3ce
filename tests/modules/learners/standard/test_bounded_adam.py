"""A parameter that is kept within bounds, and rates along a cosine."""

import math

import pytest
import torch

from featurelab.modules import learners, nets


def test_a_parameter_stays_within_its_bound_and_others_go_on():
    net = nets.parity_heads(2, 3, init_scale=1.0, seed=0)
    optimizer = learners.with_bounded_parameter(learners.adam(0.5), "signs", 1.0)(net)
    for _ in range(20):
        optimizer.zero_grad()
        (-net.signs.sum() - net.heads.sum()).backward()
        optimizer.step()
    assert (net.signs == 1).all()
    assert net.heads.min() > 5
    with pytest.raises(ValueError, match="bound"):
        learners.with_bounded_parameter(learners.adam(0.5), "signs", 0.0)
    with pytest.raises(AttributeError):
        learners.with_bounded_parameter(learners.adam(0.5), "nothing", 1.0)(torch.nn.Linear(2, 1))


def test_rates_follow_a_cosine_and_go_on_from_a_checkpoint():
    net = torch.nn.Linear(1, 1, bias=False)
    optimizer = learners.scheduled_by_step(learners.gd(2.0), learners.cosine_schedule(4))(net)
    rates = []
    for _ in range(6):
        rates.append(optimizer.param_groups[0]["lr"])
        net.weight.grad = torch.zeros(1, 1)
        optimizer.step()
        kept, optimizer = (
            optimizer.state_dict(),
            learners.scheduled_by_step(learners.gd(2.0), learners.cosine_schedule(4))(net),
        )
        optimizer.load_state_dict(kept)
    middle = math.cos(math.pi / 4)
    assert rates == pytest.approx([2, 1 + middle, 1, 1 - middle, 0, 0])
    halved = learners.scheduled_by_step(learners.gd(2.0), learners.milestone_schedule([1], 0.5))(net)
    net.weight.grad = torch.zeros(1, 1)
    halved.step()
    assert halved.param_groups[0]["lr"] == 1.0
