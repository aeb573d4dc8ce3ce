"""The figures on patterns: the methods, their first steps, and how results are selected."""

import pytest
import torch

from featurelab.modules import theory
from featurelab.pipelines.engine.verdict.check import performed
from featurelab.pipelines.input_structure.patterns import (
    comparison,
    interval,
    methods,
    predicted_cosine,
    six_methods,
    step_artefact,
    weight_maps,
)

SMALL = methods.PatternConfig(
    n_train=2000, n_test=500, dim=24, patterns=20, width=20, steps=40, batch_size=200, measure_every=20
)


def test_the_tables_have_a_row_for_each_method():
    rows = {"network", "ntk", "rf", "one_step", "two_steps", "unstructured"}
    assert all(set(table) == rows for table in comparison.TABLES.values())
    assert all(0 <= row["test"] <= 100 for table in comparison.TABLES.values() for row in table.values())


def test_a_network_learns_with_structure_and_its_neurons_find_the_patterns():
    found = performed(six_methods.figure, [SMALL.but(steps=150)])
    assert found.final("accuracy/test") > 0.7
    assert found.at("cosine/mean_abs_cosine", 0) < 0.4
    assert found.at("cosine/mean_abs_cosine", 2) > 0.97
    assert found.at("cosine/in_span", 2) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("method", ["ntk", "rf"])
def test_fixed_features_start_at_zero_and_train(method):
    found = performed(six_methods.figure, [SMALL.but(method=method)])
    assert found.at("loss/train", 0) == pytest.approx(1, abs=1e-5)
    assert found.final("loss/train") < 0.9


@pytest.mark.parametrize(("method", "steps"), [("one_step", 1), ("two_steps", 2)])
def test_neurons_stay_fixed_after_the_steps_while_heads_train(method, steps):
    found = performed(six_methods.figure, [SMALL.but(method=method)])
    whole = performed(six_methods.figure, [SMALL])
    after = whole.at("cosine/max_cosine", steps)
    assert found.final("cosine/max_cosine") == pytest.approx(after, abs=1e-6)
    assert found.final("loss/train") != found.at("loss/train", 20)


def test_initial_scales_and_rates_are_those_of_the_paper():
    config = methods.PatternConfig(width=300)
    net = methods.initial(config)
    assert net.hidden.weight.std().item() == pytest.approx(1 / 5, rel=0.05)
    assert net.hidden.bias.std().item() == pytest.approx(1 / 25, rel=0.2)
    assert net.head.weight.std().item() == pytest.approx(25 / (0.25 * 25), rel=0.2)
    one, two = methods.first_steps(config)
    assert one.lr == pytest.approx(0.25**2 * 5 / (5 * 300**3))
    assert (two.lr, two.erase) == (1.0, {"hidden.weight": 1.0, "head.weight": 1.0})
    assert methods.first_steps(config.but(first_lr=0.1, erase=0.5))[0].erase == {"hidden.weight": 0.5}


def test_permuted_labels_leave_no_direction_and_untrained_neurons_stay():
    found = performed(six_methods.figure, [SMALL.but(control="permuted_labels")])
    assert found.at("cosine/mean_abs_cosine", 2) < 0.8
    still = performed(six_methods.figure, [SMALL.but(control="untrained")])
    assert still.final("cosine/max_cosine") == pytest.approx(still.at("cosine/max_cosine", 0))


def test_the_direction_of_words_does_not_depend_on_the_sampled_labels():
    config = SMALL.but(problem="words", size=8, words=3)
    task = methods.build(config)
    shuffled = methods.build(config.but(n_train=1000))
    cosine = torch.nn.functional.cosine_similarity(
        methods.direction(config, task), methods.direction(config, shuffled), dim=0
    )
    assert cosine.item() == pytest.approx(1)


def test_rows_have_every_method_once_at_a_rate():
    rows = comparison.rows(0.02)
    assert len(set(rows)) == len(rows) == 16
    assert {row[0] for row in rows if not row[1]} == {"network", "ntk", "rf"}


def test_tuned_takes_the_best_rate_and_accuracy_the_rate_of_the_network():
    configs = [
        SMALL.but(method=method, lr=lr, steps=6)
        for method, lr in (("network", 0.02), ("rf", 0.02), ("rf", 1e-5), ("rf", 0.1))
    ]
    runs = performed(six_methods.figure, configs)
    values = [runs.final("accuracy/test", method="rf", lr=lr) for lr in (0.02, 1e-5, 0.1)]
    assert comparison.tuned(runs, "rf") == max(values)
    assert comparison.accuracy(runs, "rf") == values[0]


def test_the_theorem_s_rate_is_distinguished_from_given_rates():
    configs = [step_artefact.figure.small_configs()[0].but(first_lr=rate) for rate in (None, 0.1)]
    runs = performed(step_artefact.figure, configs)
    assert [rate for rate in step_artefact.theorem(runs).values("first_lr") if rate is not None] == []
    assert len(step_artefact.theorem(runs).trials) == 1


def test_the_interval_is_the_paper_s():
    assert methods.interval(interval.figure.laptop) == (20, 30)


def test_the_prediction_uses_the_settings_of_the_trials():
    runs = performed(predicted_cosine.figure, predicted_cosine.figure.small_configs()[:1])
    expected = theory.input_structure.predicted_cosine(100, patterns=12, size=3, gamma=0.25)
    assert predicted_cosine.predicted(runs, 100) == pytest.approx(expected)


def test_rows_of_maps_without_a_share_are_selected():
    configs = [config for config in weight_maps.figure.small_configs() if config.seed == 0]
    runs = performed(weight_maps.figure, configs)
    assert len(weight_maps.present(runs)) == len(configs)
    assert all(len(weight_maps.of(runs, row).trials) == 1 for row in weight_maps.present(runs))
