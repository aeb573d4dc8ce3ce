import pytest
import torch

from featurelab.modules.nets import xavier_mlp


def net(**options):
    return xavier_mlp(300, 200, 3, outputs=10, **({"seed": 0, "dtype": "float64"} | options))


def test_hidden_layers_follow_glorot_times_the_gain_and_the_readout_torch_s_law():
    layers = net(gain=0.3).layers
    for index, layer in enumerate(layers):
        fan_out, fan_in = layer.weight.shape
        bound = fan_in**-0.5 if index == 3 else 0.3 * (6 / (fan_in + fan_out)) ** 0.5
        assert layer.bias is None
        assert layer.weight.abs().max() <= bound
        assert layer.weight.abs().max() > 0.99 * bound
        assert layer.weight.std().item() == pytest.approx(bound / 3**0.5, rel=0.05)
        assert abs(layer.weight.mean().item()) < 0.05 * bound


def test_the_gain_scales_hidden_layers_and_nothing_else():
    small, large = net(gain=0.5), net(gain=1.5)
    for index, (a, b) in enumerate(zip(small.layers, large.layers, strict=True)):
        torch.testing.assert_close(b.weight, a.weight if index == 3 else 3 * a.weight)


def test_the_first_layer_may_keep_torch_s_law():
    glorot, default = net(gain=0.2), net(gain=0.2, first="default")
    ratio = 300**-0.5 / (0.2 * (6 / 500) ** 0.5)
    torch.testing.assert_close(default.layers[0].weight, ratio * glorot.layers[0].weight)
    for a, b in zip(glorot.layers[1:], default.layers[1:], strict=True):
        assert torch.equal(a.weight, b.weight)


def test_draws_depend_on_the_seed_only_and_disturb_nobody():
    torch.manual_seed(7)
    before = torch.get_rng_state()
    first, again, other = net(), net(), net(seed=1)
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), again.parameters(), strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(first.parameters(), other.parameters(), strict=True))
    single = net(dtype="float32")
    assert all(torch.equal(a.float(), b) for a, b in zip(first.parameters(), single.parameters(), strict=True))


def test_bad_settings_are_refused():
    with pytest.raises(ValueError, match="first must be"):
        net(first="other")
    with pytest.raises(ValueError, match="gain"):
        net(gain=-1.0)
    with pytest.raises(ValueError, match="width must be at least 1"):
        xavier_mlp(3, 0, 2, seed=0)
