"""A trial as its MLflow run holds it."""

import json
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import from_json

from featurelab.pipelines.engine.experiment.axes import MOST_TRIALS
from featurelab.pipelines.engine.experiment.config import Scale

MOST_WORKERS = 100_000
ALONE = -1  # in place of the index of a trial that is in no sweep

Parsed = BeforeValidator(lambda value: from_json(value) if isinstance(value, str) else value)
Flag = BeforeValidator(lambda value: value in (True, "true"))
OF_THE_RUN = {"run_id", "name", "mlflow_status", "metrics"}


class TrialRecord(BaseModel):
    """One trial; `index` is its place in the plan of its sweep, `ALONE` where it was run by itself.

    `status` is ours (finished, stopped, diverged, failed, killed, running); `metrics` are the last values, without the
    derived ones; `died` says that its process ended without the trial's own doing. Read from tags with what they say as
    text, made with the values themselves.
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
    died: Annotated[bool, Flag] = Field(False, alias="cut_short")
    # of the run itself
    run_id: str = ""
    name: str = ""
    mlflow_status: str = ""
    metrics: dict[str, float] = Field(default_factory=dict)

    def tags(self) -> dict[str, str]:
        """The tags that say this of a run: what was given, as text."""
        said = self.model_dump(by_alias=True, exclude_unset=True, exclude=OF_THE_RUN)
        return {name: _text(value) for name, value in said.items()}

    @property
    def cut_short(self) -> bool:
        """Whether it did not come to an end, so that it can be resumed."""
        return self.died or self.status in ("killed", "running")

    @property
    def went_well(self) -> bool:
        return self.status in ("finished", "stopped")

    def as_dict(self) -> dict[str, Any]:
        """The trial as `--json` prints it; `run_id` is None where it never opened a run."""
        return {"run_id": self.run_id or None, "config": self.config, "status": self.status, "metrics": self.metrics}


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return f"{value:g}" if isinstance(value, float) else json.dumps(value)
