"""Networks trained on coarse and fine labels, and every paper preset for one epoch."""

import pytest
import torch
from publicfiles import write_public

from featurelab.modules import data
from featurelab.pipelines.engine.errors import RequestError
from featurelab.pipelines.engine.trial.run import perform
from featurelab.pipelines.engine.verdict.check import MemoryRecorder, performed, recorded
from featurelab.pipelines.fine_grained_structure import (
    architectures,
    coarse,
    fine_labels,
    random_merging,
    training,
)


def test_training_ignores_the_classes_inside_a_label(monkeypatch):
    config = training.DIGITS.but(n_train=100, epochs=2, width=16, probed=("head",), cluster="none")
    honest = MemoryRecorder()
    perform(coarse.digits, config, honest)
    built = training.dataset

    def confused(config):
        task = built(config)
        random = torch.Generator().manual_seed(0)
        for group in range(5):
            rows = (task.groups[task.parts] == group).nonzero().flatten()
            task.parts[rows] = task.parts[rows[torch.randperm(len(rows), generator=random)]]
        return task

    monkeypatch.setattr(training, "dataset", confused)
    other = MemoryRecorder()
    perform(coarse.digits, config, other)
    assert all(torch.equal(honest.weights[name], weight) for name, weight in other.weights.items())
    for metric in ("loss/train", "loss/test", "accuracy/train", "nc1_pinv/head", "nc2/head"):
        assert honest.curves[metric] == other.curves[metric]
    assert honest.curves["msdr/head"] != other.curves["msdr/head"]


def test_the_learning_rate_drops_after_one_and_two_thirds_of_training(monkeypatch):
    seen = {}
    milestones = training.learners.milestone_schedule

    def spy(epochs, factor):
        seen.update(epochs=epochs, factor=factor)
        return milestones(epochs, factor=factor)

    monkeypatch.setattr(training.learners, "milestone_schedule", spy)
    perform(coarse.digits, training.DIGITS.but(n_train=100, epochs=6, width=16), MemoryRecorder())
    assert seen == {"epochs": [2, 4], "factor": 0.1}


def test_distances_are_recorded_at_every_measurement():
    recorder = MemoryRecorder()
    perform(coarse.digits, training.DIGITS.but(n_train=100, epochs=4, width=16, measure_every=2), recorder)
    history = recorder.arrays["distances"]
    assert list(history["epochs"]) == [0, 2, 4]
    final = history["matrices"][-1]
    same = torch.as_tensor(final).diagonal().mean()
    curve = recorder.curves["class_distance/same"]
    assert curve[max(curve)] == pytest.approx(float(same))


PRESETS = {"resnet18": coarse.mixture, "vgg16": architectures.figure, "densenet121": architectures.figure}


@pytest.fixture(scope="module")
def few_pictures(tmp_path_factory):
    """CIFAR-10 and CIFAR-100 with as few pictures a class as the measures allow."""
    datasets = pytest.importorskip("datasets")
    root = tmp_path_factory.mktemp("public")
    write_public(root, "cifar10", {"train": 2, "test": 1})
    write_public(root, "cifar100", {"train": 1, "test": 1})
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEATURELAB_DATA", str(root))
        patch.setattr(datasets.config, "HF_DATASETS_CACHE", str(root / "cache"))
        yield


@pytest.mark.parametrize(
    ("net", "features"),
    [
        ("resnet18", 512),
        ("vgg16", 512),
        ("densenet121", 128),
        pytest.param("densenet121", 1024, marks=pytest.mark.heavy),
    ],
)
def test_paper_presets_train_the_paper_s_networks(few_pictures, net, features):
    experiment = PRESETS[net]
    paper = next(c for c in experiment.configs("paper") if c.net == net)
    weights = sum(weight.numel() for weight in training.network(paper).parameters())
    assert weights == pytest.approx(training.PARAMETERS[net][0], rel=0.01)
    config = paper.but(n_train=20, n_test=10, epochs=1, batch_size=10, cluster="none", width=features)
    assert paper.width == (1024 if net == "densenet121" else 512)
    recorder = MemoryRecorder()
    perform(experiment, config, recorder)
    assert recorder.weights["net.head.weight"].shape == (5, features)
    assert recorder.entries[0]["dataset"]["profile"]["dim"] == 3 * 32 * 32
    assert {"clp/head", "msdr/head", "msdr/input", "nc1_pinv/head", "nc2/head"} <= set(recorder.curves)


@pytest.mark.parametrize(("labels", "outputs"), [("fine", 20), ("random_coarse", 5)])
def test_paper_presets_relabel_cifar10(few_pictures, labels, outputs):
    experiment = fine_labels.figure if labels == "fine" else random_merging.figure
    config = experiment.configs("paper")[0].but(n_train=20, n_test=10)
    assert config.labels == labels
    task = training.dataset(config)
    assert task.outputs == outputs == training.network(config.but(net="resnet", width=16)).head.out_features
    assert task.train[0].shape == (20, 3, 32, 32)
    assert isinstance(task.augment, data.CropAndFlip)


def test_cifar100_has_twenty_labels_of_five_classes(few_pictures):
    config = coarse.digits.paper.but(n_train=100, n_test=100)
    for labels in ("coarse", "official", "random_coarse"):
        task = training.dataset(config.but(labels=labels))
        assert task.outputs == 20
        assert torch.bincount(task.groups).tolist() == [5] * 20
    official = training.dataset(config.but(labels="official")).groups
    assert official[[4, 30, 55, 72, 95]].tolist() == [0] * 5  # aquatic mammals
    with data.permuted_labels(seed=0):
        permuted = training.dataset(config.but(labels="official"))
    assert permuted.groups.equal(official)
    assert not permuted.train[1].equal(official[permuted.original[0]])


@pytest.mark.heavy
def test_coarse_cifar100_trains_at_the_paper_s_width(few_pictures):
    config = coarse.digits.configs("paper")[0].but(n_train=100, n_test=20, epochs=1, probed=())
    recorder = MemoryRecorder()
    perform(coarse.digits, config, recorder)
    assert recorder.weights["net.head.weight"].shape == (20, 512)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"net": "resnet", "dataset": "mixture"}, "needs images"),
        ({"labels": "official"}, "only cifar100"),
        ({"coarse": 10}, "below the 10 classes"),
        ({"net": "resnet18", "width": 24}, "multiple of 32"),
    ],
)
def test_impossible_settings_are_refused(changes, message):
    with pytest.raises(RequestError, match=message):
        training.DIGITS.but(**changes)


def test_a_paper_trial_is_estimated_in_gpu_hours():
    for config in coarse.mixture.configs("paper")[:1]:
        assert 0.5 < training.cost(config).gpu_hours < 10
        assert 1e8 < training.cost(config).memory_bytes < 6e10


def test_one_seed_gives_the_same_trial_twice():
    config = training.MIXTURE.but(n_train=100, n_test=50, width=16, epochs=2, measure_every=2, probed=("head",))
    one, other = (performed(coarse.mixture, [config]) for _ in range(2))
    assert recorded(one).equals(recorded(other))
