"""Tune's schedulers, which also free ended trials, so that the driver's memory does not grow with the sweep."""

from typing import Any, Literal

from ray.tune.schedulers import ASHAScheduler, FIFOScheduler, TrialScheduler

from featurelab.pipelines.engine.sweep.ray.workarounds import free_ended_trials


class _Freeing(TrialScheduler):
    def on_trial_complete(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> None:
        super().on_trial_complete(tune_controller, trial, result)
        free_ended_trials(tune_controller)

    def on_trial_error(self, tune_controller: Any, trial: Any) -> None:
        super().on_trial_error(tune_controller, trial)
        free_ended_trials(tune_controller)


class Fifo(_Freeing, FIFOScheduler):
    """Runs trials in the order of the plan, each to its end."""


class Asha(_Freeing, ASHAScheduler):
    """Asynchronous successive halving: after 3, 9, 27, ... reports, only the best third so far continues."""

    def __init__(self, metric: str, mode: Literal["min", "max"]) -> None:
        # an iteration is a report of the metric, so trials are compared after equally many measurements
        super().__init__(
            time_attr="training_iteration",
            metric=metric,
            mode=mode,
            grace_period=3,
            reduction_factor=3,
            max_t=100_000,
        )
