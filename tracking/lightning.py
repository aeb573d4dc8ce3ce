"""A Lightning logger that passes what a Trainer logs to a recorder."""

from __future__ import annotations

from typing import Any

from pytorch_lightning.loggers import Logger
from pytorch_lightning.utilities import rank_zero_only

from featurelab.tracking.outbox.record import Recorder


class RecorderLogger(Logger):
    """Passes the metrics of `self.log` to `recorder`, on rank zero only.

    Drops Lightning's own `epoch` metric and ignores hyperparameters: the configuration is stored when the run starts.
    The run stays open after `fit`; whoever created the recorder closes it.
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
        """Record `metrics` at `step` (0 if Lightning gives none). Raises what `Recorder.log` raises."""
        without_epoch = {name: value for name, value in metrics.items() if name != "epoch"}
        if without_epoch:
            self.recorder.log(without_epoch, step or 0)

    @rank_zero_only
    def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None:
        """Do nothing."""

    @rank_zero_only
    def save(self) -> None:
        """Do nothing: every point is safe once it is recorded."""

    @rank_zero_only
    def finalize(self, status: str) -> None:
        """Send what was recorded, for at most 5 seconds. Closing the recorder sends the rest."""
        self.recorder.flush(timeout=5.0)
