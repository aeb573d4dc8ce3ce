"""Write the tables of these pages anew: `featurelab reproduce SYSTEM --json > OUT`, then `python docs/tables.py OUT`.

Without OUT, those tables alone that need no run.

Tables stand between `<!-- name: begin -->` and `<!-- name: end -->`; what a page has no place for is not written.
"""

import json
import re
import sys
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from featurelab.pipelines.engine.experiment import registry
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


def main(path: str = "") -> None:
    found = json.loads(Path(path).read_text())["experiments"] if path else []
    by_system = {system: list(ones) for system, ones in groupby(found, key=lambda one: one["name"].partition("/")[0])}
    for system in by_system or [page.stem for page in FOLDER.glob("*.md") if page.stem in registry.systems()]:
        page = FOLDER / f"{system}.md"
        text = page.read_text()
        parts = {"figures": figures(system), "failing": failing(system)}
        if system in by_system:
            parts |= {"measured": measured(by_system[system]), "unspecific": unspecific(by_system[system])}
        for name, content in parts.items():
            pattern = rf"(<!-- {name}: begin -->\n(?:(?!\|).*\n)*)(?:\|.*\n)*(<!-- {name}: end -->)"
            text = re.sub(pattern, lambda match, content=content: f"{match[1]}{content}\n{match[2]}", text)
        page.write_text(text)


if __name__ == "__main__":
    main(*sys.argv[1:])
