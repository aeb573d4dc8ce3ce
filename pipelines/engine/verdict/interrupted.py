"""Find reproductions that were interrupted, so that the same command resumes them."""

import hashlib
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from featurelab.pipelines.engine.errors import inform
from featurelab.pipelines.engine.sweep.begin import reopened
from featurelab.pipelines.engine.sweep.ownership import where_run
from featurelab.pipelines.engine.sweep.plan import Opened, Plan
from featurelab.pipelines.engine.sweep.records import JUDGING, VERDICTS, read_stored_plan
from featurelab.tracking.store import query
from featurelab.tracking.store.connect import Store

INTERRUPTED = ("running", "killed")  # the status of a sweep that has not ended by itself


@dataclass(frozen=True)
class Earlier:
    """What an earlier command has done of some plans: sweeps to resume, ids of complete sweeps, and missing plans.

    `command` is the tag that the sweeps of one command have in common.
    """

    resumed: list[Opened]
    complete: list[str]
    missing: list[Plan]
    command: str = ""


def find_interrupted(plans: Sequence[Plan], store: Store, outbox: Path) -> Earlier:
    """Find the newest sweep of each plan, run by the same source, and take those that were interrupted.

    Sweeps that the interrupted command had completed are taken as well; all other plans are missing. Prints in one line
    what it resumes.
    """
    sweeps = query.runs(store, VERDICTS, tags={"kind": plans[0].kind})
    if not {"tags.plan_digest", "tags.command", "tags.status", "tags.sweep"} <= set(sweeps.columns):
        return Earlier([], [], list(plans))
    newest = [_newest(sweeps[sweeps["tags.plan_digest"] == digest(plan)]) for plan in plans]
    begun = [row for row in newest if row["tags.status"] in (*INTERRUPTED, JUDGING)]
    unfinished = {row["run_id"]: row["tags.command"] for row in begun if not _is_running(row, store, outbox)}
    commands = set(unfinished.values())
    resumed: list[Opened] = []
    complete: list[str] = []
    missing: list[Plan] = []
    for plan, row in zip(plans, newest, strict=True):
        status = row["tags.status"]
        if row["run_id"] in unfinished and status in INTERRUPTED:
            stored = read_stored_plan(store, row["run_id"], plan.declared)  # it may have got further seeds
            resumed.append(reopened(stored, row["tags.sweep"], row["run_id"], store, outbox))
        elif row["run_id"] in unfinished:
            complete.append(row["run_id"])  # its trials have ended, and it is to be judged
        elif row["tags.command"] in commands and status not in (*INTERRUPTED, JUDGING):
            complete.append(row["run_id"])
        else:
            missing.append(plan)
    if resumed or complete:
        _tell(resumed, complete)
    return Earlier(resumed, complete, missing, max(commands, default=""))


def digest(plan: Plan) -> str:
    """Return a digest of everything that decides what trials of a plan record: its settings, and the source code."""
    total = hashlib.sha256(json.dumps(plan.model_dump(), sort_keys=True).encode())
    for path in sorted(_sources(plan.declared.run_trial)):
        total.update(f"\n{path.name}\n".encode())
        total.update(path.read_bytes())
    return total.hexdigest()[:32]


def _sources(trial: Any) -> set[Path]:
    """The source files that experiments share, and those of the package (or else the module) of the trial."""
    engine = Path(__file__).resolve().parents[1]
    # these folders, not the links to them below featurelab/, which rglob of Python 3.11 does not follow
    shared = [engine, engine.parents[1] / "modules", engine.parents[1] / "tracking"]
    files = {path for folder in shared for path in folder.rglob("*.py") if engine / "command" not in path.parents}
    name = str(getattr(trial, "__module__", ""))
    module = sys.modules.get(name)
    ours = __package__.rpartition(".engine.")[0]
    system = ".".join(name.split(".")[: ours.count(".") + 2])
    top = sys.modules.get(system if name.startswith(f"{ours}.") else name.partition(".")[0])
    if top is not None and hasattr(top, "__path__"):
        for folder in top.__path__:
            files |= set(Path(folder).rglob("*.py"))
    elif module is not None and module.__file__:
        files.add(Path(module.__file__))
    return files


def _newest(rows: pd.DataFrame) -> Mapping[Any, Any]:
    """The last row, since runs are sorted by age; without any, a row of empty texts."""
    return rows.iloc[-1].to_dict() if len(rows) else dict.fromkeys(("run_id", "tags.status", "tags.command"), "")


def _is_running(row: Mapping[Any, Any], store: Store, outbox: Path) -> bool:
    """Whether a process runs this sweep now; if so, print where."""
    tags = {name: row.get(f"tags.{name}") for name in ("driver", "status")}
    if where := where_run(row["run_id"], tags, store, outbox):
        inform(f"{row['tags.experiment']} is being run {where}: this command runs it too")
    return bool(where)


def _tell(resumed: Sequence[Opened], complete: Sequence[str]) -> None:
    if not resumed:
        plural = "s" * (len(complete) > 1)
        inform(
            f"the trials of {len(complete)} figure{plural} are there: judging without training (--fresh begins anew)"
        )
        return
    trials = sum(len(sweep.plan.configs) for sweep in resumed)
    done = trials - sum(len(sweep.indices) for sweep in resumed)
    cut_short = sum(len(sweep.resumed) for sweep in resumed)
    others = f", {len(complete)} more figure{'s' * (len(complete) > 1)} complete" if complete else ""
    inform(
        f"resuming an interrupted reproduction: {done} of {trials} trials done, {cut_short} cut short{others}"
        " (--fresh begins anew)"
    )
