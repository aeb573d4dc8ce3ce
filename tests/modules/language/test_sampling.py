"""Texts sampled from a model: one token after another without a cache, and as often as the model says."""

import pytest
import torch

from featurelab.modules.data import stream
from featurelab.modules.language import load_model, sampled_texts

pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def model(llama):
    return load_model(str(llama))


def slow(model, length, uniform, temperature, never):
    ids = [model.tokenizer.bos_token_id]
    for place in range(1, length):
        with torch.no_grad():
            logits = model.net(input_ids=torch.tensor([ids])).logits[0, -1].double() / temperature
        weights = [0.0 if token in never else value for token, value in enumerate(logits.exp().tolist())]
        left = uniform[place] * sum(weights)
        token = 0
        while left >= weights[token]:
            left -= weights[token]
            token += 1
        ids.append(token)
    return ids


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_tokens_are_those_of_a_slow_version(model, temperature):
    found = sampled_texts(model, 3, 12, seed=5, temperature=temperature)
    uniform = stream(5, "sampled texts").random((12, 3))
    for row in range(3):
        assert found[row].tolist() == slow(model, 12, uniform[:, row], temperature, {0, 1})
    assert torch.equal(found, sampled_texts(model, 3, 12, seed=5, temperature=temperature))
    assert not torch.equal(found, sampled_texts(model, 3, 12, seed=6, temperature=temperature))


def test_tokens_are_as_frequent_as_the_model_says(model):
    n = 4000
    found = sampled_texts(model, n, 2, seed=0, never=[3])[:, 1]
    with torch.no_grad():
        p = model.net(input_ids=torch.tensor([[model.tokenizer.bos_token_id]])).logits[0, -1].double()
    p[3] = -torch.inf
    p = p.softmax(-1)
    share = found.bincount(minlength=len(p)).double() / n
    assert share[3] == 0
    assert ((share - p).abs() <= 5 * (p * (1 - p) / n).sqrt() + 1 / n).all()


def test_what_begins_or_ends_a_text_stands_at_its_beginning_alone(model):
    found = sampled_texts(model, 20, 30, seed=1)
    assert (found[:, 0] == model.tokenizer.bos_token_id).all()
    assert not torch.isin(found[:, 1:], torch.tensor([0, 1])).any()


@pytest.mark.parametrize("wrong", [{"temperature": 0.0}, {"length": 200}, {"length": 0}])
def test_what_cannot_be_is_refused(model, wrong):
    options = {"length": 5, "temperature": 1.0} | wrong
    with pytest.raises(ValueError, match="length must be at most 128"):
        sampled_texts(model, 2, options["length"], seed=0, temperature=options["temperature"])
