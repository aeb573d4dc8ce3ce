"""The report of a chaos run, in Markdown."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

from tests.chaos.outcome import Encounter, Outcome
from tests.chaos.stores import KINDS


def table(outcomes: Sequence[Outcome]) -> str:
    """Return a table with one row for each fault: how often it was caused, and what its sweeps lost."""
    met: dict[str, list[tuple[Encounter, Outcome]]] = defaultdict(list)
    for outcome in outcomes:
        for fault in outcome.met:
            met[fault.name].append((fault, outcome))
    head = [
        "fault",
        *(f"on {kind}" for kind in KINDS),
        "status of the command",
        "lost",
        "doubled",
        "different",
        "untrue",
    ]
    rows = [head, ["---"] * len(head)]
    for name, cases in sorted(met.items(), key=lambda item: (item[1][0][0].group, item[0])):
        caused = [(fault, outcome) for fault, outcome in cases if not fault.skipped]
        by_store = Counter(fault.store for fault, _ in caused)
        codes = Counter(fault.ended_with for fault, _ in caused if fault.ended_with is not None)
        rows.append(
            [
                name.replace("_", " "),
                *(str(by_store[kind] or "") for kind in KINDS),
                ", ".join(f"{code} ({times})" if times > 1 else str(code) for code, times in sorted(codes.items())),
                *(str(sum(getattr(o, what) for o in _different(caused))) for what in ("lost", "doubled", "different")),
                str(sum(len([text for text in o.untrue if name in text]) for o in _different(caused))),
            ]
        )
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _different(caused: Sequence[tuple[Encounter, Outcome]]) -> list[Outcome]:
    return list({id(outcome): outcome for _, outcome in caused}.values())


def summary(outcomes: Sequence[Outcome], seconds: float, seed: int) -> str:
    """Return the totals as one paragraph."""
    met = [fault for outcome in outcomes for fault in outcome.met]
    caused = Counter(fault.store for fault in met if not fault.skipped)
    checked = sum(outcome.checked_before_resuming for outcome in outcomes)
    total = {name: sum(getattr(outcome, name) for outcome in outcomes) for name in _COUNTS}
    places = ", ".join(f"{caused[kind]} on {label}" for kind, label in _LABELS.items() if caused[kind])
    faults = f"{sum(caused.values())} faults ({places})"
    return (
        f"Seed {seed}, {seconds / 60:.0f} minutes: {faults} in {total['sweeps']} sweeps, "
        f"resumed {total['resumed']} times. Of {total['expected']:,} points {total['lost']} were lost, "
        f"{total['doubled']} stored twice, {total['different']} different from those of an undisturbed sweep; "
        f"{total['lost_and_tagged']} were destroyed by the fault itself, in runs that say so. "
        f"{total['running']} runs were left RUNNING, and {sum(len(outcome.untrue) for outcome in outcomes)} "
        f"other expectations were not met. {checked} times all that trials had recorded was "
        "in the store before anything was resumed."
    )


def insert(page: Path, text: str) -> None:
    """Replace what lies between the two marks of a page. Raises ValueError for a page without marks."""
    before, begin, rest = page.read_text().partition("<!-- chaos: begin -->\n")
    _, end, after = rest.partition("<!-- chaos: end -->")
    if not end:
        raise ValueError(f"{page} has no marks <!-- chaos: begin --> and <!-- chaos: end --> for the table")
    page.write_text(f"{before}{begin}{text}\n{end}{after}")


def skipped(outcomes: Sequence[Outcome]) -> str:
    """Return one line for each fault that could not be caused, with the reason."""
    reasons = Counter((f.name, f.store, f.skipped) for outcome in outcomes for f in outcome.met if f.skipped)
    return "\n".join(f"{name} on {store}: {reason}" for (name, store, reason), _ in sorted(reasons.items()))


_COUNTS = ("sweeps", "resumed", "expected", "lost", "lost_and_tagged", "doubled", "different", "running")
_LABELS = {
    "sqlite": "an SQLite file",
    "server": "a server over SQLite",
    "postgres": "a server over PostgreSQL",
}
