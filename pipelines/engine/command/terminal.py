"""Experiments, verdicts and runs as tables on a terminal, or as one JSON document."""

import json
import math
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from typing import TYPE_CHECKING, Any, TextIO

from featurelab.pipelines.engine.errors import is_quiet
from featurelab.tracking.lines import escaped
from featurelab.tracking.numbers import measurement, named, number

if TYPE_CHECKING:
    from rich.console import Console  # for which a JSON document should not wait
    from rich.table import Table

    from featurelab.pipelines.engine.experiment.claims import Verdict
    from featurelab.pipelines.engine.experiment.experiment import Experiment
    from featurelab.pipelines.engine.sweep.search.best import (
        Ranked,  # imports pandas, for which a listing should not wait
    )

COLOURS = {
    "holds": "green",
    "fails": "red",
    "undecided": "yellow",
    "untested": "yellow",
    "finished": "green",
    "failed": "red",
    "diverged": "red",
}

# characters that JSON allows, but that change what a terminal shows, or that no encoding can write
ESCAPED = re.compile("[\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]")

_stdout: TextIO | None = None  # what it was before `keeping_stdout`


@contextmanager
def keeping_stdout() -> Iterator[None]:
    """Inside, standard output is for `emit` and `console` only: what Ray or a trial prints goes to standard error."""
    global _stdout
    _stdout = sys.stdout
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        _stdout = None


def emit(document: Any) -> None:
    """Print one JSON document on standard output; a number that is not finite becomes a string."""
    text = json.dumps(finite(document), ensure_ascii=False, indent=2, default=str, allow_nan=False)
    write(ESCAPED.sub(lambda match: f"\\u{ord(match[0]):04x}", text) + "\n")


def write(text: str) -> None:
    """Write a text on standard output."""
    (_stdout or sys.stdout).write(text)


