"""What the report and the site show of a claim: its verdict, measured parts, and what became of it under controls."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from featurelab.tracking.numbers import measurement, number
from featurelab.tracking.report.intervals import plots

STATUSES = ("holds", "fails", "undecided", "untested")
STATES = {"broken": "breaks", "survives": "survives", "undecided": "is undecided"}
MOST_EARLIER = 8  # earlier verdicts shown beside the newest


def parts(value: Any) -> list[tuple[str, str]]:
    """Return a value as (name, text) pairs. A value without named parts gives one pair with an empty name."""
    if isinstance(value, Mapping):
        return [(str(name), number(part)) for name, part in value.items()]
    return [("", "" if value is None else number(value))]


def shown(claim: Mapping[str, Any]) -> dict[str, Any]:
    """Return what pages show of a claim, which is a record as `render` takes it: texts, and the marks of its plots."""
    fields = ("id", "statement", "origin", "status", "documented", "reason", "where", "seeds", "unspecific")
    shown = {field: claim.get(field) for field in fields}
    status, documented = _status(shown["status"]), shown["documented"]
    shown["status"] = status
    kind = shown["kind"] = "identity" if claim.get("kind") == "identity" else "claim"
    shown["surprising"] = documented is not None and status != documented and "undecided" not in (status, documented)
    paper, about = claim.get("paper"), claim.get("about")
    shown |= {"paper": parts(paper), "keys": (_key(claim.get("measured")), _key(paper))}
    shown["about"] = about if about in ("median", "share", "equivalence") else ""
    controls = dict(claim.get("controls") or {})
    shown |= _measured(claim, {name: control.get("measured") for name, control in controls.items()})
    shown["controls"] = [
        (name, _became(control), list(measurement(control.get("measured"), None, claim.get("expected"))[0].items()))
        for name, control in controls.items()
    ]
    shown["specific"] = _specific(kind, claim.get("specific"), controls, claim.get("named_controls"))
    shown["history"] = [
        {"status": _status(old.get("status")), "date": old.get("date"), "sweep_run_id": old.get("sweep_run_id")}
        for old in list(claim.get("history") or [])[:MOST_EARLIER]
    ]
    return shown


def _measured(claim: Mapping[str, Any], under: Mapping[str, Any]) -> dict[str, Any]:
    """Return the rows of the measured parts of a claim, and the level of the interval that decided it."""
    measured, ci, expected = claim.get("measured"), claim.get("ci"), claim.get("expected")
    decided = claim.get("decided") or {}
    values, intervals = measurement(measured, ci, expected)
    deciding = measurement(measured, decided.get("ci"), expected)[1]
    worst = measurement(claim.get("worst"), None, expected)[0]
    differs = bool(deciding) and deciding != intervals
    required = dict(parts(expected))
    drawn = plots(measured, ci=ci, deciding=decided.get("ci"), expected=expected, paper=claim.get("paper"), under=under)
    rows = [
        {
            "part": part,
            "value": values.get(part, ""),
            "interval": intervals.get(part, ""),
            "deciding": deciding.get(part, "") if differs else "",
            "worst": worst.get(part, ""),
            "required": required.get(part) or required.get("", ""),
            "plot": drawn.get(part),
        }
        for part in dict.fromkeys([*values, *intervals]) or required
    ]
    return {"rows": rows, "level": f"{100 * decided.get('level', 0):.4g}%" if differs else ""}


def _specific(kind: str, specific: Any, controls: Mapping[str, Any], named: Sequence[str] | None) -> str:
    """Return "specific" if every control broke the claim, "unspecific" if one did not, or why neither is known."""
    if specific is True or specific is False:
        return "specific" if specific else "unspecific"
    if any(_status(control.get("status")) != "untested" for control in controls.values()):
        return "undecided under controls"
    if controls:
        return "not measured under controls"
    return "no controls" if kind == "identity" or (named is not None and not named) else "controls not run"


def _became(control: Mapping[str, Any]) -> str:
    """Return what became of a claim under a control; of a record without that, its status there."""
    status, state = _status(control.get("status")), control.get("state")
    if status != "untested" and state in STATES:
        return STATES[state]
    return {"holds": "holds", "fails": "fails"}.get(status, f"is {status}")


def _status(status: Any) -> str:
    return status if status in STATUSES else "untested"


def _key(value: Any) -> str:
    """Return the number by which a value is sorted, that of its first part; an empty text if it has none."""
    if isinstance(value, Mapping):
        value = next(iter(value.values()), None)
    return repr(float(value)) if isinstance(value, int | float) and math.isfinite(value) else ""
