import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from featurelab.modules.measures import layer_agop, relu_tangent_covariance, tangent_covariance
from featurelab.modules.nets import mlp


def drawn(*sizes, seed=0):
    """Weights of the shapes that `sizes` make, and a generator."""
    chance = torch.Generator().manual_seed(seed)
    weights = [torch.randn(b, a, generator=chance, dtype=torch.float64) / a**0.5 for a, b in itertools.pairwise(sizes)]
    return weights, chance


def slow(weights, inputs):
    """K of each layer from one Jacobian a sample, by autograd."""
    total = [0.0] * len(weights)
    for x in inputs:
        before = []
        for layer, W in enumerate(weights):
            before.append((W @ (x if layer == 0 else before[-1].relu())).detach())
        for layer, h in enumerate(before):

            def rest(h, layer=layer):
                for W in weights[layer + 1 :]:
                    h = W @ h.relu()
                return h

            J = torch.autograd.functional.jacobian(rest, h)
            total[layer] = total[layer] + J.T @ J / len(inputs)
    return total


@settings(max_examples=25)
@given(
    sizes=st.lists(st.integers(1, 7), min_size=2, max_size=5),
    n=st.integers(1, 9),
    chunk=st.integers(1, 10),
    seed=st.integers(0, 1000),
)
def test_explicit_backward_pass_is_autograd_s_for_any_sizes_and_chunks(sizes, n, chunk, seed):
    weights, chance = drawn(*sizes, seed=seed)
    x = torch.randn(n, sizes[0], generator=chance, dtype=torch.float64)
    found = relu_tangent_covariance(weights, x, chunk=chunk)
    for layer, K in zip(found, slow(weights, x), strict=True):
        torch.testing.assert_close(layer.K, K, rtol=1e-10, atol=1e-12)


def test_it_agrees_with_the_measure_of_any_network():
    net = mlp(12, 20, 3, outputs=4, seed=0)
    x = torch.randn(40, 12, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    found = relu_tangent_covariance([layer.weight for layer in net.layers], x)
    expected, agops = tangent_covariance(net, x), layer_agop(net, x)
    for index, layer in enumerate(found):
        torch.testing.assert_close(layer.K, expected[str(index)].K, rtol=1e-12, atol=1e-14)
        torch.testing.assert_close(layer.W.T @ layer.K @ layer.W, agops[str(index)], rtol=1e-12, atol=1e-14)


def test_weights_are_copied_and_cast_to_the_inputs():
    weights, _ = drawn(5, 4, 3)
    x = torch.ones(2, 5, dtype=torch.float64)
    found = relu_tangent_covariance([weight.float().requires_grad_() for weight in weights], x)
    assert all(layer.K.dtype == torch.float64 and not layer.W.requires_grad for layer in found)
    assert torch.equal(found[-1].K, torch.eye(3, dtype=torch.float64))


def test_a_kink_counts_as_inactive_as_it_does_for_torch():
    weights, _ = drawn(3, 4, 2)
    assert not relu_tangent_covariance(weights, torch.zeros(1, 3, dtype=torch.float64))[0].K.any()


def test_what_does_not_fit_is_refused():
    weights, _ = drawn(5, 4, 3)
    x = torch.ones(2, 5)
    for bad in (x[:0], x[:, None], torch.ones(5)):
        with pytest.raises(ValueError, match="are needed"):
            relu_tangent_covariance(weights, bad)
    with pytest.raises(ValueError, match="0 weights"):
        relu_tangent_covariance([], x)
    with pytest.raises(ValueError, match=r"\(3, 4\) do not act on the 5 numbers"):
        relu_tangent_covariance(weights[1:], x)
    with pytest.raises(ValueError, match="do not act"):
        relu_tangent_covariance(weights, torch.ones(2, 4))
