"""The atlas: each experiment with its picture, its claims as interval plots, its controls, file and commands.

What was found comes from each system's `known.toml`, as in the tables of docs/*.md. Pictures and maps are those of
`docs/images`, where `docs/pictures.py` puts them from a store.
"""

import csv
import io
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import tables
from generator import links
from jinja2 import ChoiceLoader, FileSystemLoader

from featurelab.pipelines.engine.experiment import numbers, papers, registry
from featurelab.pipelines.engine.experiment.claims import STATUSES, Claim
from featurelab.pipelines.engine.experiment.experiment import Experiment
from featurelab.pipelines.engine.experiment.known import Finding
from featurelab.tracking.report import shown, templates

DOCS = Path(__file__).parents[1]
COLUMNS = ["experiment", "figure", "claim", "statement", "kind", "origin", "scale", "status", "reason", "measured", "ci"]
COLUMNS += ["expected", "paper", "where", "seeds", "specific", "controls"]


@cache
def _environment() -> Any:
    report = templates()
    assert report.loader
    return report.overlay(loader=ChoiceLoader([FileSystemLoader(Path(__file__).parent / "templates"), report.loader]))


def shared(name: str) -> str:
    """Return a style or script that the site shares with the report."""
    return str(_environment().get_template(name).render())


@cache
def entries(system: str) -> list[dict[str, Any]]:
    """Return the entries of a system's experiments, in the order of their figures."""
    return [_entry(experiment) for experiment in registry.experiments(system)]


def pages() -> dict[str, str]:
    """Return the Markdown of the atlas and of the page of all claims; `html` fills their comments."""
    written = {"atlas/index.md": "# Atlas\n\n<!-- gallery  -->\n", "claims.md": "# All claims\n\n<!-- claims  -->\n"}
    for system in registry.systems():
        lines = [f"# {system}", "", f"{paper(system)} [How it was replicated](../{system}.md).", ""]
        for entry in entries(system):
            lines += [f"## {entry['heading']} {{ #{entry['short']} }}", "", f"<!-- atlas {entry['name']} -->", ""]
        written[f"atlas/{system}.md"] = "\n".join(lines)
    return written


def html(kind: str, name: str, url: str) -> str:
    """Return what stands in the place of a comment of a page at `url`: an entry, the gallery, or a table of claims."""
    up = "../" * url.count("/")
    about: dict[str, Any] = {"up": up, "statuses": STATUSES}
    if kind == "atlas":
        about["entry"] = next(each for each in entries(name.partition("/")[0]) if each["name"] == name)
    else:
        chosen = [name] if name else registry.systems()
        about["systems"] = [{"name": each, "paper": paper(each), "entries": entries(each)} for each in chosen]
    return str(_environment().get_template(f"site_{kind}.html").render(**about))


def downloads() -> dict[str, str]:
    """Return the verdicts on all claims as CSV and JSON, together and of each experiment, by their place in the site."""
    rows = {experiment.name: list(_rows(experiment)) for experiment in registry.experiments()}
    every = [row for of_one in rows.values() for row in of_one]
    written = {"data/claims.csv": _csv(every), "data/claims.json": _json(every)}
    for name, of_one in rows.items():
        written |= {f"data/{name}.csv": _csv(of_one), f"data/{name}.json": _json(of_one)}
    return written


@cache
def paper(system: str) -> str:
    """Return the paper of a system in one line of Markdown."""
    return papers.in_markdown(registry.experiments(system)[0]).partition("\n")[0].rstrip(".") + "."


def _entry(experiment: Experiment) -> dict[str, Any]:
    short = experiment.name.partition("/")[2]
    laptop = [_shown(experiment, claim, claim.recorded().laptop or tables.UNMEASURED) for claim in experiment.claims]
    real = [(claim, claim.recorded().desktop) for claim in experiment.claims]
    desktop = [_shown(experiment, claim, finding, "-desktop") for claim, finding in real if finding and finding.seeds]
    source = tables.source(experiment)
    published = f" (published: {', '.join(experiment.published)})" if experiment.published else ""
    return {
        "name": experiment.name,
        "system": experiment.system,
        "short": short,
        "figure": experiment.figure,
        "heading": f"{experiment.figure}{published}. {experiment.title}",
        "title": experiment.title,
        "order": [numbers.order(each) for each in experiment.figures],
        "caption": " ".join(filter(None, [experiment.caption, experiment.stand_in and f"Laptop preset: {experiment.stand_in}."])),
        "reduced": experiment.reduced,
        "picture": _image(f"figures/{experiment.name.replace('/', '.')}.png"),
        "maps": [f"images/maps/{file.name}" for file in _maps(experiment)],
        "source": source,
        "copy": links.copied(source),
        "address": papers.address(experiment),
        "scales": {scale: experiment.minutes_at(scale) for scale in experiment.scales},
        "controls": experiment.named_controls,
        "claims": laptop,
        "desktop": desktop,
        "counts": Counter(claim["status"] for claim in laptop),
    }


def _shown(experiment: Experiment, claim: Claim, finding: Finding, suffix: str = "") -> dict[str, Any]:
    """Return what pages show of a claim from what is on record of it."""
    record = {
        "id": claim.id,
        "statement": claim.says,
        "origin": claim.origin,
        "kind": claim.kind,
        "about": claim.about,
        "expected": claim.expected,
        "paper": claim.paper,
        "where": claim.where,
        "unspecific": claim.unspecific,
        "named_controls": list(claim.controls),
        "decided": {"level": finding.level, "ci": finding.deciding} if finding.level else None,
        "controls": {name: _control(became) for name, became in finding.controls.items()},
        **{name: getattr(finding, name) for name in ("status", "reason", "measured", "ci", "worst", "seeds", "specific")},
    }
    return shown(record) | {"anchor": f"{experiment.name.partition('/')[2]}--{claim.id}{suffix}"}


def _control(became: str) -> dict[str, str]:
    """Return what a page shows of a control: older entries have the claim's status there in place of a state."""
    return {"status": became} if became in STATUSES else {"status": "undecided", "state": became}


def _maps(experiment: Experiment) -> list[Path]:
    return sorted((DOCS / "images" / "maps").glob(f"{experiment.name.replace('/', '.')}.*.png"))


def _image(path: str) -> str | None:
    return f"images/{path}" if (DOCS / "images" / path).is_file() else None


def _rows(experiment: Experiment) -> Iterator[Mapping[str, Any]]:
    """Yield a row for each claim and each scale at which it was measured; at laptop scale also where it was not."""
    for claim in experiment.claims:
        known = claim.recorded()
        found = {"laptop": known.laptop or tables.UNMEASURED, "desktop": known.desktop}
        for scale, finding in found.items():
            if finding is not None and (finding.seeds or scale == "laptop"):
                values = [experiment.name, experiment.figure, claim.id, claim.says, claim.kind, claim.origin, scale]
                values += [finding.status, finding.reason, finding.measured, finding.ci, claim.expected, claim.paper]
                values += [claim.where, finding.seeds, finding.specific, finding.controls]
                yield dict(zip(COLUMNS, values, strict=True))


def _csv(rows: list[Mapping[str, Any]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: json.dumps(value) if isinstance(value, dict | list) else value for key, value in row.items()} for row in rows)
    return text.getvalue()


def _json(rows: list[Mapping[str, Any]]) -> str:
    return json.dumps(rows, ensure_ascii=False, indent=1, default=str)
