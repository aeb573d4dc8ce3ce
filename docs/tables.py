"""Write the tables of these pages anew: `featurelab reproduce SYSTEM --json > OUT`, then `python docs/tables.py OUT`.

Without OUT, those tables alone that need no run.

Tables stand between `<!-- name: begin -->` and `<!-- name: end -->`; what a page has no place for is not written.
"""

import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from featurelab.pipelines.engine.experiment import registry
from featurelab.pipelines.engine.experiment.claims import STATUSES, Claim
from featurelab.tracking.numbers import measurement, named, number

FOLDER = Path(__file__).parent


def table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    cells = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(str(c).replace("|", "\\|") for c in row) + " |" for row in cells)


def figures(system: str) -> str:
    rows = [(f"`{e.name}`", e.figure, e.title, f"{e.minutes:g}") for e in registry.experiments(system)]
    return table(["experiment", "figure", "what it shows", "minutes"], rows)


def measured(found: Sequence[dict[str, Any]]) -> str:
    rows = []
    for one in found:
        figure = registry.find(one["name"]).figure
        for claim in one["claims"]:
            said = claim["statement"] + {"paper": "", "corrected": " (corrected)", "ours": " (ours)"}[claim["origin"]]
            found_parts = measurement(claim["measured"], claim["ci"], claim["expected"])
            values = [*map(named, found_parts), number(claim["expected"])]
            specific = {None: "-", True: "yes", False: "no"}[claim["specific"]]
            verdict = claim["status"] + (" (identity)" if claim["kind"] == "identity" else "")
            rows.append((figure, said, *values, number(claim["paper"]), claim["seeds"], verdict, specific))
    header = ["figure", "claim", "measured", "95% interval", "expected", "paper", "seeds", "verdict", "specific"]
    return table(header, rows)


def unspecific(found: Sequence[dict[str, Any]]) -> str:
    """The claims that hold, and did under a control too: where, and why that is as it should be."""
    rows = [
        (f"`{claim['id']}`", registry.find(one["name"]).figure, _there(claim["controls"]), claim["unspecific"])
        for one in found
        for claim in one["claims"]
        if claim["specific"] is False and claim["status"] == "holds"
    ]
    return table(["claim", "of", "what comes of it under controls", "why"], rows)


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


def verdicts(found: Sequence[dict[str, Any]]) -> str:
    """Every claim in a row: what the mean alone would have said of it, and what came of it."""
    rows = []
    for one in found:
        experiment = registry.find(one["name"])
        for known, claim in zip(experiment.claims, one["claims"], strict=True):
            ends = named(measurement(claim["measured"], claim["ci"], claim["expected"])[1])
            verdict = claim["status"] + (" (identity)" if claim["kind"] == "identity" else "")
            under = _there(claim["controls"]) or "-"
            rows.append((one["name"], f"`{claim['id']}`", _by_mean(known, claim), verdict, ends, claim["seeds"], under))
    header = ["experiment", "claim", "by the mean alone", "verdict", "95% interval", "seeds", "under controls"]
    return table(header, rows)


def _by_mean(known: Claim, claim: dict[str, Any]) -> str:
    if claim["measured"] is None:
        return "untested"
    values = claim["measured"] if isinstance(claim["measured"], dict) else {"": claim["measured"]}
    bounds = known.expect if isinstance(known.expect, Mapping) else {"": known.expect}
    return "holds" if all(bound.holds(float(values[part])) for part, bound in bounds.items()) else "fails"


def summary(by_system: dict[str, list[dict[str, Any]]], folder: str = "") -> str:
    """How many claims of each system hold, fail, ...; how many of those that hold every control breaks."""
    rows = []
    for system, ones in by_system.items():
        all_of_it = [claim for one in ones for claim in one["claims"]]
        claims = [claim for claim in all_of_it if claim["kind"] == "claim"]
        counts = [sum(claim["status"] == status for claim in claims) for status in STATUSES]
        under = [claim["specific"] for claim in claims if claim["status"] == "holds" and claim["specific"] is not None]
        exact = [claim["status"] for claim in all_of_it if claim["kind"] == "identity"]
        specific, identities = f"{sum(under)} of {len(under)}", f"{exact.count('holds')} of {len(exact)}"
        rows.append((f"[`{system}`]({folder}{system}.md)", *counts, specific, identities))
    header = ["system", "hold", "fail", "undecided", "untested", "specific, of those under controls", "identities hold"]
    return table(header, rows)


def main(path: str = "") -> None:
    found = json.loads(Path(path).read_text())["experiments"] if path else []
    by_system = {system: list(ones) for system, ones in groupby(found, key=lambda one: one["name"].partition("/")[0])}
    for system in by_system or [page.stem for page in FOLDER.glob("*.md") if page.stem in registry.systems()]:
        page = FOLDER / f"{system}.md"
        parts = {"figures": figures(system), "failing": failing(system)}
        if system in by_system:
            parts |= {"measured": measured(by_system[system]), "unspecific": unspecific(by_system[system])}
        write(page, parts)
    if set(by_system) == set(registry.systems()):
        write(FOLDER / "verdicts.md", {"summary": summary(by_system), "verdicts": verdicts(found)})
        write(FOLDER.parent / "README.md", {"summary": summary(by_system, "docs/")})


def write(page: Path, parts: dict[str, str]) -> None:
    text = page.read_text()
    for name, content in parts.items():
        pattern = rf"(<!-- {name}: begin -->\n(?:(?!\|).*\n)*)(?:\|.*\n)*(<!-- {name}: end -->)"
        text = re.sub(pattern, lambda match, content=content: f"{match[1]}{content}\n{match[2]}", text)
    page.write_text(text)


if __name__ == "__main__":
    main(*sys.argv[1:])
