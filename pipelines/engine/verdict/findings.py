"""What `known.toml` says of each claim, held against the newest stored verdicts, and written from them."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from featurelab.pipelines.engine.experiment import known
from featurelab.pipelines.engine.experiment.claims import Verdict
from featurelab.pipelines.engine.experiment.config import SCALES, Scale
from featurelab.pipelines.engine.experiment.experiment import Experiment
from featurelab.pipelines.engine.experiment.known import Finding, Known, State, Status, Value
from featurelab.pipelines.engine.sweep import schemas
from featurelab.pipelines.engine.sweep.records import VERDICTS
from featurelab.tracking.store import query
from featurelab.tracking.store.connect import Store

DIGITS = 4  # significant ones of a number on record


@dataclass(frozen=True)
class Comparison:
    """One claim at one scale: what is on record, and what the newest stored verdict says (None where there is none)."""

    experiment: str
    claim: str
    scale: Scale
    recorded: Finding | None
    stored: Finding | None

    @property
    def contradicts(self) -> bool:
        """Whether both are decided, and otherwise."""
        if self.stored is None:
            return False
        recorded = self.recorded.status if self.recorded else "holds"
        return self.stored.status != recorded and "undecided" not in (self.stored.status, recorded)

    @property
    def lacks_reason(self) -> bool:
        """Whether the record says that the claim does not hold, but not why."""
        return self.recorded is not None and self.recorded.status != "holds" and not self.recorded.reason

    @property
    def replaces(self) -> bool:
        """Whether the stored verdict would be written: it differs, and rests on no weaker evidence than the record.

        That is, on as many seeds, or on a level of its own where the record has none: fewer seeds then decided.
        """
        if self.stored is None or self.stored == self.recorded:
            return False
        if self.recorded is None or (self.stored.level is not None and self.recorded.level is None):
            return True
        return (self.stored.seeds or 0) >= (self.recorded.seeds or 0)

    def as_dict(self) -> dict[str, Any]:
        return {
            "experiment": self.experiment,
            "claim": self.claim,
            "scale": self.scale,
            "recorded": self.recorded.model_dump() if self.recorded else None,
            "stored": self.stored.model_dump() if self.stored else None,
            "contradicts": self.contradicts,
            "lacks_reason": self.lacks_reason,
        }


def compare(experiments: Sequence[Experiment], store: Store) -> list[Comparison]:
    """Each claim of these experiments at each scale at which something is on record or stored."""
    newest = dict(_newest(store))
    comparisons = []
    for experiment in experiments:
        for scale in SCALES:
            verdicts = newest.get((experiment.name, scale), {})
            for claim in experiment.claims:
                recorded, verdict = claim.recorded().at(scale), verdicts.get(claim.id)
                if recorded is not None or verdict is not None:
                    stored = _finding(verdict, recorded) if verdict else None
                    comparisons.append(Comparison(experiment.name, claim.id, scale, recorded, stored))
    return comparisons


def entries_without_claim(experiments: Sequence[Experiment]) -> list[str]:
    """Entries of the experiments' `known.toml` that name no claim or no experiment, as `FILE: experiment.claim`."""
    declared: dict[Path, set[tuple[str, str]]] = {}
    for experiment in experiments:
        for claim in experiment.claims:
            declared.setdefault(claim.folder, set()).add((_short(experiment), claim.id))
    return [
        f"{folder / known.FILE}: {name}.{claim}"
        for folder, names in declared.items()
        for name, claims in known.read(folder).items()
        for claim in claims
        if (name, claim) not in names
    ]


def write(experiments: Sequence[Experiment], comparisons: Sequence[Comparison]) -> list[Path]:
    """Write what replaces the record into each folder's `known.toml`, claims in the order of their declaration.

    Entries of experiments that are not among these stay as they are. Returns the files that were written.
    """
    replaced = {(c.experiment, c.claim, c.scale): c.stored for c in comparisons if c.replaces}
    folders: dict[Path, list[Experiment]] = {}
    for experiment in experiments:
        for folder in dict.fromkeys(claim.folder for claim in experiment.claims):
            if any(name == experiment.name for name, _, _ in replaced):
                folders.setdefault(folder, []).append(experiment)
    files = []
    for folder, own in folders.items():
        table: dict[str, dict[str, Known]] = {
            name: {claim: Known.model_validate(entry) for claim, entry in claims.items()}
            for name, claims in known.read(folder).items()
        }
        for experiment in own:
            table[_short(experiment)] = {
                claim.id: _with(claim.recorded(), {s: replaced.get((experiment.name, claim.id, s)) for s in SCALES})
                for claim in experiment.claims
                if claim.folder == folder
            }
        files.append(known.write(folder, table))
    return files


def _newest(store: Store) -> Iterator[tuple[tuple[str, Scale], Mapping[str, Verdict]]]:
    """The verdicts of the newest judged reproduction of each experiment at each scale, by claim."""
    runs = query.runs(store, VERDICTS, tags={"kind": "reproduce"})
    if not {"tags.verdict", "tags.experiment", "tags.scale"} <= set(runs.columns):
        return
    judged = runs[runs["tags.verdict"].notna()].sort_values("start", ascending=False)
    for row in judged.drop_duplicates(["tags.experiment", "tags.scale"]).to_dict("records"):
        stored = store.read_json(row["run_id"], "verdicts.json")
        verdicts = schemas.verdicts(stored, f"verdicts.json of {row['run_id']}")
        yield (row["tags.experiment"], row["tags.scale"]), {verdict.id: verdict for verdict in verdicts}


def _finding(verdict: Verdict, recorded: Finding | None) -> Finding:
    same = recorded is not None and recorded.status == verdict.status
    undecided = recorded is not None and "undecided" in (recorded.status, verdict.status)
    # A reproduction without controls says nothing of them: what an earlier one found of this claim stays.
    earlier = recorded if not verdict.controls and (same or undecided) else None
    controls: dict[str, State | Status] = {
        name: there.state if there.state and there.status != "untested" else there.status
        for name, there in verdict.controls.items()
    }
    return Finding(
        status=verdict.status,
        reason=recorded.reason if recorded and same else "",
        measured=_rounded(verdict.measured),
        ci=_rounded(verdict.ci),
        deciding=_rounded(verdict.decided.ci) if verdict.decided else None,
        level=verdict.decided.level if verdict.decided else None,
        worst=_rounded(verdict.worst),
        seeds=verdict.seeds or None,
        specific=earlier.specific if earlier else verdict.specific,
        controls=earlier.controls if earlier else controls,
    )


def _with(entry: Known, findings: Mapping[Scale, Finding | None]) -> Known:
    return entry.model_copy(update={scale: finding for scale, finding in findings.items() if finding is not None})


def _rounded(value: Any) -> Value:
    if isinstance(value, Mapping):
        return {str(name): _rounded(part) for name, part in value.items()}  # type: ignore[misc]
    if isinstance(value, list | tuple):
        return [_rounded(part) for part in value]  # type: ignore[misc]
    if isinstance(value, float) and math.isfinite(value):
        return float(f"{value:.{DIGITS}g}")
    return value  # type: ignore[no-any-return]


def _short(experiment: Experiment) -> str:
    return experiment.name.partition("/")[2]
