import pytest
import torch
from torch import nn

from featurelab.modules.nets import perceptron


def test_a_perceptron_is_linear_layers_with_biases_and_relu_between():
    net = perceptron((5, 7, 6, 3), seed=1)
    x = torch.randn(4, 5, dtype=torch.float64)
    h = x
    for layer in net.layers:
        h = (h @ layer.weight.T + layer.bias).clamp(min=0)
    torch.testing.assert_close(net.features(x), h)
    torch.testing.assert_close(net(x), h @ net.head.weight.T + net.head.bias)
    torch.testing.assert_close(net(x.reshape(4, 1, 5)), net(x))


def test_initial_parameters_are_distributed_as_those_of_nn_linear():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layer = nn.Linear(400, 300)
    ours = perceptron((400, 300, 2), seed=4, dtype="float32").layers[0]
    for theirs, own in ((layer.weight, ours.weight), (layer.bias, ours.bias)):
        assert own.abs().max() <= 400**-0.5
        torch.testing.assert_close(own.std(), theirs.std(), rtol=0.1, atol=0)


def test_init_scale_multiplies_every_parameter():
    one, tenth = perceptron((5, 7, 3), seed=1), perceptron((5, 7, 3), init_scale=0.1, seed=1)
    for a, b in zip(one.parameters(), tenth.parameters(), strict=True):
        torch.testing.assert_close(b, 0.1 * a)


def test_layers_have_streams_of_their_own_and_precisions_agree():
    one, other = perceptron((5, 7, 3), seed=1), perceptron((5, 7, 9), seed=1)
    assert torch.equal(one.layers[0].weight, other.layers[0].weight)
    single = perceptron((5, 7, 3), seed=1, dtype="float32")
    torch.testing.assert_close(single.head.weight.double(), one.head.weight, atol=1e-7, rtol=1e-6)


@pytest.mark.parametrize(
    ("sizes", "scale", "message"), [((5,), 1.0, "sizes"), ((5, 0), 1.0, "sizes"), ((5, 2), -1.0, "init_scale")]
)
def test_faulty_sizes_and_scales_are_refused(sizes, scale, message):
    with pytest.raises(ValueError, match=message):
        perceptron(sizes, init_scale=scale, seed=0)
