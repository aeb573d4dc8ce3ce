"""The tokens that a layer looks at, beside loops over heads and positions with rotary angles of their own."""

import math

import pytest
import torch
from slow_llama import SlowLlama
from test_decoding_selection import slow_choice
from tiny_families import IN_FULL, PLAIN, padded, prompts, tiny
from torch.utils._python_dispatch import TorchDispatchMode

from featurelab.modules import decoding
from featurelab.modules.decoding.scores import AT_ONCE

N = 14
FAMILIES = ["llama", "mistral", "phi3", "qwen3"]


@pytest.fixture(scope="module")
def read():
    """By family: the model, a prompt, and the slow model's layers."""
    found = {}
    for family in FAMILIES:
        model, ids = tiny(family), prompts(1, N, seed=1)[0]
        found[family] = model, ids, SlowLlama(model)(ids)[1]
    return found


def slow_scores(layer, kind, row, window):
    """Of one row of queries with each key it may use, summed over heads; -inf: out of sight."""
    heads, n, e = layer.query.shape
    raw = [[[float(layer.query[h, i] @ layer.key[h, j]) for j in range(n)] for i in range(n)] for h in range(heads)]
    summed = [[sum(raw[h][i][j] for h in range(heads)) for j in range(n)] for i in range(n)]
    near = [[window is None or i - j < window for j in range(n)] for i in range(n)]
    norms = [sum(summed[i][j] ** 2 for j in range(i + 1) if near[i][j]) for i in range(n)]
    at = {"last": n - 1, "middle": n // 2, "largest_norm": norms.index(max(norms))}[row]
    if kind == "softmax":
        found = [0.0 if j <= at and near[at][j] else -math.inf for j in range(n)]
        for h in range(heads):
            total = sum(math.exp(raw[h][at][j] / math.sqrt(e)) for j in range(n) if found[j] > -math.inf)
            found = [value + math.exp(raw[h][at][j] / math.sqrt(e)) / total for j, value in enumerate(found)]
        return found
    scale = 1 / math.sqrt(e) if kind == "scaled" else 1
    return [summed[at][j] * scale if near[at][j] else -math.inf for j in range(n)]


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("family", FAMILIES)
def test_scores_and_choices_are_the_slow_ones(read, family, attention):
    model, ids, layers = read[family]
    model.set_attn_implementation(attention)
    window = getattr(model.config, "sliding_window", None)
    for kind in ("raw", "scaled", "softmax"):
        for row in ("last", "middle", "largest_norm"):
            found = decoding.layer_scores(model, ids[None], [1, 3, 2], score=kind, row=row)[0]
            assert found.dtype == torch.float64
            for scores, layer in zip(found, (1, 3, 2), strict=True):
                slow = torch.tensor(slow_scores(layers[layer - 1], kind, row, window), dtype=torch.float64)
                torch.testing.assert_close(scores, slow, rtol=1e-4, atol=1e-4)
            slow = slow_scores(layers[1], kind, row, window)
            for pool in ("avg", "max", "none"):
                options = {"pool": pool, "kernel": 3, "keep": 5, "keep_last": 1, "keep_first": 1}
                chosen = decoding.chosen_tokens(model, ids[None], filter_layer=2, score=kind, row=row, **options)
                assert chosen[0].tolist() == slow_choice(slow, 5, pool, 3, 1, 1)
                decoder = decoding.gemfilter(model, 2, score=kind, row=row, **options)
                assert torch.equal(decoder.prefill(ids[None])[2][0], chosen[0])


def test_rows_of_a_padded_batch_score_as_alone():
    for family in ("llama", "mistral"):
        model = tiny(family)
        rows = [prompts(1, n, seed=n)[0] for n in (9, 4, 15)]
        for side in ("left", "right"):
            ids, mask = padded(rows, side)
            for row in ("last", "middle", "largest_norm"):
                together = decoding.layer_scores(model, ids, attention_mask=mask, row=row)
                for ids_row, scores in zip(rows, together, strict=True):
                    alone = decoding.layer_scores(model, ids_row[None], row=row)[0]
                    torch.testing.assert_close(scores, alone, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("family", [*PLAIN, *IN_FULL, "gpt2"])
def test_attention_is_what_the_model_tells_of_it(family):
    """Windows, soft caps, sinks and scales of every family: what heads attend to, summed, beside the model's own."""
    dtype = torch.float32 if family == "gpt_oss" else torch.float64  # whose experts know no other
    model, ids, n = tiny(family, "eager", dtype), prompts(2, 20), 20
    with torch.no_grad():
        told = model(ids, output_attentions=True).attentions
    scores = decoding.layer_scores(model, ids, score="softmax")
    chosen = decoding.h2o(model, 8, window=3).prefill(ids)[2]
    for layer, weights in enumerate(told):
        weights = weights.double()
        for index in range(2):
            found = scores[index][layer].double().masked_fill(scores[index][layer].isneginf(), 0)
            torch.testing.assert_close(found, weights[index, :, -1].sum(0), rtol=1e-4, atol=1e-5)
            kv_heads = chosen[index].shape[1]
            columns = weights[index].sum(1).view(kv_heads, -1, n).mean(1)[:, : n - 3]
            best = columns.argsort(dim=1, descending=True)[:, :5].sort().values
            assert torch.equal(chosen[index][layer, :, :5], best)


def test_one_pass_over_all_layers_scores_as_one_pass_a_layer():
    model, ids = tiny(), prompts(2, 12)
    together = decoding.layer_scores(model, ids)
    for layer in (1, 2, 3):
        alone = decoding.layer_scores(model, ids, [layer])
        assert all(torch.equal(a[layer - 1], b[0]) for a, b in zip(together, alone, strict=True))


def test_scores_do_not_depend_on_the_order_of_heads():
    """Groups of heads with their keys change places: sums are the same, and so is what is chosen."""
    model, ids = tiny(), prompts(1, 20)
    before = decoding.chosen_tokens(model, ids, filter_layer=2, keep=6)
    attention = model.model.layers[1].self_attn
    with torch.no_grad():
        for part, size in (("q_proj", 16), ("k_proj", 8), ("v_proj", 8)):
            weight = getattr(attention, part).weight
            weight.copy_(weight.view(2, size, -1).flip(0).reshape(weight.shape))
    assert torch.equal(decoding.chosen_tokens(model, ids, filter_layer=2, keep=6)[0], before[0])


class Largest(TorchDispatchMode):
    """How many numbers the largest result of any operation has."""

    numbers = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        found = func(*args, **(kwargs or {}))
        if isinstance(found, torch.Tensor):
            self.numbers = max(self.numbers, found.numel())
        return found


def test_all_rows_together_are_never_held(monkeypatch):
    """H2O and the row of the largest norm go by few rows at once, and choose the same."""
    model, ids, n = tiny(), prompts(1, 90), 90

    def chosen():
        rows = decoding.chosen_tokens(model, ids, filter_layer=2, keep=9, row="largest_norm")
        return [decoding.h2o(model, 9, window=2).prefill(ids)[2][0], rows[0]]

    before = chosen()
    monkeypatch.setitem(AT_ONCE, "cpu", 4 * n * 7)
    with Largest() as largest:
        after = chosen()
    assert all(map(torch.equal, before, after))
    assert largest.numbers <= n * 61 < 4 * n * n / 4  # logits, at most, and no head's products of all rows


def test_numbers_of_half_precision_are_added_in_single():
    model, ids = tiny(dtype=torch.bfloat16), prompts(1, 30)
    scores = decoding.layer_scores(model, ids, [2])[0]
    assert scores.dtype == torch.float32
    assert (scores != scores.bfloat16().float()).any()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"filter_layer": 0}, "among 1 to 3, got 0"),
        ({"filter_layer": 4}, "among 1 to 3, got 4"),
        ({"runs": 3}, "runs must be 1 or 2"),
        ({"score": "cosine"}, "score must be"),
        ({"row": "first"}, "row must be"),
        ({"keep": 0}, "keep must be at least 1"),
    ],
)
def test_arguments_that_cannot_be_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        decoding.gemfilter(tiny(), **({"filter_layer": 2} | wrong))


def test_windows_beyond_what_is_kept_and_wrong_inputs_are_refused():
    model, ids = tiny(), prompts(2, 9)
    for method in (decoding.snapkv, decoding.h2o):
        with pytest.raises(ValueError, match="window must be from 1 to keep = 4, got 5"):
            method(model, 4, window=5)
    with pytest.raises(ValueError, match="at least one token"):
        decoding.full(model).generate(ids, torch.zeros_like(ids))
    with pytest.raises(ValueError, match=r"must be \(B, n\)"):
        decoding.full(model).generate(ids, torch.ones(2, 8))
    with pytest.raises(ValueError, match="none"):
        decoding.layer_scores(model, ids, [])
    with pytest.raises(ValueError, match="max_new_tokens"):
        decoding.full(model).generate(ids, max_new_tokens=0)
    for index in ([], [0, 0], [9], [-1]):
        with pytest.raises(ValueError, match="distinct indices below 9"):
            decoding.given_tokens(model, lambda row, index=index: torch.tensor(index)).generate(ids)
