"""What Ray and Tune (2.60) do otherwise than a sweep needs, and how it is got round.

Everything here reaches for what is not public, or undoes a default; each says why, and goes when Ray no longer needs
it.
"""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from featurelab.pipelines.engine.trial.signals import ENDING
from featurelab.tracking.lines import SECRET_NAME

NO_MEMORY = "the memory of its machine ran out"
ENVIRONMENT = {
    # Tune's own signal handler, loggers and checks would talk past our records and our command line
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",
    # of all trials at once; ours are in the store
    "TUNE_GLOBAL_CHECKPOINT_S": "1000000000",
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_TRAIN_ENABLE_V2_MIGRATION_WARNINGS": "0",
    # Ray would send statistics home unasked
    "RAY_USAGE_STATS_ENABLED": "0",
}


def set_environment() -> None:
    """Set what Ray reads from the environment when it is imported, unless somebody has set it already."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    os.environ["RAY_AIR_NEW_OUTPUT"] = "0"  # with the other one Tune would leave `SweepProgress` out


def keep_secrets() -> None:
    """Keep credentials out of what Tune tells its workers to set: it is written to logs that all can read.

    Workers of this machine have this process's environment anyway; others have their own.
    """
    from ray.tune.execution import class_cache

    named = class_cache.ENV_VARS_TO_PROPAGATE
    named.difference_update([name for name in named if SECRET_NAME.search(name)])


@contextmanager
def keeping_signal_handlers() -> Iterator[None]:
    """Let Ray start or be joined without taking over this process's signals.

    Its own handler for SIGTERM would exit with status 15, and the one that it sets in C++ would abort. While its C++
    part starts, which holds Python up too, signals wait.
    """
    from ray import _raylet
    from ray._private import utils

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    raylet: Any = _raylet
    known, CoreWorker = utils.set_sigterm_handler, raylet.CoreWorker

    def quietly(*args: Any, **options: Any) -> Any:
        before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
        try:
            return CoreWorker(*args, **options)
        finally:
            for number in ENDING:
                signal.signal(number, signal.getsignal(number))  # known to Python as ever, set anew for the process
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    utils.set_sigterm_handler, raylet.CoreWorker = (lambda handler: None), quietly
    try:
        yield
    finally:
        utils.set_sigterm_handler, raylet.CoreWorker = known, CoreWorker


def quieten() -> None:
    """Leave out what Ray prints, dumps of its state among it, where a process of its own dies: we say so."""
    from ray._private import worker

    worker.print_to_stdstream = lambda *args, **options: None


def fallen() -> str:
    """Which of the processes of Ray that this one has started are dead; empty while all live.

    Without its raylet, Ray ends the driver's process too, some ten seconds later and without a word to it.
    """
    from ray._private import worker

    node: Any = worker._global_node
    if node and node.is_head() and not os.path.isdir(node.get_sockets_dir_path()):
        return f"Ray's session folder {node.get_session_dir_path()} was removed"
    dead = sorted({kind for kind, _ in node.dead_processes()} & {"raylet", "gcs_server"}) if node else []
    return f"Ray's {' and '.join(dead)} died" if dead else ""


def capacity() -> dict[str, float]:
    """CPUs and GPUs that the cluster has, or can grow to where it scales by itself."""
    import ray
    from ray._private.state import state  # the limits of an autoscaling cluster have no public way to them

    largest = state.get_max_resources_from_cluster_config() or {}
    here = ray.cluster_resources()
    return {kind: max(here.get(kind, 0), largest.get(kind, 0)) for kind in ("CPU", "GPU")}


def survive_lack_of_memory() -> None:
    """Let a sweep lose only those trials that Ray ends because the memory of their machine runs out.

    Tune takes what Ray raises then for an error of its own, and would end with all trials.
    """
    from ray.air.execution._internal.actor_manager import RayActorManager
    from ray.exceptions import OutOfMemoryError, RayActorError

    known = RayActorManager._actor_task_failed
    if known.__module__ == __name__:
        return

    def failed(self: Any, tracked_actor_task: Any, exception: Exception) -> None:
        if isinstance(exception, OutOfMemoryError):
            exception = RayActorError(error_msg=NO_MEMORY)
        known(self, tracked_actor_task, exception)

    RayActorManager._actor_task_failed = failed  # type: ignore[method-assign]


def let_go(controller: Any) -> None:
    """Forget the trials that are over; Tune keeps each, with its results and resources, until all are.

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
