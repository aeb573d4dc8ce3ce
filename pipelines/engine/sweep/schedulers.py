"""Tune's schedulers, made to let go of trials that are over, so that a driver's memory does not grow with its sweep."""

from typing import Any, Literal

from ray.tune.schedulers import ASHAScheduler, FIFOScheduler, TrialScheduler


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
    """Asynchronous successive halving: after 3, 9, 27, ... reports only the best third so far goes on."""

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


def let_go(controller: Any) -> None:
    """Forget the trials that are over; Tune (2.60) keeps each, with its results and resources, until all are.

    It also keeps a task for each actor that it asked for and did not need. Nothing of either is looked at again: what
    became of a trial is in the store.
    """
    for trial in [trial for trial in controller.get_trials() if trial.is_finished()]:
        controller.get_trials().remove(trial)
        for kept in ("_live_trials", "_stopped_trials", "_failed_trials", "_trials_to_cache"):
            getattr(controller, kept).discard(trial)
    actors = controller._actor_manager
    tasks = actors._pending_actors_to_enqueued_actor_tasks
    for actor in tasks.keys() - actors._pending_actors_to_attrs.keys():
        del tasks[actor]
