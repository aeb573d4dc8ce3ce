"""Update the tables of these pages: `featurelab reproduce FIGURE --json > OUT`, then `python docs/tables.py OUT ...`.

If several OUT files contain a figure, the last one counts. Figures in none of them keep their rows. Without OUT, only
the tables that need no run are updated.

A table stands between `<!-- name: begin -->` and `<!-- name: end -->`. Pages without these marks for a table skip it.
"""

import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from featurelab.pipelines.engine.experiment import registry
from featurelab.pipelines.engine.experiment.claims import STATUSES, Claim
from featurelab.tracking.numbers import measurement, named, number

FOLDER = Path(__file__).parent
IDENTITY = " (identity)"
MEASURED = ["figure", "claim", "measured", "95% interval", "expected", "paper", "seeds", "verdict", "specific"]
UNSPECIFIC = ["claim", "of", "verdict under controls", "why"]
COUNTED = ["hold", "fail", "undecided", "untested", "specific, of those under controls", "identities hold"]
VERDICTS = ["experiment", "claim", "by the mean alone", "verdict", "95% interval", "seeds", "under controls"]


def table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    cells = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(str(c).replace("|", "\\|") for c in row) + " |" for row in cells)


def figures(system: str) -> str:
    rows = [(f"`{e.name}`", e.figure, e.title, f"{e.minutes:g}") for e in registry.experiments(system)]
    return table(["experiment", "figure", "what it shows", "minutes"], rows)


def measured(one: dict[str, Any]) -> list[Sequence[Any]]:
    rows: list[Sequence[Any]] = []
    for claim in one["claims"]:
        said = claim["statement"] + {"paper": "", "corrected": " (corrected)", "ours": " (ours)"}[claim["origin"]]
        found_parts = measurement(claim["measured"], claim["ci"], claim["expected"])
        values = [*map(named, found_parts), number(claim["expected"])]
        specific = {None: "-", True: "yes", False: "no"}[claim["specific"]]
        verdict = claim["status"] + IDENTITY * (claim["kind"] == "identity")
        figure = registry.find(one["name"]).figure
        rows.append((figure, said, *values, number(claim["paper"]), claim["seeds"], verdict, specific))
    return rows


def unspecific(one: dict[str, Any]) -> list[Sequence[Any]]:
    """Return a row for each claim that holds and that some control did not break, with the documented reason."""
    return [
        (f"`{claim['id']}`", registry.find(one["name"]).figure, _there(claim["controls"]), claim["unspecific"])
        for claim in one["claims"]
        if claim["specific"] is False and claim["status"] == "holds"
    ]


def _there(controls: dict[str, Any]) -> str:
    return ", ".join(f"{name.replace('_', ' ')}: {there['status']}" for name, there in controls.items())


def failing(system: str) -> str:
    rows = [
        (f"`{claim.id}`", experiment.figure, claim.because() + " (undecided)" * (claim.documented() == "undecided"))
        for experiment in registry.experiments(system)
        for claim in experiment.claims
        if claim.documented() in ("fails", "undecided")
    ]
    return table(["claim", "of", "why"], rows)


def verdicts(one: dict[str, Any]) -> list[Sequence[Any]]:
    """Return a row for each claim: the verdict that the mean alone would give, and the verdict."""
    rows: list[Sequence[Any]] = []
    for known, claim in zip(registry.find(one["name"]).claims, one["claims"], strict=True):
        ends = named(measurement(claim["measured"], claim["ci"], claim["expected"])[1])
        verdict = claim["status"] + IDENTITY * (claim["kind"] == "identity")
        under = _there(claim["controls"]) or "-"
        rows.append((one["name"], f"`{claim['id']}`", _by_mean(known, claim), verdict, ends, claim["seeds"], under))
    return rows


def _by_mean(known: Claim, claim: dict[str, Any]) -> str:
    if claim["measured"] is None:
        return "untested"
    values = claim["measured"] if isinstance(claim["measured"], dict) else {"": claim["measured"]}
    bounds = known.expect if isinstance(known.expect, Mapping) else {"": known.expect}
    return "holds" if all(bound.holds(float(values[part])) for part, bound in bounds.items()) else "fails"


