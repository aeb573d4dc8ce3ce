"""Condition numbers, errors and slopes against slow versions; the bounds against the iteration that they bound."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from featurelab.modules import data, nets, theory


def spectra(values):
    """A prompt whose X^T X has these eigenvalues."""
    return torch.diag(torch.tensor(values, dtype=torch.float64).sqrt())


def test_the_condition_number_is_that_of_the_gram_matrix():
    X = torch.randn(3, 20, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    expected = [np.linalg.cond((one.T @ one).numpy()) for one in X]
    assert theory.looped_transformer.condition_number(X).tolist() == pytest.approx(expected, rel=1e-9)
    mu, L = theory.looped_transformer.extreme_eigenvalues(X[0])
    ends = np.linalg.eigvalsh((X[0].T @ X[0]).numpy())[[0, -1]]
    assert (mu.item(), L.item()) == pytest.approx(tuple(ends))


def test_a_prompt_that_does_not_tell_its_rule_has_an_infinite_condition_number():
    X = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert theory.looped_transformer.condition_number(X).tolist() == [math.inf, math.inf]
    twice = torch.cat([X[0], X[0]])[:, [0, 0, 1]]
    assert theory.looped_transformer.condition_number(twice).item() == math.inf
    assert theory.looped_transformer.extreme_eigenvalues(twice)[0].item() == 0


@pytest.mark.parametrize("condition", [1.0, 3.0, 1e4])
def test_a_prescribed_condition_number_is_had(condition):
    X = data.prompt_examples(3, 12, 4, condition=condition, seed=1)
    assert theory.looped_transformer.condition_number(X).tolist() == pytest.approx([condition] * 3, rel=1e-9)


def test_the_path_descends_the_half_squared_loss():
    draw = torch.Generator().manual_seed(2)
    X, y, start = (torch.randn(*s, generator=draw, dtype=torch.float64) for s in ((2, 9, 3), (2, 9), (2, 3)))
    rates = torch.tensor([[0.01, 0.02], [0.05, 0.03]], dtype=torch.float64)
    path = theory.looped_transformer.least_squares_path(X, y, start, rates)
    for i in range(2):
        theta = start[i].clone()
        for t in range(2):
            theta.requires_grad_()
            loss = 0.5 * (y[i] - X[i] @ theta).square().sum()
            (gradient,) = torch.autograd.grad(loss, theta)
            theta = (theta - rates[t, i] * gradient).detach()
            assert torch.allclose(path[t + 1, i], theta, atol=1e-14)


def test_normalised_errors_and_loops_to_a_level():
    path = torch.tensor([[[2.0, 0]], [[1, 0]], [[0.5, 0]]], dtype=torch.float64)
    errors = theory.looped_transformer.normalised_error(path, torch.zeros(1, 2, dtype=torch.float64))
    assert errors[:, 0].tolist() == [1.0, 0.25, 0.0625]
    assert theory.looped_transformer.first_loop_below(errors, 0.25).tolist() == [1.0]
    assert theory.looped_transformer.first_loop_below(errors, 1.0).tolist() == [0.0]
    assert theory.looped_transformer.first_loop_below(errors, 0.01).tolist() == [math.inf]


def test_round_off_is_not_resolved_even_where_it_rises_again():
    errors = torch.tensor([1.0, 1e-10, 1e-25, 1e-20, math.nan], dtype=torch.float64)[:, None]
    assert theory.looped_transformer.before_floor(errors)[:, 0].tolist() == [True, True, False, False, False]
    assert theory.looped_transformer.before_floor(errors.float())[:, 0].tolist() == [True, False, False, False, False]
    assert theory.looped_transformer.before_floor(errors, 1e-5)[:, 0].tolist() == [True, False, False, False, False]


def test_the_tail_slope_is_that_of_a_line_through_the_later_half():
    t = np.arange(40)
    first, second = np.exp(-3.0 * t), 0.5 * np.exp(-0.2 * t) + 0.5 * np.exp(-2.0 * t)
    found = theory.looped_transformer.tail_slope(torch.from_numpy(np.stack([first, second], 1)))
    last = int((first > 1e-24).sum())
    later = range(math.ceil(last / 2), last)
    assert found[0].item() == pytest.approx(np.polyfit(later, np.log(first[later]), 1)[0])
    assert found[1].item() == pytest.approx(np.polyfit(range(20, 40), np.log(second[20:]), 1)[0])
    assert math.isnan(theory.looped_transformer.tail_slope(torch.ones(1, 1, dtype=torch.float64)).item())


eigenvalues = st.lists(st.floats(0.01, 100.0), min_size=2, max_size=5)


@settings(max_examples=60)
@given(eigenvalues, st.integers(0, 60), st.integers(0, 2**32 - 1))
def test_no_prompt_exceeds_a_bound(values, loops, seed):
    X = spectra(values)[None]
    draw = torch.Generator().manual_seed(seed)
    theta = torch.nn.functional.normalize(torch.randn(1, len(values), generator=draw, dtype=torch.float64))
    y, zero = (X @ theta[..., None])[..., 0], torch.zeros_like(theta)
    net = nets.LinearLoopedTransformer(len(values), max(loops, 1))
    answers = net.trajectory(data.linear_prompt(X, y, zero, torch.ones(1, dtype=torch.float64)))[loops]
    off, prediction = (answers - theta).norm(), ((answers * theta).sum() - 1).abs()
    kappa, t = theory.looped_transformer.condition_number(X), torch.tensor(float(loops), dtype=torch.float64)
    slack = 1 + 1e-9
    assert prediction <= off * slack + 1e-14  # Cauchy-Schwarz
    tight, ours = theory.looped_transformer.tight_bound(t, kappa), theory.looped_transformer.prediction_bound(t, kappa)
    assert off <= tight * slack + 1e-14
    assert prediction <= tight * slack + 1e-14
    assert tight.square() <= theory.looped_transformer.squared_bound(t, kappa) * slack
    assert tight <= ours * slack
    assert ours.square().item() == pytest.approx(theory.looped_transformer.squared_bound(t, kappa).item())


def test_the_tight_bound_is_attained_on_the_slowest_mode():
    X, theta = spectra([8.0, 3.0, 2.0])[None], torch.tensor([[0.0, 0, 1]], dtype=torch.float64)
    Z = data.linear_prompt(X, (X @ theta[..., None])[..., 0], 0 * theta, torch.ones(1, dtype=torch.float64))
    off = (nets.LinearLoopedTransformer(3, 12)(Z) - theta).norm().item()
    assert off == pytest.approx(
        theory.looped_transformer.tight_bound(torch.tensor(12.0), torch.tensor(4.0)).item(), rel=1e-6
    )


def test_the_competitor_s_bound_grows_and_asks_for_many_examples():
    assert theory.looped_transformer.gatmiry_bound(1, 128, 4) == pytest.approx(45.25, abs=0.01)
    assert theory.looped_transformer.gatmiry_bound(20, 128, 4) == pytest.approx(2.5e14, rel=0.01)
    assert theory.looped_transformer.gatmiry_least_examples(10, 4) == pytest.approx(1.8e18, rel=0.01)
    needed = theory.looped_transformer.gatmiry_least_examples(3, 2)
    assert theory.looped_transformer.gatmiry_bound(3, round(needed), 2) == pytest.approx(1)


def test_the_limit_of_the_condition_number_is_that_of_large_gaussian_prompts():
    assert theory.looped_transformer.marchenko_pastur_condition(16) == pytest.approx((5 / 3) ** 2)
    assert theory.looped_transformer.marchenko_pastur_condition(1) == math.inf
    found = theory.looped_transformer.condition_number(data.prompt_examples(3, 2400, 600, seed=0)).mean().item()
    assert found == pytest.approx(theory.looped_transformer.marchenko_pastur_condition(4), rel=0.05)


def test_the_closed_form_counts_the_loops_that_a_transformer_needs():
    Z, theta = data.LinearPrompts(40, 9, 3, seed=5).train
    X = Z[:, :-1, :-1]
    path = nets.LinearLoopedTransformer(3, 400).trajectory(Z)
    errors = (1 - (path * theta).sum(-1)).abs()
    for t in (0, 1, 7):
        assert torch.allclose(
            theory.looped_transformer.prediction_error(X, theta, torch.full((40,), float(t)).double()), errors[t]
        )
    counted, found = (
        theory.looped_transformer.first_loop_below(errors, 1e-3),
        theory.looped_transformer.loops_needed(X, theta, 1e-3),
    )
    assert counted.isfinite().double().mean() > 0.9
    assert torch.equal(counted[counted.isfinite()], found[counted.isfinite()])
    assert theory.looped_transformer.loops_needed(X, theta, 1.1).tolist() == [0.0] * 40


def test_a_direction_without_examples_is_never_learned():
    X = torch.tensor([[[1.0, 0.0]]], dtype=torch.float64)
    rule = torch.tensor([[0.6, 0.8]], dtype=torch.float64)
    assert theory.looped_transformer.loops_needed(X, rule, 0.1).tolist() == [math.inf]
    assert theory.looped_transformer.loops_needed(X, rule, 0.7).tolist() == [1.0]
