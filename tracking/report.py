"""One static page that shows every reproduced figure, its claims and how to repeat it."""

from __future__ import annotations

import base64
import functools
import hashlib
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

from featurelab.tracking.lines import escaped

STATUSES = ("holds", "fails", "undecided", "untested")


def render(entries: Sequence[Mapping[str, Any]], out: Path) -> Path:
    """Write `out/index.html` and return its path. The page stands alone: style and figures are inside it.

    Each entry is one experiment: `name`, `system`, `figure`, `title`, `scale`, `sweep_run_id`, `trial_run_ids`,
    `seconds`, `trials`, `config`, `command`, `png` (bytes or None), `caption`, `claims`, and if there is one the `url`
    of its runs. A claim holds `id`, `statement`, `origin`, `status`, `documented`, `reason`, `measured`, `ci`,
    `expected`, `paper`, `where`, `seeds`; its values are numbers, texts or dicts of named parts. What is absent is
    shown as absent. Raises KeyError for an entry without a name.
    """
    template, style_hash = _template()
    sections = [_section(entry) for entry in entries]
    verdicts = Counter(claim["status"] for section in sections for claim in section["claims"])
    page = template.render(
        style_hash=style_hash,
        sections=sections,
        systems=_by_system(sections),
        statuses=[(status, verdicts[status]) for status in STATUSES],
        surprises=sum(claim["surprising"] for section in sections for claim in section["claims"]),
        trials=sum(section["trials"] or 0 for section in sections),
        seconds=sum(section["seconds"] or 0 for section in sections),
        made=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    )
    out.mkdir(parents=True, exist_ok=True)
    path = out / "index.html"
    path.write_text(page, encoding="utf-8")
    return path


@functools.cache
def _template() -> tuple[Template, str]:
    """The page's template, and the digest of its style by which the page's policy allows it and no other."""
    folder = Path(__file__).parent / "templates"
    templates = Environment(
        loader=FileSystemLoader(folder),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_visible,
    )
    templates.filters |= {"parts": parts, "duration": duration, "number": number}
    style = (folder / "report.html").read_text(encoding="utf-8").partition("<style>")[2].partition("</style>")[0]
    return templates.get_template("report.html"), base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()


def _visible(value: Any) -> Any:
    """Text in which what would not be seen, or would turn the direction of writing, is written out."""
    return escaped(value, keep="\n\t") if type(value) is str else value


def parts(value: Any) -> list[tuple[str, str]]:
    """Return a value as (name, text) pairs; a value without named parts is one pair with an empty name."""
    if isinstance(value, Mapping):
        return [(str(name), number(part)) for name, part in value.items()]
    return [("", number(value))]


def number(value: Any) -> str:
    """Return a number with four significant digits, an interval as [low, high], any other value as its text.

    >>> number(0.123456), number(1500000), number([0.1, 0.25]), number(None)
    ('0.1235', '1500000', '[0.1, 0.25]', '')
    """
    if value is None:
        return ""
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(number, value))}]"
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {number(part)}" for name, part in value.items())
    if isinstance(value, float) and math.isfinite(value):
        return f"{value:.4g}"
    return str(value)


def duration(seconds: float | None) -> str:
    """Return seconds as people say them: 4.2 s, 3 min 20 s, 2 h 5 min."""
    if seconds is None or not math.isfinite(seconds):
        return ""
    if seconds < 60:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def _section(entry: Mapping[str, Any]) -> dict[str, Any]:
    fields = ("figure", "title", "scale", "sweep_run_id", "seconds", "trials", "command", "caption")
    png, url = entry.get("png"), entry.get("url") or ""
    return {
        **{field: entry.get(field) for field in fields},
        "name": entry["name"],
        "system": entry.get("system") or entry["name"].split("/")[0],
        "anchor": re.sub(r"[^\w-]+", "-", entry["name"]),
        "trial_run_ids": list(entry.get("trial_run_ids") or []),
        "config": dict(entry.get("config") or {}),
        "image": f"data:image/png;base64,{base64.b64encode(png).decode()}" if png else None,
        "url": url if url.startswith(("http://", "https://")) else None,
        "claims": [_claim(claim) for claim in entry.get("claims") or []],
    }


def _claim(claim: Mapping[str, Any]) -> dict[str, Any]:
    fields = ("id", "statement", "origin", "status", "documented", "reason", "measured", "ci", "expected", "paper")
    known = {field: claim.get(field) for field in (*fields, "where", "seeds")}
    known["status"] = known["status"] if known["status"] in STATUSES else "untested"
    both = (known["status"], known["documented"])
    known["surprising"] = known["documented"] is not None and both[0] != both[1] and "undecided" not in both
    return known


def _by_system(sections: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    systems: dict[str, list[dict[str, Any]]] = {}
    for section in sections:
        systems.setdefault(section["system"], []).append(section)
    return systems
