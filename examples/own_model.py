"""GemFilter on your own causal language model: the tokens that an early layer keeps, and the answer.

    python examples/own_model.py MODEL PROMPT_FILE [--filter-layer 13] [--keep 1024] [--pool max] [--keep-last 8]

MODEL is a folder in the format of the Hugging Face hub, or a repository in its local cache. Without arguments, a model
with random weights reads random tokens, which shows the calls.
"""

import argparse
from pathlib import Path

import torch

from featurelab.modules import decoding, language


def random_model() -> tuple[torch.nn.Module, torch.Tensor]:
    """Return a Llama with random weights and four layers, and 200 random tokens."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(vocab_size=100, hidden_size=64, intermediate_size=128, num_hidden_layers=4)
    return LlamaForCausalLM(config).eval(), torch.randint(3, 100, (1, 200))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model", nargs="?")
    parser.add_argument("prompt", nargs="?", type=Path)
    parser.add_argument("--filter-layer", type=int, default=3)
    parser.add_argument("--keep", type=int, default=32)
    parser.add_argument("--pool", default="avg", choices=["avg", "max", "none"])
    parser.add_argument("--keep-last", type=int, default=8)
    parser.add_argument("--new", type=int, default=20)
    args = parser.parse_args()

    tokenizer = None
    if args.model is None:
        model, ids = random_model()
    else:
        loaded = language.load_model(args.model, device="cuda" if torch.cuda.is_available() else "cpu")
        model, tokenizer = loaded.net, loaded.tokenizer
        ids = torch.tensor([loaded.encode([args.prompt.read_text()])[0].ids])

    options = {"pool": args.pool, "keep_last": args.keep_last}
    decoders = {
        "full attention": decoding.full(model),
        "GemFilter": decoding.gemfilter(model, args.filter_layer, args.keep, **options),
        "one run": decoding.gemfilter(model, args.filter_layer, args.keep, **options, runs=1),
        "SnapKV": decoding.snapkv(model, args.keep, window=min(32, args.keep)),
    }
    for name, decoder in decoders.items():
        answer = decoder.generate(ids, max_new_tokens=args.new)
        row = answer.tokens[0].tolist()
        text = tokenizer.decode(row) if tokenizer else row
        print(f"{name:15} {decoding.kv_bytes(answer.cache) / 2**20:8.3f} MiB of keys and values   {text}")
    positions = decoding.chosen_tokens(model, ids, filter_layer=args.filter_layer, keep=args.keep, **options)[0].cpu()
    print(f"layer {args.filter_layer} keeps {len(positions)} of {ids.shape[1]} tokens: {positions.tolist()}")
    if tokenizer:
        print(tokenizer.decode(ids[0, positions]))


if __name__ == "__main__":
    main()
