"""Residual networks, plain convolutional trunks, and what all convolutional networks share."""

import pytest
import torch
from convnets import check_net, parameters
from torch import nn
from torch.nn import functional as F

from featurelab.modules import nets
from featurelab.modules.measures import layer_names


def test_published_networks_have_their_number_of_parameters():
    assert parameters(nets.resnet18(1000, stem="imagenet", seed=0)) == 11_689_512
    assert parameters(nets.resnet50(1000, seed=0)) == 25_557_032


@pytest.mark.parametrize(
    ("options", "features"),
    [
        ({"depths": (1, 1, 1), "widths": (16, 32, 64)}, 64),
        ({"depths": (1, 2), "widths": (8, 12), "block": "bottleneck", "stem": "imagenet"}, 48),
    ],
)
def test_small_residual_networks(options, features):
    check_net(lambda **o: nets.resnet(5, channels=2, **options, **o), (4, 2, 16, 16), features, 5)


def test_a_residual_network_is_its_equations():
    net = nets.resnet(3, depths=(1, 1), widths=(4, 6), channels=1, seed=0, dtype="float64").eval()
    x = torch.randn(2, 1, 9, 9, dtype=torch.float64)
    stem, first, second, _ = net.trunk

    def step(h, conv, norm, stride=1):
        h = F.conv2d(h, conv.weight, stride=stride, padding=conv.kernel_size[0] // 2)
        return h / (1 + norm.eps) ** 0.5  # untouched statistics: mean 0, variance 1

    h = step(x, stem[0], stem[1]).relu()
    block = first[0].residual
    h = (h + step(step(h, block[0], block[1]).relu(), block[3], block[4])).relu()
    block, shortcut = second[0].residual, second[0].shortcut
    new = step(step(h, block[0], block[1], 2).relu(), block[3], block[4])
    h = (step(h, shortcut[0], shortcut[1], 2) + new).relu()
    torch.testing.assert_close(net(x), h.flatten(2).mean(2) @ net.head.weight.T + net.head.bias)


def test_strides_halve_sides_stage_by_stage():
    sides = []
    net = nets.resnet18(10, width=4, seed=0)
    for stage in list(net.trunk)[:-1]:
        stage.register_forward_hook(lambda module, inputs, output: sides.append(output.shape[-1]))
    net(torch.zeros(1, 3, 32, 32))
    assert sides == [32, 32, 16, 8, 4]
    sides.clear()
    large = nets.resnet50(10, width=2, seed=0)
    for stage in list(large.trunk)[:-1]:
        stage.register_forward_hook(lambda module, inputs, output: sides.append(output.shape[-1]))
    large(torch.zeros(1, 3, 224, 224))
    assert sides == [56, 56, 28, 14, 7]


def test_convolutions_are_drawn_as_he_et_al_and_the_head_as_torch_does():
    net = nets.resnet18(1000, seed=3)
    for layer in layer_names(net).values():
        w = layer.weight.detach().double().flatten()
        if isinstance(layer, nn.Conv2d):
            std = (2 / (layer.out_channels * layer.kernel_size[0] ** 2)) ** 0.5
            assert w.std().item() == pytest.approx(std, rel=5 / (2 * len(w)) ** 0.5)
        else:
            bound = layer.in_features**-0.5
            assert w.abs().max() <= bound
            assert w.std().item() == pytest.approx(bound / 3**0.5, rel=0.01)
            assert 0 < layer.bias.abs().max() <= bound


def test_changing_one_layer_leaves_the_draws_of_the_others():
    few, many = (
        nets.resnet(2, seed=0, widths=(4, 8), depths=(1, 1)),
        nets.resnet(7, seed=0, widths=(4, 8), depths=(1, 1)),
    )
    same = [
        torch.equal(a, b)
        for (name, a), b in zip(few.named_parameters(), many.parameters(), strict=True)
        if not name.startswith("head")
    ]
    assert len(same) > 10
    assert all(same)


@pytest.mark.parametrize(("side", "size"), [(8, 4), (7, 4), (3, 4), (5, 2), (6, 1)])
def test_means_over_a_grid_are_adaptive_average_pooling(side, size):
    x = torch.randn(2, 3, side, side + 1, dtype=torch.float64, requires_grad=True)
    ours, theirs = nets.MeanGrid(size)(x), F.adaptive_avg_pool2d(x, size)
    torch.testing.assert_close(ours, theirs)
    weights = torch.randn_like(ours)
    for a, b in zip(*(torch.autograd.grad((y * weights).sum(), x) for y in (ours, theirs)), strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize(
    ("options", "features"),
    [
        ({"channels": (16, 32, 32), "strides": (1, 1, 2), "pool": 2}, 128),
        ({"channels": (16, 32, 64)}, 64),
        ({"channels": (4, 6), "batch_norm": False, "init": "he"}, 6),
    ],
)
def test_plain_trunks_with_a_head(options, features):
    def build(seed, dtype="float32"):
        trunk = nets.conv_trunk(1, seed=seed, dtype=dtype, **options)
        return nets.TrunkHead(trunk, nets.initialised(lambda: nn.Linear(features, 4), seed=seed, dtype=dtype))

    check_net(build, (3, 1, 8, 8), features, 4)


def test_a_head_may_be_a_whole_network():
    trunk = nets.resnet18(1, width=2, seed=0, dtype="float64").trunk
    net = nets.TrunkHead(trunk, nets.mlp(16, 8, 5, outputs=10, seed=0)).eval()
    x = torch.randn(3, 3, 16, 16, dtype=torch.float64)
    torch.testing.assert_close(net(x), net.head(net.features(x)))
    assert list(layer_names(net.head)) == [*"012345"]


def test_wrong_networks_are_refused():
    with pytest.raises(ValueError, match="block must be one of"):
        nets.resnet(10, block="wide", seed=0)
    with pytest.raises(ValueError, match="positive depth"):
        nets.resnet(10, depths=(1, 0), widths=(4, 8), seed=0)
    with pytest.raises(ValueError, match="as many strides"):
        nets.conv_trunk(1, (4, 8), strides=(1,), seed=0)
    with pytest.raises(ValueError, match="dtype"):
        nets.resnet18(10, seed=0, dtype="float63")
    with pytest.raises(ValueError, match="unknown init"):
        nets.conv_trunk(1, seed=0, init="orthogonal")
    with pytest.raises(TypeError, match="cannot draw the parameters of 0, a PReLU"):
        nets.initialised(lambda: nn.Sequential(nn.PReLU()), seed=0)
