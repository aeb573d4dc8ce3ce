"""The values with which a claim holds."""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Bound:
    """The finite values with which a claim holds: an interval, its ends included unless `strict`."""

    low: float = -math.inf
    high: float = math.inf
    strict: bool = False

    def holds(self, value: float) -> bool:
        if not math.isfinite(value):
            return False
        if self.strict:
            return self.low < value < self.high
        return self.low <= value <= self.high

    def holds_on(self, low: float, high: float) -> bool:
        """Whether it holds with every value from `low` to `high`."""
        return self.holds(low) and self.holds(high)

    def excludes(self, low: float, high: float) -> bool:
        """Whether it holds with no value from `low` to `high`."""
        if self.strict:
            return high <= self.low or low >= self.high
        return high < self.low or low > self.high

    def margin(self, value: float) -> float:
        """How far a value lies inside, negative outside: the distance to the nearer end."""
        return min(value - self.low, self.high - value)

    def __str__(self) -> str:
        """The ends with up to 12 digits: one just below 1 is not written as 1."""
        more, less = (">", "<") if self.strict else ("≥", "≤")
        if self.high == math.inf:
            return f"{more} {self.low:.12g}"
        if self.low == -math.inf:
            return f"{less} {self.high:.12g}"
        return f"{self.low:.12g} to {self.high:.12g}"


def at_least(low: float) -> Bound:
    return Bound(low=low)


def at_most(high: float) -> Bound:
    return Bound(high=high)


def above(low: float) -> Bound:
    return Bound(low=low, strict=True)


def below(high: float) -> Bound:
    return Bound(high=high, strict=True)


def between(low: float, high: float) -> Bound:
    return Bound(low, high)
