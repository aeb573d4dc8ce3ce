"""Every experiment that trains, under the controls that all that train on labels have."""

import functools

import pytest

from featurelab.pipelines.engine.experiment.catalogue import registry
from featurelab.pipelines.engine.experiment.config import controls_of
from featurelab.pipelines.engine.trial.run import perform
from featurelab.pipelines.engine.verdict.check import MemoryRecorder

TRAINED = {e.run_trial: e for e in reversed(registry.experiments()) if "permuted_labels" in controls_of(e.laptop)}
OF_WHAT_WAS_LEARNED = (
    "cnfa/",
    "after/cnfa",
    "ptk_centered",
    "double_centered",
    "participation_ratio/agop",
    "catapult",
    "test_cnfa",
    "cnfa_random_kernel",
)
# measured with running means of batches, which are far from settled after a few
FROM_RUNNING_STATISTICS = ("input_structure/filter_clusters",)
FIGURES = {figure.name: figure for figure in TRAINED.values()}
OF_INPUTS = ("same_moments", "same_coarse_moments", "renamed_classes", "renamed_residues")


@functools.cache
def recorded(name, control):
    figure, recorder = FIGURES[name], MemoryRecorder()
    perform(figure, figure.small_configs()[0].but(control=control), recorder)
    return recorder


@pytest.mark.parametrize("name", FIGURES)
def test_labels_are_permuted_in_what_is_trained_on_and_updates_are_withheld(name):
    controls = controls_of(FIGURES[name].laptop)
    plain = recorded(name, "none")
    if "permuted_labels" in controls:  # not where there are none to learn from
        permuted = recorded(name, "permuted_labels")
        assert permuted.digest != plain.digest
        assert permuted.curves != plain.curves
        check_steps(permuted, plain)
    if "untrained" in controls:
        untrained = recorded(name, "untrained")
        # labels that a teacher gives are learned; what it learns them from is the same
        assert set(untrained.digest.split()) & set(plain.digest.split())
        check_steps(untrained, plain)
        without = plain.curves.keys() - untrained.curves.keys()
        assert all(metric.startswith(OF_WHAT_WAS_LEARNED) for metric in without)
        for metric, steps in untrained.curves.items():
            if metric.startswith("loss/train"):  # batch statistics may move
                most = 0.1 if name in FROM_RUNNING_STATISTICS else 1e-3
                assert max(steps.values()) - min(steps.values()) <= most * abs(max(steps.values())), metric


@pytest.mark.parametrize(
    ("name", "control"),
    [(name, c) for name, figure in FIGURES.items() for c in controls_of(figure.laptop) if c in OF_INPUTS],
)
def test_other_inputs_and_names_change_what_is_learned_and_every_metric_is_there(name, control):
    plain, under = (recorded(name, which) for which in ("none", control))
    assert under.digest != plain.digest
    assert under.curves != plain.curves
    assert under.curves.keys() == plain.curves.keys()
    check_steps(under, plain)


def check_steps(control, plain):
    for metric, steps in control.curves.items():
        assert list(steps) == list(plain.curves[metric]), "every metric at every step"
