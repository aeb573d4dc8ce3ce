"""What the figures on modular addition measure, and what their controls destroy."""

import numpy as np
import pytest
import torch
from madeup import results

from featurelab.modules import data, measures, nets, theory
from featurelab.pipelines.engine.errors import Missing
from featurelab.pipelines.engine.verdict.check import performed
from featurelab.pipelines.fourier_circuits import addition, grokking, max_margin, spectra
from featurelab.pipelines.fourier_circuits.addition import AdditionConfig, setting, theorem_width

TINY = AdditionConfig(modulus=5, terms=2, width=16, steps=30, measure_every=10)


def trained(**changes):
    return performed(spectra.four, [TINY.but(**changes)])


def weights(config):
    net = addition.network(config)
    return net.neurons.detach()


@pytest.mark.parametrize(("modulus", "terms"), [(47, 4), (97, 3), (23, 5)])
def test_widths_of_the_paper_are_the_theorem_s(modulus, terms):
    printed = {47: 2944, 97: 1536, 23: 5632}
    assert theorem_width(modulus, terms) == printed[modulus] == nets.max_margin_width(modulus, terms)
    papers = {figure.paper.terms: figure.paper for figure in (spectra.four, spectra.three, spectra.five)}
    assert (papers[terms].modulus, papers[terms].width) == (modulus, printed[modulus])


def test_the_network_of_the_largest_margin_is_the_best_by_every_measure():
    net = nets.max_margin_net(5, 3)
    found = addition.structure(net)
    ones = {
        "max_power/all",
        "max_power/weighted",
        "frequency_agreement",
        "phase_alignment",
        "amplitude_ratio",
        "coverage/active",
        "uniformity/active",
        "single_frequency_share",
        "coverage/clean",
        "uniformity/clean",
        "margin_by_frequency/least_over_greatest",
    }
    assert set(found) == ones
    assert all(value == pytest.approx(1, abs=1e-9) for value in found.values()), found
    x, y = addition.whole(TINY.but(terms=3))
    found = addition.margins(net, x, y)
    assert found == pytest.approx({"margin_ratio/worst": 1, "margin_ratio/mean": 1, "accuracy/all": 1}, abs=1e-9)


def test_margins_are_of_the_whole_set_and_do_not_depend_on_the_chunks(monkeypatch):
    net = nets.polynomial_net(5, 3, 7, seed=1, dtype="float32")
    x, y = addition.whole(TINY.but(terms=3))
    assert len(x) == 125
    at_once = addition.margins(net, x, y)
    g = measures.class_margins(net.double()(x), y)
    scale = measures.group_norm(net.neurons, 4).item() ** 4 * theory.fourier_circuits.max_margin(5, 3)
    assert at_once["margin_ratio/worst"] == pytest.approx(g.worst.min().item() / scale)
    assert at_once["margin_ratio/mean"] == pytest.approx(g.mean.mean().item() / scale)
    monkeypatch.setattr(addition, "CHUNK", 16)
    assert addition.margins(net, x, y) == pytest.approx(at_once)


def test_margins_of_large_sets_are_of_a_sample():
    x, y = addition.whole(TINY.but(modulus=11, terms=3, most_points=100))
    assert len(x) == 100
    assert torch.equal(y, x.long().sum(1) % 11)


def test_the_weighted_median_is_that_of_values_repeated_by_their_weight():
    values, counts = torch.tensor([3.0, 1.0, 2.0, 9.0]), torch.tensor([1, 3, 2, 1])
    expected = np.median(np.repeat(values.numpy(), counts.numpy()))
    assert addition.weighted_median(values, counts / counts.sum()) == expected


def test_controls_take_the_penalty_away_and_leave_the_network_untrained():
    stated, none = trained(), trained(norm_penalty=0.0)
    without = trained(control="no_penalty")
    assert without.final("margin_ratio/mean") == none.final("margin_ratio/mean") != stated.final("margin_ratio/mean")
    plain = trained(control="plain_decay")
    assert plain.final("margin_ratio/mean") == trained(norm_penalty=0.0, weight_decay=1.0).final("margin_ratio/mean")
    still = trained(control="untrained")
    assert len(set(still.curve("max_power/weighted"))) == 1
    assert still.final("max_power/weighted") == stated.at("max_power/weighted", 0)


