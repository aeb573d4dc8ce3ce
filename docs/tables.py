"""Write the tables of these pages anew: `featurelab reproduce FIGURE --json > OUT`, then `python docs/tables.py OUT`.

Of several OUT the last that has a figure counts; figures that are in none keep what stands there of them. Without OUT,
those tables alone that need no run.

Tables stand between `<!-- name: begin -->` and `<!-- name: end -->`; what a page has no place for is not written.
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
UNSPECIFIC = ["claim", "of", "what comes of it under controls", "why"]
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
    """The claims that hold, and did under a control too: where, and why that is as it should be."""
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
    """Every claim in a row: what the mean alone would have said of it, and what came of it."""
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


def summary(folder: str = "") -> str:
    """How many claims of each system hold, fail, ...; how many of those that hold every control breaks."""
    rows = []
    for system in registry.systems():
        found = [row[-2:] for row in standing(FOLDER / f"{system}.md", "measured")]
        claims = [row for row in found if not row[0].endswith(IDENTITY)]
        counts = [sum(verdict == status for verdict, _ in claims) for status in STATUSES]
        under = [specific == "yes" for verdict, specific in claims if verdict == "holds" and specific != "-"]
        exact = [verdict == f"holds{IDENTITY}" for verdict, _ in found if verdict.endswith(IDENTITY)]
        of = f"{sum(under)} of {len(under)}", f"{sum(exact)} of {len(exact)}"
        rows.append((f"[`{system}`]({folder}{system}.md)", *counts, *of))
    header = ["system", "hold", "fail", "undecided", "untested", "specific, of those under controls", "identities hold"]
    return table(header, rows)


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
    write(overview, {"summary": summary(), "verdicts": merged(overview, "verdicts", VERDICTS, every, verdicts)})
    write(FOLDER.parent / "README.md", {"summary": summary("docs/")})


def merged(
    page: Path, name: str, header: Sequence[str], found: Mapping[str, Any], rows: Callable[..., Any], column: int = 0
) -> str:
    """A table by figure, which its column names: of each what was found of it, or else what stands on the page."""
    old = standing(page, name)
    parts = [
        rows(one) if one is not None else [row for row in old if row[column] == figure] for figure, one in found.items()
    ]
    return table(header, chain(*parts))


def standing(page: Path, name: str) -> list[list[str]]:
    """The rows of a table as they stand on a page."""
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
