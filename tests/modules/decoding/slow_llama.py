"""Llama, and what differs from it by little, written out: one sequence, one head and one query after another.

Nothing is cached: each token that is generated costs a pass over all before it, in which masks say what is seen.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

Allowed = Callable[[int, int, int, int], bool]  # layer, head, place of the query, place of the key


class Layer(NamedTuple):
    """Queries (heads, n, e), keys (repeated to all heads) and attention (heads, n, n) of one layer."""

    query: Tensor
    key: Tensor
    weights: Tensor


class SlowLlama:
    def __init__(self, model: Any) -> None:
        self.config, self.parts = model.config, dict(model.state_dict())
        self.heads, self.kv_heads = self.config.num_attention_heads, self.config.num_key_value_heads
        self.e = getattr(self.config, "head_dim", None) or self.config.hidden_size // self.heads
        self.window = getattr(self.config, "sliding_window", None)

    def __call__(
        self, ids: Tensor, positions: list[int] | None = None, allowed: Allowed = lambda *_: True
    ) -> tuple[Tensor, list[Layer]]:
        """Logits (n, vocabulary) and all layers."""
        places = list(range(len(ids))) if positions is None else positions
        states, layers = self.parts["model.embed_tokens.weight"][ids], []
        for index in range(self.config.num_hidden_layers):

            def part(name: str, layer: int = index) -> Any:
                return self.parts.get(f"model.layers.{layer}.{name}.weight")

            normed = self.norm(states, part("input_layernorm"))
            mixed, layer = self.attention(index, normed, part, places, allowed)
            layers.append(layer)
            states = states + mixed @ part("self_attn.o_proj").T
            normed = self.norm(states, part("post_attention_layernorm"))
            fused = part("mlp.gate_up_proj")
            gate, up = fused.chunk(2) if fused is not None else (part("mlp.gate_proj"), part("mlp.up_proj"))
            inner = normed @ gate.T
            states = states + (inner / (1 + torch.exp(-inner)) * (normed @ up.T)) @ part("mlp.down_proj").T
        return self.norm(states, self.parts["model.norm.weight"]) @ self.parts["lm_head.weight"].T, layers

    def attention(
        self, index: int, states: Tensor, part: Any, places: list[int], allowed: Allowed
    ) -> tuple[Tensor, Layer]:
        h, g, e, n = self.heads, self.kv_heads, self.e, len(states)
        fused = part("self_attn.qkv_proj")
        split = (
            fused.split([h * e, g * e, g * e]) if fused is not None else [part(f"self_attn.{x}_proj") for x in "qkv"]
        )
        query, key, value = ((states @ weight.T).view(n, -1, e) for weight in split)
        if part("self_attn.q_norm") is not None:
            query, key = self.norm(query, part("self_attn.q_norm")), self.norm(key, part("self_attn.k_norm"))
        turned = [torch.stack([self.turned(x[i], places[i]) for i in range(n)], dim=1) for x in (query, key)]
        weights, mixed = torch.zeros(h, n, n, dtype=states.dtype), torch.zeros(n, h, e, dtype=states.dtype)
        for head in range(h):
            own = head // (h // g)
            for i in range(n):
                seen = [
                    j
                    for j in range(i + 1)
                    if allowed(index, head, i, j) and (self.window is None or places[i] - places[j] < self.window)
                ]
                scores = torch.stack([turned[0][head, i] @ turned[1][own, j] / math.sqrt(e) for j in seen])
                weights[head, i, seen] = scores.exp() / scores.exp().sum()
                mixed[i, head] = weights[head, i] @ value[:, own]
        return mixed.view(n, -1), Layer(turned[0], turned[1].repeat_interleave(h // g, dim=0), weights)

    def turned(self, x: Tensor, place: int) -> Tensor:
        """Rotary positions: pairs (x_i, x_(i + e/2)) turn by place * 10000^(-2 i / e)."""
        half = self.e // 2
        angles = place * 10000.0 ** (-2 * torch.arange(half, dtype=x.dtype) / self.e)
        first, second = x[..., :half], x[..., half:]
        return torch.cat(
            [first * angles.cos() - second * angles.sin(), second * angles.cos() + first * angles.sin()], -1
        )

    def norm(self, x: Tensor, weight: Tensor) -> Tensor:
        return x / (x.square().mean(-1, keepdim=True) + self.config.rms_norm_eps).sqrt() * weight
