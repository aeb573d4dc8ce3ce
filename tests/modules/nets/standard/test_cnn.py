"""The convolutional classifier."""

from functools import partial

import pytest
import torch
from convnets import check_net, parameters

from featurelab.modules import learners, nets
from featurelab.modules.data import Digits


def test_a_cnn_is_a_trunk_of_convolutions_and_a_linear_head():
    build = partial(nets.cnn, 3, (8, 16), outputs=5, pool=2)
    check_net(build, (4, 3, 9, 7), features=16 * 4, classes=5)
    trunk = 3 * 8 * 9 + 2 * 8 + 8 * 16 * 9 + 2 * 16
    assert parameters(build(seed=0)) == trunk + 16 * 4 * 5 + 5


def test_a_seed_says_all_and_the_head_leaves_the_trunk_alone():
    before = torch.get_rng_state()
    one, same, other, wider = (nets.cnn(1, (4,), outputs=n, seed=s) for n, s in ((2, 0), (2, 0), (2, 1), (3, 0)))
    assert torch.equal(torch.get_rng_state(), before)
    x = torch.rand(5, 1, 8, 8)
    assert torch.equal(one(x), same(x))
    assert not torch.equal(one(x), other(x))
    assert torch.equal(one.trunk[0].weight, wider.trunk[0].weight)


def test_a_cnn_learns_digits():
    task = Digits(1000, targets="labels", pixels="overall", flatten=False, seed=0, dtype="float32")
    net = nets.cnn(1, (8, 16), outputs=10, seed=0)
    optimizer = learners.adam(0.01)(net)
    x, y = task.train
    for _ in range(60):
        optimizer.zero_grad()
        learners.cross_entropy(net, (x, y)).backward()
        optimizer.step()
    assert (net(task.test[0]).argmax(1) == task.test[1]).float().mean() > 0.85


@pytest.mark.parametrize("options", [{"outputs": 0}, {"outputs": 2, "channels": ()}, {"outputs": 2, "strides": (1,)}])
def test_what_cannot_be_is_refused(options):
    with pytest.raises(ValueError, match="got"):
        nets.cnn(1, **options, seed=0)
