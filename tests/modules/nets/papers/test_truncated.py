"""Truncated ReLUs, smoothed in closed form; the mirrored start; the network of lemma 2.5."""

import math

import pytest
import torch

from featurelab.modules import data, learners, measures, nets, theory


@pytest.mark.parametrize("noise", [0.04, 0.3, 1.5])
def test_smoothing_is_the_mean_over_noise_and_so_is_its_slope(noise):
    z = torch.linspace(-2, 3, 41, dtype=torch.float64).requires_grad_()
    smooth = nets.truncated_relu(z, noise)
    (slope,) = torch.autograd.grad(smooth.sum(), z)
    xi = torch.linspace(-9, 9, 40_001, dtype=torch.float64)
    weight = torch.exp(-xi.square() / 2) / math.sqrt(2 * math.pi) * (xi[1] - xi[0])
    shifted = z.detach()[:, None] + noise * xi
    assert torch.allclose(smooth, (shifted.clamp(0, 1) * weight).sum(1), atol=1e-6)
    assert torch.allclose(slope, (((shifted > 0) & (shifted < 1)) * weight).sum(1), atol=2e-3)
    assert torch.allclose(slope, torch.special.ndtr(z / noise) - torch.special.ndtr((z - 1) / noise), atol=1e-12)


def test_without_noise_it_is_truncated_and_little_noise_changes_little():
    z = torch.tensor([-3.0, -0.5, 0.25, 0.75, 1.5], dtype=torch.float64)
    assert nets.truncated_relu(z).tolist() == [0, 0, 0.25, 0.75, 1]
    assert torch.allclose(nets.truncated_relu(z, 1e-3), nets.truncated_relu(z), atol=1e-12)


def test_outputs_are_as_defined():
    W, b, a = torch.randn(5, 3), torch.randn(5), torch.randn(5)
    net, x = nets.truncated_net(W, b, a, "float32"), torch.randn(7, 3)
    slow = [sum(float(a[i]) * min(1.0, max(0.0, float(W[i] @ p + b[i]))) for i in range(5)) for p in x]
    assert torch.allclose(net(x)[:, 0], torch.tensor(slow), atol=1e-5)


def test_a_mirrored_start_is_zero_everywhere_with_the_given_scales():
    net = nets.mirrored_truncated(6, 4000, weight_std=0.5, bias_std=0.1, head_std=3.0, seed=0)
    assert net(torch.randn(50, 6, dtype=torch.float64)).abs().max() < 1e-10
    W, b, a = net.hidden.weight.detach(), net.hidden.bias.detach(), net.head.weight.detach()[0]
    assert torch.equal(W[:4000], W[4000:])
    assert torch.equal(b[:4000], b[4000:])
    assert torch.equal(a[:4000], -a[4000:])
    for found, std in ((W, 0.5), (b, 0.1), (a, 3.0)):
        assert found.std().item() == pytest.approx(std, rel=0.05)
    with pytest.raises(ValueError, match="at least 1"):
        nets.mirrored_truncated(6, 0, weight_std=1, bias_std=1, head_std=1, seed=0)


LAWS = [
    data.ParityPatterns(20, 5),
    data.ParityPatterns(12, 3, 0.2),
    data.IntervalPatterns(20, 9, 6, 9),
    data.IntervalPatterns(40, 30, 20, 30),
]


@pytest.mark.parametrize("law", LAWS, ids=lambda law: f"{type(law).__name__}-{law.size}")
@pytest.mark.parametrize("shift", [0.0, 0.03, 0.26, 0.5])
def test_the_network_of_lemma_2_5_computes_the_label(law, shift):
    task = data.DictionaryData(law, 2000, 0, 40, seed=0)
    x, y = task.train
    mean = (task.centre @ task.relevant).item()
    moved = x - shift * task.relevant / (law.size * task.scale)  # the mean of the count is whatever it is
    net = nets.pattern_solution(task.relevant, law.counts, law.size, scale=task.scale, mean=mean + shift)
    assert torch.allclose(net(moved), y, atol=1e-9)
    assert len(net.hidden.bias) == 3 * (law.size + 1)
    assert net.head.weight.abs().max() <= 32 * law.size
    assert net.hidden.bias.abs().min() >= 1 / (8 * 4 * law.size) - 1e-12


