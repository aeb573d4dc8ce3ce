"""One tangent pass serves all probes that read the same batch at the same step, and no others."""

import copy

import pytest
import torch
from transformers_nets import batch, fit, network

import featurelab.modules.probes.tangents as tangents
from featurelab.modules import probes
from featurelab.modules.measures import tangent_covariance

pytestmark = pytest.mark.filterwarnings("ignore:.*(leaves out|a measurement takes)")
LAYER = "model.layers.0.mlp.up_proj"


@pytest.fixture
def passes(monkeypatch):
    """The passes, with their layers and whether there was a reference."""
    seen = []

    def spy(module, inputs, *, layers, reference, **options):
        seen.append((layers, reference is not None))
        return tangent_covariance(module, inputs, layers=layers, reference=reference, **options)

    monkeypatch.setattr(tangents, "tangent_covariance", spy)
    return seen


def alone(kind, **options):
    probe = kind(every=1, **options)
    fit(network("llama"), batch("llama"), probe, steps=2)
    return probe.history


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_ansatz_and_spectra_take_one_pass_a_step_with_the_values_of_their_own(passes, order):
    kinds = [probes.AnsatzProbe, probes.SpectrumProbe]
    expected = [alone(kind) for kind in kinds]
    passes.clear()
    together = [kind(every=1) for kind in kinds]
    fit(network("llama"), batch("llama"), *[together[index] for index in order], steps=2)
    assert passes == [(None, True)] * 3  # at steps 0, 1 and 2
    for probe, history in zip(together, expected, strict=True):
        for (step, values), (its_step, its_values) in zip(probe.history, history, strict=True):
            assert step == its_step
            assert values == pytest.approx(its_values, rel=1e-4)


def test_instruments_take_their_layer_from_the_pass_of_others(passes):
    watching = [probes.SpectrumProbe(every=1), probes.InstrumentsProbe(every=1, quantities=["nfa", "ptk_dispersion"])]
    for order in (watching, watching[::-1]):
        passes.clear()
        fit(network("llama"), batch("llama"), *order, steps=2)
        assert passes == [(None, False)] * 3
        spectra, instruments = (probe.latest() for probe in watching)
        assert instruments["ptk_dispersion"] in spectra.values()


def test_sampling_must_agree(passes):
    kinds = [
        {"draws": 5},
        {"draws": 5, "prefix": "again/"},
        {"draws": 5, "seed": 1, "prefix": "seed/"},
        {"prefix": "exact/"},
    ]
    together = [probes.SpectrumProbe(every=1, **options) for options in kinds]
    fit(network("llama"), batch("llama"), *together, steps=1)
    assert len(passes) == 6
    first, again, seed, exact = (probe.latest() for probe in together)
    name = f"ptk_dispersion/{LAYER}"
    assert first[name] == again[f"again/{name}"]
    assert len({first[name], seed[f"seed/{name}"], exact[f"exact/{name}"]}) == 3


def test_other_inputs_outputs_or_steps_take_their_own_pass(passes):
    named, other = batch("llama"), copy.deepcopy(batch("llama"))
    other["input_ids"] = other["input_ids"].flip(0).clone()
    given = [
        probes.SpectrumProbe(every=1),
        probes.SpectrumProbe(every=1, inputs=other, prefix="other/"),
        probes.SpectrumProbe(every=1, outputs=lambda found: found.logits[:, -1], prefix="last/"),
    ]
    fit(network("llama"), named, *given, steps=1)
    assert len(passes) == 6
    passes.clear()
    often, seldom = probes.SpectrumProbe(every=1), probes.AnsatzProbe(every=3)
    fit(network("llama"), named, often, seldom, steps=2)
    assert passes == [(None, True), (None, False), (None, False), (None, True)]  # the last one after the fit


def test_a_failing_probe_fails_alone(passes):
    class Wrong(probes.AnsatzProbe):
        def tangents_wanted(self):
            return super().tangents_wanted()._replace(reference=torch.nn.Linear(2, 2))

    fine, wrong = probes.SpectrumProbe(every=1, strict=True), Wrong(every=1)
    with pytest.warns(UserWarning, match="Wrong could not measure"):
        fit(network("llama"), batch("llama"), fine, wrong, steps=1)
    assert fine.history == alone(probes.SpectrumProbe)[:2]
    assert wrong.latest() == {}


def test_nothing_is_kept_after_the_last_probe_has_it(passes):
    fit(network("llama"), batch("llama"), probes.AnsatzProbe(every=1), probes.SpectrumProbe(every=1), steps=1)
    assert all(not held.waiting for several in tangents._held.values() for held in several)
