"""Verdicts as files to download: CSV for a spreadsheet, JSON with everything."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping
from typing import Any

from featurelab.tracking.lines import escaped

COLUMNS = [
    "experiment",
    "figure",
    "scale",
    "id",
    "statement",
    "kind",
    "origin",
    "status",
    "reason",
    "about",
    "measured",
]
COLUMNS += ["ci", "expected", "paper", "where", "seeds", "specific", "controls"]

Row = Mapping[str, Any]


def as_csv(claims: Iterable[Row]) -> str:
    """Return records of claims as CSV; values with named parts, intervals and controls are JSON in their cell."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows([_cell(claim.get(column)) for column in COLUMNS] for claim in claims)
    return text.getvalue()


def as_json(claims: Iterable[Row]) -> str:
    """Return records of claims as JSON."""
    return json.dumps(list(claims), indent=1, default=str)


def _cell(value: Any) -> str:
    if isinstance(value, Mapping | list | tuple):
        return json.dumps(value, default=str)
    return "" if value is None else escaped(str(value))
