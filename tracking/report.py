"""One static page that shows every reproduced figure, its claims and how to repeat it."""

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
from featurelab.tracking.numbers import measurement, number

STATUSES = ("holds", "fails", "undecided", "untested")
MOST_EARLIER = 8  # verdicts that are shown beside the newest


def render(entries: Sequence[Mapping[str, Any]], out: Path) -> Path:
    """Write `out/index.html` and return its path. The page stands alone: style, script and figures are inside it.

    Each entry is one experiment: `name`, `system`, `figure`, `title`, `scale`, `sweep_run_id`, `trial_run_ids`,
    `seconds`, `trials`, `config`, `command`, `png` (bytes or None), `caption`, `source` (its paper) and `source_url`,
    `claims`, and if there are any the `url` of its verdicts' run and the `charts_url` of its trials. A claim holds
    `id`, `statement`, `origin`, `kind`, `status`, `documented`, `reason`, `measured`, `ci`, `expected`, `paper`,
    `where`, `seeds`, `controls` (`status` and `measured` by name), `named_controls`, `specific`, `unspecific`, and its
    `history` (`status`, `date`, `sweep_run_id`, newest first); its values are numbers, texts or dicts of named parts.
    An entry whose record is damaged has only its name and `left_out`, the reason; one without its drawing may say why
    in `not_drawn`. What is absent is shown as absent. Raises KeyError for an entry without a name.
    """
    anchors = {"--summary", "--contents", "--verdicts"}
    sections = [_section(entry, anchors) for entry in entries]
    systems: dict[str, list[dict[str, Any]]] = {}
    for section in sections:
        systems.setdefault(section["system"], []).append(section)
    page = (
        _templates()
        .get_template("report.html")
        .render(
            style_hash=_digest("report.css"),
            script_hash=_digest("report.js"),
            sections=sections,
            systems=[
                {"name": name, "anchor": _anchor(f"system--{name}", anchors), "sections": members, **summary(members)}
                for name, members in systems.items()
            ],
            total=summary(sections),
            statuses=STATUSES,
            left_out=sum(bool(section["left_out"]) for section in sections),
            trials=sum(section["trials"] or 0 for section in sections),
            seconds=sum(section["seconds"] or 0 for section in sections),
            made=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        )
    )
    out.mkdir(parents=True, exist_ok=True)
    path = out / "index.html"
    path.write_text(page, encoding="utf-8")
    return path


def summary(sections: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """What came of the claims of these figures, in counts; those of `identities` are in no other one.

    `replicated` are claims that hold; of those that were held against controls, `controlled`, so many are `specific`.
    """
    sections = [section for section in sections if not section["left_out"]]
    everything = [claim for section in sections for claim in section["claims"]]
    claims = [claim for claim in everything if claim["kind"] == "claim"]
    counts = Counter(claim["status"] for claim in claims)
    holding = [claim["specific"] for claim in claims if claim["status"] == "holds"]
    identities = Counter(claim["status"] for claim in everything if claim["kind"] == "identity")
    return {
        "figures": len(sections),
        "replicated": counts["holds"],
        **{status: counts[status] for status in STATUSES[1:]},
        "specific": holding.count("specific"),
        "controlled": holding.count("specific") + holding.count("unspecific"),
        "identities": {status: identities[status] for status in STATUSES},
        "surprises": sum(claim["surprising"] for claim in everything),
    }


def parts(value: Any) -> list[tuple[str, str]]:
    """Return a value as (name, text) pairs; a value without named parts is one pair with an empty name."""
    if isinstance(value, Mapping):
        return [(str(name), number(part)) for name, part in value.items()]
    return [("", "" if value is None else number(value))]


def duration(seconds: float | None) -> str:
    """Return seconds as people say them: 4.2 s, 3 min 20 s, 2 h 5 min."""
    if seconds is None or not math.isfinite(seconds):
        return ""
    if seconds < 60:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


@functools.cache
def _templates() -> Environment:
    templates = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_visible,
    )
    templates.filters |= {"duration": duration, "number": number}
    return templates


