"""Tune's schedulers, made to let go of trials that are over, so that a driver's memory does not grow with its sweep."""

from typing import Any, Literal

from ray.tune.schedulers import ASHAScheduler, FIFOScheduler, TrialScheduler

from featurelab.pipelines.engine.sweep.workarounds import let_go


class _LettingGo(TrialScheduler):
    def on_trial_complete(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> None:
        super().on_trial_complete(tune_controller, trial, result)
        let_go(tune_controller)

    def on_trial_error(self, tune_controller: Any, trial: Any) -> None:
        super().on_trial_error(tune_controller, trial)
        let_go(tune_controller)


class Fifo(_LettingGo, FIFOScheduler):
    """Trials in the order of the plan, each to its end."""


class Asha(_LettingGo, ASHAScheduler):
    """Asynchronous successive halving: after 3, 9, 27, ... reports only the best third so far continues."""

    def __init__(self, metric: str, mode: Literal["min", "max"]) -> None:
        # one iteration is one report of the metric, so that trials are compared after equally many measurements
        super().__init__(
            time_attr="training_iteration",
            metric=metric,
            mode=mode,
            grace_period=3,
            reduction_factor=3,
            max_t=100_000,
        )
