"""The nonlinear feature layer on a trunk, and the normalised softmax."""

import pytest
import torch
from torch import nn

from featurelab.modules import learners, measures, nets


def trunk_feature(**options):
    defaults = {"dim": 6, "width": 40, "seed": 3, "dtype": "float64"}
    return nets.TrunkFeature(nn.Linear(4, 6, bias=False, dtype=torch.float64), **(defaults | options))


def test_trunk_feature_is_the_formula():
    net, x = trunk_feature(), torch.randn(7, 4, dtype=torch.float64)
    W, a = net.hidden.weight.T, net.head.weight
    h = net.trunk(x)
    F = torch.tanh(h @ W)
    torch.testing.assert_close(net.representation(x), h)
    torch.testing.assert_close(net.features(x), F)
    torch.testing.assert_close(net(x), torch.stack([F @ a[0], F @ a[1]], dim=1) / 40**0.5)


def test_the_layer_starts_with_unit_columns_and_heads_of_norm_about_one():
    net = trunk_feature(dim=50, width=2000)
    torch.testing.assert_close(net.hidden.weight.norm(dim=1), torch.ones(2000, dtype=torch.float64))
    assert (net.head.weight.norm(dim=1) - 1).abs().max() < 0.1
    assert abs(torch.cosine_similarity(*net.head.weight, dim=0).item()) < 0.1


def test_feature_layers_are_drawn_from_the_seed_alone():
    state = torch.get_rng_state()
    one, same, other = (trunk_feature(seed=s) for s in (1, 1, 2))
    torch.set_rng_state(state)
    assert torch.equal(one.hidden.weight, same.hidden.weight)
    assert torch.equal(one.head.weight, same.head.weight)
    assert not torch.equal(one.hidden.weight, other.hidden.weight)
    single = trunk_feature(seed=1, dtype="float32")
    assert torch.equal(single.head.weight, one.head.weight.float())


def test_untrained_heads_stay_while_the_rest_learns():
    net = trunk_feature(train_heads=False)
    before = net.head.weight.clone()
    x = torch.randn(8, 4, dtype=torch.float64)
    weights = [p for p in net.parameters() if p.requires_grad]
    assert len(weights) == 2
    net(x).square().sum().backward()
    learners.adam(0.1)(net).step()
    assert torch.equal(net.head.weight, before)
    with pytest.raises(ValueError, match="width"):
        trunk_feature(width=0)
    with pytest.raises(ValueError, match="activation"):
        trunk_feature(activation="tan")


def test_norm_softmax_gives_cosines_over_temperature():
    head = nets.NormSoftmax(5, 3, temperature=0.05, seed=0, dtype="float64")
    F = torch.randn(9, 5, dtype=torch.float64)
    expected = torch.stack([torch.cosine_similarity(F, p[None], dim=1) for p in head.weight], dim=1) / 0.05
    torch.testing.assert_close(head(F), expected)
    assert head(F).abs().max() <= 20 + 1e-9
    torch.testing.assert_close(head(7 * F), head(F))
    with torch.no_grad():
        head.weight.mul_(3)
    torch.testing.assert_close(head(F), expected)
    with pytest.raises(ValueError, match="temperature"):
        nets.NormSoftmax(5, 3, temperature=0.0, seed=0)


def test_its_gradient_is_orthogonal_to_each_class_weight():
    """The loss does not depend on the length of a weight, so its gradient has no part along it."""
    head = nets.NormSoftmax(5, 3, seed=1, dtype="float64")
    loss = learners.cross_entropy(head, (torch.randn(9, 5, dtype=torch.float64), torch.arange(9) % 3))
    loss.backward()
    torch.testing.assert_close(
        (head.weight * head.weight.grad).sum(1), torch.zeros(3, dtype=torch.float64), atol=1e-12, rtol=0
    )


def test_metric_features_have_one_length_so_alignment_is_bounded():
    net = nets.MetricNet(nn.Linear(4, 16), 16, 3, seed=0)
    F = net.features(10 * torch.randn(50, 4))
    torch.testing.assert_close(F.square().sum(1), torch.full((50,), 16.0), rtol=1e-3, atol=0)
    torch.testing.assert_close(F.mean(1), torch.zeros(50), atol=1e-5, rtol=0)
    assert -16 / 49 - 1e-3 <= measures.alignment(F) <= 16
    assert not list(net.norm.parameters())
    assert list(measures.layer_names(net)) == ["trunk", "head"]
    torch.testing.assert_close(net(torch.ones(2, 4)), net.head(net.features(torch.ones(2, 4))))
