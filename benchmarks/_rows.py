"""What a benchmark returns: rows of seconds, ours next to those of a peer.

Each file of this package whose name has no leading underscore is a benchmark. It has one function,

    rows(size) -> list[Row]      size: "full", measured in about a minute, or "tiny", in a few seconds: only to test it

and a docstring whose first line says what is measured.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from statistics import median
from typing import Any, Literal

Size = Literal["tiny", "full"]
OURS = "featurelab"
COLUMNS = ("what", "peer", "ours", "peer's", "ratio", "min to max", "also measured")


@dataclass(frozen=True)
class Row:
    """One line of the table. It is read alone, so `what` names sizes, dtype and threads.

    `id` is unique within the benchmark and does not change between versions. `ratio` is peer / ours, the median over
    repeats; `spread` is its smallest and largest value, or that of `ours_s` where there is no peer. `numbers` holds
    other measurements by name, with the unit at the end of the name: `peak_mib`, `runs_a_second`. `note` says why
    something is missing.
    """

    id: str
    what: str
    ours_s: float | None
    peer: str = ""
    peer_s: float | None = None
    ratio: float | None = None
    spread: tuple[float, float] | None = None
    repeats: int = 1
    numbers: Mapping[str, float] = field(default_factory=dict)
    note: str = ""


def alternate(calls: Mapping[str, Callable[[], object]], repeats: int, *, warm: bool = True) -> dict[str, list[float]]:
    """Seconds of each call by name, repeated alternately, every other time in reverse order.

    With `warm` each is called once before, uncounted.
    """
    if warm:
        for call in calls.values():
            call()
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for repeat in range(repeats):
        for name in list(calls) if repeat % 2 == 0 else reversed(list(calls)):
            start = time.perf_counter()
            calls[name]()
            taken[name].append(time.perf_counter() - start)
    return taken


def compare(
    id: str,
    what: str,
    taken: Mapping[str, Sequence[float]],
    *,
    ours: str = OURS,
    numbers: Mapping[str, float] | None = None,
    missing: Mapping[str, str] | None = None,
) -> list[Row]:
    """One row for each peer in `taken`, which holds seconds of equally many alternating repeats by name.

    `missing` gives, by peer, the requirement that is not installed, as `xrfm==0.4.5`. Without any peer there is one
    row of ours.
    """
    mine = taken[ours]
    own = {"ours_s": median(mine), "repeats": len(mine), "numbers": dict(numbers or {})}
    rows = []
    for peer, theirs in taken.items():
        if peer != ours:
            ratios = [b / a for a, b in zip(mine, theirs, strict=True)]
            measured = {"peer_s": median(theirs), "ratio": median(ratios), "spread": (min(ratios), max(ratios))}
            rows.append(Row(f"{id}/{peer}", what, peer=peer, **own, **measured))  # type: ignore[arg-type]
    spread = (min(mine), max(mine))
    for peer, requirement in (missing or {}).items():
        note = f"{peer} skipped: pip install {requirement}"
        rows.append(Row(f"{id}/{peer}", what, peer=peer, spread=spread, note=note, **own))  # type: ignore[arg-type]
    return rows or [Row(id, what, spread=spread, **own)]  # type: ignore[arg-type]


def available(module: str) -> bool:
    """Whether a peer's package can be imported."""
    return find_spec(module) is not None


def cells(row: Mapping[str, Any]) -> list[str]:
    """COLUMNS of a row that was read from JSON, as text."""
    ours, theirs, ratio = (
        number(row[name], unit) for name, unit in (("ours_s", " s"), ("peer_s", " s"), ("ratio", ""))
    )
    spread = " to ".join(number(value) for value in row["spread"] or ()) + " s" * bool(
        row["spread"] and not row["ratio"]
    )
    also = [f"{name.replace('_', ' ')} {number(value)}" for name, value in row["numbers"].items()]
    return [row["what"], row["peer"], ours, theirs, ratio, spread, "; ".join([*also, *filter(None, [row["note"]])])]


def number(value: float | None, unit: str = "") -> str:
    if value is None:
        return "-"
    return (f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}") + unit
