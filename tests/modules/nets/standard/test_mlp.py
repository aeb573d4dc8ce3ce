import subprocess
import sys

import pytest
import torch
from torch import nn

from featurelab.modules import nets


def test_mlp_is_weights_and_activations_in_turn():
    net = nets.mlp(5, 7, 2, outputs=3, activation="tanh", seed=0)
    x = torch.randn(11, 5, dtype=torch.float64)
    W = [layer.weight for layer in net.layers]
    torch.testing.assert_close(net(x), torch.tanh(torch.tanh(x @ W[0].T) @ W[1].T) @ W[2].T)
    assert [tuple(w.shape) for w in W] == [(7, 5), (7, 7), (3, 7)]
    assert all(layer.bias is None for layer in net.layers)


def test_output_is_two_dimensional_for_one_output_and_for_images():
    net = nets.mlp(12, 4, 1, seed=0)
    images = torch.randn(6, 3, 2, 2, dtype=torch.float64)
    assert net(images).shape == (6, 1)
    torch.testing.assert_close(net(images), net(images.flatten(1)))


def test_weights_have_the_variance_that_init_scale_says():
    net = nets.mlp(400, 500, 2, outputs=300, init_scale=[0.01, 1.0, 4.0], seed=3)
    for layer, scale in zip(net.layers, (0.01, 1.0, 4.0), strict=True):
        draws = layer.weight.detach().flatten() * (layer.in_features / scale) ** 0.5
        assert draws.mean().abs() < 5 / len(draws) ** 0.5
        assert (draws.var() - 1).abs() < 5 * (2 / len(draws)) ** 0.5
        assert (draws.pow(4).mean() - 3).abs() < 0.1  # a Gaussian, not a uniform with that variance


def test_init_scale_multiplies_the_same_draws():
    small, unit = nets.mlp(5, 7, 1, init_scale=0.04, seed=1), nets.mlp(5, 7, 1, seed=1)
    for a, b in zip(small.parameters(), unit.parameters(), strict=True):
        torch.testing.assert_close(a, 0.2 * b)


def test_float32_and_float64_networks_agree_up_to_rounding():
    single, double = (nets.mlp(30, 40, 3, seed=5, dtype=d) for d in ("float32", "float64"))
    for a, b in zip(single.parameters(), double.parameters(), strict=True):
        assert a.dtype == torch.float32
        assert torch.equal(a, b.float())


def test_layers_draw_from_streams_of_their_own():
    one, three = nets.mlp(5, 7, 2, outputs=1, seed=2), nets.mlp(5, 7, 2, outputs=3, seed=2)
    assert all(torch.equal(a.weight, b.weight) for a, b in zip(one.layers[:-1], three.layers[:-1], strict=True))
    square = nets.mlp(7, 7, 1, outputs=7, seed=2)
    assert not torch.equal(square.layers[0].weight, square.layers[1].weight)


def test_a_seed_fixes_the_network_and_leaves_the_global_stream_alone():
    torch.manual_seed(0)
    before = torch.random.get_rng_state()
    a, b, c = (nets.mlp(5, 7, 2, seed=seed) for seed in (0, 0, 1))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert all(torch.equal(p, q) for p, q in zip(a.parameters(), b.parameters(), strict=True))
    assert not any(torch.equal(p, q) for p, q in zip(a.parameters(), c.parameters(), strict=True))


def test_quadratic_network_is_a_weighted_sum_of_squares():
    net = nets.quadratic_net(300, 500, seed=4)
    x = torch.randn(9, 300, dtype=torch.float64)
    W, a = net.layers[0].weight, net.layers[1].weight[0]
    torch.testing.assert_close(net(x)[:, 0], (x @ W.T).square() @ a)
    assert abs(W.var().item() * 500 - 1) < 0.02
    assert abs(a.var().item() - 1) < 0.3


@pytest.mark.parametrize(
    ("name", "nearest"), [("quadratics", "quadratic"), ("ReLU6", "relu"), ("tan", "tanh"), ("", None)]
)
def test_unknown_activation_is_refused_with_the_nearest_name(name, nearest):
    with pytest.raises(ValueError, match=f"nearest known one is '{nearest}'" if nearest else "unknown activation"):
        nets.activation(name)
    with pytest.raises(ValueError, match="unknown activation"):
        nets.mlp(2, 2, 1, activation=name, seed=0)


def test_activation_gives_a_module_of_that_name():
    h = torch.linspace(-2, 2, 9)
    assert torch.equal(nets.activation("quadratic")(h), h * h)
    assert isinstance(nets.activation("relu"), nn.ReLU)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"width": 0}, "width must be at least 1"),
        ({"hidden": -1}, "hidden must be at least 0"),
        ({"outputs": 0}, "outputs"),
        ({"init_scale": [1.0, 1.0]}, "one number or 3"),
        ({"init_scale": -1.0}, "not negative"),
        ({"init_scale": float("nan")}, "finite"),
        ({"dtype": "float46"}, "'float64'"),
    ],
)
def test_impossible_networks_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        nets.mlp(**({"dim": 3, "width": 4, "hidden": 2, "seed": 0} | wrong))


def test_importing_the_packages_does_not_import_torch():
    use = "from featurelab.modules import measures, nets; assert 'torch' not in sys.modules; dir(measures), dir(nets)"
    code = f"import sys; {use}"
    subprocess.run([sys.executable, "-c", code], check=True)
