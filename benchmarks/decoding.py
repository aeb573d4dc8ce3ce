"""What a prompt costs if an early layer selects its tokens, next to reading all of them.

A Llama of 8 layers (width 256, 8 heads over 4 of keys, feed-forward 512) with random weights reads prompts of 512 and
2,048 tokens, of which 64 are kept. Filter layer 2.

    own           `transformers`: the forward pass of the model with its own cache
    full          decoding.full: the same forward pass with our cache
    gemfilter     decoding.gemfilter: queries and keys of layer 2 select tokens, and the whole model reads these
    first pass    only the selection of gemfilter
    snapkv, h2o   decoding.snapkv, decoding.h2o: the whole model reads everything, and each head keeps 64

Times are medians of interleaved repeats in one process, with their ratio to `own`. The table also gives the ratio of
the number of products and the size of the stored keys and values.

    python -m benchmarks decoding
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch

from featurelab.modules import decoding

LENGTHS, LAYERS, FILTER, KEEP = (512, 2048), 8, 2, 64


def model() -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=512,
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=LAYERS,
        num_attention_heads=8,
        num_key_value_heads=4,
        max_position_embeddings=max(LENGTHS),
    )
    return LlamaForCausalLM(config).eval()


def readers(net: Any, ids: torch.Tensor) -> dict[str, Callable[[], Any]]:
    """Return, by method, a function that reads the prompt and returns a cache."""

    def own() -> Any:
        with torch.no_grad():
            return net(ids, use_cache=True, logits_to_keep=1).past_key_values

    methods = {
        "full": decoding.full(net),
        "gemfilter": decoding.gemfilter(net, FILTER, KEEP),
        "snapkv": decoding.snapkv(net, KEEP),
        "h2o": decoding.h2o(net, KEEP),
    }
    prefills = {name: lambda method=method: method.prefill(ids)[0] for name, method in methods.items()}
    selection = {"first pass": lambda: decoding.chosen_tokens(net, ids, filter_layer=FILTER, keep=KEEP)}
    return {"own": own} | prefills | selection


def seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def measure(repeats: int, threads: int) -> dict[str, Any]:
    torch.set_num_threads(threads)
    net, rows = model(), []
    for n in LENGTHS:
        calls = readers(net, torch.randint(512, (1, n), generator=torch.Generator().manual_seed(n)))
        cache_bytes = {name: 0 if name == "first pass" else decoding.kv_bytes(call()) for name, call in calls.items()}
        flops = {name: decoding.counted_flops(call) for name, call in calls.items()}
        times: dict[str, list[float]] = {name: [] for name in calls}
        for _ in range(repeats):
            for name, call in calls.items():
                times[name].append(seconds(call))
        rows += [
            {
                "method": f"{name}, {n} tokens",
                "seconds": median(taken),
                "ratio": median(a / b for a, b in zip(times["own"], taken, strict=True)),
                "ratio_of_products": flops["own"] / flops[name],
                "kept_megabytes": cache_bytes[name] / 2**20,
            }
            for name, taken in times.items()
        ]
    return {"threads": threads, "repeats": repeats, "layers": LAYERS, "filter_layer": FILTER, "methods": rows}


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of a table")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args(argv)
    results = measure(args.repeats, args.threads)
    if args.json:
        print(json.dumps(results))
        return
    for row in results["methods"]:
        times = f"{row['seconds']:9.3f} s{row['ratio']:8.2f}{row['ratio_of_products']:8.2f}"
        print(f"{row['method']:24}{times}{row['kept_megabytes']:9.2f} MiB")


if __name__ == "__main__":
    main()
