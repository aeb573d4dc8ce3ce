"""Where nothing is left out, every method is the model's own greedy generation, bit for bit."""

import pytest
import torch
from tiny_families import FAMILIES, PLAIN, padded, prompts, tiny

from featurelab.modules import decoding

NEW = 4
ALL = {
    "full": lambda model: decoding.full(model),
    "gemfilter": lambda model: decoding.gemfilter(model, 2, keep=64),
    "one run": lambda model: decoding.gemfilter(model, 2, keep=64, runs=1),
    "last layer": lambda model: decoding.gemfilter(model, model.config.num_hidden_layers, keep=64),
    "snapkv": lambda model: decoding.snapkv(model, 64, window=4),
    "h2o": lambda model: decoding.h2o(model, 64, window=4),
    "given": lambda model: decoding.given_tokens(model, lambda ids: torch.arange(len(ids)).flip(0)),
}


def own(model, ids, mask):
    """Tokens and logits of the model's own generation."""
    found = model.generate(
        ids,
        attention_mask=mask,
        max_new_tokens=NEW,
        do_sample=False,
        eos_token_id=None,
        output_logits=True,
        return_dict_in_generate=True,
    )
    return found.sequences[:, ids.shape[1] :], torch.stack(found.logits, 1)


@pytest.mark.parametrize(
    ("family", "attention"),
    [*((family, "sdpa") for family in [*PLAIN, "gpt2"]), *((family, "eager") for family in FAMILIES)],
)
def test_with_all_tokens_kept_tokens_and_logits_are_those_of_generate(family, attention):
    model = tiny(family, attention, torch.float32)
    batches = [(prompts(3), torch.ones(3, 20, dtype=torch.long)), padded([*prompts(2), prompts(1, 13)[0]], "left")]
    for ids, mask in batches:
        tokens, logits = own(model, ids, mask)
        for name, method in ALL.items():
            found = method(model).generate(ids, mask, max_new_tokens=NEW, keep_logits=True)
            assert torch.equal(found.tokens, tokens), name
            assert torch.equal(found.logits, logits), name
            for row, chosen in zip(mask, found.chosen, strict=True):
                assert torch.equal(chosen, torch.arange(row.sum()).expand(chosen.shape))
            if family == "llama":
                assert decoding.kv_bytes(found.cache) == 2 * 3 * 3 * 2 * (20 + NEW - 1) * 8 * 4
    assert model.config._attn_implementation == attention


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_numbers_of_half_precision(dtype):
    model, ids = tiny(dtype=dtype), prompts(2)
    tokens, logits = own(model, ids, torch.ones_like(ids))
    for name, method in ALL.items():
        found = method(model).generate(ids, max_new_tokens=NEW, keep_logits=True)
        assert torch.equal(found.logits, logits), name
        assert torch.equal(found.tokens, tokens), name
    for method in cutting(model, 6).values():
        assert method.generate(ids, max_new_tokens=3, keep_logits=True).logits.dtype == dtype


def cutting(model, keep, layer=2):
    return {
        "full": decoding.full(model),
        "gemfilter": decoding.gemfilter(model, layer, keep, pool="max", keep_last=1),
        "one run": decoding.gemfilter(model, layer, keep, runs=1),
        "snapkv": decoding.snapkv(model, keep, window=3),
        "h2o": decoding.h2o(model, keep, window=3),
        "given": decoding.given_tokens(model, lambda ids: torch.arange(len(ids))[-keep:]),
    }


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("family", ["llama", "mistral", "gemma3"])
def test_a_padded_batch_equals_its_rows_one_by_one(family, side):
    model = tiny(family)
    rows = [prompts(1, length, seed)[0] for seed, length in enumerate((20, 5, 13))]  # one has fewer than are kept
    ids, mask = padded(rows, side)
    for name, decoder in cutting(model, 8).items():
        together = decoder.generate(ids, mask, max_new_tokens=NEW, keep_logits=True)
        for index, row in enumerate(rows):
            alone = decoder.generate(row[None], max_new_tokens=NEW, keep_logits=True)
            assert torch.equal(together.tokens[index], alone.tokens[0]), name
            torch.testing.assert_close(together.logits[index], alone.logits[0], rtol=1e-9, atol=1e-9)
            assert torch.equal(together.chosen[index], alone.chosen[0]), name


def test_a_prompt_of_one_token():
    model, ids = tiny(), prompts(1, 1)
    for decoder in cutting(model, 8).values():
        assert torch.equal(
            decoder.generate(ids, max_new_tokens=4).tokens, own(model, ids, torch.ones_like(ids))[0][:, :4]
        )


def test_multi_query_and_one_head_a_key_are_the_same_model_with_its_keys_repeated():
    """Weights of a model with shared keys, repeated by hand, make a model without: what is kept agrees."""
    for kv_heads in (1, 2):
        shared = tiny(num_key_value_heads=kv_heads)
        repeated, weights = tiny(num_key_value_heads=4), shared.state_dict()
        for name in [name for name in weights if "k_proj" in name or "v_proj" in name]:
            weights[name] = weights[name].view(kv_heads, 8, 32).repeat_interleave(4 // kv_heads, 0).reshape(32, 32)
        repeated.load_state_dict(weights)
        ids = prompts(2)
        for name in ("full", "gemfilter", "one run", "given"):
            one, other = (cutting(model, 8)[name].generate(ids, max_new_tokens=NEW) for model in (shared, repeated))
            assert torch.equal(one.tokens, other.tokens), name
            assert all(map(torch.equal, one.chosen, other.chosen)), name
