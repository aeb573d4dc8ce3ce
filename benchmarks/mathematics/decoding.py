"""What a long prompt costs if a method keeps an eighth of it, next to `generate` of `transformers`.

A Llama of 43 million weights (12 layers, width 512, 8 heads, feed-forward 1,280) with random weights reads a prompt and
continues it greedily:

    generate     `transformers`, with its own cache
    full         decoding.full: the same with our cache
    gemfilter    decoding.gemfilter: queries and keys of layer 3 select tokens, and the whole model reads these
    snapkv, h2o  decoding.snapkv, decoding.h2o: the whole model reads everything, and each head keeps its own tokens

Two rows for each method: seconds until the first token, and seconds for each further one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from benchmarks._rows import Row, Size, available, compare
from featurelab.modules import decoding

PEER, FILTER, VOCABULARY, THREADS = "generate", 3, 6400, 2
LENGTHS: dict[Size, dict[int, int]] = {"tiny": {40: 1}, "full": {2048: 3, 4096: 2}}  # repeats by tokens
WIDTH: dict[Size, int] = {"tiny": 32, "full": 512}
MORE: dict[Size, int] = {"tiny": 2, "full": 16}  # further tokens


def model(size: Size) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    width, longest = WIDTH[size], max(LENGTHS[size]) + MORE[size] + 1
    sizes = {"vocab_size": VOCABULARY, "hidden_size": width, "intermediate_size": 5 * width // 2}
    heads = {"num_hidden_layers": 12, "num_attention_heads": 8, "max_position_embeddings": longest}
    return LlamaForCausalLM(LlamaConfig(**sizes, **heads)).eval()


def generating(net: Any, ids: torch.Tensor) -> dict[str, Callable[[int], Any]]:
    """By method, a function that generates so many tokens and returns a cache."""

    def generate(new: int) -> Any:
        options: Any = {"max_new_tokens": new, "min_new_tokens": new, "do_sample": False, "pad_token_id": 0}
        with torch.no_grad():
            given = {"attention_mask": torch.ones_like(ids), "return_dict_in_generate": True}
            return net.generate(ids, **given, **options).past_key_values

    keep = ids.shape[1] // 8
    decoders = {
        "full": decoding.full(net),
        "gemfilter": decoding.gemfilter(net, FILTER, keep),
        "snapkv": decoding.snapkv(net, keep, window=min(32, keep)),
        "h2o": decoding.h2o(net, keep, window=min(32, keep)),
    }
    ours = {name: lambda new, by=by: by.generate(ids, max_new_tokens=new).cache for name, by in decoders.items()}
    return {PEER: generate} | ours


def rows(size: Size) -> list[Row]:
    if not available("transformers"):
        note = "skipped: pip install transformers"
        return [Row("generate", "decoding of a long prompt", None, peer=PEER, note=note)]
    torch.set_num_threads(THREADS)
    net, more, rows = model(size), MORE[size], []
    for n, repeats in LENGTHS[size].items():
        methods = generating(net, torch.randint(VOCABULARY, (1, n), generator=torch.Generator().manual_seed(n)))
        for method in generating(net, torch.zeros(1, 40, dtype=torch.long)).values():
            method(1)  # uncounted
        first: dict[str, list[float]] = {name: [] for name in methods}
        later: dict[str, list[float]] = {name: [] for name in methods}
        cache_mib = {}
        for repeat in range(repeats):
            for name, method in list(methods.items())[:: 1 if repeat % 2 == 0 else -1]:
                seconds, _ = timed(method, 1)
                more_seconds, cache = timed(method, 1 + more)
                cache_mib[name] = decoding.kv_bytes(cache) / 2**20
                first[name].append(seconds)
                later[name].append((more_seconds - seconds) / more)
        for name in methods:
            if name != PEER:
                numbers = {"cache_mib": cache_mib[name], "peer_cache_mib": cache_mib[PEER]}
                for part, taken in (("to the first token", first), ("per further token", later)):
                    what = f"{name}, {n:,} tokens of prompt, {part}, {THREADS} threads"
                    pair = {name: taken[name], PEER: taken[PEER]}
                    if min(*pair[name], *pair[PEER]) <= 0:  # a difference of two runs
                        note = "not measured: the machine was too busy"
                        rows.append(Row(f"{name}/{n}/{part.split()[-2]}", what, None, numbers=numbers, note=note))
                        continue
                    rows += compare(f"{name}/{n}/{part.split()[-2]}", what, pair, ours=name, numbers=numbers)
    return rows


def timed(method: Callable[[int], Any], new: int) -> tuple[float, Any]:
    start = time.perf_counter()
    cache = method(new)
    return time.perf_counter() - start, cache
