"""A made-up language of sentences that are positive or negative, and prompts of labelled ones to learn from.

A sentence is three words in random order: one of its class, and two that are of its class with probability 3/4 and
neutral otherwise. A prompt is "SENT w w w ANS label" so many times over, with three irrelevant words after those of
every sentence in some prompts. What the labels mean is known beforehand and can be overridden: in a share of the
prompts all labels, the last one too, are inverted.
"""

import numpy as np
import torch
from jaxtyping import Int64
from numpy.typing import NDArray

from featurelab.modules.dtypes import Dtype

from ..core.tensors import TensorData, stream

KINDS, EACH, LENGTH, OWN = ("negative", "positive", "neutral", "irrelevant"), 12, 3, 0.75
SENTIMENT_WORDS = (
    "END",
    "SENT",
    "ANS",
    "negative",
    "positive",
    *(f"{kind}_{i}" for kind in KINDS for i in range(EACH)),
)
END, SENT, ANS, NEGATIVE = range(4)  # the label of class c is NEGATIVE + c
_FIRST = SENTIMENT_WORDS.index("negative_0")
NEUTRAL, IRRELEVANT = 2, 3

Ids = NDArray[np.int64]


def sentiment_sentences(labels: Int64[Ids, " n"], rng: np.random.Generator) -> Int64[Ids, "n words"]:
    """A sentence of each label, 0 negative and 1 positive, as ids (n, 3) of `SENTIMENT_WORDS`."""
    own = rng.random((len(labels), LENGTH)) < OWN
    own[:, 0] = True
    kinds = np.where(own, labels[:, None], NEUTRAL)
    return rng.permuted(_FIRST + EACH * kinds + rng.integers(0, EACH, kinds.shape), axis=1)


def irrelevant_words(n: int, rng: np.random.Generator) -> Int64[Ids, "n words"]:
    """Three words of no class for each of n sentences, as ids (n, 3) of `SENTIMENT_WORDS`."""
    return _FIRST + EACH * IRRELEVANT + rng.integers(0, EACH, (n, LENGTH))


class SentimentPrompts(TensorData):
    """Prompts of `exemplars` + 1 labelled sentences, each drawn anew, with labels as likely as not.

    x (n, length) int16 are the ids of `SENTIMENT_WORDS` up to the last "ANS", shorter prompts filled with "END" on the
    left; y (n, exemplars + 1) int64 those of the labels that follow each "ANS". Prompts stand in batches of
    `batch_size`: of each four batches the last has irrelevant words, so that all prompts of a batch have one length,
    and they are trained on in this order. A share `inverted` of the prompts has all labels inverted. All numbers come
    from streams of `seed`. Raises ValueError for a share outside [0, 1].
    """

    def __init__(
        self,
        n_train: int,
        n_test: int = 0,
        *,
        seed: int,
        exemplars: int = 8,
        inverted: float = 0.3,
        batch_size: int = 64,
        dtype: Dtype = "float32",
    ) -> None:
        if not 0 <= inverted <= 1:
            raise ValueError(f"inverted is a share of the prompts, in [0, 1], got {inverted}")
        self.exemplars = exemplars
        train, test = (
            _prompts(n, exemplars, inverted, batch_size, stream(seed, part))
            for part, n in (("train", n_train), ("test", n_test))
        )
        options = {"batch_size": batch_size, "order_seed": None, "dtype": dtype, "name": "sentiment language"}
        super().__init__(train, test if n_test else None, **options)  # type: ignore[arg-type]


def _prompts(
    n: int, exemplars: int, inverted: float, batch_size: int, rng: np.random.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    blocks = exemplars + 1
    labels = rng.integers(0, 2, (n, blocks))
    words = sentiment_sentences(labels.reshape(-1), rng).reshape(n, blocks, LENGTH)
    more = irrelevant_words(n * blocks, rng).reshape(n, blocks, LENGTH)
    shown = NEGATIVE + np.where(rng.random((n, 1)) < inverted, 1 - labels, labels)
    sent, ans = (np.full((n, blocks, 1), token) for token in (SENT, ANS))
    asked = np.concatenate([ans, shown[..., None]], axis=2)
    plain, told = np.concatenate([sent, words, asked], axis=2), np.concatenate([sent, words, more, asked], axis=2)
    filled = np.full((n, LENGTH * blocks), END)
    short = np.concatenate([filled, plain.reshape(n, plain.shape[2] * blocks)], axis=1)[:, :-1]
    long = told.reshape(n, told.shape[2] * blocks)[:, :-1]
    with_more = (np.arange(n) // batch_size) % 4 == 3
    x = np.where(with_more[:, None], long, short)
    return torch.from_numpy(x.astype(np.int16)), torch.from_numpy(shown)