@functools.cache
def _digest(name: str) -> str:
    """The digest of the style or script, as the page includes it, by which its policy allows it and no other."""
    text = _templates().get_template(name).render()
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _visible(value: Any) -> Any:
    """Text in which what would not be seen, or would turn the direction of writing, is written out."""
    return escaped(value, keep="\n\t") if type(value) is str else value


def _anchor(name: str, taken: set[str], otherwise: str = "") -> str:
    """A name as an address in the page that nothing else has: where it is taken, with `otherwise` or a number."""
    anchor = base = re.sub(r"[^\w-]+", "-", name)
    if anchor in taken and otherwise:
        anchor = base = re.sub(r"[^\w-]+", "-", f"{name}-{otherwise}")
    count = 1
    while anchor in taken:
        count += 1
        anchor = f"{base}-{count}"
    taken.add(anchor)
    return anchor


def _section(entry: Mapping[str, Any], anchors: set[str]) -> dict[str, Any]:
    fields = ["figure", "title", "scale", "sweep_run_id", "seconds", "trials", "command", "caption", "source"]
    fields += ["left_out", "not_drawn"]
    anchor, png = _anchor(entry["name"], anchors, entry.get("scale") or ""), entry.get("png")
    claims = [_claim(claim) for claim in entry.get("claims") or []]
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
        "image": f"data:image/png;base64,{base64.b64encode(png).decode()}" if png else None,
        **{field: _address(entry.get(field)) for field in ("url", "charts_url", "source_url")},
        "claims": claims,
    }


def _pieces(name: str) -> tuple[str, str]:
    """A name in two, between which a line may break."""
    system, slash, figure = name.partition("/")
    return system + slash, figure


def _address(url: str | None) -> str | None:
    return url if url and url.startswith(("http://", "https://")) else None


def _claim(claim: Mapping[str, Any]) -> dict[str, Any]:
    fields = ("id", "statement", "origin", "status", "documented", "reason", "where", "seeds", "unspecific")
    known = {field: claim.get(field) for field in fields}
    known["status"] = _status(known["status"])
    kind = known["kind"] = "identity" if claim.get("kind") == "identity" else "claim"
    both = (known["status"], known["documented"])
    known["surprising"] = known["documented"] is not None and both[0] != both[1] and "undecided" not in both
    measured, expected, paper = claim.get("measured"), claim.get("expected"), claim.get("paper")
    values, intervals = measurement(measured, claim.get("ci"), expected)
    known |= {"measured": list(values.items()), "ci": list(intervals.items())}
    known |= {"expected": parts(expected), "paper": parts(paper), "keys": (_key(measured), _key(paper))}
    controls = dict(claim.get("controls") or {})
    known["controls"] = [
        (name, _status(there.get("status")), list(measurement(there.get("measured"), None, expected)[0].items()))
        for name, there in controls.items()
    ]
    known["specific"] = _specific(kind, claim.get("specific"), controls, claim.get("named_controls"))
    known["history"] = [
        {"status": _status(one.get("status")), "date": one.get("date"), "sweep_run_id": one.get("sweep_run_id")}
        for one in list(claim.get("history") or [])[:MOST_EARLIER]
    ]
    return known


def _specific(kind: str, specific: Any, controls: Mapping[str, Any], named: Sequence[str] | None) -> str:
    """Whether a claim is broken where what it speaks of is destroyed, or why that is not known."""
    if specific is True or specific is False:
        return "specific" if specific else "unspecific"
    if controls:
        return "not measured under controls"
    return "no controls" if kind == "identity" or (named is not None and not named) else "controls not run"


def _status(status: Any) -> str:
    return status if status in STATUSES else "untested"


def _key(value: Any) -> str:
    """The number by which a value is sorted, that of its first part; empty for one without."""
    if isinstance(value, Mapping):
        value = next(iter(value.values()), None)
    return repr(float(value)) if isinstance(value, int | float) and math.isfinite(value) else ""
