"""Read the points that earlier attempts at a run left in the store and in the journal."""

from __future__ import annotations

from collections.abc import Iterator

from featurelab.tracking.outbox.earlier import Earlier, Point
from featurelab.tracking.outbox.journal import Journal
from featurelab.tracking.store.store import Store


def stored_points(store: Store, run_id: str) -> Earlier:
    """Return all points of a run that the store holds. Raises what the store raises."""
    from featurelab.tracking.store.query import histories  # needs pandas, which recording does not

    table = histories(store, [run_id])
    columns = (table[name].tolist() for name in ("metric", "step", "value", "timestamp"))
    return Earlier(Point(*row) for row in zip(*columns, strict=True))


def with_journal(stored: Earlier, journal: Journal) -> Earlier:
    """Return the stored points together with those that only the journal holds."""
    # compared without values: the store has nan where the journal may have inf
    in_store = {(point.metric, point.step, point.time) for point in stored}
    only_in_journal = (p for p in _journal_points(journal) if (p.metric, p.step, p.time) not in in_store)
    return Earlier([*stored, *only_in_journal])


def _journal_points(journal: Journal) -> Iterator[Point]:
    for _, entry in journal.lines():
        for metric, value in entry.get("m", {}).items():
            yield Point(metric, entry["s"], value, entry["t"])
