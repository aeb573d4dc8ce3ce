"""Probes of unseen classes: their values against the formulas, and the mode in which they measure."""

import copy

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from torch import nn

from featurelab.modules import data, learners, measures, nets, probes
from featurelab.modules.probes.unseen_classes import balanced_labels

POOLS = {"digits": data.digit_pictures(), "fields": data.random_fields(10, 40, seed=0)}
SMALL = {"per_class": 12, "unseen": 4, "seed": 0}


def network(dim=16, width=24):
    trunk = nets.TrunkHead(nets.conv_trunk(1, (4, 8), seed=0), nets.initialised(lambda: nn.Linear(8, dim), seed=0))
    return nets.TrunkFeature(trunk, dim, width, seed=0)


def trained(task, steps=6, **options):
    learner = learners.Supervised(network(), loss="half_mse", optimizer=learners.adam(1e-2))
    start = copy.deepcopy(learner.net).eval()
    probe = probes.UnseenClassProbe(task.train, task.evaluation, permutations=3, seed=1, **options)
    trainer = pl.Trainer(
        max_steps=steps,
        callbacks=[probe],
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        limit_val_batches=0,
    )
    trainer.fit(learner, datamodule=task)
    return learner, start, probe


@pytest.fixture(scope="module")
def fitted():
    task = data.TwoClasses(POOLS, "digits", **SMALL)
    return task, *trained(task)


def test_scores_are_the_formulas(fitted):
    task, learner, start, probe = fitted
    net = learner.net.eval()
    with torch.no_grad():
        x, y = task.train
        beta = net.representation(x).T @ y[:, 0] / (len(x) * 24**0.5)
        for name, (pictures, labels) in task.evaluation.items():
            for k in (*range(4), "all"):
                own = pictures if k == "all" else pictures[labels == k]
                F, F_0 = net.features(own), start.features(own)
                pairs = [F[i] @ F[j] for i in range(len(F)) for j in range(len(F)) if i != j]
                expected = {
                    "similarity": (net.representation(own).mean(0) @ beta).abs(),
                    "alignment": torch.stack(pairs).mean(),
                    "elasticity": (F - F_0).square().sum(1).mean(),
                }
                for score, value in expected.items():
                    assert probe.latest()[f"{score}/{name}/{k}"] == pytest.approx(value.item(), rel=1e-3, abs=1e-4)
        outputs = net(x)
        for head in (0, 1):
            right = (outputs[:, head] * y[:, head] > 0).float().mean().item()
            assert probe.latest()[f"accuracy/head_{head + 1}"] == pytest.approx(right)


def test_agreement_is_that_of_the_logged_scores(fitted):
    task, _, _, probe = fitted
    assert [step for step, _ in probe.history] == list(range(7))
    for step, values in probe.history:
        for name in task.evaluation:
            scores = torch.tensor(
                [[values[f"{s}/{name}/{k}"] for k in range(4)] for s in ("similarity", "alignment", "elasticity")]
            )
            if step == 0:  # nothing has moved: there is no ranking by Elasticity yet
                assert f"kendalls_w/{name}" not in values
                assert not scores[2].any()
            else:
                assert values[f"kendalls_w/{name}"] == pytest.approx(measures.kendalls_w(scores).item())
                assert 0 <= values[f"kendalls_w_permuted/{name}"] <= 1
            assert values[f"spearman/{name}"] == pytest.approx(measures.spearman(scores[0], scores[1]).item())


def test_balanced_labels_are_permutations_without_a_trace_of_the_labels():
    labels = torch.tensor([1.0, -1, 1, 1, -1, -1, 1, -1])
    drawn = balanced_labels(labels, 200, torch.Generator().manual_seed(0))
    assert tuple(drawn.shape) == (200, 8)
    assert set(drawn.flatten().tolist()) == {-1.0, 1.0}
    assert not (drawn @ labels.double()).any()
    assert not drawn.sum(1).any()
    assert len({tuple(row) for row in drawn.tolist()}) == 36  # all (4 choose 2)^2 of them
    assert drawn.mean(0).abs().max() < 0.25


def test_batch_statistics_of_one_class_at_a_time_would_erase_the_classes(fitted):
    """What evaluation mode is for: in training mode the mean representations of all classes are nearly the same."""
    task, learner, _, _ = fitted
    pictures, labels = task.evaluation["fields"]

    def spread(mode):
        net = copy.deepcopy(learner.net).train(mode)
        with torch.no_grad():
            means = torch.stack([net.representation(pictures[labels == k]).mean(0) for k in range(4)])
        return (means - means.mean(0)).norm() / means.mean(0).norm()

    assert spread(True) < 0.5 * spread(False)


