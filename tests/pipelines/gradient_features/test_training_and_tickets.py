"""Figures that train: methods and controls, the neurons of subnetworks, the bound."""

import math

import pytest
import torch

from featurelab.modules import data, theory
from featurelab.pipelines import Missing
from featurelab.pipelines.engine.errors import RequestError
from featurelab.pipelines.engine.trial.run import perform
from featurelab.pipelines.engine.verdict.check import MemoryRecorder, performed
from featurelab.pipelines.gradient_features import (
    lottery,
    mixture_learning,
    mixtures,
    multi_index,
    parity,
    parity_learning,
    sample_complexity,
    simplicity,
    training,
    xor_limit,
)

TINY = {"n_train": 40, "n_test": 20, "dim": 8, "width": 16, "batch_size": 20, "steps": 5, "measure_every": 2}


def trained(experiment, config):
    recorder = MemoryRecorder()
    perform(experiment, config, recorder)
    return recorder


@pytest.mark.parametrize("problem", ["xor", "orthogonal", "parity", "uniform"])
def test_after_the_first_step_half_of_the_neurons_are_as_long_as_the_threshold(problem):
    config = training.FeatureConfig(problem=problem, **TINY | {"dim": 9, "n_train": 200}).but(
        size=2 if problem == "uniform" else 3
    )
    task, directions, unit = training.build(config)
    net = training.initial(config, unit)
    batch = training.first_batch(config, task)
    rate = training.first_rate(config, net, batch, unit)
    G = theory.gradient_features.simplified_gradient(*batch, net.hidden.weight.detach(), net.thresholds)
    assert torch.allclose(directions.norm(dim=1), torch.ones(len(directions), dtype=torch.float64))
    assert net(task.train[0]).abs().max() < 1e-5
    if problem == "uniform":
        assert rate == pytest.approx(1 / (2 * abs(theory.gradient_features.majority_coefficient(9, 1))))
        assert set(net.thresholds.tolist()) <= {-0.5, 0.0, 0.5}
    else:
        assert (rate * G.norm(dim=1)).median().item() == pytest.approx(0.5 * unit, rel=1e-5)


def test_the_permuted_first_step_is_one_as_method_and_as_control():
    """Both destroy only what the first step sees; later steps train on the true labels."""
    config = training.FeatureConfig(**TINY)
    plain, method, control = (
        trained(mixture_learning.xor, changed)
        for changed in (config, config.but(method="permuted_first"), config.but(control="first_step_permuted"))
    )
    assert method.digest == control.digest == plain.digest
    for name, weights in method.weights.items():
        assert torch.equal(weights, control.weights[name])
    assert not torch.equal(plain.weights["net.hidden.weight"], method.weights["net.hidden.weight"])


def test_frozen_neurons_stay_where_the_first_step_left_them():
    config = training.FeatureConfig(method="frozen", **TINY)
    first, last = (trained(mixture_learning.xor, config.but(steps=steps)).weights for steps in (2, 5))
    assert torch.equal(first["net.hidden.weight"], last["net.hidden.weight"])
    assert not torch.equal(first["net.head.weight"], last["net.head.weight"])
    still = trained(mixture_learning.xor, config.but(control="untrained")).weights
    W, _ = data_neurons(config)
    assert torch.allclose(still["net.hidden.weight"][: len(W)].double(), W / config.dim**0.5, atol=1e-6)


