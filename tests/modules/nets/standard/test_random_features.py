"""Random features: what they average, and that a seed says all."""

import pytest
import torch

from featurelab.modules import nets, theory


def pair(r, dim=8):
    x = torch.zeros(2, dim, dtype=torch.float64)
    x[0, 0], x[1, 0], x[1, 1] = 1.0, r, (1 - r**2) ** 0.5
    return x


@pytest.mark.parametrize("r", [-0.5, 0.0, 0.7, 1.0])
def test_relu_features_average_the_closed_form(r):
    F = nets.RandomFeatures("relu", 8, 200_000, seed=3)(pair(r))
    expected = theory.deep_neural_collapse.relu_feature_kernel(torch.tensor([r], dtype=torch.float64)).item()
    assert (F[0] @ F[1]).item() == pytest.approx(expected, abs=0.02)


def test_cosine_features_average_the_laplacian_kernel_of_the_l1_distance():
    x = torch.randn(6, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 4
    F = nets.RandomFeatures("cos", 5, 200_000, gamma=0.1, seed=1)(x)
    expected = torch.exp(-0.1 * (x[:, None] - x).abs().sum(2))
    assert torch.allclose(F @ F.T, expected, atol=0.015)


def test_linear_features_keep_inner_products_on_average_and_identity_keeps_all():
    x = pair(0.3)
    F = nets.RandomFeatures("linear", 8, 200_000, seed=1)(x)
    assert torch.allclose(F @ F.T, x @ x.T, atol=0.02)
    same = nets.RandomFeatures("identity", 8, 50, seed=1)
    assert torch.equal(same(x), x)
    assert same.width == 8


@pytest.mark.parametrize("kind", ["relu", "cos", "linear"])
def test_weights_come_from_the_seed_alone_and_more_features_are_added_behind(kind):
    torch.manual_seed(5)
    state = torch.get_rng_state()
    small, again, wide, other = (nets.RandomFeatures(kind, 4, D, seed=s) for D, s in [(6, 1), (6, 1), (24, 1), (6, 2)])
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(small.weight, again.weight)
    assert torch.equal(small.phase, wide.phase[:6])
    scale = 1.0 if kind == "cos" else 2.0  # the wide one's weights are smaller by the root of 4
    assert torch.allclose(small.weight, scale * wide.weight[:6], rtol=1e-15)
    assert not torch.allclose(small.weight, other.weight)
    assert not small.state_dict()
    single = nets.RandomFeatures(kind, 4, 6, seed=1, dtype="float32")
    assert torch.equal(single.weight, small.weight.float())


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"kind": "sine"}, "unknown feature map 'sine'"),
        ({"dim": 0}, "dim and width"),
        ({"width": 0}, "dim and width"),
        ({"gamma": 0.0}, "gamma"),
        ({"dtype": "int8"}, "dtype"),
    ],
)
def test_what_cannot_be_is_refused_by_name(arguments, named):
    with pytest.raises(ValueError, match=named):
        nets.RandomFeatures(**({"kind": "relu", "dim": 3, "width": 4, "seed": 0} | arguments))
