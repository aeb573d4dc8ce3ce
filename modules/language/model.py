"""What scores and attention are read from: any causal language model, on token ids that are pad_left on the left."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn

from featurelab.modules.nets import Decoder

from .prompts import Template


class Encoded(NamedTuple):
    """The tokens of a text, and of each the characters [begin, end) that it stands for; empty for special ones."""

    ids: list[int]
    places: list[tuple[int, int]]


class LanguageModel(ABC):
    """A network over tokens with its tokenizer. What is padding is attended to by nothing and shifts no position."""

    net: nn.Module
    longest: int | None  # tokens in one sequence; None where no limit is known

    @abstractmethod
    def encode(self, texts: Sequence[str]) -> list[Encoded]:
        """The tokens of each text."""

    @abstractmethod
    def logits(
        self, ids: Int64[Tensor, "n length"], real: Bool[Tensor, "n length"], last: int
    ) -> Float[Tensor, "n {last} vocabulary"]:
        """Logits over the next token at the last `last` positions; `real` is False where there is padding."""

    @abstractmethod
    def last_row(
        self, ids: Int64[Tensor, "n length"], real: Bool[Tensor, "n length"]
    ) -> Float[Tensor, "n heads length"]:
        """The last layer's attention weights of the last position, after the softmax."""

    def prompt(self, template: Template, exemplars: list[tuple[str, str]], query: str) -> str:
        """The text that is read for these exemplars and this query; it ends where the label word follows."""
        return template.prompt(exemplars, query)

    @property
    def device(self) -> torch.device:
        return next(self.net.parameters()).device


class WordModel(LanguageModel):
    """One of our decoders, whose tokens are words between single spaces. Raises ValueError for an unknown word."""

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
                raise ValueError(f"{word!r} is none of the {len(self.words)} words of this model")
            if word:
                ids.append(self.words[word])
                places.append((begin, begin + len(word)))
            begin += len(word) + 1
        return Encoded(ids, places)


def pad_left(
    sequences: Sequence[Sequence[int]], device: torch.device | str = "cpu", fill: int = 0
) -> tuple[Int64[Tensor, "n length"], Bool[Tensor, "n length"]]:
    """Token ids of one length, filled on the left, and which of them are real.

    Raises ValueError for a sequence of no tokens.
    """
    if not sequences or not all(sequences):
        raise ValueError("there is no token in a sequence")
    length = max(map(len, sequences))
    ids = torch.full((len(sequences), length), fill)
    real = torch.zeros(len(sequences), length, dtype=torch.bool)
    for row, sequence in enumerate(sequences):
        ids[row, length - len(sequence) :] = torch.tensor(sequence)
        real[row, length - len(sequence) :] = True
    return ids.to(device), real.to(device)
