"""Render one static page with every reproduced figure, its claims and how to repeat it."""

from __future__ import annotations

import base64
import functools
import hashlib
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from featurelab.tracking.lines import escaped
from featurelab.tracking.numbers import number
from featurelab.tracking.report.claims import STATUSES, shown
from featurelab.tracking.report.downloads import as_csv, as_json

STYLES = ("look.css", "report.css")
SCRIPT = "claims.js"
FILES = "files"  # the folder of what can be downloaded
ALL = "--claims"  # the file of all claims there, named like no experiment


def render(entries: Sequence[Mapping[str, Any]], out: Path, maps: Sequence[Mapping[str, Any]] = ()) -> Path:
    """Write `out/index.html` and return its path. The page is self-contained: style, script and figures are inside it.

    Beside it, `out/files` has the verdicts on each experiment as CSV and JSON, and its figure as PDF, to download.

    Each entry is one experiment: `name`, `system`, `figure`, `title`, `scale`, `sweep_run_id`, `trial_run_ids`,
    `seconds`, `trials`, `config`, `command`, `png` and `pdf` (bytes or None), `caption`, `source` (the paper),
    `source_url`, `claims`, and optionally the `url` of the run with its verdicts and the `charts_url` of its trials. A
    claim has `id`, `statement`, `origin`, `kind`, `status`, `documented`, `reason`, `measured`, `ci`, `expected`,
    `paper`, `where`, `seeds`, `about`, `decided` (`level` and `ci`), `worst`, `controls` (`state`, `status` and
    `measured` by name), `named_controls`, `specific`, `unspecific`, and a `history` (`status`, `date`, `sweep_run_id`,
    newest first). Its values are numbers, texts or dicts of named parts.
    An entry with a damaged record has only its name and `left_out`, the reason. An entry without a drawing may give
    the reason in `not_drawn`. Missing values are shown as missing. Raises KeyError for an entry without a name.

    Each of `maps` has the `name`, `figure`, `title` and `scale` of its experiment, `map` (its own name), `over` (its
    axes), `cells` (their number), `sweep_run_id`, `verdict` (counts) and `pictures`, pairs of a statement and a PNG; or
    only `name` and `left_out`.
    """
    anchors = {"--summary", "--contents", "--verdicts", "--maps", ALL}
    sections = [_section(entry, anchors) for entry in entries]
    systems: dict[str, list[dict[str, Any]]] = {}
    for section in sections:
        systems.setdefault(section["system"], []).append(section)
    page = (
        templates()
        .get_template("report.html")
        .render(
            style_hash=_digest(*STYLES),
            script_hash=_digest(SCRIPT),
            sections=sections,
            maps=[_map(entry) for entry in maps],
            systems=[
                {"name": name, "anchor": _anchor(f"system--{name}", anchors), "sections": members, **summary(members)}
                for name, members in systems.items()
            ],
            total=summary(sections),
            statuses=STATUSES,
            files=FILES,
            all_claims=ALL,
            left_out=sum(bool(section["left_out"]) for section in sections),
            trials=sum(section["trials"] or 0 for section in sections),
            seconds=sum(section["seconds"] or 0 for section in sections),
            made=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        )
    )
    out.mkdir(parents=True, exist_ok=True)
    path = out / "index.html"
    path.write_text(page, encoding="utf-8")
    _write_files(entries, sections, out / FILES)
    return path


def _write_files(entries: Sequence[Mapping[str, Any]], sections: Sequence[Mapping[str, Any]], folder: Path) -> None:
    """Write what the page offers to download; the files are named by the addresses of the sections."""
    folder.mkdir(exist_ok=True)
    records = []
    for entry, section in zip(entries, sections, strict=True):
        facts = {"experiment": entry["name"], "figure": entry.get("figure"), "scale": entry.get("scale")}
        own = [facts | dict(claim) for claim in entry.get("claims") or []]
        if own:
            _write_records(own, folder / section["anchor"])
        if entry.get("pdf"):
            (folder / f"{section['anchor']}.pdf").write_bytes(entry["pdf"])
        records += own
    _write_records(records, folder / ALL)


def _write_records(records: Sequence[Mapping[str, Any]], stem: Path) -> None:
    stem.with_name(f"{stem.name}.csv").write_text(as_csv(records), encoding="utf-8")
    stem.with_name(f"{stem.name}.json").write_text(as_json(records), encoding="utf-8")


