"""Tables that a paper prints, as CSV files beside the figures that use them."""

import csv
from pathlib import Path
from typing import Any


def printed_table(file: str, name: str) -> list[dict[str, Any]]:
    """The rows of the table `name` in the folder of `file`, as mappings from the header's names to cells.

    A cell is an int or a float where it reads as one, None where it is empty, else its text. Lines that begin with `#`
    say what the table is and are skipped. Give `__file__` as `file`.
    """
    text = (Path(file).parent / name).read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [{key: _cell(value) for key, value in row.items()} for row in csv.DictReader(lines)]


def _cell(text: str) -> int | float | str | None:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text or None
