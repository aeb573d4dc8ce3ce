"""Laws of hidden patterns: binary vectors, a few entries of which determine the label (Shi, Wei, Liang 2022, ICLR).

Patterns 1, ..., k of D matter; for a random dictionary it makes no difference which ones they are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Set
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64, Integer
from scipy.stats import binom

Array = np.ndarray


@dataclass(frozen=True)
class PatternLaw(ABC):
    """phi in {0, 1}^D (`patterns`) and y = +-1, which depends on the first k (`size`) entries alone."""

    patterns: int
    size: int

    def __post_init__(self) -> None:
        if not 1 <= self.size <= self.patterns:
            raise ValueError(f"size must lie between 1 and patterns = {self.patterns}, got {self.size}")

    @abstractmethod
    def draw(self, n: int, chance: np.random.Generator) -> tuple[Bool[Array, "n D"], Float64[Array, " n"]]:
        """n independent samples of phi and of y."""

    @property
    @abstractmethod
    def positive(self) -> float:
        """P(y = +1)."""

    @property
    @abstractmethod
    def class_means(self) -> Float64[Array, "2 D"]:
        """E[phi | y = -1] and E[phi | y = +1]."""

    def mean(self, positive: float | None = None) -> Float64[Array, " D"]:
        """E[phi], also when classes are resampled to another P(y = +1)."""
        q = self.positive if positive is None else positive
        low, high = self.class_means
        mean: Array = (1 - q) * low + q * high
        return mean

    def scale(self, positive: float | None = None) -> float:
        """sig = sqrt(sum_j Var phi_j)."""
        mean = self.mean(positive)
        return float((mean * (1 - mean)).sum() ** 0.5)

    def signal(self, positive: float | None = None) -> Float64[Array, " D"]:
        """E[y phi] - E[y] E[phi] = 2 P(+) P(-) (E[phi | +] - E[phi | -]): gamma at each pattern that matters."""
        q = self.positive if positive is None else positive
        low, high = self.class_means
        signal: Array = 2 * q * (1 - q) * (high - low)
        return signal

    def gamma(self, positive: float | None = None) -> float:
        """The root mean square of `signal` over the k patterns: the paper's gamma, where all are equal."""
        return float((self.signal(positive)[: self.size] ** 2).mean() ** 0.5)


@dataclass(frozen=True)
class CountLaw(PatternLaw):
    """Laws whose label is +1 exactly where the number of ones among the first k entries is one of `counts`."""

    @property
    @abstractmethod
    def counts(self) -> Set[int]: ...

    def label(self, phi: Bool[Array, "n D"]) -> Float64[Array, " n"]:
        table = np.array([1.0 if count in self.counts else -1.0 for count in range(self.size + 1)])
        y: Array = table[phi[:, : self.size].sum(1)]
        return y


@dataclass(frozen=True)
class ParityPatterns(CountLaw):
    """y = +1 where an odd number of the first k entries is 1; k odd.

    With probability p_o (`unstructured`) all entries are independent fair bits. Otherwise the first k are all 0 or all
    1 with equal probability, and the others are independent with P(1) = p_o / (2 - 2 p_o). So P(y = 1) = 1/2, an entry
    that does not matter is 1 with probability p_o, gamma = (1 - p_o)/2 (k > 1), and for k = 5 the best threshold on the
    number of ones has accuracy 1 - p_o + 22/32 p_o. `unstructured=1` gives data without structure.

    Raises ValueError for an even k, or p_o outside [0, 2/3] other than 1.
    """

    unstructured: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.size % 2 == 0:
            raise ValueError(f"size must be odd for a parity, got {self.size}")
        if not (0 <= self.unstructured <= 2 / 3 or self.unstructured == 1):
            raise ValueError(f"unstructured must lie in [0, 2/3] or be 1, got {self.unstructured}")

    @property
    def counts(self) -> Set[int]:
        return set(range(1, self.size + 1, 2))

    @property
    def positive(self) -> float:
        return 0.5

    @property
    def class_means(self) -> Float64[Array, "2 D"]:
        p = self.unstructured
        means = np.full((2, self.patterns), 0.5 if p == 1 else p)
        product = (1 - p) / 2 + (p / 2 if self.size == 1 else 0.0)  # E[y phi_j]
        means[:, : self.size] = [[0.5 - product], [0.5 + product]]
        return means

    def draw(self, n: int, chance: np.random.Generator) -> tuple[Array, Array]:
        p, k = self.unstructured, self.size
        free = chance.random((n, 1)) < p
        phi = chance.random((n, self.patterns)) < np.where(free, 0.5, 0.5 if p == 1 else p / (2 - 2 * p))
        together = chance.random((n, 1)) < 0.5
        phi[:, :k] = np.where(free, chance.random((n, k)) < 0.5, together)
        return phi, self.label(phi)


