"""A parameter that is kept within bounds, and rates along a cosine."""

import math

import pytest
import torch

from featurelab.modules import learners, nets


def test_a_parameter_stays_within_its_bound_and_others_go_on():
    net = nets.parity_heads(2, 3, init_scale=1.0, seed=0)
    optimizer = learners.within(learners.adam(0.5), "signs", 1.0)(net)
    for _ in range(20):
        optimizer.zero_grad()
        (-net.signs.sum() - net.heads.sum()).backward()
        optimizer.step()
    assert (net.signs == 1).all()
    assert net.heads.min() > 5
    with pytest.raises(ValueError, match="bound"):
        learners.within(learners.adam(0.5), "signs", 0.0)
    with pytest.raises(AttributeError):
        learners.within(learners.adam(0.5), "nothing", 1.0)(torch.nn.Linear(2, 1))


def test_rates_follow_a_cosine():
    schedule = learners.cosine(4)
    assert [schedule(epoch) for epoch in range(6)] == pytest.approx(
        [1, (1 + math.cos(math.pi / 4)) / 2, 0.5, (1 - math.cos(math.pi / 4)) / 2, 0, 0]
    )
    with pytest.raises(ValueError, match="epochs"):
        learners.cosine(0)
