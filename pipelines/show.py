"""Numbers, verdicts and runs as a person reads them in a terminal."""

import json
import math
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from typing import TYPE_CHECKING, Any, TextIO

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tracking.lines import escaped

if TYPE_CHECKING:
    from pipelines.claims import Verdict
    from pipelines.records import TrialRecord  # brings mlflow and pandas, which a listing shall not wait for

COLOURS = {
    "holds": "green",
    "fails": "red",
    "untested": "yellow",
    "finished": "green",
    "failed": "red",
    "diverged": "red",
}


# what JSON may hold as it is but a terminal would act on, or no encoding can write
UNPRINTED = re.compile("[\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]")

_page: TextIO | None = None


@contextmanager
def keeping_stdout() -> Iterator[None]:
    """Keep standard output for `emit` and `console`: what others print (Ray, a trial) goes to standard error."""
    global _page
    _page = sys.stdout
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        _page = None


def emit(document: Any) -> None:
    """Exactly one JSON document on standard output; a number that is not finite becomes a string."""
    text = json.dumps(finite(document), ensure_ascii=False, indent=2, default=str, allow_nan=False)
    (_page or sys.stdout).write(UNPRINTED.sub(lambda found: f"\\u{ord(found[0]):04x}", text) + "\n")


def finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): finite(part) for key, part in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [finite(part) for part in value]
    return value


def number(value: Any) -> str:
    """A value, several, or named ones, short."""
    if value is None:
        return "-"
    if isinstance(value, Mapping):
        return ", ".join(f"{part}: {number(part_value)}" for part, part_value in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(number(part) for part in value)
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def interval(value: Any) -> str:
    """A confidence interval, or named ones."""
    if isinstance(value, Mapping):
        return ", ".join(f"{part}: {interval(ends)}" for part, ends in value.items())
    return "-" if value is None else f"{number(value[0])} to {number(value[1])}"


def console() -> Console:
    """Standard output; as wide as its lines need where nobody looks at it as a terminal."""
    out = Console(file=_page or sys.stdout)
    return out if out.is_terminal else Console(file=out.file, width=160)


def verdict_table(title: str, verdicts: "Sequence[Verdict]") -> Table:
    table = Table(title=_plain(title), title_justify="left", show_lines=False, pad_edge=False)
    table.add_column("claim", ratio=4)
    table.add_column("verdict", no_wrap=True)
    for column in ("measured", "95% t interval", "expected", "paper"):
        table.add_column(column, ratio=2)
    table.add_column("seeds", justify="right")
    for v in verdicts:
        mark = f" (documented: {v.documented})" if v.surprising else ""
        origin = "" if v.origin == "paper" else f" [{v.origin}]"
        reason = f"\n[dim]{_plain(v.reason)}[/dim]" if v.reason and v.status != "holds" else ""
        table.add_row(
            f"{_plain(v.id)}{_plain(origin)}: {_plain(v.statement)}{reason}",
            f"[{COLOURS[v.status]}]{v.status}[/]{mark}",
            _plain(number(v.measured)),
            _plain(interval(v.ci)),
            _plain(number(v.expected)),
            _plain(number(v.paper)),
            str(v.seeds),
        )
    return table


def sweep_table(trials: "Sequence[TrialRecord]", metric: str, mode: str, most: int = 30) -> Table:
    """The trials of a sweep, best first, `most` of them."""
    sign = 1 if mode == "min" else -1
    ranked = sorted(trials, key=lambda trial: (metric not in trial.metrics, sign * trial.metrics.get(metric, 0)))
    title = f"{len(ranked)} trials" + (f", the best {most}" if len(ranked) > most else "")
    rows = [[trial.name, trial.status, trial.metrics.get(metric), trial.run_id] for trial in ranked[:most]]
    return pairs_table(title, ["trial", "status", metric, "run id"], rows)


def plan_table(needs: Mapping[str, Any]) -> Table:
    """What `run --dry-run` says, with thousands and units."""
    rows = [["config", ", ".join(f"{name}={number(value)}" for name, value in needs["config"].items())]]
    rows += [[f"data: {name}", state] for name, state in needs["data"].items()] or [["data", "generated"]]
    if "parameters" in needs:
        rows += [
            ["parameters", f"{needs['parameters']:,}"],
            ["memory", f"{needs['memory_bytes'] / 1e9:.3g} GB"],
            ["arithmetic of a trial", f"{needs['flops']:.2g} FLOP in {needs['optimiser_steps']:,} steps"],
            ["GPU-hours of a trial", f"{needs['trial_gpu_hours']:.2g}"],
            [f"GPU-hours of the figure's {needs['grid_trials']} trials", f"{needs['grid_gpu_hours']:.2g}"],
            ["assuming", needs["assumes"]],
        ]
    return pairs_table(f"{needs['experiment']} at {needs['scale']} scale", ["needs", ""], rows)


def pairs_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> Table:
    table = Table(title=_plain(title), title_justify="left", pad_edge=False)
    for column in columns:
        table.add_column(_plain(column), overflow="fold")
    for row in rows:
        table.add_row(*map(_cell, row))
    return table


def _cell(value: Any) -> str:
    if isinstance(value, str) and value in COLOURS:
        return f"[{COLOURS[value]}]{value}[/]"
    return _plain(number(value))


def _plain(text: str) -> str:
    """Text that neither rich takes for markup nor the terminal for commands."""
    return escape(escaped(text, keep="\n"))
