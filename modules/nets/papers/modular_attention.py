"""A small transformer that reads a sequence of tokens at its last position.

Li, Liang, Shi, Song, Zhou 2024, arXiv:2402.09469, sections "One-layer Transformer" and "Grokking under Different k".
"""

from __future__ import annotations

import math

import numpy as np
import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn

from featurelab.modules.dtypes import Dtype, dtype_name
from featurelab.modules.nets.standard.given_weights import linear_from_weights


class AttentionBlock(nn.Module):
    """h + project(heads of attention over normalised h), then, if there is one, h + feed-forward(normalised h).

    Heads are softmax(q k / sqrt(head_dim)) v over all positions, without a mask; layer norms have no parameters.
    """

    def __init__(self, layers: dict[str, nn.Linear], heads: int) -> None:
        super().__init__()
        self.query, self.key, self.value = layers["query"], layers["key"], layers["value"]
        self.project = layers["project"]
        self.up, self.down = layers.get("up"), layers.get("down")
        self.heads = heads

    def forward(self, h: Float[Tensor, "n length width"], readers: slice) -> Float[Tensor, "n readers width"]:
        """New states of the positions `readers`, which attend to all positions."""
        seen = _normed(h)
        h = h[:, readers]
        q = self._split(self.query(seen[:, readers]))
        k, v = self._split(self.key(seen)), self._split(self.value(seen))
        weights = torch.softmax(q @ k.mT / math.sqrt(q.shape[-1]), dim=-1)
        h = h + self.project((weights @ v).transpose(1, 2).flatten(2))
        if self.up is not None and self.down is not None:
            h = h + self.down(nn.functional.gelu(self.up(_normed(h))))
        return h

    def _split(self, states: Tensor) -> Tensor:
        parts: Tensor = states.unflatten(2, (self.heads, -1))
        return parts.transpose(1, 2)


class AttentionNet(nn.Module):
    """Tokens t_1, ..., t_k and "=" to logits over p classes, read at the position of "=" from normalised states.

    `tokens` (p + 1, width) are the embeddings E, with "=" in the last row; `positions` (k + 1, width) are added.
    """

    def __init__(self, tokens: Tensor, positions: Tensor, blocks: list[AttentionBlock], head: nn.Linear) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Parameter(tokens), nn.Parameter(positions)
        self.blocks = nn.ModuleList(blocks)
        self.head = head

    def forward(self, x: Integer[Tensor, "n terms"]) -> Float[Tensor, "n classes"]:
        ids = nn.functional.pad(x.long(), (0, 1), value=len(self.tokens) - 1)
        h = nn.functional.embedding(ids, self.tokens) + self.positions
        last = len(self.blocks) - 1
        for index, block in enumerate(self.blocks):
            h = block(h, slice(-1, None) if index == last else slice(None))
        outputs: Tensor = self.head(_normed(h[:, 0]))
        return outputs


def attention_net(
    modulus: int,
    terms: int,
    *,
    width: int,
    heads: int,
    head_dim: int,
    feedforward: int,
    layers: int = 1,
    seed: int,
    dtype: Dtype = "float64",
) -> AttentionNet:
    """An `AttentionNet` for `terms` residues modulo `modulus`; `feedforward=0` uses attention alone.

    Embeddings and positions are N(0, 1/width). Linear maps have no biases and are uniform in +-1 / sqrt(fan_in), as
    `nn.Linear` draws them. Each has its own stream. Raises ValueError for a size below 1 (feedforward: below 0).
    """
    if min(modulus, terms, width, heads, head_dim, layers) < 1 or feedforward < 0:
        raise ValueError("all sizes of an attention net must be at least 1, and feedforward at least 0")
    kind = getattr(torch, dtype_name(dtype))
    inner = heads * head_dim

    def embedding(stream: int, rows: int) -> Tensor:
        drawn = np.random.default_rng([seed, stream]).standard_normal((rows, width))
        return torch.from_numpy(drawn / math.sqrt(width)).to(kind)

    def linear(stream: int, inputs: int, outputs: int) -> nn.Linear:
        drawn = np.random.default_rng([seed, stream]).uniform(-1, 1, (outputs, inputs))
        return linear_from_weights(torch.from_numpy(drawn / math.sqrt(inputs)), dtype=kind)

    blocks = []
    for index in range(layers):
        sizes = dict.fromkeys(("query", "key", "value"), (width, inner)) | {"project": (inner, width)}
        if feedforward:
            sizes |= {"up": (width, feedforward), "down": (feedforward, width)}
        streams = range(10 * (index + 1), 10 * (index + 2))
        parts = {name: linear(stream, *size) for stream, (name, size) in zip(streams, sizes.items(), strict=False)}
        blocks.append(AttentionBlock(parts, heads))
    return AttentionNet(embedding(0, modulus + 1), embedding(1, terms + 1), blocks, linear(2, width, modulus))


def _normed(h: Tensor) -> Tensor:
    return nn.functional.layer_norm(h, h.shape[-1:])
