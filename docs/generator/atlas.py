"""The atlas: each experiment with its picture, its claims as interval plots, its controls, file and commands.

What was found comes from each system's `known.toml`, as in the tables of docs/*.md. Pictures and maps are those of
`docs/images`, where `docs/pictures.py` puts them from a store.
"""

from collections import Counter
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import tables
from generator import links
from jinja2 import ChoiceLoader, FileSystemLoader

from featurelab.pipelines.engine.experiment.catalogue import papers, registry
from featurelab.pipelines.engine.experiment.claims import STATUSES, Claim
from featurelab.pipelines.engine.experiment.experiment import Experiment
from featurelab.pipelines.engine.experiment.known import Finding
from featurelab.tracking.report.claims import shown
from featurelab.tracking.report.downloads import as_csv, as_json
from featurelab.tracking.report.page import templates

DOCS = Path(__file__).parents[1]
WIDE = "---\nhide: [navigation, toc]\n---\n\n"  # a page without columns beside it
FOUND = ("status", "reason", "measured", "ci", "worst", "seeds", "specific")


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
    written = {
        "atlas/index.md": f"{WIDE}# Atlas\n\n<!-- gallery  -->\n",
        "claims.md": f"{WIDE}# All claims\n\n<!-- claims  -->\n",
    }
    for system in registry.systems():
        lines = [f"# {title(system)}", "", f"{paper(system)} [How it was replicated](../{system}.md).", ""]
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
        about["systems"] = [{"name": each, "title": title(each), "entries": entries(each)} for each in chosen]
    return str(_environment().get_template(f"site_{kind}.html").render(**about))


def downloads() -> dict[str, str]:
    """Return the verdicts as CSV and JSON, of all claims and of each experiment, by their place in the site."""
    rows = {experiment.name: _records(experiment) for experiment in registry.experiments()}
    every = [row for of_one in rows.values() for row in of_one]
    written = {"data/claims.csv": as_csv(every), "data/claims.json": as_json(every)}
    for name, of_one in rows.items():
        written |= {f"data/{name}.csv": as_csv(of_one), f"data/{name}.json": as_json(of_one)}
    return written


def sources() -> set[str]:
    """Return the files that declare experiments, from the root of the repository."""
    return {entry["source"] for system in registry.systems() for entry in entries(system)}


@cache
def paper(system: str) -> str:
    """Return the paper of a system in one line of Markdown."""
    return papers.in_markdown(registry.experiments(system)[0]).partition("\n")[0].rstrip(".") + "."


@cache
def title(system: str) -> str:
    """Return the title of a system's page; of a system without one its name."""
    page = DOCS / f"{system}.md"
    return page.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ") if page.is_file() else system


def _entry(experiment: Experiment) -> dict[str, Any]:
    short = experiment.name.partition("/")[2]
    records = _records(experiment)
    laptop = [_shown(record) for record in records if record["scale"] == "laptop"]
    desktop = [_shown(record, "-desktop") for record in records if record["scale"] == "desktop"]
    source = tables.source(experiment)
    published = f" (in the published paper, {experiment.published_as})" if experiment.published else ""
    return {
        "name": experiment.name,
        "system": experiment.system,
        "short": short,
        "figure": experiment.figure,
        "heading": f"{experiment.figure}{published}. {experiment.title}",
        "title": experiment.title,
        "caption": " ".join(filter(None, [experiment.caption, experiment.difference("laptop")])),
        "reduced": experiment.reduced,
        "picture": _image(f"figures/{experiment.name.replace('/', '.')}.png"),
        "real_data": _image(f"real_data/{experiment.name.replace('/', '.')}.png"),
        "maps": [f"images/maps/{file.name}" for file in _maps(experiment)],
        "source": source,
        "source_copy": links.copied(source),
        "address": papers.address(experiment),
        "scales": {scale: experiment.minutes_at(scale) for scale in experiment.scales},
        "controls": experiment.named_controls,
        "claims": laptop,
        "desktop": desktop,
        "counts": Counter(claim["status"] for claim in laptop),
    }


def _records(experiment: Experiment) -> list[dict[str, Any]]:
    """Return what is on record of each claim at laptop scale, and at desktop scale where it was measured."""
    records = []
    for claim in experiment.claims:
        known = claim.recorded()
        records.append(_record(experiment, claim, known.laptop or tables.UNMEASURED, "laptop"))
        if known.desktop and known.desktop.seeds:
            records.append(_record(experiment, claim, known.desktop, "desktop"))
    return records


def _record(experiment: Experiment, claim: Claim, finding: Finding, scale: str) -> dict[str, Any]:
    return {
        "experiment": experiment.name,
        "figure": experiment.figure,
        "scale": scale,
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
        **{name: getattr(finding, name) for name in FOUND},
    }


def _shown(record: Mapping[str, Any], suffix: str = "") -> dict[str, Any]:
    return shown(record) | {"anchor": f"{record['experiment'].partition('/')[2]}--{record['id']}{suffix}"}


def _control(became: str) -> dict[str, str]:
    """Return what a page shows of a control: older entries have the claim's status there in place of a state."""
    return {"status": became} if became in STATUSES else {"status": "undecided", "state": became}


def _maps(experiment: Experiment) -> list[Path]:
    return sorted((DOCS / "images" / "maps").glob(f"{experiment.name.replace('/', '.')}.*.png"))


def _image(path: str) -> str | None:
    return f"images/{path}" if (DOCS / "images" / path).is_file() else None
