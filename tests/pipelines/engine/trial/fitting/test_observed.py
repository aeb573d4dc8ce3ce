"""Another figure's trial with one's own probes: the same network as the figure's own, and nothing else recorded."""

import pytest
import torch

from featurelab.modules.probes import Measure
from featurelab.pipelines import Observed
from featurelab.pipelines.engine.errors import RequestError
from featurelab.pipelines.engine.experiment.catalogue.registry import find
from featurelab.pipelines.engine.trial.fitting.observed import further
from featurelab.pipelines.engine.verdict.check import MemoryRecorder, performed

NAME, BRIEF = "nuclear_norm_dg/synthetic", {"steps": 20, "measure_every": 10, "n_train": 40, "n_test": 100}


def weights(module, x):
    return {"sum": torch.cat([w.flatten() for w in module.net.parameters()]).double().sum().item()}


def test_the_network_is_the_one_that_the_figure_trains_itself():
    probe, recorder = Measure(weights, every=100), MemoryRecorder()
    observed = Observed(NAME, seed=3, **BRIEF)
    observed.run([probe], recorder)
    assert [step for step, _ in probe.history] == [0, 20]
    assert probe.history[0] != probe.history[1]
    own = MemoryRecorder()
    find(NAME).run_trial(find(NAME).laptop.but(seed=3, **BRIEF), own)
    assert probe.latest()["sum"] == sum(w.double().sum().item() for w in own.weights.values())
    assert recorder.digest == own.digest != ""
    assert recorder.curves == {}
    assert recorder.weights == {}


def test_probes_are_there_for_that_trial_only():
    class Stop(Exception):
        pass

    def stop(module, x):
        assert len(further()) == 1
        raise Stop

    with pytest.raises(Stop):
        Observed(NAME, **BRIEF).run([Measure(stop)], MemoryRecorder())
    assert further() == ()
    performed(find(NAME), [find(NAME).laptop.but(**BRIEF)])


def test_settings_that_the_figure_does_not_have_are_ignored_and_bad_values_refused():
    assert Observed(NAME, epochs=3, lr=0.5).config.lr == 0.5
    assert Observed(NAME, **BRIEF).cost().steps >= 1
    assert Observed(NAME, small=True, lr=0.5).config == find(NAME).small_configs()[0].but(lr=0.5)
    with pytest.raises(RequestError, match="lr"):
        Observed(NAME, lr=-1.0)
    with pytest.raises(RequestError, match="did you mean nuclear_norm_dg/synthetic"):
        Observed("nuclear_norm_dg/synthetix")
