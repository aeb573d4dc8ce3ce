"""A Lightning logger that hands what a Trainer logs to a recorder."""

from __future__ import annotations

from typing import Any

from pytorch_lightning.loggers import Logger
from pytorch_lightning.utilities import rank_zero_only

from featurelab.tracking.outbox.record import Recorder


class RecorderLogger(Logger):
    """Passes `self.log` metrics on to `recorder`, from rank zero alone.

    Lightning's own `epoch` metric is dropped. Hyperparameters are not logged here: a run's configuration is stored when
    it starts. The run stays open after `fit`, since whoever made the recorder also closes it.
    """

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self.recorder = recorder

    @property
    def name(self) -> str:
        return "recorder"

    @property
    def version(self) -> str:
        return self.recorder.run_id

    @property
    def experiment(self) -> Recorder:
        """The recorder, for arrays, tables and figures: `trainer.logger.experiment.array(...)`."""
        return self.recorder

    @rank_zero_only
    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        """Record `metrics` at `step` (0 where Lightning gives none)."""
        kept = {name: value for name, value in metrics.items() if name != "epoch"}
        if kept:
            self.recorder.log(kept, step or 0)

    @rank_zero_only
    def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None:
        """Do nothing."""

    @rank_zero_only
    def save(self) -> None:
        """Do nothing: each point is safe as soon as it is recorded."""

    @rank_zero_only
    def finalize(self, status: str) -> None:
        """Send what is recorded, for at most a few seconds: what is left then goes out when the recorder closes."""
        self.recorder.flush(timeout=5.0)
