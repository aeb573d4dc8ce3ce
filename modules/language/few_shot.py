"""Prompts of labelled exemplars and a query, with some labels of exemplars inverted."""

import hashlib
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import pytorch_lightning as pl
import torch
from jaxtyping import Float64, Int64
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader

from featurelab.modules.data import stream

from .model import LanguageModel
from .prompts import NEWLINES, Template

Ids = np.ndarray
Shown = Literal["true", "random"]


class BinaryTexts(NamedTuple):
    """Texts, and the class of each, 0 or 1."""

    texts: Sequence[str]
    labels: Int64[Ids, " n"]


def inverted_labels(labels: Int64[Ids, "n m"], flips: int, order: Int64[Ids, "n m"]) -> Int64[Ids, "n m"]:
    """Labels 0 and 1 with exactly `flips` labels of each row inverted: those that come first in `order`.

    `order` holds a permutation for each row, so that the labels inverted with few flips are also inverted with more.
    Raises ValueError unless 0 <= flips <= m.
    """
    if not 0 <= flips <= labels.shape[1]:
        raise ValueError(f"flips must lie between 0 and {labels.shape[1]}, got {flips}")
    ranks = order.argsort(axis=1)
    return np.where(ranks < flips, 1 - labels, labels)


class FewShotPrompts(pl.LightningDataModule):
    """Prompts of `exemplars` labelled texts and a query, in batches (prompts, labels of the queries) for a test loop.

    With `batch_size=None` there is one batch.

    Each query has its own exemplars, random distinct texts of `pool`. Exactly `flips` of their labels are inverted
    (`shown="true"`), or each label is drawn at random, whatever the text (`shown="random"`, different for each `draw`):
    a null level. The label of the query does not change. Texts, their order and the order in which labels are inverted
    come from streams of `seed` and depend on nothing else, so that prompts with more flips differ only in labels.
    Prompts that the model cannot read with every possible label are left out; `left_out` counts them.

    Raises ValueError for labels other than 0 and 1, too few texts, or if all prompts are too long.
    """

    def __init__(
        self,
        model: LanguageModel,
        pool: BinaryTexts,
        queries: BinaryTexts,
        words: tuple[str, str],
        *,
        exemplars: int,
        seed: int,
        flips: int = 0,
        shown: Shown = "true",
        draw: int = 0,
        template: Template = NEWLINES,
        batch_size: int | None = None,
        name: str = "prompts",
    ) -> None:
        super().__init__()
        if len(pool.texts) < exemplars or not len(queries.texts):
            raise ValueError(
                f"need at least {exemplars} texts as exemplars and one query, got {len(pool.texts)} and "
                f"{len(queries.texts)}"
            )
        if not {*np.unique(pool.labels), *np.unique(queries.labels)} <= {0, 1}:
            raise ValueError("labels must be 0 and 1")
        rng, n = stream(seed, "exemplars"), len(queries.texts)
        chosen = np.stack([rng.choice(len(pool.texts), exemplars, replace=False) for _ in range(n)])
        order = stream(seed, "flips").permuted(np.tile(np.arange(exemplars), (n, 1)), axis=1)
        labels = pool.labels[chosen]
        if shown == "random":
            labels = stream(seed, f"random labels {draw}").integers(0, 2, labels.shape)
        labels = inverted_labels(labels, flips, order)

        def written(index: int, row: Any) -> str:
            shots = [(pool.texts[text], words[label]) for text, label in zip(chosen[index], row, strict=True)]
            return model.prompt(template, shots, queries.texts[index])

        fitting = np.flatnonzero(_fits(model, template, words, n, exemplars, written))
        if not len(fitting):
            raise ValueError(f"all {n} prompts are longer than the {model.longest} tokens that the model can read")
        self.left_out = n - len(fitting)
        self.prompts = [written(int(index), labels[index]) for index in fitting]
        self.targets = torch.from_numpy(np.asarray(queries.labels)[fitting])
        self.words = tuple(template.continued(word) for word in words)
        self.batch_size, self.name = batch_size or len(fitting), name

    def train_dataloader(self) -> DataLoader[Any]:
        """All prompts, in the order of the queries."""
        starts = range(0, len(self.prompts), self.batch_size)
        parts = [(self.prompts[i : i + self.batch_size], self.targets[i : i + self.batch_size]) for i in starts]
        return DataLoader(parts, batch_size=None)  # type: ignore[arg-type]

    def test_dataloader(self) -> DataLoader[Any]:
        return self.train_dataloader()

    def digest(self) -> str:
        """SHA-256 (hex) over the prompts, the words and the labels."""
        total = hashlib.sha256("\0".join([*self.words, *self.prompts]).encode())
        total.update(self.targets.numpy().astype("<i8").tobytes())
        return total.hexdigest()

    def describe(self) -> dict[str, Any]:
        return {"name": self.name, "n_test": len(self.prompts), "left_out": self.left_out, "words": list(self.words)}


def ranked_first(scores: Float64[Tensor, "n words"], targets: Int64[Tensor, " n"]) -> Float64[Tensor, " n"]:
    """1 if the word of the label has the largest score, 0 if another word has, 1/k if k words tie."""
    best = scores == scores.amax(1, keepdim=True)
    own = best.gather(1, targets.to(best.device)[:, None])[:, 0]
    return own.double() / best.sum(1)


def roc_area(scores: Float64[Tensor, "n words"], targets: Int64[Tensor, " n"]) -> float:
    """Probability that a query of class 1 scores its word (less the other's) above one of class 0; ties half.

    In [0, 1], and 0.5 for random scores, whichever word they prefer; nan if a class is absent.
    """
    gap = scores[:, 1] - scores[:, 0]
    more = gap[targets == 1][:, None] - gap[targets == 0]
    return ((more > 0).double() + (more == 0).double() / 2).mean().item()


def _fits(
    model: LanguageModel, template: Template, words: tuple[str, str], n: int, exemplars: int, written: Any
) -> NDArray[np.bool_]:
    """Whether the model can read each prompt with any labels and either word after it."""
    if model.longest is None:
        return np.ones(n, dtype=bool)
    extra = [[written(i, [label] * exemplars) + template.continued(words[label]) for i in range(n)] for label in (0, 1)]
    lengths = [[len(each.ids) for each in model.encode(texts)] for texts in extra]
    fits: NDArray[np.bool_] = np.asarray(lengths).max(0) <= model.longest
    return fits
