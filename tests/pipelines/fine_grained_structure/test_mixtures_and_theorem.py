"""Figures 10 to 13, 15 to 18 and theorem 7.1: what claims measure, and the paper's sizes for one step."""

import dataclasses

import numpy as np
import pytest
import torch
from madeup import seed_by_seed
from publicfiles import public_images  # noqa: F401
from smallsizes import on_three_seeds

from featurelab.modules import data, learners, nets
from featurelab.pipelines.engine.verdict.check import Table, performed, recorded, shuffled
from featurelab.pipelines.fine_grained_structure import mixture, semantic, similar_pairs, theorem

SMALL = {"n_train": 48, "steps": 4, "measure_every": 2}


@pytest.mark.parametrize("experiment", [mixture.by_dim, similar_pairs.figure], ids=lambda e: e.figure)
def test_the_paper_s_sizes_train_for_a_step(experiment):
    config = experiment.paper.but(n_train=64, steps=1)
    assert (config.dim, config.width, experiment.paper.n_train) == (512, 512, 4000)
    (row,) = performed(experiment, [config]).trials.to_dict("records")
    assert row["status"] == "finished"


@pytest.mark.usefixtures("public_images")
@pytest.mark.parametrize("labels", ["official", "random_coarse"])
def test_super_classes_of_cifar100_train_for_an_epoch(labels):
    config = semantic.figure.paper.but(
        labels=labels, n_train=200, n_test=100, epochs=1, width=32, batch_size=100, precision="32-true"
    )
    results = performed(semantic.figure, [config])
    assert results.final("msdr/head") > 0
    assert 0.2 <= results.final("cluster_accuracy/head") <= 1


def test_a_network_of_the_stack_trains_as_it_would_alone():
    together = performed(mixture.by_dim, [mixture.by_dim.laptop.but(**SMALL, separations=(0.5, 2.0))])
    alone = performed(mixture.by_dim, [mixture.by_dim.laptop.but(**SMALL, separations=(2.0,))])
    for metric in ("msdr/2", "loss/train/2", "msdr_input/2", "msdr_null/2"):
        assert together.final(metric) == pytest.approx(alone.final(metric), rel=1e-5)


def test_clusters_do_not_affect_training():
    """Training sees only labels: renaming the clusters inside each label leaves the weights unchanged."""
    means = data.spread_means(8, 6, [1.0], seed=0)
    tasks = [data.GaussianClusters(m, torch.arange(8) % 4, 16, seed=1) for m in (means, means)]
    tasks[1].clusters = (tasks[1].clusters + 4) % 8
    weights = []
    for task in tasks:
        net = nets.PerceptronStack(nets.perceptron([6, 5, 4], seed=2), 1)
        optimiser = learners.gd(0.1)(net)
        for batch in task.train_dataloader():
            learners.stacked_cross_entropy(net, batch).backward()
            optimiser.step()
        weights.append(net.weight.detach())
    assert torch.equal(*weights)


def test_verdicts_follow_the_measurements():
    """Claims on the width compare the networks that they name."""
    tiny = on_three_seeds(mixture.by_width, n_train=16, dim=8, steps=1, measure_every=1)
    results = performed(mixture.by_width, tiny)
    points = recorded(results).copy()
    widths = dict(zip(results.trials.run_id, results.trials.width, strict=True))
    chosen = points.metric.str.startswith("msdr/")
    points.loc[chosen, "value"] = points.loc[chosen, "run_id"].map(widths).astype(float)
    rising = dataclasses.replace(results, read=Table(points))
    verdicts = {claim.id: seed_by_seed(claim).judge(rising).status for claim in mixture.by_width.claims}
    assert verdicts == {
        "c15_width_raises_msdr": "holds",
        "c15b_width_at_large_separation": "holds",
        "c15c_width_at_default_init": "holds",
        "c15d_reversed_at_default_init": "fails",
    }


def test_the_slope_of_a_power_law_is_its_exponent():
    configs = [c.but(dim=64, width=4, lr=0.5, measurements=1) for c in theorem.figure.configs("laptop") if c.seed == 0]
    results = performed(theorem.figure, configs)
    powers = results.trials.set_index("run_id").noise_to_signal.astype(float) ** -3
    points = recorded(results).copy()
    chosen = points.metric.str.startswith("separation/")
    points.loc[chosen, "value"] = points.loc[chosen, "run_id"].map(powers)
    cubic = dataclasses.replace(results, read=Table(points))
    assert theorem.slope(cubic, "separation/mean") == pytest.approx(3.0)
    noise = theorem.slope(shuffled(results), "separation/mean")
    assert abs(noise - 3.0) > 0.1


def test_one_seed_gives_the_same_bits_twice():
    config = similar_pairs.figure.laptop.but(**SMALL, dim=16, width=8)
    first, second = (recorded(performed(similar_pairs.figure, [config])).value.to_numpy() for _ in range(2))
    assert np.array_equal(first, second)
