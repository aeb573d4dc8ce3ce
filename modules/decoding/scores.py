"""Scores of the tokens of a prompt from a layer's queries and keys, for one row of a batch."""

from collections.abc import Iterator
from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from .attention import Call

Score = Literal["raw", "scaled", "softmax"]
Row = Literal["last", "middle", "largest_norm"]
AT_ONCE = {"cpu": 2**19, "other": 2**26}  # numbers of attention held at once, where all rows count


class OneRow:
    """Row `index` of a batch in one layer, without its padding on the left: n tokens, products in float32 or wider.

    `kv_heads` restricts it to some heads of keys, and to the heads of queries that share these.
    """

    def __init__(self, call: Call, index: int, padding: int, kv_heads: slice = slice(None)) -> None:
        self.call, self.index, self.padding = call, index, padding
        self.key, self.value = (part[index, kv_heads, padding:] for part in (call.key, call.value))
        queries = call.query[index, :, padding:]
        self.query = queries.unflatten(0, (call.key.shape[1], -1))[kv_heads].flatten(0, 1)
        sinks = call.sinks
        self.sinks = None if sinks is None else sinks.unflatten(0, (call.key.shape[1], -1))[kv_heads].flatten()
        self.n, self.exact = self.key.shape[1], torch.promote_types(self.key.dtype, torch.float32)

    def products(self, rows: slice, end: int | None = None, scale: float = 1.0) -> Float[Tensor, "heads rows end"]:
        """scale q . k of each head for these rows of queries with keys up to `end`; heads that share keys adjoin."""
        query = self.query[:, rows].to(self.exact) * scale
        grouped = query.reshape(len(self.key), -1, query.shape[-1])
        parts = [grouped @ part.to(self.exact).mT for part in self.key[:, :end].split(2**14, dim=1)]
        found = parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)
        return found.view(*query.shape[:2], -1)

    def weights(self, rows: slice) -> Float[Tensor, "heads rows stop"]:
        """Attention of these rows, after the softmax, as the layer computes it, on the keys up to the last of them."""
        products = self.products(rows, rows.stop, self.call.scaling)
        if self.call.softcap is not None:
            products = torch.tanh(products / self.call.softcap) * self.call.softcap
        products = products.masked_fill_(~self.seen(rows, rows.stop), -torch.inf)
        if self.sinks is None:
            return products.softmax(-1)
        sinks = self.sinks.to(self.exact)[:, None, None].expand(*products.shape[:2], 1)
        return torch.cat([products, sinks], dim=-1).softmax(-1)[..., :-1]

    def seen(self, rows: slice, end: int, begin: int = 0) -> Bool[Tensor, "rows keys"]:
        """Which of the keys from `begin` up to `end` these rows attend to."""
        mask, keys = self.call.mask, self.keys
        if mask is None:
            return keys[begin:end] <= keys[rows, None]
        own = mask[min(self.index, len(mask) - 1), 0, self.padding :, self.padding :][rows, begin:end]
        return own if own.dtype == torch.bool else own > -1

    @property
    def keys(self) -> Tensor:
        return torch.arange(self.n, device=self.key.device)

    def chunks(self) -> Iterator[slice]:
        """All rows, in chunks that fit a processor's cache or keep a GPU busy."""
        most = AT_ONCE.get(self.key.device.type, AT_ONCE["other"])
        step = max(1, most // (len(self.query) * self.n))
        return (slice(begin, min(begin + step, self.n)) for begin in range(0, self.n, step))

    def parts(self) -> Iterator[tuple[slice, "OneRow"]]:
        """Slices of the heads of queries, and this row with these alone: on a CPU those that share keys, else all."""
        kv_heads = self.call.key.shape[1]
        shared, step = len(self.query) // kv_heads, 1 if self.key.device.type == "cpu" else kv_heads
        for begin in range(0, kv_heads, step):
            part = OneRow(self.call, self.index, self.padding, slice(begin, begin + step))
            yield slice(begin * shared, (begin + step) * shared), part


def filter_scores(one: OneRow, score: Score, row: Row) -> Float[Tensor, " n"]:
    """Section 2 of Shi et al. 2024: products of one row of queries with all keys, summed over heads.

    "raw" is q . k as in their listing, "scaled" includes the layer's scale, and "softmax" is the layer's attention. The
    row is the last, the middle one (floor n/2), or the one with the largest l2 norm of the causally masked products,
    summed over heads. As in the listing, a row also scores later tokens, except with "softmax"; what a sliding window
    hides has -inf.
    """
    at = _row(one, row)
    stop = at.stop
    unseen = ~one.seen(at, stop)[0]
    if score == "softmax":
        found = one.weights(at)[:, 0].sum(0).masked_fill(unseen, -torch.inf)
        return torch.nn.functional.pad(found, (0, one.n - stop), value=-torch.inf)
    found = one.products(at)[:, 0].sum(0) * (one.call.scaling if score == "scaled" else 1)
    found[:stop].masked_fill_(unseen, -torch.inf)
    return found


def _row(one: OneRow, row: Row) -> slice:
    if row == "largest_norm":
        norms = [
            one.products(rows, rows.stop).sum(0).masked_fill(~one.seen(rows, rows.stop), 0).norm(dim=1)
            for rows in one.chunks()
        ]
        at = int(torch.cat(norms).argmax())
    else:
        at = one.n - 1 if row == "last" else one.n // 2
    return slice(at, at + 1)


def window_scores(one: OneRow, window: int) -> Float[Tensor, "kv_heads n"]:
    """SnapKV: attention summed over the last `window` rows, averaged over the heads that share keys."""
    return _shared(one, one.weights(slice(one.n - window, one.n)).sum(1))


def heavy_attention(one: OneRow, out: Float[Tensor, "n heads e"]) -> Float[Tensor, "kv_heads n"]:
    """H2O: attention summed over all rows, averaged over the heads that share keys; the layer's result goes to `out`.

    Fused attention does not return its weights, and to compute them once more for the sums would take longer.
    """
    total = torch.zeros(len(one.query), one.n, dtype=one.exact, device=one.key.device)
    for heads, part in one.parts():
        for rows in part.chunks():
            weights = part.weights(rows)
            total[heads, : rows.stop] += weights.sum(1)
            shared = weights.to(part.value.dtype).view(len(part.key), -1, rows.stop) @ part.value[:, : rows.stop]
            out[rows, heads] = shared.view(len(part.query), -1, shared.shape[-1]).transpose(0, 1)
    return _shared(one, total)


def _shared(one: OneRow, scores: Tensor) -> Tensor:
    return scores.view(one.key.shape[0], -1, one.n).mean(1)
