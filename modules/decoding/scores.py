"""Scores of the tokens of a prompt by a layer's queries and keys, of one row of a batch; padding is on the left."""

from collections.abc import Iterator
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from .attention import Call

Score = Literal["raw", "scaled", "softmax"]
Row = Literal["last", "middle", "largest_norm"]
AT_ONCE = 2**24  # numbers of attention held at once where all rows count


class OneRow:
    """Row `index` of a batch in one layer, without its padding: n tokens, products in float32 at least."""

    def __init__(self, call: Call, index: int, padding: int) -> None:
        self.call, self.index, self.padding = call, index, padding
        self.query, self.key = call.query[index, :, padding:], call.key[index, :, padding:]
        self.n, self.exact = self.key.shape[1], torch.promote_types(self.key.dtype, torch.float32)

    def products(self, rows: Tensor) -> Float[Tensor, "heads rows n"]:
        """q . k of every head for these rows of queries with all keys; heads that share keys stand together."""
        kv_heads = self.key.shape[0]
        query = self.query[:, rows].to(self.exact)
        grouped = query.reshape(kv_heads, -1, query.shape[-1])
        parts = [grouped @ part.to(self.exact).mT for part in self.key.split(2**14, dim=1)]
        return torch.cat(parts, dim=-1).view(len(query), len(rows), self.n)

    def weights(self, rows: Tensor) -> Float[Tensor, "heads rows n"]:
        """Attention of these rows, after the softmax, as the layer has it."""
        products = self.products(rows) * self.call.scaling
        if self.call.softcap is not None:
            products = torch.tanh(products / self.call.softcap) * self.call.softcap
        return products.masked_fill(~self.seen(rows), -torch.inf).softmax(-1)

    def seen(self, rows: Tensor) -> Bool[Tensor, "rows n"]:
        """Which keys the layer lets these rows see."""
        mask = self.call.mask
        if mask is None:
            return self.keys <= rows[:, None]
        own = mask[min(self.index, len(mask) - 1), 0, rows + self.padding, self.padding :]
        return own if own.dtype == torch.bool else own > -1

    @property
    def keys(self) -> Tensor:
        return torch.arange(self.n, device=self.key.device)

    def chunks(self) -> Iterator[Tensor]:
        """All rows, as many at once as memory should hold."""
        return iter(self.keys.split(max(1, AT_ONCE // (len(self.query) * self.n))))


def filter_scores(one: OneRow, score: Score, row: Row) -> Float[Tensor, " n"]:
    """Section 2 of Shi et al. 2024: products of one row of queries with all keys, summed over heads.

    "raw" q . k as in their listing, "scaled" by what the layer scales with, or "softmax": the layer's attention. The
    row is the last, the middle one (floor n/2), or the one of the largest l2 norm of the causally masked products,
    summed over heads. As in the listing a row scores later tokens too, but for "softmax"; what a sliding window hides
    from it has -inf.
    """
    at = _row(one, row)
    seen = one.seen(at)[0]
    if score == "softmax":
        return one.weights(at)[:, 0].sum(0).masked_fill(~seen, -torch.inf)
    found = one.products(at)[:, 0].sum(0) * (one.call.scaling if score == "scaled" else 1)
    return found.masked_fill(~(seen | (one.keys > at)), -torch.inf)


def _row(one: OneRow, row: Row) -> Tensor:
    if row == "last":
        return one.keys[-1:]
    if row == "middle":
        return one.keys[one.n // 2][None]
    norms = [one.products(rows).sum(0).masked_fill(~one.seen(rows), 0).norm(dim=1) for rows in one.chunks()]
    return torch.cat(norms).argmax()[None]


def window_scores(one: OneRow, window: int) -> Float[Tensor, "kv_heads n"]:
    """SnapKV: attention of the last `window` rows, summed over them; the mean over the heads that share keys."""
    return _shared(one, one.weights(one.keys[-window:]).sum(1))


def heavy_scores(one: OneRow) -> Float[Tensor, "kv_heads n"]:
    """H2O: attention of all rows, summed over them; the mean over the heads that share keys."""
    total = torch.zeros(len(one.query), one.n, dtype=one.exact, device=one.key.device)
    for rows in one.chunks():
        total += one.weights(rows).sum(1)
    return _shared(one, total)


def _shared(one: OneRow, scores: Tensor) -> Tensor:
    return scores.view(one.key.shape[0], -1, one.n).mean(1)
