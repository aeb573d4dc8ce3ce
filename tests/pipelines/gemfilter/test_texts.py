"""The figures on a published model: a sentence hidden in a text, with a tiny Llama on disk."""

import pytest
import torch

pytest.importorskip("transformers")

from featurelab.modules import decoding, language
from featurelab.pipelines.gemfilter import texts
from featurelab.pipelines.gemfilter.needles import haystack, index_maps, layers, rows, runs
from featurelab.pipelines.gemfilter.needles.measuring import HaystackConfig
from featurelab.tracking.outbox.null import NullRecorder

FILLER = "A good film number one. The answer is positive. Another dull film follows it now. " * 60


class Kept(NullRecorder):
    def __init__(self):
        self.values, self.arrays = {}, {}

    def log(self, metrics, step):
        self.values |= {(name, step): value for name, value in metrics.items()}

    def array(self, name, **arrays):
        self.arrays[name] = arrays


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    from tinyllama import save_llama

    folder = tmp_path_factory.mktemp("models") / "tiny"
    save_llama(folder)
    config = HaystackConfig(
        model=str(folder), keep=40, few=(24, 30), test_lengths=(260, 300), depths=(0.0, 1.0), pool="avg", keep_last=0
    )
    kept, model = Kept(), language.load_model(str(folder), chat=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(texts, "SAID", 3)  # an untrained model would go on to the end
        texts.measure(config, kept, model, FILLER)
    return config, model, kept


def test_every_claim_of_a_published_model_finds_its_numbers(measured):
    _, model, kept = measured
    names = {name for name, _ in kept.values}
    for metric in (
        "accuracy/gemfilter",
        "far/one_run",
        "close/full",
        "layer/hit",
        "few_layer/accuracy",
        "row/middle",
        "sets/heads",
        "near/snapkv",
        "whole/gemfilter",
        "part/snapkv",
        "spread/gemfilter",
        "layer/chosen",
    ):
        assert metric in names
    assert {step for name, step in kept.values if name == "accuracy/full"} == {260, 300}
    assert {step for name, step in kept.values if name == "row/last"} == {24, 40}
    assert set(kept.arrays["depths"]) == set(haystack.NAMES)
    assert all(scores.shape == (2, 2) for scores in kept.arrays["depths"].values())
    shape = model.net.config
    assert kept.values["sets/snapkv", 30] == shape.num_hidden_layers * shape.num_key_value_heads
    assert {figure.figure.paper.model for figure in (haystack, layers, rows, runs, index_maps)} != {None}


def test_hits_are_those_of_the_tokens_that_the_decoder_keeps(measured):
    config, model, kept = measured
    hidden = texts.prompt(config, model, FILLER, config.usual, 0.5)
    said = model.tokenizer.decode(hidden.ids[slice(*hidden.needle)])
    assert language.DOLORES_PARK.sentence in said
    for layer in range(1, model.net.config.num_hidden_layers + 1):
        (chosen,) = decoding.chosen_tokens(model.net, torch.tensor([hidden.ids]), filter_layer=layer, keep=40)
        away = [max(hidden.needle[0] - token, token - hidden.needle[1] + 1, 0) for token in chosen.tolist()]
        assert kept.values["layer/distance", layer] == min(away)
        whole = set(range(*hidden.needle)) <= set(chosen.tolist())
        assert kept.values["layer/hit", layer] == float(whole)


def test_cost_names_what_is_read():
    said = texts.cost(haystack.figure.paper)
    assert said.data == ("paul_graham_essays",)
    assert said.models == ("mistralai/Mistral-Nemo-Instruct-2407",)
    assert 1e10 < said.parameters < 2e10


def test_the_parts_of_an_example_are_the_instruction_the_sentence_and_the_question(tmp_path):
    from tinyllama import save_llama

    from featurelab.pipelines.gemfilter import example

    save_llama(tmp_path / "tiny")
    model = language.load_model(str(tmp_path / "tiny"), chat=False)
    asked = {"length": 260, "depth": 0.5, "asked": example.ASKED}
    hidden = language.hide_needle(model, FILLER, language.DOLORES_PARK, **asked)
    first, last = example.ends_of_text(model, hidden)
    assert model.said(torch.tensor(hidden.ids[:first])).strip().startswith("Read this book")
    assert model.said(torch.tensor(hidden.ids[last:])).strip().startswith("Question: What is the best thing")
    assert first <= hidden.needle[0] < hidden.needle[1] <= last
    config = example.ExampleConfig(model=str(tmp_path / "tiny"), n_prompt=260, keep=260, pool="avg", keep_last=0)
    kept = Kept()
    example.measure(config, kept, model, [FILLER, FILLER])
    assert all(kept.values[f"kept/{part}/{way}", 0] == 1 for part in example.PARTS for way in example.WAYS)
    assert len(kept.arrays["example"]["chosen/printed"]) == len(hidden.ids)