@pytest.mark.parametrize("what", ["classes", "residues"])
def test_the_largest_margin_is_reached_under_other_names_too_and_frequencies_are_not(what):
    config = TINY.but(terms=3, control=f"renamed_{what}")
    names = torch.from_numpy(data.stream(config.streams.data, f"names of {what}").permutation(5))
    net = nets.max_margin_net(5, 3)
    with torch.no_grad():
        if what == "classes":
            net.head.weight[names] = net.head.weight.clone()
        else:
            U = net.hidden.weight.unflatten(1, (3, 5))
            U[..., names] = U.clone()
    task, whole = addition.dataset(config), addition.whole(config)
    assert addition.margins(net, *task.train) == pytest.approx(addition.margins(net, *whole))
    assert addition.margins(net, *whole)["margin_ratio/worst"] == pytest.approx(1, abs=1e-9)
    found = addition.structure(net)
    assert found["phase_alignment"] < 0.9
    assert (found["max_power/weighted"] > 0.99) == (what == "classes")


def test_width_leaves_the_data_and_the_split_as_they_are():
    one, other = (addition.dataset(TINY.but(width=w, train_share=0.5)) for w in (4, 9))
    assert torch.equal(one.train[0], other.train[0])
    assert len(one.train[0]) + len(one.test[0]) == 25
    assert weights(TINY.but(width=9)).shape == (9, 3, 5)


def test_random_networks_of_the_theorem_s_figure_come_near_the_bound_and_stay_below():
    """Noise of a random size about theta*: else the claim would never meet a margin near the largest."""
    found = performed(max_margin.figure, [max_margin.PRESET.but(modulus=5, terms=2)])
    for name in ("worst", "mean"):
        assert 0.9 < found.final(f"margin_ratio/random_{name}") <= 1 + 1e-6


@pytest.mark.parametrize("experiment", [spectra.four, spectra.three, spectra.five], ids=["4", "3", "5"])
def test_a_few_steps_of_the_paper_s_network_record_what_the_figure_reads(experiment):
    """At the paper's modulus and batch, on fewer tuples and neurons: its training set has millions."""
    config = experiment.paper.but(width=64, steps=2, measure_every=1, train_share=1e-3, n_test=100, most_points=300)
    found = performed(experiment, [config])
    assert list(found.trials.status) == ["finished"]
    assert all(claim.measured(found)[0] for claim in experiment.claims)


def curves(train, test):
    """Results of three settings with these accuracies at steps 10, 20, ..."""

    def measured(config):
        k = config["terms"]
        return {
            f"accuracy/{part}": {10 * (i + 1): v for i, v in enumerate(by_k[k])}
            for part, by_k in {"train": train, "test": test}.items()
        }

    configs = [
        grokking.figure.laptop.but(terms=k, modulus=p, seed=0).model_dump() for k, p in grokking.SETTINGS.items()
    ]
    return results(configs, measured)


def claim(name):
    (found,) = [claim for claim in grokking.figure.claims if claim.id == name]
    return found.measure


def test_grokking_is_late_where_validation_is_and_its_first_crossing_counts():
    fitted = [0.5, 1.0, 1.0, 1.0, 1.0, 1.0]
    test = {2: [0.1, 0.1, 0.1, 0.2, 0.995, 0.7], 3: [0.2, 0.6, 0.8, 0.9, 1, 1], 4: [0.4, 0.9, 1, 1, 1, 1]}
    runs = curves({2: fitted, 3: fitted, 4: fitted}, test)
    assert claim("c10_validation_comes_late")(runs) == 2.5
    assert claim("c10b_weaker_with_more_residues")(runs) == pytest.approx({"3 after 2": -0.5, "4 after 3": -0.3})
    assert claim("c10a_validation_comes")(runs) == pytest.approx(0.995)


def test_a_gap_that_stays_is_no_grokking_and_what_is_never_reached_is_censored():
    fitted = [0.5, 1.0]
    runs = curves({2: fitted, 3: fitted, 4: fitted}, {2: [0.1, 0.1], 3: [0.2, 0.95], 4: [0.4, 0.9]})
    for name in ("c10_validation_comes_late", "c10b_weaker_with_more_residues"):
        with pytest.raises(Missing, match=r"censored|no grokking"):
            claim(name)(runs)
    assert claim("c10a_validation_comes")(runs) == pytest.approx(0.1)


def test_the_setting_of_a_figure_names_the_theorem_s_width():
    assert setting(11, 3) == {"modulus": 11, "terms": 3, "width": 160}