def summary(sections: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return counts of the verdicts on the claims of these figures; identities count only under `identities`.

    `replicated` counts the claims that hold, `controlled` those of them with measured controls, and `specific` those
    that every control broke.
    """
    sections = [section for section in sections if not section["left_out"]]
    claims_and_identities = [claim for section in sections for claim in section["claims"]]
    claims = [claim for claim in claims_and_identities if claim["kind"] == "claim"]
    counts = Counter(claim["status"] for claim in claims)
    holding = [claim["specific"] for claim in claims if claim["status"] == "holds"]
    identities = Counter(claim["status"] for claim in claims_and_identities if claim["kind"] == "identity")
    return {
        "figures": len(sections),
        "replicated": counts["holds"],
        **{status: counts[status] for status in STATUSES[1:]},
        "specific": holding.count("specific"),
        "controlled": holding.count("specific") + holding.count("unspecific"),
        "identities": {status: identities[status] for status in STATUSES},
        "surprises": sum(claim["surprising"] for claim in claims_and_identities),
    }


def duration(seconds: float | None) -> str:
    """Return a duration such as 4.2 s, 3 min 20 s or 2 h 5 min; an empty text for None, nan and inf."""
    if seconds is None or not math.isfinite(seconds):
        return ""
    if seconds < 60:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


@functools.cache
def templates() -> Environment:
    """Return the templates of the report, whose `claims.html`, `look.css` and `claims.js` the site uses too."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_visible,
    )
    environment.filters |= {"duration": duration, "number": number}
    return environment


@functools.cache
def _digest(*names: str) -> str:
    """Return the digest of the style or script, by which the page's security policy allows this one and no other."""
    text = "".join(templates().get_template(name).render() for name in names)
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _visible(value: Any) -> Any:
    """Return a text with invisible and direction-changing characters escaped; other values unchanged."""
    return escaped(value, keep="\n\t") if type(value) is str else value


def _anchor(name: str, taken: set[str]) -> str:
    """Return an unused address in the page for a name, and add it to `taken`. A duplicate gets a number."""
    anchor = base = re.sub(r"[^\w-]+", "-", name)
    count = 1
    while anchor in taken:
        count += 1
        anchor = f"{base}-{count}"
    taken.add(anchor)
    return anchor


def _section(entry: Mapping[str, Any], anchors: set[str]) -> dict[str, Any]:
    fields = ["figure", "title", "scale", "sweep_run_id", "seconds", "trials", "command", "caption", "source"]
    fields += ["left_out", "not_drawn"]
    scale, png = entry.get("scale") or "laptop", entry.get("png")
    anchor = _anchor(entry["name"] if scale == "laptop" else f"{entry['name']}-{scale}", anchors)
    claims = [shown(claim) for claim in entry.get("claims") or []]
    for claim in claims:
        claim["anchor"] = _anchor(f"{anchor}--{claim['id'] or 'claim'}", anchors)
    return {
        **{field: entry.get(field) for field in fields},
        "name": entry["name"],
        "pieces": _pieces(entry["name"]),
        "system": entry.get("system") or entry["name"].split("/")[0],
        "anchor": anchor,
        "trial_run_ids": list(entry.get("trial_run_ids") or []),
        "config": dict(entry.get("config") or {}),
        "image": _image(png),
        "pdf": bool(entry.get("pdf")),
        **{field: _address(entry.get(field)) for field in ("url", "charts_url", "source_url")},
        "claims": claims,
    }


def _map(entry: Mapping[str, Any]) -> dict[str, Any]:
    fields = ["name", "figure", "title", "scale", "map", "cells", "sweep_run_id", "verdict", "left_out"]
    pictures = [(statement, _image(png)) for statement, png in entry.get("pictures") or []]
    return {field: entry.get(field) for field in fields} | {"over": list(entry.get("over") or []), "pictures": pictures}


def _image(png: bytes | None) -> str | None:
    return f"data:image/png;base64,{base64.b64encode(png).decode()}" if png else None


def _pieces(name: str) -> tuple[str, str]:
    """Return a name in two parts, between which a line may break."""
    system, slash, figure = name.partition("/")
    return system + slash, figure


def _address(url: str | None) -> str | None:
    return url if url and url.startswith(("http://", "https://")) else None
