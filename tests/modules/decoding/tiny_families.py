"""Models of several families of `transformers`, made from configurations alone, and prompts for them."""

from typing import Any

import pytest
import torch

transformers = pytest.importorskip("transformers")

VOCABULARY = 61
WINDOW = 7  # of the sliding layers, shorter than the prompts here
SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "initializer_range": 0.4,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 0,
}
MIXED = ["sliding_attention", "full_attention", "sliding_attention"]
FAMILIES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "llama": ("LlamaConfig", "LlamaForCausalLM", {}),
    "mistral": ("MistralConfig", "MistralForCausalLM", {"sliding_window": WINDOW}),
    "phi3": ("Phi3Config", "Phi3ForCausalLM", {}),
    "qwen3": ("Qwen3Config", "Qwen3ForCausalLM", {"head_dim": 8}),
    "gemma3": (
        "Gemma3TextConfig",
        "Gemma3ForCausalLM",
        {"head_dim": 8, "sliding_window": WINDOW, "layer_types": MIXED},
    ),
    "gemma2": (
        "Gemma2Config",
        "Gemma2ForCausalLM",
        {"head_dim": 8, "sliding_window": WINDOW, "attn_logit_softcapping": 2.0},
    ),
    "gpt_oss": (
        "GptOssConfig",
        "GptOssForCausalLM",
        {"head_dim": 8, "sliding_window": WINDOW, "num_local_experts": 2, "num_experts_per_tok": 1},
    ),
    "gpt2": ("GPT2Config", "GPT2LMHeadModel", {"n_layer": 3, "n_embd": 32, "n_head": 4}),
}
PLAIN = ["llama", "mistral", "phi3", "qwen3", "gemma3"]
IN_FULL = ["gemma2", "gpt_oss"]  # bent or sunk attention, which only "eager" computes


def tiny(
    family: str = "llama", attention: str = "sdpa", dtype: torch.dtype = torch.float64, seed: int = 0, **sizes: Any
) -> Any:
    config, model, own = FAMILIES[family]
    torch.manual_seed(seed)
    net = getattr(transformers, model)(getattr(transformers, config)(**(SIZES | own | sizes)))
    net.set_attn_implementation(attention)
    for name, sinks in net.named_parameters():
        if name.endswith("sinks"):
            torch.nn.init.normal_(sinks)
    return net.to(dtype).eval()


def prompts(rows: int = 2, length: int = 20, seed: int = 0) -> torch.Tensor:
    return torch.randint(2, VOCABULARY, (rows, length), generator=torch.Generator().manual_seed(seed))


def padded(rows: list[torch.Tensor], side: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows of several lengths in one batch, and its attention mask."""
    longest = max(map(len, rows))
    ids, mask = torch.full((len(rows), longest), 5), torch.zeros(len(rows), longest, dtype=torch.long)
    for index, row in enumerate(rows):
        place = slice(longest - len(row), None) if side == "left" else slice(len(row))
        ids[index, place], mask[index, place] = row, 1
    return ids, mask
