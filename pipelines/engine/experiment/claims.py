"""A published sentence as a test on measured results, and what came of it."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from statistics import stdev
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict

from featurelab.pipelines.engine.errors import Missing
from featurelab.pipelines.engine.experiment.config import Scale

if TYPE_CHECKING:
    from featurelab.pipelines.engine.experiment.results import Results

Status = Literal["holds", "fails", "untested"]
Origin = Literal["paper", "corrected", "ours"]
Measured = float | Mapping[str, float]
Scalar = bool | int | float | str | None
Value = Scalar | list[Scalar] | dict[str, Scalar | list[Scalar]]


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

    def __str__(self) -> str:
        more, less = (">", "<") if self.strict else ("≥", "≤")
        if self.high == math.inf:
            return f"{more} {self.low:g}"
        if self.low == -math.inf:
            return f"{less} {self.high:g}"
        return f"{self.low:g} to {self.high:g}"


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

    `measure` gets the results of one seed and returns a number, or several named ones (then `expect` has a bound for
    each, and the claim holds if all do). The verdict is on the mean over seeds. `fails` and `untested` say at which
    scales it is known not to hold or not to be measured, and why.
    """

    id: str
    says: str
    measure: "Callable[[Results], Measured]"
    expect: Bound | Mapping[str, Bound]
    paper: str | float | None = None
    where: str = ""
    origin: Origin = "paper"
    fails: Mapping[Scale, str] = field(default_factory=dict)
    untested: Mapping[Scale, str] = field(default_factory=dict)
    seeds: int = 3

    @property
    def expected(self) -> str | dict[str, str]:
        """The bounds as text."""
        return str(self.expect) if isinstance(self.expect, Bound) else {p: str(b) for p, b in self.expect.items()}

    def documented(self, scale: Scale = "laptop") -> Status:
        return "fails" if scale in self.fails else "untested" if scale in self.untested else "holds"

    def because(self, scale: Scale = "laptop") -> str:
        """Why it is documented not to hold at this scale; empty where it is to hold."""
        return self.fails.get(scale) or self.untested.get(scale, "")

    def judge(self, results: "Results", scale: Scale = "laptop") -> "Verdict":
        """Measure on every seed and compare the mean with what is expected."""
        values: dict[int, dict[str, float]] = {}
        gaps: dict[int, str] = {}
        for seed, runs in results.by_seed():
            try:
                values[seed] = _named(self.measure(runs))
            except Missing as gap:
                gaps[seed] = str(gap)
            else:
                bad = [f"{part or 'it'} is {v}" for part, v in values[seed].items() if not math.isfinite(v)]
                gaps |= {seed: ", ".join(bad)} if bad else {}
        note = "; ".join(f"seed {seed}: {gap}" for seed, gap in list(gaps.items())[:3])
        if len(values) < self.seeds:
            counted = f"{len(values)} of the {self.seeds} seeds it needs could be measured"
            return self._verdict("untested", f"{counted} ({note})" if note else counted, values, scale)
        bounds = {"": self.expect} if isinstance(self.expect, Bound) else dict(self.expect)
        means = {part: _mean([v[part] for v in values.values()]) for part in bounds}
        status: Status = "holds" if all(bounds[part].holds(means[part]) for part in bounds) else "fails"
        return self._verdict(status, "; ".join(filter(None, [self.because(scale), note])), values, scale)

    def _verdict(
        self, status: Status, reason: str, values: Mapping[int, Mapping[str, float]], scale: Scale
    ) -> "Verdict":
        parts = next(iter(values.values()), {})
        columns = {part: [v[part] for v in values.values()] for part in parts}
        return Verdict(
            id=self.id,
            statement=self.says,
            origin=self.origin,
            status=status,
            documented=self.documented(scale),
            reason=reason,
            measured=_unnamed({part: _mean(column) for part, column in columns.items()}),
            ci=_unnamed({part: t_interval(column) for part, column in columns.items()}),
            expected=self.expected,
            paper=self.paper,
            where=self.where,
            seeds=len(values),
        )


class Verdict(BaseModel):
    """What came of a claim, as `verdicts.json` keeps it.

    `measured` is the mean over `seeds` seeds, `ci` its 95% t interval (None for one seed).
    """

    model_config = ConfigDict(frozen=True)

    id: str
    statement: str
    origin: Origin
    status: Status
    documented: Status
    reason: str
    measured: Value
    ci: Value
    expected: Value
    paper: Value
    where: str
    seeds: int

    @property
    def surprising(self) -> bool:
        """Whether the verdict is not the one that is documented."""
        return self.status != self.documented


def t_interval(values: list[float], level: float = 0.95) -> list[float] | None:
    """The two-sided Student t interval of the mean of `values`; None for fewer than two, or one that is not finite."""
    if len(values) < 2 or not all(map(math.isfinite, values)):
        return None
    from scipy.stats import t  # half a second of imports that a listing of experiments should not pay

    centre, spread = _mean(values), stdev(values)
    half = float(t.ppf(0.5 + level / 2, len(values) - 1)) * spread / math.sqrt(len(values))
    return [centre - half, centre + half]


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)  # not `fmean`, which raises for inf and -inf


def _named(measured: Measured) -> dict[str, float]:
    values = dict(measured) if isinstance(measured, Mapping) else {"": measured}
    return {part: float(value) for part, value in values.items()}


def _unnamed(parts: Mapping[str, Any]) -> Any:
    if not parts:
        return None
    return parts[""] if set(parts) == {""} else dict(parts)