def test_training_is_the_same_without_the_probe_and_stays_in_training_mode(fitted):
    _, learner, _, _ = fitted
    alone = learners.Supervised(network(), loss="half_mse", optimizer=learners.adam(1e-2))
    modes = []

    class Modes(pl.Callback):
        def on_train_batch_end(self, trainer, module, *_):
            modes.append(module.training)

    trainer = pl.Trainer(
        max_steps=6,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        limit_val_batches=0,
        callbacks=[Modes()],
    )
    trainer.fit(alone, datamodule=data.TwoClasses(POOLS, "digits", **SMALL))
    assert all(modes)
    for name, value in alone.net.state_dict().items():
        assert torch.equal(value, learner.net.state_dict()[name]), name


def test_the_initial_features_travel_in_checkpoints(fitted):
    task, learner, _, probe = fitted
    other = probes.UnseenClassProbe(task.train, task.evaluation, permutations=3, seed=1)
    other.load_state_dict(probe.state_dict())
    found = other.values(learner.eval(), *task.train)
    assert found["elasticity/digits/0"] == pytest.approx(probe.latest()["elasticity/digits/0"], rel=1e-5)


def test_an_unseen_class_probe_needs_something_to_measure():
    task = data.TwoClasses(POOLS, "digits", **SMALL)
    for evaluation, permutations in (({}, 1), (task.evaluation, 0)):
        with pytest.raises(ValueError, match="permutation"):
            probes.UnseenClassProbe(task.train, evaluation, permutations=permutations, seed=0)


def clouds(noise=1.0):
    x, labels = data.class_clouds(12, 9, 8, noise=noise, heterogeneity=0.5, seed=0)
    return x.float(), labels


def test_retrieval_is_measured_class_by_class_by_hand():
    x, labels = clouds()
    net = nets.MetricNet(nn.Linear(8, 16), 16, 5, seed=0)
    module = learners.Supervised(net, loss="cross_entropy", optimizer=learners.sgd(0.1))
    probe = probes.RetrievalProbe((x, labels), chunk=25)
    found = probe.values(module, x, labels)
    with torch.no_grad():
        F = net.features(x)
    unit = F / F.norm(dim=1, keepdim=True)
    likeness = unit @ unit.T
    likeness.fill_diagonal_(-torch.inf)
    for k in (1, 2, 4, 8):
        nearest = labels[likeness.topk(k).indices]
        hit = (nearest == labels[:, None]).any(1).double()
        assert found[f"recall_at_{k}/unseen"] == pytest.approx(hit.mean().item())
    hit = (labels[likeness.argmax(1)] == labels).double()
    recall = np.array([hit[labels == c].mean() for c in range(12)])
    alignment = []
    for c in range(12):
        G = F[labels == c] @ F[labels == c].T
        alignment.append(((G.sum() - G.trace()) / (9 * 8)).item())
    assert found["alignment/unseen"] == pytest.approx(np.mean(alignment), rel=1e-4)
    assert found["pearson/recall_alignment"] == pytest.approx(np.corrcoef(recall, alignment)[0, 1], abs=1e-5)
    assert found["pearson_p/recall_alignment"] == pytest.approx(
        float(measures.pearson_p_value(found["pearson/recall_alignment"], 12))
    )
    np.testing.assert_allclose(probe.by_class["recall"], recall)


def test_batches_of_unseen_samples_give_what_all_at_once_give():
    x, labels = clouds()
    net = nets.MetricNet(nn.Linear(8, 16), 16, 5, seed=0)
    module = learners.Supervised(net, loss="cross_entropy", optimizer=learners.sgd(0.1))
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    batches = list(zip(x[order].split(10), labels[order].split(10), strict=True))
    whole, streamed = (probes.RetrievalProbe(u).values(module, x, labels) for u in ((x, labels), batches))
    assert whole == pytest.approx(streamed, rel=1e-4)


def test_where_all_classes_are_retrieved_alike_there_is_no_correlation():
    x, labels = clouds(noise=0.0)
    net = nets.MetricNet(nn.Linear(8, 16), 16, 5, seed=0)
    module = learners.Supervised(net, loss="cross_entropy", optimizer=learners.sgd(0.1))
    found = probes.RetrievalProbe((x, labels)).values(module, x, labels)
    assert found["recall_at_1/unseen"] == pytest.approx(1)
    assert np.isnan(found["pearson/recall_alignment"])
    assert "pearson_p/recall_alignment" not in found
