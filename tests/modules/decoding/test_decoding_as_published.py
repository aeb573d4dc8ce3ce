"""What the authors of GemFilter ran: SnapKV with a choice for each query head, and filter layers counted from zero."""

import pytest
import torch
from slow_llama import SlowLlama
from test_decoding_evicted import slow_best
from tiny_families import prompts, tiny
from torch.nn import functional

from featurelab.modules import decoding

NEW, KEEP, LOOK = 4, 6, 3
NEAR = {"rtol": 1e-4, "atol": 1e-4}


def slow_averages(scores):
    """Means of five neighbours, in which places beyond the ends count as zeros."""
    return [sum(scores[max(0, j - 2) : j + 3]) / 5 for j in range(len(scores))]


def slow_by_query_head(layers):
    """Indices (layers, heads, KEEP): averaged attention by the last LOOK queries of each query head alone."""
    found = []
    for layer in layers:
        heads, n, _ = layer.weights.shape
        total = [
            [sum(layer.weights[head, i, j].item() for i in range(n - LOOK, n)) for j in range(n - LOOK)]
            for head in range(heads)
        ]
        last = list(range(n - LOOK, n))
        found.append([slow_best(slow_averages(scores), KEEP - LOOK) + last for scores in total])
    return torch.tensor(found)


@pytest.mark.parametrize(("family", "attention"), [("llama", "sdpa"), ("llama", "eager"), ("phi3", "sdpa")])
def test_query_heads_choose_alone_and_steps_are_those_of_a_masked_pass(family, attention):
    model, ids = tiny(family, attention), prompts(1, 12, seed=3)[0]
    slow = SlowLlama(model)
    kept = slow_by_query_head(slow(ids)[1])
    found = decoding.snapkv_repeated(model, KEEP, window=LOOK).generate(ids[None], max_new_tokens=NEW, keep_logits=True)
    assert torch.equal(found.chosen[0], kept)
    assert not torch.equal(kept[:, 0], kept[:, 1]), "two heads that share keys keep different tokens"
    sets, whole = [[set(head.tolist()) for head in layer] for layer in kept], ids

    def allowed(layer, head, i, j):
        return i < len(ids) or j >= len(ids) or j in sets[layer][head]

    for step in range(NEW):
        logits, _ = slow(whole, allowed=allowed)
        torch.testing.assert_close(found.logits[0, step], logits[-1], **NEAR)
        whole = torch.cat([whole, found.tokens[0, step : step + 1]])


def test_keys_and_values_are_stored_once_for_each_query_head():
    model, ids = tiny(num_hidden_layers=2), prompts(2, 30)
    shared = decoding.snapkv(model, KEEP, window=LOOK).prefill(ids)[0].nbytes
    assert decoding.snapkv_repeated(model, KEEP, window=LOOK).prefill(ids)[0].nbytes == 2 * shared
    everything = decoding.snapkv_repeated(model, 31, window=LOOK).generate(ids, max_new_tokens=3)
    whole = decoding.full(model).generate(ids, max_new_tokens=3)
    assert torch.equal(everything.tokens, whole.tokens)
    assert everything.cache.nbytes == 2 * whole.cache.nbytes


def test_repeated_heads_of_a_padded_batch_and_a_window_equal_single_rows():
    model, (short, long) = tiny("mistral"), (prompts(1, n, seed=n)[0] for n in (9, 12))
    decoder = decoding.snapkv_repeated(model, KEEP, window=LOOK)
    ids = torch.stack([torch.cat([short.new_zeros(3), short]), long])
    mask = torch.tensor([[0] * 3 + [1] * 9, [1] * 12])
    together = decoder.generate(ids, mask, max_new_tokens=3, keep_logits=True)
    for row, alone in enumerate((short, long)):
        one = decoder.generate(alone[None], max_new_tokens=3, keep_logits=True)
        assert torch.equal(together.chosen[row], one.chosen[0])
        torch.testing.assert_close(together.logits[row], one.logits[0], **NEAR)


def test_impossible_windows_and_kernels_are_refused():
    for wrong, message in (({"window": 7}, "window must be from 1 to keep = 6"), ({"kernel": 4}, "kernel must be odd")):
        with pytest.raises(ValueError, match=message):
            decoding.snapkv_repeated(tiny(), KEEP, **wrong)


def selected_by_index(model, ids, index, keep):
    """The authors' selection: run layers 0 to `index`, score with the keys of the last, average over five, sort."""
    inner = model.model
    with torch.no_grad():
        states = inner.embed_tokens(ids[None])
        angles = inner.rotary_emb(states, torch.arange(len(ids))[None])
        for layer in inner.layers[: index + 1]:
            before = states
            states = layer(states, position_embeddings=angles, attention_mask=None)
        attention = inner.layers[index].self_attn
        normed = inner.layers[index].input_layernorm(before)
        query, key = (
            part(normed).view(1, len(ids), -1, attention.head_dim).transpose(1, 2)
            for part in (attention.q_proj, attention.k_proj)
        )
        turn = transformers_llama().apply_rotary_pos_emb
        query, key = turn(query, key, *angles)
    key = key.repeat_interleave(query.shape[1] // key.shape[1], dim=1)
    products = (query[0, :, -1:] * key[0]).sum(-1)
    pooled = functional.avg_pool1d(products.sum(0)[None], kernel_size=5, padding=2, stride=1)[0]
    return pooled.topk(keep).indices.sort().values


def transformers_llama():
    from transformers.models.llama import modeling_llama

    return modeling_llama


def test_the_authors_index_is_our_filter_layer_less_one():
    model = tiny(num_hidden_layers=4)
    for seed in range(3):
        ids = prompts(1, 40, seed=seed)[0]
        chosen = [decoding.chosen_tokens(model, ids[None], filter_layer=r, keep=8)[0].tolist() for r in (1, 2, 3, 4)]
        assert chosen == [selected_by_index(model, ids, index, 8).tolist() for index in range(4)]
        assert chosen[1] != chosen[2], "neighbouring layers choose different tokens"
