"""A made-up language of positive and negative sentences, and prompts of labelled sentences to learn from.

A sentence is three words in random order: one of its class, and two that are of its class with probability 3/4 and
neutral otherwise. A prompt repeats "SENT w w w ANS label"; in some prompts three irrelevant words follow the words of
every sentence. A model can know the meaning of labels in advance, but prompts can override it: in a share of them all
labels, the last one too, are inverted.
"""

import numpy as np
import torch
from jaxtyping import Int64

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

Ids = np.ndarray


def sentiment_sentences(labels: Int64[Ids, " n"], rng: np.random.Generator) -> Int64[Ids, "n words"]:
    """A sentence for each label, 0 negative and 1 positive, as ids (n, 3) of `SENTIMENT_WORDS`."""
    own = rng.random((len(labels), LENGTH)) < OWN
    own[:, 0] = True
    kinds = np.where(own, labels[:, None], NEUTRAL)
    return rng.permuted(_FIRST + EACH * kinds + rng.integers(0, EACH, kinds.shape), axis=1)


def irrelevant_words(n: int, rng: np.random.Generator) -> Int64[Ids, "n words"]:
    """Three words of no class for each of n sentences, as ids (n, 3) of `SENTIMENT_WORDS`."""
    return _FIRST + EACH * IRRELEVANT + rng.integers(0, EACH, (n, LENGTH))


class SentimentPrompts(TensorData):
    """Prompts of `exemplars` + 1 random labelled sentences, with both labels equally likely.

    x (n, length) int16 are the ids of `SENTIMENT_WORDS` up to the last "ANS", with shorter prompts filled with "END" on
    the left; y (n, exemplars + 1) int64 are the labels that follow each "ANS". Prompts come in batches of `batch_size`:
    every fourth batch has irrelevant words, so that all prompts of a batch have one length, and training keeps this
    order. A share `inverted` of the prompts has all labels inverted. All numbers come from streams of `seed`. Raises
    ValueError for a share outside [0, 1].
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
            raise ValueError(f"inverted must lie in [0, 1], got {inverted}")
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