@dataclass(frozen=True)
class IntervalPatterns(CountLaw):
    """y = +1 where the number of ones among the first k entries lies in [t1, t2] = [`least`, `most`].

    Entries are independent: P(1) is `inside` among the first k and `outside` elsewhere; data without structure have 1/2
    for both. Raises ValueError for an empty interval, or probabilities outside (0, 1).
    """

    least: int
    most: int
    inside: float = 2 / 3
    outside: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.least <= self.most <= self.size:
            raise ValueError(
                f"need 0 <= least <= most <= size, got least={self.least}, most={self.most}, size={self.size}"
            )
        if not (0 < self.inside < 1 and 0 < self.outside < 1):
            raise ValueError(f"probabilities must lie in (0, 1), got {self.inside} and {self.outside}")

    @property
    def counts(self) -> Set[int]:
        return set(range(self.least, self.most + 1))

    @property
    def positive(self) -> float:
        law = binom(self.size, self.inside)
        return float(law.cdf(self.most) - law.cdf(self.least - 1))

    @property
    def class_means(self) -> Float64[Array, "2 D"]:
        others = binom(self.size - 1, self.inside)
        both = self.inside * float(others.cdf(self.most - 1) - others.cdf(self.least - 2))  # P(phi_j = 1, y = +1)
        q = self.positive
        means = np.full((2, self.patterns), self.outside)
        means[:, : self.size] = [[(self.inside - both) / (1 - q)], [both / q]]
        return means

    def draw(self, n: int, chance: np.random.Generator) -> tuple[Array, Array]:
        phi = chance.random((n, self.patterns))
        phi[:, : self.size] += self.outside - self.inside
        ones = phi < self.outside
        return ones, self.label(ones)


@dataclass(frozen=True)
class CodebookPatterns(PatternLaw):
    """The first k entries are one of `words` random words of the label; the others are fair bits.

    Each class has `words` words of its own, fair bits drawn from `seed`, all equally likely. `code` (2, words, k) holds
    them, those of y = -1 first. A word that both classes drew is drawn again.
    """

    words: int
    seed: int

    @property
    def code(self) -> Integer[Array, "2 words k"]:
        chance = np.random.default_rng([self.seed, *b"code"])
        code: Array = chance.integers(0, 2, (2, self.words, self.size))
        while (code[0][:, None] == code[1][None]).all(2).any():
            code = chance.integers(0, 2, (2, self.words, self.size))
        return code

    @property
    def positive(self) -> float:
        return 0.5

    @property
    def class_means(self) -> Float64[Array, "2 D"]:
        means = np.full((2, self.patterns), 0.5)
        means[:, : self.size] = self.code.mean(1)
        return means

    def draw(self, n: int, chance: np.random.Generator) -> tuple[Array, Array]:
        phi = chance.random((n, self.patterns)) < 0.5
        label, word = chance.integers(0, 2, n), chance.integers(0, self.words, n)
        phi[:, : self.size] = self.code[label, word]
        return phi, 2.0 * label - 1.0
