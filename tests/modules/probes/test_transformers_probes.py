"""Probes while networks of `transformers` are fine-tuned as they come: named batches, model outputs, masks, labels."""

import copy
import inspect

import pytest
import pytorch_lightning as pl
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from transformers_nets import KINDS, FineTuned, batch, fit, loader, network, slow_K

from featurelab.modules import measures, probes

pytestmark = pytest.mark.filterwarnings("ignore:.*leaves out")


def every_probe(named):
    return [
        probes.AnsatzProbe(every=2),
        probes.SpectrumProbe(every=2),
        probes.LossProbe({"train": named}, every=2),
        probes.GramProbe(every=2),
        probes.DistanceProbe([0, 0, 1] + [1] * 17, every=2),
        probes.AttributionProbe(every=2),
        probes.AlignmentProbe(every=2),
        probes.CKAProbe(every=2),
        probes.CollapseProbe(every=2),
        probes.InstrumentsProbe(every=2),
        probes.Measure(lambda module, inputs: module.model(**inputs).logits.std(), every=2, name="spread"),
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_every_probe_measures_a_network_as_it_comes(kind):
    named = batch(kind)
    watching = every_probe(named)
    fit(network(kind), named, *watching)
    for probe in watching:
        assert [step for step, _ in probe.history] == [0, 2]
        assert probe.latest(), type(probe).__name__
        assert "measurement" not in probe.skipped


@pytest.mark.parametrize("kind", KINDS)
def test_values_are_those_of_a_slow_loop(kind):
    named, model = batch(kind, n=3, length=4), network(kind)
    start = copy.deepcopy(model)
    ansatz, spectrum = probes.AnsatzProbe(every=2), probes.SpectrumProbe(every=2)
    fit(model, named, ansatz, spectrum)
    model.eval()
    layers = [name for name in measures.layer_names(model) if f"nfa/{name}" in ansatz.latest()]
    assert len(layers) >= 12
    for name in [layers[0], layers[5], layers[-1]]:
        now, before = (measures.layer_names(each)[name] for each in (model, start))
        W, W0, K = now.weight.detach().flatten(1), before.weight.detach().flatten(1), slow_K(model, named, now)
        scores = measures.ansatz_decomposition(W, W0, K)
        for quantity in ("nfa", "cnfa", "centered_ratio"):
            assert ansatz.latest()[f"{quantity}/{name}"] == pytest.approx(scores[quantity], rel=1e-3)
        dispersion = measures.eigenvalue_dispersion(K).item()
        assert spectrum.latest()[f"ptk_dispersion/{name}"] == pytest.approx(dispersion, rel=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_losses_and_accuracies_are_those_of_the_network_and_tokens_are_samples(kind):
    named, model = batch(kind), network(kind)
    whole, parts = probes.LossProbe({"all": named}), probes.LossProbe({"all": loader(named, 2)}, prefix="in parts/")
    given = probes.LossProbe(loader(named, 4), loss="cross_entropy", prefix="given/")
    collapse = probes.CollapseProbe(quantities=["nc1"])
    fit(model, named, whole, parts, given, collapse)
    model.eval()
    found = model(**named)
    logits, labels = found.logits, named["labels"]
    if kind == "llama":
        logits, labels = logits[:, :-1], labels[:, 1:]
    logits, labels = logits[labels != -100], labels[labels != -100]
    for name, probe in (("all", whole), ("data", given)):
        prefix = probe.prefix
        assert probe.latest()[f"{prefix}loss/{name}"] == pytest.approx(found.loss.item(), rel=1e-5)
        right = (logits.argmax(-1) == labels).double().mean().item()
        assert probe.latest()[f"{prefix}accuracy/{name}"] == pytest.approx(right)
    assert parts.latest()["in parts/loss/all"] == pytest.approx(cross_entropy(logits, labels).item(), rel=1e-5)
    head = {"llama": "lm_head"}.get(kind, "classifier")
    seen = []
    handle = getattr(model, head).register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    model(**named)
    handle.remove()
    features = seen[0]
    if features.ndim == 3:
        features = (
            features[:, :-1][named["labels"][:, 1:] != -100] if kind == "llama" else features[named["labels"] != -100]
        )
    expected = measures.nc1(measures.ClassMoments.empty().update(features, labels).occurring()[0]).item()
    assert collapse.latest()[f"nc1/{head}"] == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_training_is_the_same_bit_for_bit_with_dropout_and_checkpointing_and_tied_weights(kind):
    def trained(*watching):
        drop = (
            {"attention_dropout": 0.1, "tie_word_embeddings": True} if kind == "llama" else {"hidden_dropout_prob": 0.1}
        )
        model = network(kind, **drop)
        if kind in ("llama", "sentences"):
            model.gradient_checkpointing_enable()
        model.config.use_cache = kind == "tokens"
        fit(model, batch(kind), *watching, steps=3)
        assert model.config.use_cache is (kind == "tokens")
        return model.state_dict()

    watching = every_probe(batch(kind))
    for (name, a), b in zip(trained().items(), trained(*watching).values(), strict=True):
        assert torch.equal(a, b), name
    assert all(len(probe.history) == 3 for probe in watching)


class Keywords(FineTuned):
    def forward(self, **named):
        return self.model(**named)


class Whole(FineTuned):
    def forward(self, named):
        return self.model(**named)


class Chosen(FineTuned):
    def forward(self, input_ids, attention_mask=None, labels=None):
        return self.model(input_ids, attention_mask=attention_mask, labels=labels).logits


class Tuple(FineTuned):
    def forward(self, **named):
        return {"first": self.model(**named).logits, "second": torch.zeros(1)}


@pytest.fixture(scope="module")
def by_the_batch():
    """What two probes find where training calls the model, and the module has no forward of its own."""
    found = fit(network("sentences"), batch("sentences"), one := probes.AnsatzProbe(), two := probes.CollapseProbe())
    assert type(found) is FineTuned
    return one.history, two.history


@pytest.mark.parametrize(
    ("module", "options"),
    [
        (Keywords, {}),
        (Whole, {}),
        (Chosen, {}),
        (Tuple, {"outputs": "first"}),
        (Tuple, {"outputs": lambda found: found["first"] * 1.0}),
        (Keywords, {"inputs": ["input_ids", "attention_mask"], "targets": "labels"}),
        (
            Keywords,
            {
                "inputs": lambda named: {name: named[name] for name in ("input_ids", "attention_mask")},
                "targets": lambda named: named["labels"],
            },
        ),
    ],
)
def test_the_way_a_network_is_called_makes_no_difference(module, options, by_the_batch):
    fit(
        network("sentences"),
        batch("sentences"),
        ansatz := probes.AnsatzProbe(**options),
        collapse := probes.CollapseProbe(**options),
        module=module,
    )
    for probe, expected in zip((ansatz, collapse), by_the_batch, strict=True):
        assert probe.history == expected
        assert probe.latest()


def test_one_named_input_is_given_as_a_tensor():
    probe = probes.InstrumentsProbe(inputs="pixel_values", outputs="logits")
    shape = probes.Measure(lambda module, x: float(x.ndim), inputs="pixel_values", name="ndim")
    fit(network("vit"), batch("vit"), probe, shape)
    assert {"input_agop_rank", "nc1", "nfa"} <= probe.latest().keys()
    assert shape.latest() == {"ndim": 4.0}


def test_outputs_that_could_be_several_are_asked_for_by_name():
    class Backbone(FineTuned):
        def forward(self, **named):
            return self.model.bert(**named)

    probe, named = (
        probes.AnsatzProbe(quantities=["nfa"]),
        probes.AnsatzProbe(quantities=["nfa"], outputs="last_hidden_state", prefix="named/"),
    )
    with pytest.warns(UserWarning, match="of last_hidden_state, pooler_output: name one in outputs="):
        fit(network("sentences"), batch("sentences"), probe, named, module=Backbone)
    assert probe.latest() == {}
    assert named.latest()


def test_padding_does_not_count():
    model = network("llama").eval()
    short = {name: value[1::2] for name, value in batch("llama").items() if name != "labels"}
    long = {name: nn.functional.pad(value, (0, 3), value=0) for name, value in short.items()}
    for name, layer in measures.tangent_covariance(model, short).items():
        torch.testing.assert_close(measures.tangent_covariance(model, long)[name].K, layer.K, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", [name for name in probes.__all__ if name not in ("CannotMeasure", "trainer_callback")])
def test_all_options_of_a_probe_are_in_its_signature(name):
    parameters = inspect.signature(getattr(probes, name)).parameters
    assert not [p for p in parameters.values() if p.kind in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
    if name != "EarlyGradients":
        assert {"every", "on", "at", "prefix", "strict"} <= parameters.keys()
    if name not in ("EarlyGradients", "UnseenClassProbe", "RetrievalProbe"):
        assert {"inputs", "targets", "outputs"} <= parameters.keys()
        assert {"data", "datasets"} & parameters.keys()


class Numbers(pl.LightningDataModule):
    """Somebody's data module: pairs, in batches."""

    def __init__(self, kind):
        super().__init__()
        self.kind, self.ready = kind, 0

    def setup(self, stage):
        self.ready += 1
        self.rows = batch(self.kind, n=4)

    def train_dataloader(self):
        return loader(self.rows, 2)


@pytest.mark.parametrize(("kind", "whole"), [("sentences", True), ("llama", False)])
def test_data_may_be_a_batch_a_loader_or_a_data_module_for_every_probe(kind, whole):
    named = batch(kind, n=4)
    other = {name: value.flip(0) for name, value in named.items()}

    def measured(data):
        watching = [
            probes.AnsatzProbe(every=9, data=data),
            probes.SpectrumProbe(every=9, data=data),
            probes.GramProbe(every=9, data=data),
            probes.DistanceProbe([0, 0, 1] + [1] * 17, every=9, data=data),
            probes.AttributionProbe(every=9, data=data),
            probes.AlignmentProbe(every=9, data=data),
            probes.CKAProbe(every=9, data=data),
            probes.CollapseProbe(every=9, data=data),
            probes.InstrumentsProbe(every=9, data=data),
            probes.Measure(lambda module, inputs: float(len(inputs["input_ids"])), every=9, data=data, name="n"),
            probes.Measure(lambda module, inputs: float(len(inputs["input_ids"])), every=9, inputs=data, name="m"),
        ]
        fit(network(kind), other, *watching, steps=1)
        return [probe.latest() for probe in watching]

    data = Numbers(kind) if whole else loader(named, 2)  # a data module is asked for its loader
    for found, values in zip(measured(data), measured(named), strict=True):
        assert values
        assert found == pytest.approx(values, rel=2e-3, abs=1e-4)


def test_a_loader_shared_with_training_draws_the_same_order_with_and_without_probes():
    def weights(watch):
        order = torch.Generator().manual_seed(3)
        shared = loader(batch("vit"), 2, shuffle=True, generator=order)
        watching = [probes.CollapseProbe(data=shared), probes.AnsatzProbe(data=shared)] if watch else []
        return fit(network("vit"), batch("vit"), *watching, steps=5, data=shared).state_dict()

    for a, b in zip(weights(False).values(), weights(True).values(), strict=True):
        assert torch.equal(a, b)
