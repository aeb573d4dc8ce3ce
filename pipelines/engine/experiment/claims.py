"""A published sentence as a test on measured results, and what came of it."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field

from featurelab.pipelines.engine.errors import Missing
from featurelab.pipelines.engine.experiment.bounds import Bound
from featurelab.pipelines.engine.experiment.config import Scale
from featurelab.pipelines.engine.experiment.decision import Decision, Rule
from featurelab.pipelines.engine.experiment.evidence import ABOUT, About
from featurelab.pipelines.engine.experiment.known import Known, State, Status, Value

if TYPE_CHECKING:
    from featurelab.pipelines.engine.experiment.results import Results

STATUSES: tuple[Status, ...] = get_args(Status)
Kind = Literal["claim", "identity"]
Origin = Literal["paper", "corrected", "ours"]
Measured = float | Mapping[str, float]
Intervals = Mapping[str, list[float] | None]


@dataclass(frozen=True)
class Claim:
    """One sentence of a paper, what to measure for it, and the values with which it holds.

    `measure` gets the results of one seed and returns a number, or several named ones; then `expect` has a bound for
    each part, or one bound that all parts are to meet, whatever a preset's grid makes of them. `about` says what of the
    seeds is held against the bounds:

    - `mean`: the mean over seeds, of every part.
    - `median`: their median. It takes outliers well, and needs six seeds.
    - `share`: the share of seeds on which every part is within its bound, which is to be at `least` so high. It is
      for what happens in some runs and not in others, and for what is said of every run. Where some parts only are of
      this kind, as that training fits the labels, `least` names these, and the others are about something else.
    - `equivalence`: the mean again, where the claim is that there is no effect; the bounds are the margin.

    The claim holds if the interval that decides lies within the bounds, of every part; it fails if the interval of one
    part lies outside, with the allowed error shared by all parts; else it is undecided. An `identity` is exact: it
    holds if every seed meets the bounds.

    `controls` destroy what the claim speaks of, so that it is expected not to hold under them. `within` are the ends
    between which every part lies by its nature, as a correlation does. `recorded()` is what was found of it earlier.
    Raises ValueError for a share without `least`, an equivalence without both ends, and an identity about anything but
    each seed.
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
    about: About = "mean"
    least: float | Mapping[str, float] | None = None
    recorded: Callable[[], Known] = Known
    folder: Path = Path()  # whose `known.toml` it is

    def __post_init__(self) -> None:
        ends = [end for bound in self._bounds.values() for end in (bound.low, bound.high)]
        if self.about not in ABOUT:
            raise ValueError(f"{self.id}: a claim is about one of {', '.join(ABOUT)}, not {self.about!r}")
        parts = self.least if isinstance(self.least, Mapping) else {}
        shares = [self.least] if isinstance(self.least, float) else list(parts.values())
        if not all(0 < share < 1 for share in shares) or (self.about == "share") != isinstance(self.least, float):
            raise ValueError(f"{self.id}: `least` is the share of seeds, between 0 and 1, that a share asks for")
        if unknown := [part for part in parts if part not in self._bounds]:
            raise ValueError(f"{self.id}: `least` names {unknown[0]!r}, for which there is no bound")
        if self.about == "equivalence" and not all(map(math.isfinite, ends)):
            raise ValueError(f"{self.id}: equivalence needs a margin with two ends")
        if self.kind == "identity" and (self.about != "mean" or self.least is not None):
            raise ValueError(f"{self.id}: an identity is judged seed by seed, not by a {self.about}")

    @property
    def expected(self) -> str | dict[str, str]:
        """The bounds as text, and for a share how many seeds are to meet them."""
        if isinstance(self.least, float):
            met = " and ".join(f"{part} {bound}".strip() for part, bound in self._bounds.items())
            return f"{met} in at least {self.least:.0%} of seeds"
        if isinstance(self.expect, Bound):
            return str(self.expect)
        often = {part: f" in at least {share:.0%} of seeds" for part, share in (self.least or {}).items()}
        return {part: f"{bound}{often.get(part, '')}" for part, bound in self.expect.items()}

    def describe(self, scale: Scale) -> dict[str, Any]:
        """What `featurelab show --json` says of this claim."""
        same = ("origin", "expected", "paper", "where", "kind", "about")
        return {
            "id": self.id,
            "statement": self.says,
            **{name: getattr(self, name) for name in same},
            "controls": list(self.controls),
            "documented": self.documented(scale),
            "reason": self.because(scale),
        }

    def documented(self, scale: Scale = "laptop") -> Status:
        """The status that is on record for this scale, or expected there; `holds` where nothing is."""
        finding = self.recorded().expected_at(scale)
        return finding.status if finding else "holds"

    def because(self, scale: Scale = "laptop") -> str:
        """Why it is on record, or expected, not to hold at this scale; empty where it is to hold."""
        finding = self.recorded().expected_at(scale)
        return finding.reason if finding else ""

    @property
    def unspecific(self) -> str:
        """Why it may hold under a control too; empty where that is not expected."""
        return self.recorded().unspecific

    def judge(self, results: "Results", scale: Scale | None = "laptop", *, most_seeds: int | None = None) -> "Verdict":
        """Measure on every seed and decide; with `most_seeds`, seeds were added until it was decided.

        Without a `scale`, the results are of other settings than a preset's, of which nothing is documented.
        """
        return self.decided(*self.measured(results), scale, most_seeds=most_seeds)

    def decided(
        self,
        measured: Mapping[int, Mapping[str, float]],
        gaps: Mapping[int, str],
        scale: Scale | None = "laptop",
        *,
        most_seeds: int | None = None,
    ) -> "Verdict":
        """What `judge` makes of that which was `measured`."""
        note = "; ".join(f"seed {seed}: {gap}" for seed, gap in list(gaps.items())[:3])
        values = list(measured.values())
        decision = self.rule(values).decide(values, most_seeds)
        if len(values) < self.seeds:
            counted = f"{len(values)} of the {self.seeds} seeds it needs could be measured"
            reason = f"{counted} ({note})" if note else counted
            return self._verdict(replace(decision, status="untested"), reason, values, scale)
        reason = "; ".join(filter(None, [self.because(scale) if scale else "", note]))
        return self._verdict(decision, reason, values, scale)

    def seeds_of(self, verdict: "Verdict", results: "Results") -> list[int]:
        """The seeds on which a verdict rests."""
        return list(self.measured(results)[0])[: verdict.seeds]

    def against(self, verdict: "Verdict", results: "Results", also: Sequence[str] = ()) -> "Verdict":
        """The verdict with what became of the claim under its controls, as far as `results` has trials of them.

        They are judged on the seeds of the verdict. `also` are controls that other claims of the figure name: a claim
        that survives one of these is not specific either.
        """
        if not self.controls:
            return verdict
        without = results.under("none")
        values, _ = self.measured(without)
        plain = dict(list(values.items())[: verdict.seeds])
        controlled: dict[str, Controlled] = {}
        for control in dict.fromkeys([*self.controls, *also]):
            try:
                under = self.measured(results.under(control), whole=_most_finished(without))[0]
            except Exception:  # a measure need not stand a control that its claim does not name
                if control in self.controls:
                    raise
                continue
            # a control that ran for another claim may have the trials of some parts alone
            both = [seed for seed in plain if under.get(seed, {}).keys() >= plain[seed].keys()]
            if both or len(results.under(control).trials):
                controlled[control] = self._controlled([plain[seed] for seed in both], [under[seed] for seed in both])
        states = {control: there.state for control, there in controlled.items() if there.status != "untested"}
        own = [states[control] for control in self.controls if control in states]
        specific: bool | None = None
        if verdict.status == "holds" and own:
            specific = False if "survives" in states.values() else True if set(own) == {"broken"} else None
        return verdict.model_copy(update={"controls": controlled, "specific": specific})

    def _controlled(self, plain: Sequence[Mapping[str, float]], under: Sequence[Mapping[str, float]]) -> "Controlled":
        decision = self.rule(plain).decide(under)
        measured = _unnamed(decision.measured)
        if len(under) < self.seeds:  # as of a change of weights where none was made
            return Controlled(state="undecided", status="untested", measured=measured)
        return Controlled(state=self.rule(plain).compare(plain, under), status=decision.status, measured=measured)

    def rule(self, values: Sequence[Mapping[str, float]]) -> Rule:
        """How such values, one mapping for each seed, are decided."""
        bounds = dict.fromkeys(values[0], self.expect) if isinstance(self.expect, Bound) and values else self._bounds
        return Rule(self.about, bounds, self.within, self.kind == "identity", self.least)

    def measured(
        self, results: "Results", *, whole: int | None = None
    ) -> tuple[dict[int, dict[str, float]], dict[int, str]]:
        """The values of each part by seed, and by seed too what could not be measured or is not finite.

        `whole` is how many trials a seed has that has them all; None: as many as any of these seeds.
        """
        values: dict[int, dict[str, float]] = {}
        gaps: dict[int, str] = {}
        whole = _most_finished(results) if whole is None else whole
        for seed, runs in results.by_seed():
            try:
                values[seed] = self._bounded(_named(self.measure(runs)), values)
            except Missing as gap:
                gaps[seed] = str(gap)
            except ZeroDivisionError:  # as of what has not moved, where updates are withheld
                gaps[seed] = "it is a share of nothing"
            except Exception:  # further seeds, and controls, have those trials alone that some claims need
                if _finished(runs) == whole:
                    raise
                gaps[seed] = "not all of its trials are there"
            else:
                bad = [f"{part or 'it'} is {v}" for part, v in values[seed].items() if not math.isfinite(v)]
                gaps |= {seed: ", ".join(bad)} if bad else {}
        return values, gaps

    @property
    def _bounds(self) -> Mapping[str, Bound]:
        return {"": self.expect} if isinstance(self.expect, Bound) else self.expect

    def _bounded(self, parts: dict[str, float], earlier: Mapping[int, Mapping[str, float]]) -> dict[str, float]:
        """The parts of one seed. Raises `Missing` unless they are those that have a bound, the same on every seed."""
        known = next(iter(earlier.values()), parts) if isinstance(self.expect, Bound) else self.expect
        if unbounded := [part for part in parts if part not in known]:
            raise Missing(f"there is no bound for {unbounded[0]!r}")
        if absent := [part for part in known if part not in parts]:
            raise Missing(f"{absent[0]!r} was not measured")
        return parts

    def _verdict(
        self, decision: Decision, reason: str, values: Sequence[Mapping[str, float]], scale: Scale | None
    ) -> "Verdict":
        decided = None
        if decision.status in ("holds", "fails") and decision.level is not None:
            ends = _unnamed({part: _written(ends) for part, ends in decision.deciding.items()})
            decided = Decided(level=round(decision.level, 5), seeds=decision.seeds, ci=ends)
        return Verdict(
            id=self.id,
            statement=self.says,
            origin=self.origin,
            kind=self.kind,
            about=self.about,
            status=decision.status,
            documented=self.documented(scale) if scale else None,
            reason=reason,
            measured=_unnamed(decision.measured),
            ci=_unnamed(decision.plain),
            decided=decided,
            worst=_unnamed(self.rule(values).worst(values[: decision.seeds])),
            expected=self.expected,
            paper=self.paper,
            where=self.where,
            seeds=decision.seeds,
            unspecific=self.unspecific,
        )


