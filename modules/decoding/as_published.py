"""SnapKV as the authors of GemFilter ran it: each query head keeps its own tokens, chosen by averages."""

from typing import Any

import torch
from torch import Tensor

from .attention import Call
from .caches import KeptCache
from .decoder import Decoder, Keeping, Prompt, device_of, prefilled, prompt_of
from .scores import OneRow, window_scores
from .selection import Choice, Pool, choose_tokens


def snapkv_repeated(
    model: Any, keep: int = 1024, *, window: int = 32, kernel: int = 5, pool: Pool = "avg"
) -> "SnapKVRepeated":
    """SnapKV (Li et al. 2024) without sharing: each query head keeps the last `window` tokens and its own choice.

    Keys and values are repeated to all query heads before anything is chosen, and are stored so: with g heads of keys
    for h heads of queries, `snapkv` holds g / h of this memory. Sums attention over the last rows, pools it over the
    tokens before them (the authors average; the original takes the maximum), and keeps `keep - window` of these. Raises
    ValueError for arguments and models that do not fit.
    """
    return SnapKVRepeated(model, keep, window, kernel, pool)


class SnapKVRepeated(Decoder):
    """The decoder of `snapkv_repeated`; `chosen` has (layers, heads, k) for each row."""

    def __init__(self, model: Any, keep: int, window: int, kernel: int, pool: Pool) -> None:
        super().__init__(model)
        Choice(keep, pool, kernel)
        if not 1 <= window <= keep:
            raise ValueError(f"window must be from 1 to keep = {keep}, got {window}")
        self.keep, self.window, self.kernel, self.pool = keep, window, kernel, pool

    def prefill(
        self, input_ids: Tensor, attention_mask: Tensor | None = None
    ) -> tuple[KeptCache, Tensor, list[Tensor]]:
        keeping = _KeepingByQueryHead(prompt_of(input_ids, attention_mask, device_of(self.model)), self)
        return *prefilled(self.model, keeping), keeping.chosen()

    def indices(self, one: OneRow) -> Tensor:
        """(heads, k), ascending."""
        heads, n = len(one.key), one.n
        everything = torch.arange(n, device=one.key.device).expand(heads, -1)
        if n <= self.keep:
            return everything
        last = everything[:, n - self.window :]
        if self.keep == self.window:
            return last
        before = window_scores(one, self.window)[:, : n - self.window]
        best = choose_tokens(before, self.keep - self.window, pool=self.pool, kernel=self.kernel)
        return torch.cat([best, last], dim=1)


class _KeepingByQueryHead(Keeping):
    def __init__(self, prompt: Prompt, method: SnapKVRepeated) -> None:
        super().__init__(prompt)
        self.method, self.index = method, list[list[Tensor]]()

    def __call__(self, call: Call) -> Any:
        return super().__call__(call.repeated())

    def indices_of(self, call: Call) -> list[Tensor]:
        self.index.append([self.method.indices(OneRow(call, *row)) for row in enumerate(self.padding)])
        return self.index[-1]

    def chosen(self) -> list[Tensor]:
        device = self.positions.device
        return [torch.stack([layer[row].to(device) for layer in self.index]) for row in range(len(self.lengths))]