def data_neurons(config):
    from featurelab.modules import nets

    return nets.random_neurons(config.dim, config.width // 4, seed=config.streams.init)


def test_fixed_features_are_measured_at_the_best_of_the_ridges():
    config = training.FeatureConfig(
        method="kernels", problem="parity", size=3, **TINY | {"n_train": 300, "n_test": 200}
    )
    curves = trained(mixture_learning.xor, config.but(aligned=0.5)).curves
    assert curves["accuracy/test"][0] == max(curves[f"accuracy/test/{name}"][0] for name in training.KERNELS)
    assert curves["accuracy/test/linear"][0] > 0.95, "aligned samples alone are linear"


def test_subnetworks_have_the_neurons_of_their_names():
    config = lottery.TicketConfig(**TINY | {"width": 40}, gamma=0.5)
    aligned = torch.zeros(7, 4)
    aligned[0, 0], aligned[1, 1], aligned[2, 2], aligned[3, 3] = 0.8, 0.8, 0.7, 0.6
    aligned[4, 0], aligned[5, 1], aligned[6, 0] = 0.95, -1.0, 0.9
    reach = 2 * aligned
    reach[6, 0] = 0.5  # too short to fire at the mean
    positive = torch.tensor([True, True, True, True, False, True, True])

    def chosen(subnet, gamma=0.5):
        changed = config.but(subnet=subnet, gamma=gamma)
        return lottery.chosen(changed, aligned, reach, positive, MemoryRecorder()).tolist()

    assert chosen("ticket") == chosen("initial") == chosen("cone") == [0, 1, 2, 3]
    assert chosen("aligned") == [6, 1, 2, 3], "of any length, but with a positive threshold"
    assert chosen("full") == list(range(7))
    assert set(chosen("least")) == {3, 2, 1, 0}
    assert len(set(chosen("random_1"))) == 4
    assert positive[chosen("cone", gamma=0.01)].all(), "of an empty cone another neuron is taken"


def test_clusters_have_their_weights():
    config = simplicity.PRESET.but(**TINY | {"n_train": 40, "n_test": 20, "steps": 3, "measure_every": 1})
    for weights in simplicity.PARTS:
        curves = trained(simplicity.figure, config.but(weights=weights)).curves
        assert {"accuracy/heavy", "accuracy/light", "hit_probability/heavy"} <= curves.keys()


def test_neurons_of_the_reduced_xor_have_the_gradients_of_neurons_in_d_dimensions():
    """Neurons of three numbers have the shares and projections of neurons of R^d."""
    d = 100
    whole = performed(mixtures.xor, [mixtures.XOR.but(dim=d, n_train=400, width=40_000)])
    reduced = performed(xor_limit.figure, [xor_limit.PRESET.but(log10_dim=2)])
    share = whole.final("sure/share")
    assert reduced.final("sure/share") == pytest.approx(share, rel=0.1)
    assert reduced.final("projection/sure") == pytest.approx(whole.final("whole/projection/sure") / 4, rel=0.03)
    assert reduced.final("cosine/sure") == pytest.approx(whole.final("whole/cosine/sure"), rel=0.03)


def test_more_candidates_give_more_sure_neurons():
    few = parity.PRESET.but(n_train=100, width=5, candidates=10)
    many = few.but(candidates=4000)
    assert trained(parity.one, few).curves["sure/neurons"][0] < trained(parity.one, many).curves["sure/neurons"][0]


def test_products_of_coordinates_fit_a_quadratic_exactly():
    x = torch.from_numpy(data.stream(0, "x").standard_normal((400, 4)))
    y = (x[:, 0] * x[:, 1] - 0.3 * x[:, 2] ** 2 + x[:, 3])[:, None]
    assert multi_index.ridge_loss(multi_index.products, x[:300], y[:300], x[300:], y[300:], 1e-12) < 1e-15
    assert multi_index.products(x).shape == (400, 1 + 4 + 10)


def test_the_bound_is_that_of_the_lemma():
    """r B_a1 B_x1 sqrt(2 gamma) at d = 100, where B_a1 = 1/10, and sigma = 1: 4 * 0.1 * 20 * sqrt(0.2)."""
    assert mixture_learning.second_term(100, snr=10) == pytest.approx(4 * 0.1 * 20 * math.sqrt(0.2))
    fixed_noise = [mixture_learning.second_term(d, snr=math.sqrt(d) / 2) for d in (50, 800)]
    assert fixed_noise[0] / fixed_noise[1] == pytest.approx(16**0.25)


def test_the_paper_s_uniform_parity_trains_for_a_few_steps():
    config = parity_learning.uniform.paper.but(n_train=200, n_test=50, width=64, steps=3)
    assert (config.size, config.dim) == (4, 35)
    assert performed(parity_learning.uniform, [config]).trials.status.tolist() == ["finished"]


class Accuracies:
    """Results whose accuracies are a function of n."""

    def __init__(self, sizes, accuracy):
        self.sizes, self.accuracy = sizes, accuracy

    def values(self, name):
        return self.sizes

    def final(self, metric, dim, n_train):
        return self.accuracy(n_train / dim)


def test_the_number_of_samples_to_a_level_is_interpolated_in_log_n():
    runs = Accuracies([8, 32, 128], lambda ratio: 0.85 + 0.05 * math.log(ratio / 4))
    assert sample_complexity.needed(runs, "accuracy/test", dim=10) == pytest.approx(40)
    with pytest.raises(Missing):
        sample_complexity.needed(runs, "accuracy/test", dim=1)
    with pytest.raises(Missing):
        sample_complexity.needed(runs, "accuracy/test", dim=100)


def test_the_bandwidth_is_chosen_without_test_data_where_points_differ_by_their_distances():
    """A checkerboard of four bumps a unit apart needs a bandwidth far below the median distance of wide inputs."""
    x = torch.from_numpy(data.stream(0, "x").random((400, 1))) * 40
    y = torch.where((x.floor() % 2) > 0, 1.0, -1.0).double()
    chosen = training.gaussian(x, y)
    assert chosen.bandwidth == pytest.approx(0.125 * theory.gradient_features.median_distance(x))


def test_tickets_of_pairs_of_digits_are_drawn_on_a_desktop(few_rows, monkeypatch):
    datasets = pytest.importorskip("datasets")
    monkeypatch.setenv("FEATURELAB_DATA", str(few_rows))
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(few_rows / "cache"))
    config = lottery.figure.desktop.but(n_train=8, n_test=4, width=40, batch_size=4, steps=3, measure_every=1)
    task, directions, _ = training.build(config)
    assert task.train[0].shape == (8, config.dim)
    torch.testing.assert_close(directions @ directions.T, torch.block_diag(*[torch.eye(2).double() * 2 - 1] * 2))
    found = trained(lottery.figure, config.but(subnet="ticket"))
    assert found.weights["net.hidden.weight"].shape == (4, config.dim)
    with pytest.raises(RequestError, match="dim=1568"):
        config.but(dim=50)
