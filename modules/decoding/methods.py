"""What is kept of a prompt: by an early layer, by each head for itself, by anyone, or everything."""

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor

from .attention import Call
from .caches import KeptCache, cut
from .decoder import Decoder, Keeping, Prompt, device_of, left_padded, prefilled, prompt_of
from .first_pass import check, chosen_tokens, scored
from .scores import OneRow, Row, Score, heavy_scores, window_scores
from .selection import Choice, Pool, choose

Read = tuple[KeptCache, Tensor, list[Tensor]]


def full(model: Any) -> Decoder:
    """Every token's keys and values in every layer. Raises ValueError for a model without layers of attention alone."""
    return _Whole(model)


def gemfilter(
    model: Any, filter_layer: int = 13, keep: int = 1024, *, pool: Pool = "avg", kernel: int = 5, score: Score = "raw",
    row: Row = "last", keep_last: int = 0, keep_first: int = 0, runs: Literal[1, 2] = 2,
) -> Decoder:  # fmt: skip
    """GemFilter (Shi, Ming, Nguyen, Liang, Joty 2024): the tokens that one early layer looks at are the prompt.

    The first `filter_layer` layers (one-based; of the last of them only queries and keys) see the whole prompt. The
    `keep` tokens of the greatest pooled scores, in their order, are then read by the whole model, at positions 0, 1,
    ...; so is what follows. `score` and `row` as in `scores.filter_scores`, the rest as in `Choice`. Defaults are those
    of the printed listing: nothing makes sure that the question itself is kept, for which there is `keep_last`.

    With `runs=1` (GemFilter-One-Run) the whole model sees the whole prompt instead, only the chosen tokens stay in the
    cache of each layer, and what follows is at positions n, n + 1, ...

    Raises ValueError for arguments and models that cannot be.
    """
    return _GemFilter(model, filter_layer, Choice(keep, pool, kernel, keep_last, keep_first), score, row, runs)


def snapkv(model: Any, keep: int = 1024, *, window: int = 32, kernel: int = 5) -> Decoder:
    """SnapKV (Li et al. 2024): each layer's heads keep what the last `window` queries attend to, and these tokens.

    Attention summed over the last rows, max-pooled with `kernel` over the tokens before them, of which `keep - window`
    stay, at their positions. Heads that share keys keep the same tokens, by their mean. Raises as `gemfilter`.
    """
    return _ByHead(model, keep, window, kernel, heavy=False)


def h2o(model: Any, keep: int = 1024, *, window: int = 32) -> Decoder:
    """H2O (Zhang et al. 2023) on the prompt alone: as `snapkv`, by the attention of all rows and without pooling."""
    return _ByHead(model, keep, window, 1, heavy=True)


def given(model: Any, indices_of: Callable[[Tensor], Tensor]) -> Decoder:
    """As `gemfilter`, with tokens that `indices_of` chooses of the ids (n,) of a row: the last ones, random ones, ...

    Indices are put in order. Reading raises ValueError for none, one twice, or one that is not in the prompt.
    """
    return _Given(model, indices_of)


