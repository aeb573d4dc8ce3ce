"""Speed Limited Optimization: identities with gradient descent, the limit itself, the choice of speeds."""

import pytest
import pytorch_lightning as pl
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from featurelab.modules.data import ChainMonomials
from featurelab.modules.learners import AdaptiveSpeeds, SpeedLimited, Supervised, adam, gd, mse, speed_limited
from featurelab.modules.measures import agop, matrix_cosine
from featurelab.modules.nets import mlp

DATA = ChainMonomials(64, 0, 8, 3, seed=0)


def net(seed=0, hidden=2):
    return mlp(8, 12, hidden, seed=seed)


def gradients(model):
    return torch.autograd.grad(mse(model, DATA.train), list(model.parameters()))


def take(model, optimizer):
    for weight, gradient in zip(model.parameters(), gradients(model), strict=True):
        weight.grad = gradient
    optimizer.step()


@given(seed=st.integers(0, 50), decay=st.sampled_from([0.0, 0.1]), eps=st.floats(1e-3, 10.0))
@settings(max_examples=20)
def test_speed_of_gradient_norm_plus_eps_is_gradient_descent(seed, decay, eps):
    slo, plain = net(seed), net(seed)
    norms = [(g + decay * w).norm().item() for g, w in zip(gradients(slo), slo.parameters(), strict=True)]
    take(slo, speed_limited(0.03, [norm + eps for norm in norms], eps, decay)(slo))
    take(plain, gd(0.03, decay)(plain))
    for a, b in zip(slo.parameters(), plain.parameters(), strict=True):
        assert torch.allclose(a, b, rtol=1e-12, atol=1e-14)


def test_steps_follow_the_formula_layer_by_layer():
    model = net()
    before = [w.detach().clone() for w in model.parameters()]
    slopes, speeds = gradients(model), [500.0, 0.002, 3.0]
    take(model, speed_limited(0.1, speeds, 0.1)(model))
    for w, w0, g, speed in zip(model.parameters(), before, slopes, speeds, strict=True):
        assert torch.allclose(w - w0, -0.1 * speed * g / (0.1 + g.norm()), rtol=1e-10, atol=1e-15)


@given(scale=st.floats(-12, 12), speed=st.floats(1e-3, 1e3))
@settings(max_examples=40)
def test_no_step_is_longer_than_lr_times_speed(scale, speed):
    weight = torch.nn.Parameter(torch.zeros(3, 4, dtype=torch.float64))
    weight.grad = torch.randn(3, 4, dtype=torch.float64) * 10.0**scale
    SpeedLimited([{"params": [weight], "speed": speed}], lr=0.5, eps=0.1).step()
    assert 0 < weight.norm() <= 0.5 * speed * (1 + 1e-12)


def test_a_zero_gradient_moves_nothing_and_a_bias_shares_its_layer_speed():
    linear = torch.nn.Linear(3, 2)
    for param in linear.parameters():
        param.grad = torch.zeros_like(param)
    before = linear.weight.detach().clone()
    optimizer = speed_limited(0.1, [5.0], 0.1)(linear)
    optimizer.step()
    assert torch.equal(linear.weight, before)
    assert len(optimizer.param_groups) == 1
    for param in linear.parameters():
        param.grad = torch.ones_like(param)
    optimizer.step()
    joint = (6 + 2) ** 0.5
    assert torch.allclose(linear.weight, before - 0.1 * 5.0 / (0.1 + joint))


def test_wrong_settings_are_refused():
    with pytest.raises(ValueError, match=r"got 2 for 3 layers: layers\.0, layers\.1, layers\.2"):
        speed_limited(0.1, [1, 1], 0.1)(net())
    with pytest.raises(ValueError, match="eps must be positive"):
        speed_limited(0.1, [1, 1, 1], 0.0)(net())
    with pytest.raises(ValueError, match="speed must not be negative"):
        speed_limited(0.1, [1, -1, 1], 0.1)(net())


def fit(model, optimizer, steps, *callbacks, **options):
    learner = Supervised(model, optimizer=optimizer, **options)
    trainer = pl.Trainer(
        max_steps=steps,
        accelerator="cpu",
        devices=1,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=list(callbacks),
    )
    trainer.fit(learner, DATA)
    return learner


@pytest.mark.parametrize("steps_per_batch", [1, 4])
def test_adaptive_speeds_favour_the_least_aligned_hidden_layer_at_every_step(steps_per_batch):
    callback = AdaptiveSpeeds(high=20.0)
    fit(net(hidden=3), speed_limited(0.05, [1.0] * 4, 0.01), 12, callback, steps_per_batch=steps_per_batch)
    assert [step for step, _ in callback.choices] == list(range(12))
    assert len({layer for _, layer in callback.choices}) > 1

    # a loop of its own, with the AGOP from autograd in place of W^T K W
    model = net(hidden=3)
    for _, chosen in callback.choices:
        scores = []
        for index in range(3):
            x = DATA.train[0]
            for layer in model.layers[:index]:
                x = torch.relu(layer(x))

            def rest(h, index=index):
                for layer in model.layers[index:-1]:
                    h = torch.relu(layer(h))
                return model.layers[-1](h)

            weight = model.layers[index].weight
            scores.append(matrix_cosine(weight.T @ weight, agop(rest, x.detach())).item())
        least = scores.index(min(scores))
        assert str(least) == chosen
        speeds = [20.0 if index == least else 1 / 20.0 for index in range(4)]
        take(model, speed_limited(0.05, speeds, 0.01)(model))


def test_adaptive_speeds_refuse_another_optimiser():
    with pytest.raises(TypeError, match="got Adam"):
        fit(net(), adam(1e-3), 1, AdaptiveSpeeds())
