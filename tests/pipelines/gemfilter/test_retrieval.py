"""What the figures on retrieval share: prompts, choices that know the question and ones that do not, methods."""

import numpy as np
import pytest
import torch

pytest.importorskip("transformers")

from featurelab.modules import data, decoding
from featurelab.pipelines.gemfilter import retrieval
from featurelab.pipelines.gemfilter.needles import haystack
from featurelab.pipelines.gemfilter.needles.measuring import Chooser, HaystackConfig, answered_with, at_depths

CONFIG = HaystackConfig(**haystack.TINY | {"filter_layer": 1, "few": (8, 10), "keep": 16})


@pytest.fixture(scope="module")
def model():
    return retrieval.untrained(CONFIG).eval()


@pytest.fixture(scope="module")
def found():
    return at_depths(CONFIG, 40)


def test_prompts_are_shared_by_the_depths(found):
    assert len(found.prompts) == 5
    places = (found.begins[:, 0] - 1).tolist()
    assert places == sorted(places)
    assert places[0] <= 2
    assert places[-1] >= 34
    again = at_depths(CONFIG, 40)
    assert all(torch.equal(a, b) for a, b in zip(found, again, strict=True))
    others = at_depths(CONFIG.but(seed=1), 40)
    assert not torch.equal(found.prompts, others.prompts)


@pytest.mark.parametrize("blind", ["non_filler", "whole_needles", "random", "last"])
@pytest.mark.parametrize("keep", [8, 16])
def test_blind_choices_keep_the_question_and_so_many_tokens(model, found, blind, keep):
    (chosen, *others) = Chooser(CONFIG, model, blind)(found, keep)
    assert chosen.shape == (5, keep)
    assert all(torch.equal(chosen, other) for other in others)
    assert (chosen.diff(dim=1) > 0).all()
    assert chosen[:, -2:].tolist() == [[41, 42]] * 5
    words = [[data.NEEDLE_WORDS[i] for i in row] for row in found.prompts.gather(1, chosen)]
    fillers = [sum(word.startswith("filler") for word in row) for row in words]
    if blind == "non_filler":
        assert fillers == [max(0, keep - 15)] * 5  # 12 tokens of needles, the beginning, and the question
    if blind == "whole_needles":
        starts = [[int(b) for b in row] for row in found.begins]
        whole = [sum({b, b + 1, b + 2} <= set(c.tolist()) for b in s) for s, c in zip(starts, chosen, strict=True)]
        assert whole == [min(4, (keep - 2) // 3)] * 5


def test_choices_of_the_wrong_key_are_those_of_a_prompt_that_asks_for_it(model, found):
    for blind, key in (("wrong_key", found.other_key), ("absent_key", found.absent_key)):
        asked = found._replace(prompts=found.asking(key))
        wanted = Chooser(CONFIG, model)(asked, 8)
        for one, other in zip(Chooser(CONFIG, model, blind)(found, 8), wanted, strict=True):
            assert torch.equal(one, other)
    controlled = Chooser(CONFIG.but(control="wrong_key"), model)(found, 8)
    assert all(
        torch.equal(a, b) for a, b in zip(controlled, Chooser(CONFIG, model, "wrong_key")(found, 8), strict=True)
    )


def test_choices_by_layer_are_those_of_the_decoder(model, found):
    by_layer = Chooser(CONFIG, model)(found, 8)
    for layer, chosen in enumerate(by_layer, 1):
        own = decoding.chosen_tokens(
            model, found.prompts, filter_layer=layer, keep=8, pool="max", kernel=5, keep_last=2
        )
        assert torch.equal(torch.stack(own), chosen)
    decoder = retrieval.gemfilter(model, 8, CONFIG)
    tokens = decoder.generate(found.prompts, max_new_tokens=2).tokens
    told = found._replace(answers=tokens)
    assert retrieval.right(decoder, told).all()
    assert answered_with(model, told, by_layer[0]).all()  # the second run sees these tokens alone
    assert not retrieval.right(decoder, found._replace(answers=tokens + 1)).any()


@pytest.mark.parametrize("name", sorted(retrieval.DECODERS))
def test_each_method_decodes(model, found, name):
    out = retrieval.DECODERS[name](model, 8, CONFIG).generate(found.prompts, max_new_tokens=2)
    assert out.tokens.shape == (5, 2)
    kept = {each.shape[-1] for each in out.chosen}
    assert kept == {43 if name == "full" else 8}


def test_among_takes_candidates_first():
    rng = np.random.default_rng(0)
    for _ in range(50):
        chosen = retrieval.among([1, 4, 9, 12], 20, 5, 2, rng).tolist()
        assert chosen[-2:] == [18, 19]
        assert set(chosen[:-2]) < {1, 4, 9, 12}
        more = retrieval.among([1, 4, 9, 12], 20, 8, 2, rng).tolist()
        assert {1, 4, 9, 12, 18, 19} < set(more)
        assert len(more) == len(set(more)) == 8
    assert retrieval.among(range(5), 5, 9, 2, rng).tolist() == [0, 1, 2, 3, 4]


def test_the_best_layer_is_the_one_with_most_hits_on_prompts_held_out(model):
    layer = retrieval.best_layer(CONFIG.but(filter_layer=None), model)
    held_out = retrieval.prompts(CONFIG, 18, 60, name="held out")
    hits = [retrieval.hit(each, held_out) for each in retrieval.selections(CONFIG, model, held_out.prompts, 16)]
    assert layer == int(np.argmax(hits)) + 1
    assert retrieval.best_layer(CONFIG, model) == 1
