"""Figures 2 and 7 to 12: the paper's sizes for one step, the gate before every claim, and the measures."""

import numpy as np
import pytest
import torch
from publicfiles import public_images  # noqa: F401

from featurelab.modules import measures
from featurelab.pipelines.deep_neural_collapse import collapse_of_networks, networks
from featurelab.pipelines.deep_neural_collapse.collapse_of_networks import mlp, resnet, vgg
from featurelab.pipelines.engine.verdict.check import performed

KINDS = {"mlp": "mnist", "resnet": "cifar10", "vgg": "svhn"}  # one data set each, so that all three are read
FIGURES = {"mlp": mlp, "resnet": resnet, "vgg": vgg}
# too little training for any network to pass the gate of the claims
FEW = {"n_train": 40, "batch_size": 20, "width": 16, "measure_every": 1, "rotations": 1}


@pytest.fixture(scope="module")
def hardly_trained():
    """The MLPs of the figure after two epochs."""
    networks = [{"init_scale": scale, "seed": seed} for scale in (0.5, 1.5) for seed in (0, 1, 2)]
    return performed(mlp, [mlp.laptop.but(**FEW, **network, epochs=2) for network in networks])


@pytest.fixture
def open_gate(monkeypatch):
    monkeypatch.setattr(collapse_of_networks, "LEAST_ACCURACY", 0.0)
    monkeypatch.setattr(collapse_of_networks, "LEAST_DROP", -np.inf)


def test_measurements_are_before_training_and_after_each_epoch(hardly_trained):
    assert [*hardly_trained.curves("nc1/5").index] == [*hardly_trained.curves("loss/test").index] == [0, 2, 4]


def test_claims_are_untested_for_networks_that_do_not_fit_their_data(hardly_trained):
    assert hardly_trained.final("accuracy/train") < 0.9
    for claim in mlp.claims:
        verdict = claim.judge(hardly_trained)
        about_training = claim.id not in ("c16_left_factor_leaves_nc1", "c17_untrained_ansatz_is_high_too")
        assert (verdict.status == "untested") == about_training
        assert not about_training or "training accuracy" in verdict.reason


def test_a_share_of_almost_no_fall_is_untested(monkeypatch, hardly_trained):
    monkeypatch.setattr(collapse_of_networks, "LEAST_ACCURACY", 0.0)
    (verdict,) = [claim.judge(hardly_trained) for claim in mlp.claims if claim.id == "c15_right_factor_dominates"]
    assert verdict.status == "untested"
    assert "less than 1.0" in verdict.reason


def test_a_trial_with_infinite_weights_ends_as_diverged():
    results = performed(vgg, [vgg.laptop.but(**FEW, epochs=3, lr=1e12)])
    assert list(results.trials.status) == ["diverged"]


@pytest.mark.usefixtures("public_images")
@pytest.mark.parametrize(
    ("name", "width"),  # decompositions at width 512 take seconds
    [
        ("mlp", 64),
        ("resnet", 128),
        ("vgg", 64),
        pytest.param("mlp", 512, marks=pytest.mark.heavy),
        pytest.param("resnet", 512, marks=pytest.mark.heavy),
        pytest.param("vgg", 512, marks=pytest.mark.heavy),
    ],
)
def test_a_step_at_the_paper_s_sizes_records_everything_that_claims_read(name, width, monkeypatch, open_gate):
    experiment = FIGURES[name]
    assert experiment.paper.width == 512
    points = {(c.dataset, c.init_scale): c for c in experiment.configs("paper") if c.dataset == KINDS[name]}
    configs = [config.but(n_train=40, n_test=20, epochs=1, rotations=1, width=width) for config in points.values()]
    assert len(configs) == {"mlp": 2}.get(name, 1)
    first = weights_of_the_first_layer(monkeypatch)
    results = performed(experiment, configs)
    assert list(results.trials.status) == ["finished"] * len(configs)
    verdicts = {claim.id: claim.judge(results) for claim in experiment.claims}
    assert all(verdict.measured is not None for verdict in verdicts.values()), verdicts
    assert set(first) == {(width, {"mlp": 784, "resnet": 512, "vgg": 8192}[name])}


