"""The metrics that rank the trials of a sweep: as a user writes them, and which trials are best by several of them."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from featurelab.pipelines.engine.errors import RequestError, unknown
from featurelab.pipelines.engine.trial.record import TrialRecord

Mode = Literal["min", "max"]
MODES: tuple[Mode, ...] = ("max", "min")


def parse_goals(metric: str | Sequence[str], mode: str | Sequence[str] | None) -> tuple[list[str], list[Mode]]:
    """Return the metrics, and a mode for each; one mode, or none, may be for all of them.

    >>> parse_goals("loss/test,accuracy/test", ["min", "max"])
    (['loss/test', 'accuracy/test'], ['min', 'max'])

    Raises `RequestError` for an unknown mode, a metric given twice, and modes that are neither one nor one a metric.
    """
    names, given = _parts(metric), _parts(mode or "")
    modes: list[Mode] = [_mode(one) for one in given]
    if twice := next((name for name in names if names.count(name) > 1), ""):
        raise RequestError(f"--metric {twice} is given twice")
    if len(modes) > 1 and len(modes) != len(names):
        raise RequestError(f"--mode is given {len(modes)} times for {len(names)} metrics: give one, or one for each")
    return names, modes * len(names) if len(modes) == 1 and names else modes


def _mode(text: str) -> Mode:
    for mode in MODES:
        if text == mode:
            return mode
    raise unknown("--mode", text, MODES)


def _parts(given: str | Sequence[str]) -> list[str]:
    texts = [given] if isinstance(given, str) else given
    return [part for text in texts for part in text.split(",") if part]


def front(trials: Sequence[TrialRecord], goals: Mapping[str, Mode]) -> list[TrialRecord]:
    """Return the finished trials than which no other is better in one metric and as good in all: the Pareto front."""
    signs = [1 if mode == "min" else -1 for mode in goals.values()]
    values: dict[int, tuple[float, ...]] = {}
    for place, trial in enumerate(trials):
        of_trial = tuple(sign * trial.metrics.get(metric, math.nan) for metric, sign in zip(goals, signs, strict=True))
        if trial.status == "finished" and all(map(math.isfinite, of_trial)):
            values[place] = of_trial
    return [trials[place] for place, own in values.items() if not any(_better(v, own) for v in values.values())]


def front_line(best: Sequence[TrialRecord], goals: Mapping[str, Mode]) -> str:
    """Return the Pareto front in one line."""
    names = ", ".join(f"{metric} ({mode})" for metric, mode in goals.items())
    if not best:
        return f"no trial finished with {names}"
    return f"Pareto front of {names}: {', '.join(trial.run_id for trial in best)}"


def _better(one: Sequence[Any], other: Sequence[Any]) -> bool:
    pairs = list(zip(one, other, strict=True))
    return all(a <= b for a, b in pairs) and any(a < b for a, b in pairs)
