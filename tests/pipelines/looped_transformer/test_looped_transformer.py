"""What the figures on looped transformers rest on: what they measure, and which claims their controls break."""

import numpy as np
import pytest
import torch
from smallsizes import on_three_seeds

from featurelab.modules import data
from featurelab.pipelines.engine.verdict.check import performed
from featurelab.pipelines.looped_transformer import (
    bounds_compared,
    convergence,
    error_bound,
    gradient_descent,
    loops_needed,
    preconditioner,
    prompts,
    step_size,
)


def claim(figure, beginning):
    (found,) = [one for one in figure.claims if one.id.startswith(beginning + "_")]
    return found


def judged(figure, beginning, **settings):
    return claim(figure, beginning).judge(performed(figure, on_three_seeds(figure, **settings))).status


@pytest.mark.parametrize("control", ["none", "itself", "drifting", "causal"])
def test_one_wrong_detail_breaks_theorem_8_14(control):
    figure = gradient_descent.figure
    assert judged(figure, "c01", control=control) == ("holds" if control == "none" else "fails")
    moved = "fails" if control in ("drifting", "causal") else "holds"
    assert judged(figure, "c01c", control=control) == moved


@pytest.mark.parametrize("control", ["none", "permuted_labels", "itself", "drifting"])
def test_labels_and_weights_are_what_the_bound_is_about(control):
    expected = "holds" if control == "none" else "fails"
    assert judged(error_bound.figure, "c02", control=control, loops=40, prompts=100) == expected
    assert judged(error_bound.figure, "c02c", control=control, loops=40, prompts=100) == expected


def test_permuted_labels_violate_the_bound_nearly_always_after_a_few_loops():
    config = error_bound.figure.laptop.but(control="permuted_labels", prompts=300)
    for n in (16, 128):
        found = performed(error_bound.figure, [config.but(n_train=n)])
        assert found.final("violated/1") > 0.7
        assert found.final("violated/5") > 0.9


def test_every_form_draws_the_same_figure():
    small = convergence.figure.laptop.but(prompts=10, loops=12, n_train=16)
    config = prompts.drawn(small)
    Z, theta = config.train
    gram, literal = (prompts.followed(prompts.block(small, form=form), Z, theta) for form in ("gram", "attention"))
    for one, other in zip(gram, literal, strict=True):
        assert torch.allclose(one, other, rtol=1e-7, atol=1e-16)


def test_the_line_of_figure_8_1_may_be_read_literally():
    assert {"squared", "literal"} == set(convergence.ConvergenceConfig.model_fields["theory_line"].annotation.__args__)
    assert judged(convergence.figure, "c05", theory_line="literal", prompts=50) == "holds"


def test_the_earlier_bound_is_stated_in_one_of_the_settings():
    for setting in (*bounds_compared.FEW_EXAMPLES, bounds_compared.AS_STATED):
        d, n, loops, _ = setting
        needed = 64 * loops**2 * d**4 * 2 ** (4 * loops)
        assert (n >= needed) == (setting is bounds_compared.AS_STATED)


def test_loops_are_counted_alike_and_depend_on_labels():
    figure = loops_needed.figure
    assert judged(figure, "c11c", control="none", loops=30) == "holds"
    assert judged(figure, "c11c", control="permuted_labels", loops=30) == "fails"


def test_steps_beyond_two_over_l_diverge():
    configs = [step_size.figure.laptop.but(prompts=20, step_factor=c) for c in (1.9, 2.1)]
    errors = [performed(step_size.figure, [config]).final("log10_error") for config in configs]
    assert errors[0] < 0 < errors[1]


def test_the_best_scalar_and_multiple_are_not_at_the_ends_of_the_grid():
    for variances in (preconditioner.SPREAD, preconditioner.ALIKE):
        config = preconditioner.PRESET.but(variances=variances)
        task = data.LinearPrompts(1, 32, 4, n_test=300, variances=variances, seed=0)
        values, places = preconditioner.baselines(config, task.test, torch.diag(torch.tensor(variances).double()))
        for name in ("scalar", "inverse"):
            assert 0 < int(places[f"at_{name}"]) < preconditioner.GRID[2] - 1
            at = np.geomspace(*preconditioner.GRID)[int(places[f"at_{name}"])] / 32
            shape = torch.eye(4) if name == "scalar" else torch.diag(1 / torch.tensor(variances))
            assert preconditioner.error(config, at * shape, task.test) == pytest.approx(values[f"loss/{name}"])
        assert values["loss/inverse"] <= values["loss/scalar"] * 1.001


def test_training_moves_the_preconditioner_towards_the_inverse_covariance():
    config = preconditioner.PRESET.but(steps=300, prompts=512, test_prompts=128, lr=1e-3, batch_size=64)
    found = performed(preconditioner.figure, [config])
    losses = found.curve("loss/test")
    assert losses.iloc[-1] < 0.2 * losses.iloc[0]
    plain = np.diag(found.arrays("learned")[0]["plain"])
    assert (np.diff(plain) > 0).all(), "the smaller the variance, the larger the step"


def test_a_rotation_between_loops_is_told_from_a_preconditioner():
    Sigma = torch.diag(torch.tensor([4.0, 1.0], dtype=torch.float64))
    turn = torch.tensor([[0.0, 1.0], [-1.0, 0.0]], dtype=torch.float64)
    inverse = torch.linalg.inv(Sigma.sqrt())
    learned = inverse @ (0.8 * torch.eye(2).double() + 0.4 * turn) @ inverse
    shown, symmetric, shares = preconditioner.whitened(learned, Sigma)
    assert torch.allclose(symmetric, 0.8 * torch.linalg.inv(Sigma))
    assert torch.allclose(shown, learned @ Sigma)
    assert shares["skew"] == pytest.approx(0.5)
    assert shares["symmetric/off_diagonal"] == pytest.approx(0, abs=1e-12)
    assert shares["symmetric/diagonal_ratio"] == pytest.approx(1)
