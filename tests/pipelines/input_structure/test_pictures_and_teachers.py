"""The figures on real pictures and with teachers, and one short training at their paper presets."""

import numpy as np
import pytest
import torch
from publicfiles import write_public

from featurelab.modules import data, learners
from featurelab.pipelines.engine.errors import RequestError
from featurelab.pipelines.engine.verdict.check import performed
from featurelab.pipelines.input_structure import filter_clusters, picture_maps, students, teachers, width_curves


def test_pictures_are_two_centred_classes_of_one_scale():
    task = picture_maps.pictures(picture_maps.PRESET.but(classes=(3, 8), n_train=200))
    x, y = task.train
    assert x.shape[1:] == (1, 8, 8)
    assert torch.allclose(x.mean(0), torch.zeros(1, 8, 8), atol=1e-5)
    assert x.square().mean().item() == pytest.approx(1.0, abs=1e-4)
    assert set(y.flatten().tolist()) == {-1.0, 1.0}
    assert len(task.train[0]) + len(task.test[0]) == 183 + 174


def test_inverted_contrast_exchanges_light_and_dark_and_leaves_labels():
    x = torch.tensor([[[0.0, 1.0]], [[0.25, 0.5]], [[1.0, 0.0]]])
    y = torch.ones(3, 1)
    for share in (0.0, 0.4, 1.0):
        inverted, labels = picture_maps.contrast((x, y), share, np.random.default_rng(0))
        chosen = np.random.default_rng(0).random(3) < share
        slow = [1 - one if turned else one for one, turned in zip(x, chosen, strict=True)]
        assert torch.equal(inverted, torch.stack(slow))
        assert torch.equal(labels, y)


def test_permuted_labels_leave_the_pictures_of_a_seed_as_they_are():
    plain = picture_maps.pictures(picture_maps.PRESET)
    with data.permuted_labels(1):
        permuted = picture_maps.pictures(picture_maps.PRESET)
    assert torch.equal(plain.train[0], permuted.train[0])
    assert torch.equal(plain.test[1], permuted.test[1])
    assert torch.equal(plain.train[1], permuted.labelled[1])
    assert not torch.equal(plain.train[1], permuted.train[1])


def test_the_first_gradient_with_all_neurons_active_is_along_the_class_means():
    task = picture_maps.pictures(picture_maps.PRESET)
    x, y = (part.flatten(1).double() for part in task.train)
    W = torch.randn(5, 64, dtype=torch.float64, requires_grad=True)
    loss = learners.logistic(lambda x: (x @ W.T - x @ W.T.detach()).sum(1, keepdim=True), (x, y))
    (gradient,) = torch.autograd.grad(loss, W)
    axis = (x * y).mean(0)
    assert torch.nn.functional.cosine_similarity(gradient, axis[None]).abs().min().item() == pytest.approx(1.0)


def test_filters_are_followed_in_each_stage():
    config = filter_clusters.figure.small_configs()[0].but(depths=(1, 1), width=4)
    found = performed(filter_clusters.figure, [config])
    assert found.has("between/2")
    assert not found.has("between/3")
    assert -1 <= found.final("chunk/2_3/2") <= 1


@pytest.mark.parametrize(
    ("curve", "minimum"),
    [([3, 2, 1, 2, 0.5], 4), ([3, 2, 1, 1.04, 0.5, 0.4], 32), ([3, 2, 1], 4), ([1, 1, 1], 1), ([2, 3, 1], 1)],
)
def test_the_minimum_of_a_curve_comes_before_its_first_real_rise(curve, minimum):
    assert width_curves.first_minimum([1, 2, 4, 8, 16, 32], np.array(curve, dtype=float)) == minimum


def slow_peak(curve):
    heights = [
        min(curve[j] / curve[i], curve[j] / curve[k])
        for j in range(len(curve))
        for i in range(j)
        for k in range(j + 1, len(curve))
    ]
    return np.log(max(heights))


def test_the_height_of_a_peak_equals_a_search_over_all_triples():
    rng = np.random.default_rng(0)
    for _ in range(20):
        curve = rng.uniform(0.1, 3, size=7)
        assert width_curves.peak(curve) == pytest.approx(slow_peak(curve))
    assert width_curves.peak(np.array([4.0, 2.0, 1.0])) < 0


def test_noise_changes_the_given_share_of_labels_to_other_classes():
    y = torch.arange(1000) % 10
    changed = width_curves.noisy(y, width_curves.PRESET)
    assert int((changed != y).sum()) == 150
    assert set(changed.tolist()) == set(range(10))


def test_the_spread_of_labels_is_one_for_equally_frequent_classes():
    assert teachers.label_spread(torch.arange(50) % 10) == pytest.approx(1.0)
    assert teachers.label_spread(torch.zeros(9, dtype=torch.long)) == pytest.approx(0.0)


def test_a_mixture_has_its_shares_and_a_student_of_its_teacher_s_kind_follows_it():
    config = students.PRESET.but(alpha=0.25, n_train=300, teacher_steps=60, steps=150, measure_every=150)
    found = performed(students.figure, [config])
    assert found.final("accuracy/teacher") > 0.6
    assert found.final("accuracy/original") > 0.6
    whole, one, other = (found.final(f"accuracy/{part}") for part in ("mixture", "original", "injected"))
    assert whole == pytest.approx(0.75 * one + 0.25 * other, abs=1e-3)


def test_an_untrained_teacher_has_its_initial_weights():
    config = students.figure.small_configs()[0].but(teacher="untrained")
    task = teachers.original(config)
    drawn = teachers.network(config, 9, config.streams.init)
    teacher = teachers.taught(config, None, task, task.train[0])
    assert all(torch.equal(a, b) for a, b in zip(teacher.parameters(), drawn.parameters(), strict=True))
    own = config.but(teacher="trained", control="untrained_teacher")
    assert performed(students.figure, [own]).final("loss/original") == pytest.approx(
        performed(students.figure, [config]).final("loss/original")
    )


def test_tiny_imagenet_is_refused_for_digits():
    config = students.PRESET.but(injected="tiny_imagenet")
    with pytest.raises(ValueError, match="Tiny ImageNet"):
        teachers.injected(config, torch.zeros(2, 1, 8, 8), 3, "train")
    with pytest.raises(RequestError):
        students.PRESET.but(injected="pictures")


def test_paper_presets_train_on_their_own_pictures(tmp_path, monkeypatch):
    pytest.importorskip("datasets")
    for name in ("mnist", "cifar10", "tiny_imagenet"):
        write_public(tmp_path, name)
    monkeypatch.setenv("FEATURELAB_DATA", str(tmp_path))
    small = {"n_train": 20, "n_test": 8, "batch_size": 10, "steps": 30, "measure_every": 15}
    few = {"teacher_steps": 2, "steps": 4, "measure_every": 2, "teacher_width": 2, "width": 2}
    real = [
        (picture_maps.figure, picture_maps.figure.paper.but(**small | {"n_train": 10, "n_test": 4})),
        (
            students.structured,
            students.structured.paper.but(dataset="cifar10", injected="tiny_imagenet", **small | few),
        ),
        (students.figure, students.figure.paper.but(**small | few)),
    ]
    for figure, config in real:
        found = performed(figure, [config])
        assert list(found.trials.status) == ["finished"]