class _Whole(Decoder):
    def prefill(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Read:
        return self.read(prompt_of(input_ids, attention_mask, device_of(self.model)))

    def read(self, prompt: Prompt) -> Read:
        keeping = Keeping(prompt)
        return *prefilled(self.model, keeping), keeping.chosen()


class _Given(_Whole):
    def __init__(self, model: Any, indices_of: Callable[[Tensor], Tensor]) -> None:
        super().__init__(model)
        self.indices_of = indices_of

    def prefill(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Read:
        prompt = prompt_of(input_ids, attention_mask, device_of(self.model))
        rows = [row[-length:] for row, length in zip(prompt.ids, prompt.lengths, strict=True)]
        chosen = [self.ordered(row, torch.as_tensor(self.indices_of(row)).to(row.device)) for row in rows]
        return self.second(rows, chosen)

    def second(self, rows: list[Tensor], chosen: list[Tensor]) -> Read:
        cache, logits, _ = self.read(left_padded([row[index] for row, index in zip(rows, chosen, strict=True)]))
        return cache, logits, chosen

    @staticmethod
    def ordered(row: Tensor, index: Tensor) -> Tensor:
        index = index.long().sort().values
        if index.ndim != 1 or not len(index) or index[0] < 0 or index[-1] >= len(row) or (index.diff() == 0).any():
            raise ValueError(f"chosen tokens must be different ones of the prompt's {len(row)}, got {index.tolist()}")
        return index


class _GemFilter(_Given):
    def __init__(self, model: Any, filter_layer: int, choice: Choice, score: Score, row: Row, runs: int) -> None:
        super().__init__(model, self.tokens)
        check(score, row, [filter_layer], self.shape.layers)
        if runs not in (1, 2):
            raise ValueError(f"runs must be 1 or 2, got {runs}")
        self.filter_layer, self.choice, self.score_by, self.row, self.runs = filter_layer, choice, score, row, runs

    def tokens(self, row: Tensor) -> Tensor:
        return self.choose(row[None])[0]

    def choose(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> list[Tensor]:
        """The first pass alone."""
        options: Any = vars(self.choice) | {"score": self.score_by, "row": self.row}
        return chosen_tokens(self.model, input_ids, attention_mask, filter_layer=self.filter_layer, **options)

    def prefill(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Read:
        prompt = prompt_of(input_ids, attention_mask, device_of(self.model))
        if self.runs == 1:
            keeping = _KeepingChosen(prompt, self)
            return *prefilled(self.model, keeping), keeping.chosen()
        rows = [row[-length:] for row, length in zip(prompt.ids, prompt.lengths, strict=True)]
        return self.second(rows, self.choose(prompt.ids, prompt.real))


class _KeepingChosen(Keeping):
    """Layers before the filter layer wait whole until it has chosen."""

    def __init__(self, prompt: Prompt, method: _GemFilter) -> None:
        super().__init__(prompt)
        self.method, self.waiting, self.index = method, list[Call](), list[Tensor]()

    def __call__(self, call: Call) -> Any:
        found = call.attended()
        self.waiting.append(call)
        if call.layer == self.method.filter_layer - 1:
            scores = scored(call, self.padding, self.method.score_by, self.method.row)
            self.index = [self.method.choice(each) for each in scores]
        if self.index:
            columns = self.columns(self.index)
            self.layers += [cut(each, columns, self.positions) for each in self.waiting]
            self.waiting.clear()
        return found

    def chosen(self) -> list[Tensor]:
        return self.index


class _ByHead(Decoder):
    def __init__(self, model: Any, keep: int, window: int, kernel: int, *, heavy: bool) -> None:
        super().__init__(model)
        Choice(keep, kernel=kernel)
        if not 1 <= window <= keep:
            raise ValueError(f"window must be from 1 to keep = {keep}, got {window}")
        self.keep, self.window, self.kernel, self.heavy = keep, window, kernel, heavy

    def prefill(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Read:
        keeping = _KeepingByHead(prompt_of(input_ids, attention_mask, device_of(self.model)), self)
        return *prefilled(self.model, keeping), keeping.chosen()

    def indices(self, one: OneRow) -> Tensor:
        """(kv_heads, k)."""
        kv_heads, n = one.key.shape[0], one.n
        if n <= self.keep:
            return torch.arange(n, device=one.key.device).expand(kv_heads, n)
        scores = (heavy_scores(one) if self.heavy else window_scores(one, self.window))[:, : n - self.window]
        last = torch.arange(n - self.window, n, device=scores.device).expand(kv_heads, -1)
        if self.keep == self.window:
            return last
        return torch.cat([choose(scores, self.keep - self.window, pool="max", kernel=self.kernel), last], dim=1)


class _KeepingByHead(Keeping):
    def __init__(self, prompt: Prompt, method: _ByHead) -> None:
        super().__init__(prompt)
        self.method, self.index = method, list[list[Tensor]]()

    def indices_of(self, call: Call) -> list[Tensor]:
        self.index.append([self.method.indices(OneRow(call, row, begin)) for row, begin in enumerate(self.padding)])
        return self.index[-1]

    def chosen(self) -> list[Tensor]:
        device = self.positions.device
        return [torch.stack([layer[row].to(device) for layer in self.index]) for row in range(len(self.lengths))]