class Controlled(BaseModel):
    """What became of a claim where what it speaks of was destroyed, on the seeds of its verdict.

    `state` is what the paired difference says (None in records of earlier versions), `status` what the claim's own
    bounds say.
    """

    model_config = ConfigDict(frozen=True)

    state: State | None = None
    status: Status
    measured: Value


class Decided(BaseModel):
    """How a claim was decided: the intervals that were held against its bounds, their level, the number of seeds."""

    model_config = ConfigDict(frozen=True)

    level: float
    seeds: int
    ci: Value


class Verdict(BaseModel):
    """What came of a claim, as `verdicts.json` keeps it.

    `measured` is the mean over `seeds` seeds, their median, or the share of seeds, as the claim is `about`; `ci` its
    plain 95% interval, for reading (None for one seed, and for an identity, which is judged seed by seed). `decided`
    says by which interval it was decided, `worst` what was measured on the seed nearest to the bounds, or furthest
    outside. `controls` says what became of it under each control that was run; `specific` is true if its own controls
    all broke it, false if it survives one that the figure was run under, None otherwise and of what does not hold.
    `unspecific` says why it may survive. `documented` is None at settings of which nothing is documented.
    """

    model_config = ConfigDict(frozen=True)

    id: str
    statement: str
    origin: Origin
    kind: Kind = "claim"
    about: About = "mean"
    status: Status
    documented: Status | None
    reason: str
    measured: Value
    ci: Value
    decided: Decided | None = None
    worst: Value = None
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
        return self.documented is not None and (
            self.status != self.documented and "undecided" not in (self.status, self.documented)
        )


def leans_on(statement: str) -> str:
    """The first word of a statement that needs the one before it, as "and" or "it"; empty for one that stands alone."""
    match = re.match(r"(and|but|or|so|it|its|they|their|them|the same|this|these|those)\b", statement, re.IGNORECASE)
    return match[1] if match else ""


def _most_finished(results: "Results") -> int:
    """The largest number of trials of one seed that went well."""
    return max((_finished(runs) for _, runs in results.by_seed()), default=0)


def _finished(runs: "Results") -> int:
    """How many trials there are that went well."""
    return int((runs.trials.status == "finished").sum())


def _named(measured: Measured) -> dict[str, float]:
    values = dict(measured) if isinstance(measured, Mapping) else {"": measured}
    return {part: float(value) for part, value in values.items()}


def _unnamed(parts: Mapping[str, Any]) -> Any:
    if not parts:
        return None
    return parts[""] if set(parts) == {""} else dict(parts)


def _written(ends: list[float] | None) -> list[float | None] | None:
    """The ends of an interval, None for one that is not finite."""
    return [end if math.isfinite(end) else None for end in ends] if ends else None