def counts() -> dict[str, list[int]]:
    """Count the rows of each system's page.

    In this order: claims by status; claims that hold and are specific; claims that hold and have controls; identities
    that hold; all identities.
    """
    found = {}
    for system in registry.systems():
        rows = [row[-2:] for row in standing(FOLDER / f"{system}.md", "measured")]
        claims = [row for row in rows if not row[0].endswith(IDENTITY)]
        by_status = [sum(verdict == status for verdict, _ in claims) for status in STATUSES]
        specific = [yes_or_no == "yes" for verdict, yes_or_no in claims if verdict == "holds" and yes_or_no != "-"]
        exact = [verdict == f"holds{IDENTITY}" for verdict, _ in rows if verdict.endswith(IDENTITY)]
        found[system] = [*by_status, sum(specific), len(specific), sum(exact), len(exact)]
    return found


def summary(by_system: Mapping[str, list[int]]) -> str:
    """Return the counts of each system."""
    rows = [(f"[`{system}`]({system}.md)", *counted(numbers)) for system, numbers in by_system.items()]
    return table(["system", *COUNTED], rows)


def totals(by_system: Mapping[str, list[int]]) -> str:
    """Return the counts of all systems together, in one row."""
    return table(COUNTED, [counted([sum(column) for column in zip(*by_system.values(), strict=True)])])


def counted(numbers: list[int]) -> list[str]:
    """Return one cell for each of `COUNTED`."""
    *by_status, specific, under_controls, identities, of = numbers
    return [*map(str, by_status), f"{specific} of {under_controls}", f"{identities} of {of}"]


def main(*paths: str) -> None:
    found = {one["name"]: one for path in paths for one in json.loads(Path(path).read_text())["experiments"]}
    for system in registry.systems():
        page = FOLDER / f"{system}.md"
        parts = {"figures": figures(system), "failing": failing(system)}
        if any(name.startswith(f"{system}/") for name in found):
            of = {e.figure: found.get(e.name) for e in registry.experiments(system)}
            parts["measured"] = merged(page, "measured", MEASURED, of, measured)
            parts["unspecific"] = merged(page, "unspecific", UNSPECIFIC, of, unspecific, column=1)
        write(page, parts)
    every = {e.name: found.get(e.name) for system in registry.systems() for e in registry.experiments(system)}
    overview = FOLDER / "verdicts.md"
    write(overview, {"summary": summary(counts()), "verdicts": merged(overview, "verdicts", VERDICTS, every, verdicts)})
    write(FOLDER.parent / "README.md", {"totals": totals(counts())})


def merged(
    page: Path, name: str, header: Sequence[str], found: Mapping[str, Any], rows: Callable[..., Any], column: int = 0
) -> str:
    """Return a table ordered by figure: new rows where there are some, else the figure's rows on the page."""
    old = standing(page, name)
    parts = [
        rows(one) if one is not None else [row for row in old if row[column] == figure] for figure, one in found.items()
    ]
    return table(header, chain(*parts))


def standing(page: Path, name: str) -> list[list[str]]:
    """Return the rows of a table on a page."""
    (text,) = re.findall(rf"<!-- {name}: begin -->\n(.*?)<!-- {name}: end -->", page.read_text(), re.DOTALL) or [""]
    rows = [line for line in text.splitlines() if line.startswith("|")][2:]
    return [[cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", row)[1:-1]] for row in rows]


def write(page: Path, parts: dict[str, str]) -> None:
    text = page.read_text()
    for name, content in parts.items():
        pattern = rf"(<!-- {name}: begin -->\n(?:(?!\|).*\n)*)(?:\|.*\n)*(<!-- {name}: end -->)"
        text = re.sub(pattern, lambda match, content=content: f"{match[1]}{content}\n{match[2]}", text)
    page.write_text(text)


if __name__ == "__main__":
    main(*sys.argv[1:])
