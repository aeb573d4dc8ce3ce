"""Causal language models as sources of scores and attention, on token ids padded on the left."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn

from featurelab.modules.nets import Decoder

from .prompts import Template


class Encoded(NamedTuple):
    """The tokens of a text, and the characters [begin, end) of each; empty for special tokens."""

    ids: list[int]
    places: list[tuple[int, int]]


class LanguageModel(ABC):
    """A network over tokens with its tokenizer. Nothing attends to padding, and padding shifts no position."""

    net: nn.Module
    longest: int | None  # tokens in one sequence; None where no limit is known

    @abstractmethod
    def encode(self, texts: Sequence[str]) -> list[Encoded]:
        """The tokens of each text."""

    @abstractmethod
    def logits(
        self, ids: Int64[Tensor, "n length"], real: Bool[Tensor, "n length"], last: int
    ) -> Float[Tensor, "n {last} vocabulary"]:
        """Logits over the next token at the last `last` positions; `real` is False at padding."""

    @abstractmethod
    def last_row(
        self, ids: Int64[Tensor, "n length"], real: Bool[Tensor, "n length"]
    ) -> Float[Tensor, "n heads length"]:
        """Attention weights of the last position in the last layer, after the softmax."""

    def prompt(self, template: Template, exemplars: list[tuple[str, str]], query: str) -> str:
        """The text that the model reads for these exemplars and this query; the label word follows its end."""
        return template.prompt(exemplars, query)

    @property
    def device(self) -> torch.device:
        return next(self.net.parameters()).device


class WordModel(LanguageModel):
    """One of our decoders, whose tokens are words separated by single spaces. Raises ValueError for an unknown word."""

    def __init__(self, net: Decoder, words: Sequence[str]) -> None:
        self.net = net
        self.words = {word: index for index, word in enumerate(words)}
        self.longest = len(net.positions)
        self._decoder = net

    def encode(self, texts: Sequence[str]) -> list[Encoded]:
        return [self._encoded(text) for text in texts]

    def logits(self, ids: Tensor, real: Tensor, last: int) -> Tensor:
        return self._decoder(ids.masked_fill(~real, self._decoder.padding))[:, -last:]  # type: ignore[no-any-return]

    def last_row(self, ids: Tensor, real: Tensor) -> Tensor:
        return self._decoder.last_row(ids.masked_fill(~real, self._decoder.padding))

    def _encoded(self, text: str) -> Encoded:
        ids, places, begin = [], [], 0
        for word in text.split(" "):
            if word and word not in self.words:
                raise ValueError(f"{word!r} is not one of the {len(self.words)} words of this model")
            if word:
                ids.append(self.words[word])
                places.append((begin, begin + len(word)))
            begin += len(word) + 1
        return Encoded(ids, places)


def pad_left(
    sequences: Sequence[Sequence[int]], device: torch.device | str = "cpu", fill: int = 0
) -> tuple[Int64[Tensor, "n length"], Bool[Tensor, "n length"]]:
    """Token ids of one length, padded on the left, and which of them are not padding.

    Raises ValueError for an empty sequence.
    """
    if not sequences or not all(sequences):
        raise ValueError("every sequence must have at least one token")
    length = max(map(len, sequences))
    ids = torch.full((len(sequences), length), fill)
    real = torch.zeros(len(sequences), length, dtype=torch.bool)
    for row, sequence in enumerate(sequences):
        ids[row, length - len(sequence) :] = torch.tensor(sequence)
        real[row, length - len(sequence) :] = True
    return ids.to(device), real.to(device)
