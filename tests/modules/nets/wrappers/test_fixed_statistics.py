"""Batch normalisation with statistics that stay."""

import torch

from featurelab.modules import nets


def test_statistics_stay_while_all_weights_are_trained():
    net, x = nets.resnet18(3, width=4, seed=0), torch.randn(6, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    net(x)  # so that the statistics are not those of a new network
    net.eval()
    expected, before = net(x), {name: value.clone() for name, value in net.state_dict().items()}
    fixed = nets.freeze_statistics(net)
    fixed.train()
    assert torch.equal(fixed(x), expected)
    fixed(x).square().sum().backward()
    assert all(weight.grad is not None and weight.grad.abs().sum() > 0 for weight in fixed.parameters())
    assert list(fixed.state_dict()) == list(before)
    assert all(torch.equal(value, before[name]) for name, value in fixed.state_dict().items())
    assert not any(type(module) is torch.nn.BatchNorm2d for module in fixed.modules())