@pytest.mark.parametrize("name", ["truncated", "mlp"])
def test_a_linearised_network_is_its_first_order_expansion(name):
    x = torch.randn(30, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    if name == "truncated":
        net = nets.mirrored_truncated(4, 6, weight_std=1.0, bias_std=0.5, head_std=1.0, seed=1)
    else:
        net = nets.mlp(4, 5, 2, activation="tanh", seed=1)
    linear = nets.Linearised(net)
    assert torch.allclose(linear(x), net(x), atol=1e-12)
    weights = list(net.parameters())
    chance = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for delta in linear.deltas:
            delta.copy_(torch.randn(delta.shape, dtype=torch.float64, generator=chance))
    for row, expected in zip(x, linear(x), strict=True):
        output = net(row[None])
        slow = sum((g * d).sum() for g, d in zip(torch.autograd.grad(output, weights), linear.deltas, strict=True))
        assert (output + slow).item() == pytest.approx(expected.item())


def test_the_gradient_at_the_start_is_the_network_s_and_training_leaves_the_network_alone():
    net = nets.mirrored_truncated(4, 6, weight_std=1.0, bias_std=0.5, head_std=1.0, seed=1)
    before = {name: value.clone() for name, value in net.state_dict().items()}
    linear = nets.Linearised(net)
    x = torch.randn(20, 4, dtype=torch.float64)
    batch = (x, x[:, :1].sign())
    ours = torch.autograd.grad(learners.hinge(linear, batch), list(linear.parameters()))
    theirs = torch.autograd.grad(learners.hinge(net, batch), list(net.parameters()))
    assert all(torch.allclose(a, b, atol=1e-12) for a, b in zip(ours, theirs, strict=True))
    optimizer = torch.optim.SGD(linear.parameters(), lr=0.1)
    for delta, gradient in zip(linear.deltas, ours, strict=True):
        delta.grad = gradient
    optimizer.step()
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert learners.hinge(linear, batch) < learners.hinge(net, batch)


def test_frozen_parameters_have_no_deltas():
    net = nets.mirrored_truncated(4, 6, weight_std=1.0, bias_std=0.5, head_std=1.0, seed=1)
    net.hidden.requires_grad_(False)
    linear, x = nets.Linearised(net), torch.randn(9, 4, dtype=torch.float64)
    assert linear.names == ["head.weight"]
    with torch.no_grad():
        linear.deltas[0].fill_(0.5)
    assert torch.allclose(linear(x), 0.5 * net.features(x).sum(1, keepdim=True), atol=1e-10)


def test_after_two_erasing_steps_neurons_point_along_the_class_means_as_theory_predicts():
    law = data.ParityPatterns(40, 5)
    task = data.DictionaryData(law, 8000, 0, 40, kind="identity", seed=0)
    net = nets.mirrored_truncated(40, 30, weight_std=0.2, bias_std=0.04, head_std=4.0, seed=0)
    start = net.head.weight.detach()[0].clone()
    erased = {"hidden.weight": 1.0}

    def smoothed(net, batch):
        return learners.hinge(lambda x: net(x, 0.04), batch)

    learners.take_first_step(net, task.train, smoothed, lr=1e-9, erase=erased)
    assert torch.allclose(net.head.weight[0], start, atol=1e-8)
    learners.take_first_step(net, task.train, smoothed, lr=1.0, erase=erased | {"head.weight": 1.0})
    found = measures.direction_alignment(net.hidden.weight.detach(), task.relevant)
    assert found["aligned_share"] == 1
    predicted = theory.input_structure.predicted_cosine(8000, patterns=40, size=5, gamma=law.gamma())
    assert 1 - found["mean_abs_cosine"] == pytest.approx(1 - predicted, rel=0.5)
    mean = (task.train[1] * task.train[0]).mean(0)
    along = measures.direction_alignment(net.hidden.weight.detach(), mean)
    assert along["mean_abs_cosine"] == pytest.approx(1, abs=1e-6)
