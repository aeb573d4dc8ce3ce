"""The closed forms beside tensors and products that are counted."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny_families import prompts, tiny, transformers

from featurelab.modules import decoding

HEADS, KV_HEADS, DIM, LAYERS, FILTER = 4, 2, 8, 3, 2
BYTES = 8


def costs(n, keep, new, **other):
    sizes = {"layers": LAYERS, "filter_layer": FILTER, "heads": HEADS, "head_dim": DIM, "kv_heads": KV_HEADS} | other
    return decoding.closed_form_costs(n=n, keep=keep, new=new, **sizes)


@pytest.mark.parametrize(("n", "keep", "new"), [(40, 8, 5), (40, 64, 5), (23, 7, 1)])
def test_what_is_held_while_generating_is_the_closed_form(n, keep, new):
    model, ids = tiny(), prompts(1, n)
    decoders = {
        "full": [decoding.full(model)],
        "snapkv": [decoding.snapkv(model, keep, window=3)],
        "h2o": [decoding.h2o(model, keep, window=3)],
        "gemfilter": [decoding.gemfilter(model, FILTER, keep), decoding.gemfilter(model, FILTER, keep, runs=1)],
    }
    found = costs(n, keep, new)
    assert set(found) == set(decoders)
    for name, some in decoders.items():
        for decoder in some:
            # the last token is chosen from logits and has no keys yet
            cache = decoder.generate(ids, max_new_tokens=new + 1).cache
            assert decoding.kv_bytes(cache) == BYTES * found[name].generation_memory == cache.nbytes
    own = transformers.DynamicCache(config=model.config)
    assert decoding.kv_bytes(own) == 0
    with torch.no_grad():
        model(ids, past_key_values=own)
    assert decoding.kv_bytes(own) == BYTES * costs(n, keep, 0)["full"].generation_memory


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_products_of_the_prefill_are_the_closed_form(attention):
    """Attention is q . k and weights . v, two operations each: four times the theorem's count.

    The theorem has all of layer r. Of its products only the last row is needed, and none of the values.
    """
    model, n = tiny(attention=attention), 40
    ids, found = prompts(1, n), costs(n, 8, 0)

    def counted(call):
        return decoding.counted_flops(call, attention=True)

    assert counted(lambda: decoding.full(model).prefill(ids)) == 4 * found["full"].prefill_time
    first = counted(lambda: decoding.chosen_tokens(model, ids, filter_layer=FILTER, keep=8))
    in_full = costs(n, 8, 0, filter_layer=FILTER - 1)["gemfilter"].prefill_time
    assert first == 4 * in_full + 2 * HEADS * n * DIM < 4 * found["gemfilter"].prefill_time
    both = counted(lambda: decoding.gemfilter(model, FILTER, 8).prefill(ids))
    assert both - first == 4 * LAYERS * HEADS * 8**2 * DIM  # the second run
    # SnapKV looks at three rows again; H2O needs all rows, and computes them itself
    again = 2 * LAYERS * HEADS * n * DIM
    assert (
        counted(lambda: decoding.snapkv(model, 8, window=3).prefill(ids))
        == 4 * found["snapkv"].prefill_time + 3 * again
    )
    assert counted(lambda: decoding.h2o(model, 8, window=3).prefill(ids)) == 4 * found["h2o"].prefill_time


def test_all_products_of_the_first_pass_are_the_layers_before_and_three_projections():
    model, n = tiny(), 40
    ids, config = prompts(1, n), model.config
    width, inner = config.hidden_size, config.intermediate_size
    projected = 2 * n * width * (HEADS + 2 * KV_HEADS) * DIM
    layer = projected + 2 * n * width * HEADS * DIM + 3 * 2 * n * width * inner + 4 * HEADS * n**2 * DIM
    found = decoding.counted_flops(lambda: decoding.chosen_tokens(model, ids, filter_layer=FILTER, keep=8))
    assert found == (FILTER - 1) * layer + projected + 2 * HEADS * n * DIM


sizes = st.integers(1, 60)


@given(sizes, sizes, st.integers(0, 60), st.integers(1, 9), st.integers(1, 6), st.integers(0, 99))
def test_identities_of_the_closed_forms(n, keep, new, layers, heads, weights):
    def at(layer, keep=keep, **other):
        options = {"layers": layers, "heads": heads, "head_dim": 4, "weights": weights} | other
        return decoding.closed_form_costs(n=n, keep=keep, new=new, filter_layer=layer, **options)

    last, first = at(layers), at(1)
    assert last["gemfilter"].prefill_time == last["full"].prefill_time
    assert first["gemfilter"].prefill_time * layers == first["full"].prefill_time == first["snapkv"].prefill_time
    assert first["gemfilter"].generation_memory == first["snapkv"].generation_memory <= first["full"].generation_memory
    whole = at(1, keep=n)
    assert whole["snapkv"].generation_memory == whole["full"].generation_memory == at(1, keep=n + 7)["snapkv"][3]
    shared = at(1, kv_heads=1)
    for name, each in shared.items():
        held = at(1)[name].generation_memory - layers * weights
        assert held == heads * (each.generation_memory - layers * weights), name
    assert all(math.isfinite(number) and number >= 0 for each in first.values() for number in each)


def test_sizes_that_cannot_be_are_refused():
    for wrong in ({"filter_layer": 4}, {"heads": 0}, {"filter_layer": 0}):
        with pytest.raises(ValueError, match="positive sizes"):
            costs(9, 3, 1, **wrong)
    with pytest.raises(ValueError, match="positive sizes"):
        costs(0, 3, 1)
