"""A trial as its MLflow run holds it: opened, reopened, read."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import from_json

from featurelab.pipelines.engine.experiment.axes import MOST_TRIALS
from featurelab.pipelines.engine.experiment.config import Config, Scale
from featurelab.pipelines.engine.experiment.experiment import Experiment
from featurelab.tracking.lines import line
from featurelab.tracking.provenance import config_hash

if TYPE_CHECKING:  # plans and resources need the record alone, and no MLflow
    from featurelab.tracking.outbox.record import Recorder
    from featurelab.tracking.store.store import Store

MOST_WORKERS = 100_000
STOPPED = "stopped early by the scheduler"  # the reason of a trial with that status
ALONE = -1  # the index of a trial that is in no sweep

Save = Literal["", "last", "best"]  # which weights of each fit a run stores

Parsed = BeforeValidator(lambda value: from_json(value) if isinstance(value, str) else value)
Flag = BeforeValidator(lambda value: value in (True, "true"))
OF_THE_RUN = {"run_id", "name", "mlflow_status", "metrics"}


class TrialRecord(BaseModel):
    """One trial: read from the tags of its run, where all values are texts, or made from the values themselves.

    `index` is its place in the plan of its sweep, `ALONE` without one. `status` is ours: finished, stopped, diverged,
    failed, killed or running. `died` says that its process ended without the trial's doing. `metrics` are the last
    values, without derived metrics.
    """

    model_config = ConfigDict(frozen=True, populate_by_name=True)

    experiment: str
    config: Annotated[dict[str, Any], Parsed]
    scale: Scale
    axes: Annotated[list[str], Parsed] = Field(default_factory=list)
    workers: int = Field(1, ge=1, le=MOST_WORKERS)
    gpus: float = Field(0, ge=0, le=1)  # of each worker
    index: int = Field(ALONE, ge=ALONE, lt=MOST_TRIALS, alias="trial")
    status: str = Field(pattern="^[a-z]{1,20}$")
    reason: str = ""
    weights: int = Field(0, ge=0, alias="weights_bytes")  # bytes of the weights that are stored with the run
    died: Annotated[bool, Flag] = Field(False, alias="cut_short")
    # read from the run itself, not from its tags
    run_id: str = ""
    name: str = ""
    mlflow_status: str = ""
    metrics: dict[str, float] = Field(default_factory=dict)

    def tags(self) -> dict[str, str]:
        """The fields that were given, as tags of a run."""
        fields = self.model_dump(by_alias=True, exclude_unset=True, exclude=OF_THE_RUN)
        return {name: _text(value) for name, value in fields.items()}

    @property
    def cut_short(self) -> bool:
        """Whether the trial was interrupted, so that it can be resumed."""
        return self.died or self.status in ("killed", "running")

    @property
    def went_well(self) -> bool:
        return self.status in ("finished", "stopped")

    def as_dict(self) -> dict[str, Any]:
        """The trial as `--json` prints it; `run_id` is None if it never opened a run."""
        return {"run_id": self.run_id or None, "config": self.config, "status": self.status, "metrics": self.metrics}


def told_weights(save: Save, sizes: Sequence[int]) -> str:
    """Return in a line how large the stored weights of these trials are."""
    of = f" of {len(sizes)} trials" if len(sizes) > 1 else ""
    size = sum(sizes)
    amount = f"{size / 1e6:.3g} MB" if size >= 1e6 else f"{size / 1e3:.3g} kB"
    return f"weights: {save}{of}, {amount}"


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return f"{value:g}" if isinstance(value, float) else json.dumps(value)


def params_of(experiment: Experiment, config: Config, scale: Scale, axes: Sequence[str]) -> dict[str, str]:
    """The MLflow params of a trial: the axes, and the settings that differ from the preset."""
    values = config.model_dump(mode="json")
    names = dict.fromkeys([*axes, *config.differences(experiment.preset(scale))])
    return {name: json.dumps(values[name]) if isinstance(values[name], list) else str(values[name]) for name in names}


def open_run(
    experiment: Experiment,
    config: Config,
    store: "Store",
    *,
    scale: Scale,
    name: str,
    axes: Sequence[str],
    tags: Mapping[str, str],
    place: Mapping[str, Any] | None = None,
) -> str:
    """Open the MLflow run of a trial and return its id.

    `place` has further fields of its `TrialRecord`, such as its index in a sweep.
    """
    values = config.model_dump(mode="json")
    fields = {"experiment": experiment.name, "config": values, "scale": scale, "axes": list(axes), "status": "running"}
    record = TrialRecord(**fields | dict(place or {}))
    facts = {"system": experiment.system, "figure": experiment.figure, "config_hash": config_hash(values)}
    return store.start_run(experiment.name, name, tags={**facts, **record.tags(), **tags})


def reopen_run(store: "Store", run_id: str, attempt: int, recorder: "Recorder") -> float:
    """Reopen a run that was cut short, and return the seconds that it has taken so far, 0 where they are unknown.

    Raises StoreError, after it has closed the recorder.
    """
    try:
        seconds = store.get_run(run_id).data.tags.get("seconds", "")
        store.set_tags(run_id, {"attempt": attempt, "status": "running", "reason": "", "cut_short": ""})
        store.reopen_run(run_id)
    except Exception as error:
        recorder.close("KILLED", tags={"status": "killed", "reason": f"could not be resumed: {line(str(error))}"})
        raise
    return float(seconds) if re.fullmatch(r"\d{1,9}(\.\d{1,9})?", seconds) else 0.0