def finite(value: Any) -> Any:
    """Return a JSON value in which texts replace numbers that are not finite."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): finite(part) for key, part in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [finite(part) for part in value]
    return value


def console() -> "Console":
    """Return standard output as a console, which is 160 characters wide unless it is a terminal."""
    from rich.console import Console

    quiet = is_quiet() and _stdout is not None  # of a command that runs trials, the tables are left out
    out = Console(file=_stdout or sys.stdout, quiet=quiet)
    return out if out.is_terminal else Console(file=out.file, width=160, quiet=quiet)


def list_experiments(experiments: "Sequence[Experiment]") -> None:
    """Print a table on a terminal; otherwise a tab-separated line each: name, figure, title, minutes, headline."""
    out = console()
    if out.is_terminal:
        out.print(experiment_table(experiments))
        return
    for e in experiments:
        cells = [e.name, e.figure, e.title, f"{e.minutes:g}", "headline" if e.headline else ""]
        print(*(" ".join(escaped(cell).split()) for cell in cells), sep="\t", file=out.file)


def experiment_table(experiments: "Sequence[Experiment]") -> "Table":
    rows = [
        [
            _entry(e.name + (" *" if e.headline else ""), _plain(e.title)),
            _plain(e.figure),
            f"{e.minutes:g}",
            len(e.claims),
        ]
        for e in experiments
    ]
    return _table(
        "", ["experiment (* headline)", "figure", "minutes", "claims"], rows, unbroken=["experiment (* headline)"]
    )


def claim_table(claims: Sequence[Mapping[str, Any]]) -> "Table":
    """The claims of an experiment, as `show` prints them: statement, expected value, documented verdict."""
    rows = [
        [
            _cell(c["documented"]),
            _entry(c["id"], _plain(c["statement"]), _facts({"expected": c["expected"], "paper": c["paper"]})),
        ]
        for c in claims
    ]
    return _table("claims", ["documented", "claim"], rows, unbroken=["documented", "claim"])


def verdict_table(title: str, verdicts: "Sequence[Verdict]") -> "Table":
    """Verdicts with the measured values."""
    rows = []
    for v in verdicts:
        origin = "" if v.origin == "paper" else f" [{v.origin}]"
        values, intervals = measurement(v.measured, v.ci, v.expected)
        facts = {
            "measured": named(values),
            "95%": named(intervals) if intervals else None,
            "worst seed": named(measurement(v.worst, None, v.expected)[0]) if v.worst is not None else None,
            "decided by": _deciding(v),
            "expected": number(v.expected),
            "paper": number(v.paper) if v.paper is not None else None,
            "seeds": v.seeds,
        }
        reason = f"[dim]{_plain(v.reason)}[/dim]" if v.reason and v.status != "holds" else ""
        mark = f"[bold]otherwise than documented: {v.documented}[/bold]" if v.surprising else ""
        rows.append([_cell(v.status), _entry(v.id + origin, _plain(v.statement), _facts(facts), mark, reason)])
    return _table(title, ["verdict", "claim"], rows, unbroken=["verdict", "claim"])


def _deciding(verdict: "Verdict") -> str | None:
    """The interval that decided, where it is not the one for reading."""
    if verdict.decided is None or verdict.decided.ci == verdict.ci:
        return None
    ends = measurement(verdict.measured, verdict.decided.ci, verdict.expected)[1]
    return f"{named(ends)} ({100 * verdict.decided.level:.4g}%)"


def sweep_table(ranked: "Ranked", others: Sequence[str] = (), most: int = 30) -> "Table":
    """The best trials of a sweep, at most `most`, best first, with the metric that ranks them and `others`."""
    trials, metric = ranked.trials, ranked.metric
    title = f"{len(trials)} trials" + (f", the best {most}" if len(trials) > most else "")
    at = "" if ranked.step is None else f" at step {ranked.step}"
    rows = [
        [
            _cell(trial.status),
            _cell(ranked.values.get(trial.run_id, trial.metrics.get(metric) if not at else None)),
            *(_cell(trial.metrics.get(other)) for other in others),
            f"{_plain(trial.name)}\n[dim]{_plain(trial.run_id)}[/dim]",
        ]
        for trial in trials[:most]
    ]
    return _table(title, ["status", f"{metric}{at}", *others, "trial"], rows, unbroken=["status", "trial"])


def plan_table(needs: Mapping[str, Any]) -> "Table":
    """The estimate of `run --dry-run`, with units."""
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


def pairs_table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], unbroken: Sequence[str] = ()
) -> "Table":
    """A table of any values; words in the columns `unbroken`, such as ids, are not wrapped."""
    return _table(title, columns, [[_cell(value) for value in row] for row in rows], unbroken)


def _table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], unbroken: Sequence[str] = ()) -> "Table":
    from rich.table import Table
    from rich.text import Text

    table = Table(title=_plain(title), title_justify="left", pad_edge=False)
    for place, column in enumerate(columns):
        words = [word for row in rows for word in Text.from_markup(str(row[place])).plain.split()]
        least = max(map(len, words), default=None) if column in unbroken else None
        table.add_column(_plain(column), overflow="fold", min_width=least)
    for row in rows:
        table.add_row(*map(str, row))
    return table


def _entry(name: str, *lines: str) -> str:
    """A name with its description below, since the two do not fit side by side."""
    return "\n".join([f"[bold]{_plain(name)}[/bold]", *filter(None, lines)])


def _facts(facts: Mapping[str, Any]) -> str:
    return "  ".join(f"[dim]{name}[/dim] {_plain(str(value))}" for name, value in facts.items() if value is not None)


def _cell(value: Any) -> str:
    if isinstance(value, str) and value in COLOURS:
        return f"[{COLOURS[value]}]{value}[/]"
    return _plain(number(value))


def _plain(text: str) -> str:
    """Escape a text so that rich finds no markup in it, and a terminal no commands."""
    from rich.markup import escape

    return escape(escaped(text, keep="\n"))
