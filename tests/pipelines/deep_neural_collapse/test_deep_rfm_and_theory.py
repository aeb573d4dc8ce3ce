"""Deep RFM and its theory: a layer at the paper's widths, the data, and the layers to trust."""

from dataclasses import replace

import pytest
from publicfiles import public_images  # noqa: F401

from featurelab.pipelines.deep_neural_collapse.deep_rfm import before_the_floor, line
from featurelab.pipelines.deep_neural_collapse.rfm import RFMConfig, build, task, trusted
from featurelab.pipelines.engine.errors import Missing
from featurelab.pipelines.engine.experiment.catalogue import registry
from featurelab.pipelines.engine.verdict.check import Table, performed, recorded


def experiment(name):
    return registry.find(f"deep_neural_collapse/{name}")


GRAY = {"cifar10": "mnist"}  # used instead: the eigendecomposition of colour images takes seconds


@pytest.mark.parametrize(
    ("name", "dataset"),
    [
        ("deep_rfm_relu", "mnist"),
        ("deep_rfm_cos", "mnist"),
        ("deep_rfm_controls", "mnist"),
        pytest.param("deep_rfm_controls", "cifar10", marks=pytest.mark.heavy),
    ],
)
def test_a_layer_at_the_paper_s_widths(name, dataset, public_images):  # noqa: F811
    figure = experiment(name)
    (config, *_) = [c for c in figure.configs("paper") if dataset in (c.dataset, GRAY.get(c.dataset))]
    results = performed(figure, [config.but(dataset=dataset, n_train=60, n_test=20, depth=1)])
    assert results.trials.status.tolist() == ["finished"]
    assert results.final("krr_residual/layer") < 1e-8
    assert results.final("accuracy/train") == 1.0


def test_the_value_of_layers_at_the_paper_s_widths(public_images):  # noqa: F811
    figure = experiment("krr_value_of_layers")
    results = performed(figure, [figure.paper.but(dataset="mnist", n_train=60, n_test=20, depth=1)])
    assert 0 < results.final("krr_value/input") < results.final("krr_value/projected") < 1


@pytest.mark.parametrize("dataset", ["cifar10", "mnist", "svhn"])
def test_public_data_are_the_first_rows_sorted_and_standardised_with_signs_as_targets(dataset, public_images):  # noqa: F811
    images = task(RFMConfig(dataset=dataset, n_train=60, n_test=20))
    (x, y), labels = images.train, images.train[1].argmax(1)
    assert x.shape == (60, 784 if dataset == "mnist" else 3072)
    assert (y.sum(1) == -8).all()
    assert (labels.diff() >= 0).all()
    assert x.mean(0).abs().max() < 1e-10
    assert len(images.test[0]) == 20


@pytest.mark.parametrize("name", ["krr_optimum", "linearised_layers", "random_relu"])
def test_theory_at_the_paper_s_scale(name):
    figure = experiment(name)
    sizes = {"krr_optimum": {"kernels": 2}, "linearised_layers": {"depth": 3}, "random_relu": {"draws": 10}}[name]
    results = performed(figure, [figure.configs("paper")[0].but(**sizes)])
    assert results.trials.status.tolist() == ["finished"]


def test_layers_after_one_that_does_not_interpolate_are_omitted():
    figure = experiment("deep_rfm_relu")
    results = performed(figure, [figure.laptop.but(n_train=20, width=16, depth=4)])
    assert len(trusted(results, "nc1/projected")) == 4
    torn = recorded(results).copy()
    torn.loc[(torn.metric == "krr_residual/layer") & (torn.step == 3), "value"] = 2e-8
    remaining = trusted(replace(results, read=Table(torn)), "nc1/projected")
    assert remaining.tolist() == results.curve("nc1/projected").loc[:2].tolist()
    with pytest.raises(Missing, match="no nc3"):
        trusted(results, "nc3/projected")


def test_classes_must_divide_the_samples():
    with pytest.raises(ValueError, match="multiple of the 10 classes, got 45"):
        build(RFMConfig(n_train=45), None)


def test_the_fit_before_the_floor_ends_where_a_layer_gains_less_than_a_fifth():
    assert before_the_floor([1.0, 0.5, 0.25, 0.24, 0.1]) == [1.0, 0.5, 0.25]
    assert before_the_floor([1.0, 0.5]) == [1.0, 0.5]
    fit, slope = line([1.0, 0.1, 0.01])
    assert (fit, slope) == pytest.approx((1.0, -2.302585), rel=1e-6)