def weights_of_the_first_layer(monkeypatch):
    """Return a list that collects the shapes of the first measured weights."""
    shapes, scores = [], networks.head_scores
    monkeypatch.setattr(
        networks,
        "head_scores",
        lambda c, weights, *rest: shapes.append(tuple(weights[0].shape)) or scores(c, weights, *rest),
    )
    return shapes


@pytest.mark.parametrize("trunk", ["none", "plain", "batch_norm"])
def test_scores_of_the_head_equal_those_of_the_network_s_linear_layers(trunk):
    config = networks.NetworkConfig(trunk=trunk, n_train=60, width=12, init_scale=1.0, precision="64-true")
    task = networks.images(config)
    net = networks.network(config, task).eval()
    x, y = task.train
    features, outputs = networks.head_inputs(config, net, x)
    torch.testing.assert_close(outputs, net(x).detach())
    scores = networks.head_scores(config, networks.head_weights(net), features, y.argmax(1))

    linear = [name for name, layer in measures.layer_names(net).items() if isinstance(layer, torch.nn.Linear)]
    inputs = measures.layer_inputs(net, x, layers=linear)
    tangents = measures.tangent_covariance(net, x, layers=linear)
    labels = y.argmax(1).numpy()
    for index, name in enumerate(linear):
        assert scores[f"nc1/{index}"] == pytest.approx(slow_nc1(inputs[name].numpy(), labels), rel=1e-9)
        if index == 5:
            continue
        W, K = tangents[name].W, tangents[name].K
        roots = measures.psd_power(W.T @ W, 0.5)  # (W'W)^(1/2) x has the NC1 of S V'x
        right = slow_nc1((inputs[name] @ roots).numpy(), labels)
        assert scores[f"nc1_right/{index}"] == pytest.approx(right, rel=1e-6)
        assert scores[f"nc1_left_error/{index}"] < 1e-9
        pearson = measures.nfa_pearson(W.T @ W, W.T @ K @ W).item()
        assert scores[f"nfa_pearson/{index}"] == pytest.approx(pearson, abs=1e-6)
        assert scores[f"stable_rank/{index}"] == pytest.approx(measures.stable_rank(W).item())
        assert scores[f"nfa/{index}"] == pytest.approx(measures.matrix_cosine(W.T @ W, W.T @ K @ W).item(), abs=1e-9)
        total = np.log(scores[f"nc1/{index}"] / scores[f"nc1/{index + 1}"])
        assert scores[f"nc1_drop/{index}"] == pytest.approx(total, abs=1e-9)
        parts = scores[f"nc1_drop_right/{index}"] + scores[f"nc1_drop_activation/{index}"]
        assert parts == pytest.approx(total, abs=1e-9)
    assert scores["within_share/5"] + scores["between_share/5"] == pytest.approx(1)
    assert scores["within_share/5"] / scores["between_share/5"] == pytest.approx(scores["nc1/5"])


def slow_nc1(features, labels):
    """Return tr Sigma_W / tr Sigma_B by a loop over classes."""
    means = np.stack([features[labels == c].mean(0) for c in range(10)])
    within = sum(((features[labels == c] - means[c]) ** 2).sum() for c in range(10)) / len(features)
    return within / (((means - means.mean(0)) ** 2).sum() / 10)


def test_the_best_constant_has_the_stated_loss():
    config = networks.NetworkConfig()
    x, y = networks.images(config).train
    value = {c: networks.loss(config)(lambda x, c=c: torch.full((len(x), 10), c), (x, y)).item() for c in (0.0, -0.8)}
    assert value[0.0] == pytest.approx(1)
    assert value[-0.8] == pytest.approx(0.36)  # the best constant, for classes of equal size
