"""Workarounds for what Ray and Tune (2.60) do differently from what a sweep needs.

Each uses something that is not public, or changes a default, and says why. Remove it when Ray no longer needs it.
"""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from featurelab.pipelines.engine.trial.signals import ENDING
from featurelab.tracking.lines import SECRET_NAME

PATIENCE = 20.0  # seconds in which a raylet usually begins, also on a busy machine
NO_MEMORY = "the memory of its machine ran out"
ENVIRONMENT = {
    # our command line and records take the place of Tune's signal handler, loggers and checks
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_STRICT_METRIC_CHECKING": "1",
    # Tune's checkpoints of all trials at once, which we do not use
    "TUNE_GLOBAL_CHECKPOINT_S": "1000000000",
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_TRAIN_ENABLE_V2_MIGRATION_WARNINGS": "0",
    # by default, Ray sends usage statistics
    "RAY_USAGE_STATS_ENABLED": "0",
}


def set_environment() -> None:
    """Set the variables that Ray reads when it is imported, unless the user has set them."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    os.environ["RAY_AIR_NEW_OUTPUT"] = "0"  # with the new output, Tune leaves `SweepProgress` out


def keep_secrets() -> None:
    """Keep credentials out of the variables that Tune sends to its workers: logs that everybody can read hold them.

    Workers on this machine have this process's environment anyway, and other machines have their own.
    """
    from ray.tune.execution import class_cache

    variables = class_cache.ENV_VARS_TO_PROPAGATE
    variables.difference_update([name for name in variables if SECRET_NAME.search(name)])


@contextmanager
def keeping_signal_handlers() -> Iterator[None]:
    """Inside, Ray can be started or joined without replacing this process's signal handlers.

    Ray's own handler for SIGTERM exits with status 15, and the one that it sets in C++ aborts. Signals wait while Ray's
    C++ part starts, since Python does not run either.
    """
    from ray import _raylet
    from ray._private import utils

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    raylet: Any = _raylet
    set_sigterm_handler, CoreWorker = utils.set_sigterm_handler, raylet.CoreWorker

    def quietly(*args: Any, **options: Any) -> Any:
        before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
        try:
            return CoreWorker(*args, **options)
        finally:
            for number in ENDING:
                signal.signal(number, signal.getsignal(number))  # set again what Python still has
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    utils.set_sigterm_handler, raylet.CoreWorker = (lambda handler: None), quietly
    try:
        yield
    finally:
        utils.set_sigterm_handler, raylet.CoreWorker = set_sigterm_handler, CoreWorker


@contextmanager
def starting_quickly() -> Iterator[None]:
    """Inside, a local Ray starts without three of its processes, and asks every 20 ms whether its raylet has begun.

    These processes scale a cluster, serve usage statistics, and send what workers print to the driver. None of it is
    asked for, and they take two seconds to start and one to end. Ray itself asks for the raylet once a second.
    """
    from ray._private import services
    from ray._private.node import Node
    from ray._private.state import GlobalState

    get_node, unneeded = services.get_node, ("start_monitor", "start_api_server", "start_log_monitor")
    before = {name: getattr(Node, name) for name in unneeded}

    def get_node_soon(gcs_address: str, node_id: str) -> Any:
        state, deadline = GlobalState(), time.monotonic() + PATIENCE
        state._initialize_global_state(services._get_gcs_client_options(gcs_address))
        while node_id not in [node["NodeID"] for node in state.node_table()] and time.monotonic() < deadline:
            time.sleep(0.02)
        return get_node(gcs_address, node_id)

    services.get_node = get_node_soon
    for name in unneeded:
        setattr(Node, name, lambda self, **options: None)
    try:
        yield
    finally:
        services.get_node = get_node
        for name, method in before.items():
            setattr(Node, name, method)


def quieten() -> None:
    """Silence what Ray prints when one of its processes dies, such as dumps of its state: our message says enough."""
    from ray._private import worker

    worker.print_to_stdstream = lambda *args, **options: None


def fallen() -> str:
    """Say which of the Ray processes that this one has started have died; empty while all are alive.

    If its raylet dies, Ray ends the driver's process as well, about ten seconds later and without a message.
    """
    from ray._private import worker

    node: Any = worker._global_node
    if node and node.is_head() and not os.path.isdir(node.get_sockets_dir_path()):
        return f"Ray's session folder {node.get_session_dir_path()} was removed"
    dead = sorted({kind for kind, _ in node.dead_processes()} & {"raylet", "gcs_server"}) if node else []
    return f"Ray's {' and '.join(dead)} died" if dead else ""


def capacity() -> dict[str, float]:
    """The CPUs and GPUs of the cluster, or those that it can scale up to."""
    import ray
    from ray._private.state import state  # the limits of an autoscaling cluster are not public

    largest = state.get_max_resources_from_cluster_config() or {}
    here = ray.cluster_resources()
    return {kind: max(here.get(kind, 0), largest.get(kind, 0)) for kind in ("CPU", "GPU")}


def survive_lack_of_memory() -> None:
    """When a machine runs out of memory, let a sweep lose only the trials that Ray ends for it.

    Tune would take Ray's exception for an error of its own, and end all trials.
    """
    from ray.air.execution._internal.actor_manager import RayActorManager
    from ray.exceptions import OutOfMemoryError, RayActorError

    original = RayActorManager._actor_task_failed
    if original.__module__ == __name__:
        return

    def failed(self: Any, tracked_actor_task: Any, exception: Exception) -> None:
        if isinstance(exception, OutOfMemoryError):
            exception = RayActorError(error_msg=NO_MEMORY)
        original(self, tracked_actor_task, exception)

    RayActorManager._actor_task_failed = failed  # type: ignore[method-assign]


def free_ended_trials(controller: Any) -> None:
    """Free the memory of trials that have ended; Tune keeps each, with its results and resources, until the end.

    Tune also keeps a task for each actor that it requested and did not need. Neither is used again: how a trial ended
    is in the store.
    """
    for trial in [trial for trial in controller.get_trials() if trial.is_finished()]:
        controller.get_trials().remove(trial)
        for name in ("_live_trials", "_stopped_trials", "_failed_trials", "_trials_to_cache"):
            getattr(controller, name).discard(trial)
    actors = controller._actor_manager
    tasks = actors._pending_actors_to_enqueued_actor_tasks
    for actor in tasks.keys() - actors._pending_actors_to_attrs.keys():
        del tasks[actor]
