"""Stops, further turns and given continuations, beside the model's own passes over everything at once."""

import pytest
import torch
from tiny_families import padded, prompts, tiny

from featurelab.modules import decoding

FAMILIES = ["llama", "mistral", "gemma3"]


def cutting(model):
    return {
        "full": decoding.full(model),
        "gemfilter": decoding.gemfilter(model, 2, 9),
        "one run": decoding.gemfilter(model, 2, 9, runs=1),
        "snapkv": decoding.snapkv(model, 9, window=3),
        "h2o": decoding.h2o(model, 9, window=3),
    }


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("family", FAMILIES)
def test_turns_with_everything_kept_are_one_pass_over_the_conversation(family, attention):
    model, decoder = tiny(family, attention), decoding.full(tiny(family, attention))
    first = decoder.generate(prompts(2, 11), max_new_tokens=4)
    held = [(layer.key.clone(), layer.positions.clone()) for layer in first.cache.layers]
    second = decoder.generate(prompts(2, 5, seed=1), max_new_tokens=3, after=first)
    third = decoder.generate(prompts(2, 1, seed=2), max_new_tokens=3, after=second, keep_logits=True)
    said = [prompts(2, 11), first.tokens, prompts(2, 5, seed=1), second.tokens, prompts(2, 1, seed=2)]
    whole = torch.cat(said, dim=1)
    assert third.cache.following.tolist() == [whole.shape[1] + 2] * 2
    for step in range(3):
        with torch.no_grad():
            logits = model(whole).logits[:, -1]
        torch.testing.assert_close(third.logits[:, step], logits, rtol=1e-4, atol=1e-4)
        whole = torch.cat([whole, third.tokens[:, step : step + 1]], dim=1)
    again = decoder.generate(prompts(2, 5, seed=1), max_new_tokens=3, after=first)  # the first turn is as it was
    assert torch.equal(again.tokens, second.tokens)
    for layer, (key, positions) in zip(first.cache.layers, held, strict=True):
        assert torch.equal(layer.key, key)
        assert torch.equal(layer.positions, positions)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_turn_of_several_tokens_is_as_many_of_one(family):
    model, ids, more = tiny(family), prompts(2, 20), prompts(2, 6, seed=1)
    for name, decoder in cutting(model).items():
        first = decoder.generate(ids, max_new_tokens=2)
        at_once = decoder.score(more[:, :1], more[:, 1:], after=first)
        single, turn = [], first
        for place in range(5):
            turn = decoder.generate(more[:, place : place + 1], max_new_tokens=1, after=turn, keep_logits=True)
            shares = turn.logits[:, 0].log_softmax(-1)
            single.append(shares.gather(1, more[:, place + 1 : place + 2])[:, 0])
            turn = decoding.Generated(turn.tokens, turn.chosen, turn.cache, torch.zeros(2, dtype=torch.bool))
        torch.testing.assert_close(at_once, torch.stack(single, 1), rtol=1e-6, atol=1e-6, msg=name)


@pytest.mark.parametrize(("family", "side"), [("llama", "right"), ("mistral", "right"), ("gemma3", "left")])
def test_rows_that_stop_early_go_on_as_if_they_were_alone(family, side):
    """With padding in either turn, and rows that ended at different steps."""
    model = tiny(family)
    rows = [prompts(1, n, seed=n)[0] for n in (20, 12, 16)]
    more = [prompts(1, n, seed=9 + n)[0] for n in (2, 5, 3)]
    for name, decoder in cutting(model).items():
        free = [decoder.generate(row[None], max_new_tokens=8).tokens[0].tolist() for row in rows]
        stops = {free[0][2], free[1][5]}
        first = decoder.generate(*padded(rows, side), max_new_tokens=8, stop=stops)
        ids, mask = padded(more, side)
        second = decoder.generate(ids, mask, max_new_tokens=2, after=first, keep_logits=True)
        for index, (row, then) in enumerate(zip(rows, more, strict=True)):
            alone = decoder.generate(row[None], max_new_tokens=8, stop=stops)
            length = alone.tokens.shape[1]
            assert torch.equal(first.tokens[index, :length], alone.tokens[0]), name
            assert all(token in stops for token in first.tokens[index, length:].tolist())
            after = decoder.generate(then[None], max_new_tokens=2, after=alone, keep_logits=True)
            assert torch.equal(second.tokens[index], after.tokens[0]), name
            torch.testing.assert_close(second.logits[index], after.logits[0], rtol=1e-6, atol=1e-6)
            assert second.cache.following[index] == after.cache.following[0]


def test_generation_ends_with_the_stop_of_the_last_row():
    model, ids = tiny(), prompts(1)
    free = decoding.full(model).generate(ids, max_new_tokens=10).tokens[0].tolist()
    found = decoding.full(model).generate(ids, max_new_tokens=10, stop=free[3])
    assert found.tokens[0].tolist() == free[: free.index(free[3]) + 1]
    own = model.generate(ids, max_new_tokens=10, do_sample=False, eos_token_id=free[3])
    assert torch.equal(found.tokens, own[:, ids.shape[1] :])


@pytest.mark.parametrize("family", FAMILIES)
def test_a_continuation_scores_as_the_tokens_that_are_generated(family):
    model, ids = tiny(family), prompts(2)
    for name, decoder in cutting(model).items():
        found = decoder.generate(ids, max_new_tokens=6, keep_logits=True)
        shares = found.logits.log_softmax(-1).gather(2, found.tokens[..., None])[..., 0]
        torch.testing.assert_close(decoder.score(ids, found.tokens), shares, rtol=1e-6, atol=1e-6, msg=name)
        assert decoder.score(ids, found.tokens[:, :1]).shape == (2, 1)
    with torch.no_grad():
        whole = model(torch.cat([ids, prompts(2, 4, seed=1)], 1)).logits.log_softmax(-1)[:, -5:-1]
    expected = whole.gather(2, prompts(2, 4, seed=1)[..., None])[..., 0]
    torch.testing.assert_close(decoding.full(model).score(ids, prompts(2, 4, seed=1)), expected, rtol=1e-5, atol=1e-5)
