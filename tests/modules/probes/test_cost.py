"""A measurement that takes longer than ten training steps says so before, shows how far it is, and can be sampled."""

import io
import sys
import warnings

import pytest
import torch
from torch import nn
from transformers_nets import QUIET, batch, fit, network

from featurelab.modules import measures, probes
from featurelab.modules.measures.core import passes, routes
from featurelab.modules.probes.cost import Cost, StepClock

pytestmark = pytest.mark.filterwarnings("ignore:.*leaves out")


class Clock:
    """Stands for the module `time`: it moves only when it is told to."""

    def __init__(self):
        self.now = 0.0

    def perf_counter(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


@pytest.fixture
def clock(monkeypatch):
    stands_for_time = Clock()
    monkeypatch.setattr("featurelab.modules.probes.cost.time", stands_for_time)
    return stands_for_time


def listened(clock, *reports, step, pause=0.0):
    lines, cost = [], Cost("Probe", lambda: step, lambda line: lines.append((len(times), line)), hint="; hint")
    times = []
    for done, total in reports:
        cost(done, total)
        times.append(done)
        clock.sleep(pause)
    return lines


def test_what_a_measurement_costs_is_said_once_and_early(monkeypatch, clock):
    monkeypatch.setattr("featurelab.modules.probes.cost.SECONDS", 0.0)
    ((when, line),) = listened(clock, *[(done, 100) for done in range(5)], step=0.01, pause=0.02)
    assert when == 1  # after the first hundredth of the work
    assert line.startswith("Probe: a measurement takes about 2.")
    assert "as long as 2" in line
    assert line.endswith(" training steps; hint")
    assert "\n" not in line


def test_ten_steps_and_short_measurements_are_not_worth_a_word(clock):
    assert listened(clock, *[(done, 4) for done in range(5)], step=0.0001, pause=0.001) == []
    assert listened(clock, (0, 100), (1, 100), (2, 100), step=1.0, pause=0.05) == []


def test_a_language_model_is_told_of_before_its_measurement(monkeypatch):
    monkeypatch.setattr("featurelab.modules.probes.cost.SECONDS", 0.0)
    monkeypatch.setattr("featurelab.modules.measures.core.passes.budget", lambda device: 2**14)
    told = []

    class Watched(probes.AnsatzProbe):
        def values(self, module, inputs, targets):
            found = super().values(module, inputs, targets)
            told.append(len(record))
            return found

    with warnings.catch_warnings(record=True) as record:
        warnings.simplefilter("always")
        warnings.filterwarnings("ignore", ".*(leaves out|isinstance)")
        fit(network("llama"), batch("llama"), Watched(), steps=2)
    lines = [str(each.message) for each in record if "a measurement takes" in str(each.message)]
    assert len(lines) == 1  # of three measurements
    assert told[0] >= 1
    assert "training steps; draws= estimates it from random combinations of the outputs" in lines[0]


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("screen", [Terminal, io.StringIO])
def test_progress_is_shown_on_a_terminal_only(monkeypatch, clock, screen):
    monkeypatch.setattr("featurelab.modules.probes.cost.SECONDS", 0.0)
    monkeypatch.setattr(sys, "stderr", seen := screen())
    listened(clock, *[(done, 8) for done in range(9)], step=1e-6, pause=0.12)
    assert ("Probe" in seen.getvalue()) == (screen is Terminal)
    if screen is Terminal:
        assert "%|" in seen.getvalue()


def test_a_training_step_is_timed_without_what_probes_measure_in_it(clock):
    steps = StepClock()
    steps.begin(0)
    clock.sleep(0.05)
    StepClock.measuring += 0.04
    steps.end(2)
    assert steps.seconds == pytest.approx(0.005)


def test_a_tried_step_leaves_no_gradients():
    net = nn.Linear(3, 2)
    assert StepClock().known_or_tried(net, measures.Samples(torch.randn(4, 3))) > 0
    assert net.weight.grad is None


def test_sampled_outputs_come_with_their_standard_errors_and_leave_training_as_it_is():
    named = batch("llama")
    exact = probes.AnsatzProbe(every=2, prefix="exact/")
    some = probes.AnsatzProbe(every=2, n_outputs=40, seed=1)
    spectrum = probes.SpectrumProbe(every=2, n_outputs=40)
    instruments = probes.InstrumentsProbe(every=2, n_outputs=40, quantities=["nfa"])
    plain = fit(network("llama"), named)
    watched = fit(network("llama"), named, exact, some, spectrum, instruments)
    for a, b in zip(plain.parameters(), watched.parameters(), strict=True):
        assert torch.equal(a, b)
    layer = "model.layers.0.mlp.up_proj"
    for name in (f"nfa/{layer}", f"cnfa/{layer}", f"double_centered_nfa/{layer}"):
        error = some.latest()[name.replace("/", "_se/", 1)]
        assert 0 < error < 0.2
        assert abs(some.latest()[name] - exact.latest()[f"exact/{name}"]) < 5 * error
    assert 0 < some.latest()[f"K_se/{layer}"] < 0.5
    assert spectrum.latest()[f"ptk_dispersion_se/{layer}"] > 0
    assert instruments.latest()["nfa_se"] > 0
    again = probes.AnsatzProbe(every=2, n_outputs=40, seed=1)
    fit(network("llama"), named, again)
    assert again.history == some.history
    with pytest.raises(ValueError, match="n_outputs must be at least 2, got 1"):
        probes.SpectrumProbe(n_outputs=1)


def test_spectra_of_weights_differentiate_nothing(monkeypatch):
    calls = []
    back = passes.backward
    monkeypatch.setattr(routes, "backward", lambda *args, **options: calls.append(1) or back(*args, **options))
    probe = probes.SpectrumProbe(quantities=["effective_rank", "stable_rank"])
    whole = probes.SpectrumProbe(prefix="whole/", every=9)
    fit(network("vit"), batch("vit"), probe)
    assert calls == []
    fit(network("vit"), batch("vit"), whole)
    assert calls
    assert {f"whole/{name}": value for name, value in probe.latest().items()}.items() <= whole.latest().items()
    with pytest.raises(ValueError, match="did you mean 'stable_rank'"):
        probes.SpectrumProbe(quantities=["stabel_rank"])
    assert QUIET
