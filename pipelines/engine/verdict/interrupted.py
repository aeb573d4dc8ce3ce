"""Reproductions that were interrupted, so that the same command resumes them instead of beginning anew."""

import hashlib
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from featurelab.pipelines.engine.errors import tell
from featurelab.pipelines.engine.sweep.begin import reopened
from featurelab.pipelines.engine.sweep.ownership import where_run
from featurelab.pipelines.engine.sweep.plan import Opened, Plan
from featurelab.pipelines.engine.sweep.records import JUDGING, VERDICTS, read_stored_plan
from featurelab.tracking.store import query
from featurelab.tracking.store.connect import Store

CUT = ("running", "killed")  # the status of a sweep that did not come to its end


@dataclass(frozen=True)
class Found:
    """What of some plans is there: sweeps to resume, ids of those that are complete, and plans of neither.

    `command` ties together the sweeps that one command began.
    """

    resumed: list[Opened]
    complete: list[str]
    missing: list[Plan]
    command: str = ""


def find_interrupted(plans: Sequence[Plan], store: Store, outbox: Path) -> Found:
    """Look for the newest sweep of each plan, made by the same source, and take those that were interrupted.

    What the interrupted command had completed before is taken too; everything else is to be run. It says in one line
    what it resumes.
    """
    found = query.runs(store, VERDICTS, tags={"kind": "reproduce"})
    if not {"tags.plan_digest", "tags.command", "tags.status", "tags.sweep"} <= set(found.columns):
        return Found([], [], list(plans))
    newest = [_newest(found[found["tags.plan_digest"] == digest(plan)]) for plan in plans]
    left = {row["run_id"] for row in newest if row["tags.status"] in (*CUT, JUDGING) and not _runs(row, store, outbox)}
    cut = {row["run_id"] for row in newest if row["run_id"] in left and row["tags.status"] in CUT}
    commands = {row["tags.command"] for row in newest if row["run_id"] in left}
    resumed: list[Opened] = []
    complete: list[str] = []
    missing: list[Plan] = []
    for plan, row in zip(plans, newest, strict=True):
        if row["run_id"] in cut:
            begun = read_stored_plan(store, row["run_id"], plan.declared)  # which may have got further seeds
            resumed.append(reopened(begun, row["tags.sweep"], row["run_id"], store, outbox))
        elif row["run_id"] in left or (row["tags.command"] in commands and row["tags.status"] not in (*CUT, JUDGING)):
            complete.append(row["run_id"])
        else:
            missing.append(plan)
    if resumed or complete:
        _say(resumed, complete)
    return Found(resumed, complete, missing, max(commands, default=""))


def digest(plan: Plan) -> str:
    """Stands for all that decides what the trials of a plan record: its settings and the source that runs them."""
    total = hashlib.sha256(json.dumps(plan.model_dump(), sort_keys=True).encode())
    for path in sorted(_sources(plan.declared.run_trial)):
        total.update(f"\n{path.name}\n".encode())
        total.update(path.read_bytes())
    return total.hexdigest()[:32]


def _sources(trial: Any) -> set[Path]:
    """The files of what experiments share, and of the package that the trial is from, or of its module alone."""
    engine = Path(__file__).resolve().parents[1]
    # not below the folder that links to them: Python 3.11 does not follow links
    shared = [engine, engine.parents[1] / "modules", engine.parents[1] / "tracking"]
    files = {path for folder in shared for path in folder.rglob("*.py") if engine / "command" not in path.parents}
    name = str(getattr(trial, "__module__", ""))
    module = sys.modules.get(name)
    ours = __package__.rpartition(".engine.")[0]
    top = sys.modules.get(name.rpartition(".")[0] if name.startswith(f"{ours}.") else name.partition(".")[0])
    if top is not None and hasattr(top, "__path__"):
        for folder in top.__path__:
            files |= set(Path(folder).rglob("*.py"))
    elif module is not None and module.__file__:
        files.add(Path(module.__file__))
    return files


def _newest(rows: pd.DataFrame) -> Mapping[Any, Any]:
    """The last one, since runs come oldest first; without any, one that is nowhere."""
    return rows.iloc[-1].to_dict() if len(rows) else dict.fromkeys(("run_id", "tags.status", "tags.command"), "")


def _runs(row: Mapping[Any, Any], store: Store, outbox: Path) -> bool:
    """Whether a sweep is being run right now, which is said."""
    tags = {name: row.get(f"tags.{name}") for name in ("driver", "status")}
    if where := where_run(row["run_id"], tags, store, outbox):
        tell(f"{row['tags.experiment']} is being run {where}: this command runs it too")
    return bool(where)


def _say(resumed: Sequence[Opened], complete: Sequence[str]) -> None:
    if not resumed:
        plural = "s" * (len(complete) > 1)
        tell(f"the trials of {len(complete)} figure{plural} are there: judging without training (--fresh begins anew)")
        return
    trials = sum(len(sweep.plan.configs) for sweep in resumed)
    done = trials - sum(len(sweep.indices) for sweep in resumed)
    cut = sum(len(sweep.resumed) for sweep in resumed)
    whole = f", {len(complete)} more figure{'s' * (len(complete) > 1)} complete" if complete else ""
    tell(
        f"resuming an interrupted reproduction: {done} of {trials} trials done, {cut} cut short{whole}"
        " (--fresh begins anew)"
    )
