"""What the values of a claim on several seeds decide: its verdict, and whether a control broke it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from featurelab.pipelines.engine.experiment.bounds import Bound, at_least
from featurelab.pipelines.engine.experiment.evidence import (
    About,
    Within,
    allowed,
    interval,
    looks,
    plain_interval,
)
from featurelab.pipelines.engine.experiment.known import State, Status

Values = Sequence[Mapping[str, float]]  # of each part, seed by seed
Intervals = Mapping[str, list[float] | None]
KEPT = 0.5  # of its margin: a claim that keeps less under a control is broken


@dataclass(frozen=True)
class Decision:
    """A status, the number of seeds that it took, and by part the mean, median or share with two intervals.

    `plain` are the usual 95% intervals, for reading; `deciding` were held against the bounds, at `level`.
    """

    status: Status
    seeds: int
    measured: Mapping[str, float]
    plain: Intervals
    deciding: Intervals
    level: float | None


@dataclass(frozen=True)
class Rule:
    """How a claim is decided: what it is `about`, the `bounds` of each part, and the range of the quantity.

    A claim about a share is one value a seed: 1 where every part is within its bound, else 0; it asks for `least`.
    """

    about: About
    bounds: Mapping[str, Bound]
    within: Within
    exact: bool
    least: float | None = None

    def decide(self, values: Values, most_seeds: int | None = None) -> Decision:
        """Hold the intervals against the bounds.

        With `most_seeds`, seeds were added until it was decided: it is judged at each of the looks in turn, by that
        look's interval, and the first decision counts.
        """
        if self.exact:
            held = all(bound.holds(seed[part]) for seed in values for part, bound in self.bounds.items())
            return Decision("holds" if held else "fails", len(values), self.centres(values), {}, {}, None)
        values, rule = self._seen(values)
        schedule = {len(values): allowed(len(values))} if most_seeds is None else looks(most_seeds)
        taken = {number: error for number, error in schedule.items() if 0 < number <= len(values)}
        status: Status = "undecided"
        for number, error in taken.items():
            status = rule._status(values[:number], error)
            if status != "undecided":
                break
        used = values[:number] if taken else values
        ends = rule._intervals(used, error) if taken else {}
        level = 1 - error if taken else None
        return Decision(status, len(used), rule.centres(used), rule.plain(used), ends, level)

    def compare(self, plain: Values, controlled: Values) -> State:
        """What became of a claim under a control, seed by seed on the same seeds, at 5% for either answer.

        It `survives` if it holds there, or every part has surely kept over half of its margin. It is `broken` if it
        fails there, or one part has surely lost over half of its margin.
        """
        there = self.decide(controlled).status
        if there == "holds" or self.exact:
            return "survives" if there == "holds" else "broken"
        if there == "fails":
            return "broken"
        if self.about == "share":
            return self._by_discordant_seeds(plain, controlled)
        error = 2 * allowed(len(plain))  # each answer needs one end of the interval alone
        kept = {part: self._kept(part, plain, controlled, error) for part in self.bounds}
        if all(ends is not None and ends[0] > 0 for ends in kept.values()):
            return "survives"
        lost = {part: self._kept(part, plain, controlled, error / len(self.bounds)) for part in self.bounds}
        surely = self._intervals(controlled, error / 2)
        for part, bound in self.bounds.items():
            held, ends = surely[part], lost[part]
            if ends is not None and ends[1] < 0 and not (held is not None and bound.holds_on(*held)):
                return "broken"
        return "undecided"

    def centres(self, values: Values) -> dict[str, float]:
        """The mean over seeds of each part, or the median."""
        values, rule = self._seen(values)
        columns = {part: [seed[part] for seed in values] for part in (values[0] if values else {})}
        return {part: _median(column) if rule.about == "median" else _mean(column) for part, column in columns.items()}

    def plain(self, values: Values) -> Intervals:
        """The usual 95% interval of each part."""
        return {
            part: plain_interval(self.about, [seed[part] for seed in values], self.within)
            for part in (values[0] if values else {})
        }

    def worst(self, values: Values) -> dict[str, float]:
        """The value of each part on the seed where it is nearest to its bound, or furthest outside."""
        return {
            part: min((seed[part] for seed in values), key=lambda value, bound=bound: _order(bound, value))  # type: ignore[misc]
            for part, bound in self.bounds.items()
            if values
        }

    def _seen(self, values: Values) -> tuple[Values, "Rule"]:
        """The values as they are judged, and the rule for these."""
        if self.about != "share" or self.least is None:
            return values, self
        met = [{"": float(all(bound.holds(seed[p]) for p, bound in self.bounds.items()))} for seed in values]
        return met, Rule("share", {"": at_least(self.least)}, (0.0, 1.0), exact=False)

    def _status(self, values: Values, error: float) -> Status:
        if not all(math.isfinite(seed[part]) for seed in values for part in self.bounds):
            return "fails"
        sure, surer = self._intervals(values, error), self._intervals(values, error / len(self.bounds))
        if any((ends := surer[part]) is not None and b.excludes(*ends) for part, b in self.bounds.items()):
            return "fails"
        held = all((ends := sure[part]) is not None and b.holds_on(*ends) for part, b in self.bounds.items())
        return "holds" if held else "undecided"

    def _intervals(self, values: Values, error: float) -> Intervals:
        return {
            part: interval(self.about, [seed[part] for seed in values], error, self.within)
            for part in (values[0] if values else {})
        }

    def _kept(self, part: str, plain: Values, controlled: Values, error: float) -> list[float] | None:
        """The interval of what a part keeps of its margin under a control, over what it may lose."""
        bound = self.bounds[part]
        pairs = zip(plain, controlled, strict=True)
        over = [bound.margin(under[part]) - KEPT * bound.margin(seed[part]) for seed, under in pairs]
        return interval(self.about, over, error, (-math.inf, math.inf))

    def _by_discordant_seeds(self, plain: Values, controlled: Values) -> State:
        """Broken if seeds on which only the control undoes it are surely more than those where only it does not."""
        from scipy.stats import binomtest

        (without, _), (under, _) = self._seen(plain), self._seen(controlled)
        undone = sum(one[""] > other[""] for one, other in zip(without, under, strict=True))
        made = sum(one[""] < other[""] for one, other in zip(without, under, strict=True))
        if undone + made == 0 or binomtest(undone, undone + made, alternative="greater").pvalue > allowed(len(plain)):
            return "undecided"
        shares = [sum(seed[""] for seed in values) for values in (under, without)]
        return "broken" if shares[0] < KEPT * shares[1] else "undecided"


def _order(bound: Bound, value: float) -> float:
    return bound.margin(value) if math.isfinite(value) else -math.inf


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)  # not `fmean`, which raises for inf and -inf


def _median(values: Sequence[float]) -> float:
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2
