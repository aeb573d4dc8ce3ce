"""A published sentence as a test on measured results, and what came of it."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field

from featurelab.pipelines.engine.errors import Missing
from featurelab.pipelines.engine.experiment.config import Scale
from featurelab.pipelines.engine.experiment.evidence import ERROR, LOOKS, look_interval, t_interval
from featurelab.pipelines.engine.experiment.known import Known, Status, Value

if TYPE_CHECKING:
    from featurelab.pipelines.engine.experiment.results import Results

STATUSES: tuple[Status, ...] = get_args(Status)
Kind = Literal["claim", "identity"]
Origin = Literal["paper", "corrected", "ours"]
Measured = float | Mapping[str, float]
Intervals = Mapping[str, list[float] | None]


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


@dataclass(frozen=True)
class Claim:
    """One sentence of a paper, what to measure for it, and the values with which it holds.

    `measure` gets the results of one seed and returns a number, or several named ones; then `expect` has a bound for
    each. The claim holds if the 95% interval of the mean over seeds lies within the bounds, of every part; it fails if
    the interval of one part lies outside, with the allowed error shared by all parts; else it is undecided. An
    `identity` is exact: it holds if every seed meets the bounds.

    `controls` destroy what the claim speaks of, so that it is expected not to hold under them. `within` are the ends
    between which every part lies by its nature, as a correlation does. `recorded()` is what was found of it earlier.
    """

    id: str
    says: str
    measure: "Callable[[Results], Measured]"
    expect: Bound | Mapping[str, Bound]
    paper: str | float | None = None
    where: str = ""
    origin: Origin = "paper"
    kind: Kind = "claim"
    seeds: int = 3
    controls: tuple[str, ...] = ()
    within: tuple[float, float] = (-math.inf, math.inf)
    recorded: Callable[[], Known] = Known
    folder: Path = Path()  # whose `known.toml` it is

    @property
    def expected(self) -> str | dict[str, str]:
        """The bounds as text."""
        return str(self.expect) if isinstance(self.expect, Bound) else {p: str(b) for p, b in self.expect.items()}

    def documented(self, scale: Scale = "laptop") -> Status:
        """The status that is on record for this scale; `holds` where there is none."""
        finding = self.recorded().at(scale)
        return finding.status if finding else "holds"

    def because(self, scale: Scale = "laptop") -> str:
        """Why it is on record not to hold at this scale; empty where it is to hold."""
        finding = self.recorded().at(scale)
        return finding.reason if finding else ""

    @property
    def unspecific(self) -> str:
        """Why it may hold under a control too; empty where that is not expected."""
        return self.recorded().unspecific

    def judge(self, results: "Results", scale: Scale = "laptop", *, looks: bool = False) -> "Verdict":
        """Measure on every seed and hold the interval of the mean against what is expected.

        With `looks`, seeds were added until it was decided: it is judged at each of the `evidence.LOOKS` in turn, by
        that look's interval, and the first decision counts.
        """
        measured, gaps = self.measured(results)
        note = "; ".join(f"seed {seed}: {gap}" for seed, gap in list(gaps.items())[:3])
        values = list(measured.values())
        if len(values) < self.seeds:
            counted = f"{len(values)} of the {self.seeds} seeds it needs could be measured"
            reason = f"{counted} ({note})" if note else counted
            return self._verdict("untested", reason, values, self._intervals(values, looks=False), scale)
        status, used, ends = self._decided(values, looks=looks and self.kind == "claim")
        return self._verdict(status, "; ".join(filter(None, [self.because(scale), note])), values[:used], ends, scale)

    def against(self, verdict: "Verdict", results: "Results", scale: Scale = "laptop") -> "Verdict":
        """The verdict with what came of the claim under its controls, as far as `results` has trials of them.

        A control has broken the claim where it fails, or is undecided with its effect gone.
        """
        found: dict[str, Controlled] = {}
        broken: list[bool] = []
        for control in self.controls:
            there = results.under(control)
            if len(there.trials):
                judged = self.judge(there, scale)
                found[control] = Controlled(status=judged.status, measured=judged.measured)
                if judged.status != "untested":  # as of a change of weights where none was made
                    gone = judged.status == "undecided" and self._gone(results.under("none"), there)
                    broken.append(judged.status == "fails" or gone)
        said = {"controls": found, "specific": all(broken) if broken else None}
        return verdict.model_copy(update=said)

    def _gone(self, plain: "Results", controlled: "Results") -> bool:
        """Whether the effect is gone under a control.

        It is where a part has a mean outside its bound; or, not sure to lie within, has lost over half of its margin,
        surely so on the seeds that both have.
        """
        without, under = self.measured(plain)[0], self.measured(controlled)[0]
        for part, bound in self._bounds.items():
            values = [seed[part] for seed in under.values()]
            ends = self._intervals(list(under.values()), looks=False)[part]
            if ends is not None and bound.holds_on(*ends):
                continue
            both = [
                (bound.margin(without[seed][part]), bound.margin(under[seed][part]))
                for seed in without
                if seed in under
            ]
            less = t_interval([margin - 2 * left for margin, left in both])
            if not bound.holds(_mean(values)) or (less is not None and less[0] > 0):
                return True
        return False

    def measured(self, results: "Results") -> tuple[dict[int, dict[str, float]], dict[int, str]]:
        """The values of each part by seed, and by seed too what could not be measured or is not finite."""
        values: dict[int, dict[str, float]] = {}
        gaps: dict[int, str] = {}
        by_seed = list(results.by_seed())
        whole = max((_finished(runs) for _, runs in by_seed), default=0)
        for seed, runs in by_seed:
            try:
                values[seed] = _named(self.measure(runs))
            except Missing as gap:
                gaps[seed] = str(gap)
            except ZeroDivisionError:  # as of what has not moved, where updates are withheld
                gaps[seed] = "it is a share of nothing"
            except Exception:  # further seeds have those trials alone that undecided claims need
                if _finished(runs) == whole:
                    raise
                gaps[seed] = "not all of its trials are there"
            else:
                bad = [f"{part or 'it'} is {v}" for part, v in values[seed].items() if not math.isfinite(v)]
                gaps |= {seed: ", ".join(bad)} if bad else {}
        return values, gaps

    def _decided(self, values: Sequence[Mapping[str, float]], *, looks: bool) -> tuple[Status, int, Intervals]:
        """The status, the number of seeds that it took, and the interval of each part."""
        numbers = [look for look in LOOKS if look <= len(values)] if looks else [len(values)]
        status: Status = "undecided"
        for number in numbers:
            status = self._status(values[:number], looks)
            if status != "undecided":
                break
        used = number if numbers else len(values)
        return status, used, self._intervals(values[:used], looks)

    def _status(self, values: Sequence[Mapping[str, float]], looks: bool) -> Status:
        bounds = self._bounds
        if self.kind == "identity":
            exact = all(bounds[part].holds(seed[part]) for seed in values for part in bounds)
            return "holds" if exact else "fails"
        if not all(math.isfinite(seed[part]) for seed in values for part in bounds):
            return "fails"
        sure, surer = self._intervals(values, looks), self._intervals(values, looks, ERROR / len(bounds))
        if any(ends is not None and bounds[part].excludes(*ends) for part, ends in surer.items() if part in bounds):
            return "fails"
        held = all((ends := sure[part]) is not None and bound.holds_on(*ends) for part, bound in bounds.items())
        return "holds" if held else "undecided"

    def _intervals(self, values: Sequence[Mapping[str, float]], looks: bool, error: float = ERROR) -> Intervals:
        if self.kind == "identity":
            return {}
        interval = look_interval if looks else t_interval
        columns = {part: [seed[part] for seed in values] for part in (values[0] if values else {})}
        return {part: self._inside(interval(column, error)) for part, column in columns.items()}

    def _inside(self, ends: list[float] | None) -> list[float] | None:
        low, high = self.within
        return ends and [min(max(end, low), high) for end in ends]

    @property
    def _bounds(self) -> Mapping[str, Bound]:
        return {"": self.expect} if isinstance(self.expect, Bound) else self.expect

    def _verdict(
        self, status: Status, reason: str, values: Sequence[Mapping[str, float]], ends: Intervals, scale: Scale
    ) -> "Verdict":
        parts = values[0] if values else {}
        return Verdict(
            id=self.id,
            statement=self.says,
            origin=self.origin,
            kind=self.kind,
            status=status,
            documented=self.documented(scale),
            reason=reason,
            measured=_unnamed({part: _mean([seed[part] for seed in values]) for part in parts}),
            ci=_unnamed(ends),
            expected=self.expected,
            paper=self.paper,
            where=self.where,
            seeds=len(values),
            unspecific=self.unspecific,
        )


class Controlled(BaseModel):
    """What came of a claim where what it speaks of was destroyed."""

    model_config = ConfigDict(frozen=True)

    status: Status
    measured: Value


class Verdict(BaseModel):
    """What came of a claim, as `verdicts.json` keeps it.

    `measured` is the mean over `seeds` seeds, `ci` the interval by which it was judged (None for one seed, and for an
    identity, which is judged seed by seed). `controls` says what came of it under each control that was run, and
    `specific` whether all of them broke it; None where none was run that should. `unspecific` says why they may not.
    """

    model_config = ConfigDict(frozen=True)

    id: str
    statement: str
    origin: Origin
    kind: Kind = "claim"
    status: Status
    documented: Status
    reason: str
    measured: Value
    ci: Value
    expected: Value
    paper: Value
    where: str
    seeds: int
    controls: dict[str, Controlled] = Field(default_factory=dict)
    specific: bool | None = None
    unspecific: str = ""

    @property
    def surprising(self) -> bool:
        """Whether the verdict is not the one that is documented; what is not decided contradicts nothing."""
        return self.status != self.documented and "undecided" not in (self.status, self.documented)


def leans_on(statement: str) -> str:
    """The first word of a statement that needs the one before it, as "and" or "it"; empty for one that stands alone."""
    match = re.match(r"(and|but|or|so|it|its|they|their|them|the same|this|these|those)\b", statement, re.IGNORECASE)
    return match[1] if match else ""


def _finished(runs: "Results") -> int:
    """How many trials there are that went well."""
    return int((runs.trials.status == "finished").sum())


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)  # not `fmean`, which raises for inf and -inf


def _named(measured: Measured) -> dict[str, float]:
    values = dict(measured) if isinstance(measured, Mapping) else {"": measured}
    return {part: float(value) for part, value in values.items()}


def _unnamed(parts: Mapping[str, Any]) -> Any:
    if not parts:
        return None
    return parts[""] if set(parts) == {""} else dict(parts)
