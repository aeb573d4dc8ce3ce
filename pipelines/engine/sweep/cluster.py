"""Reach Ray: a local instance of our own, or the cluster at an address."""

import os
import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from featurelab.pipelines.engine.errors import RequestError
from featurelab.pipelines.engine.trial.place import UMASK
from featurelab.tracking.lines import SECRET_NAME, line, quoted

PATIENCE = 10.0
NO_MEMORY = "the memory of its machine ran out"


def connect_ray(address: str | None) -> None:
    """Start or join Ray; raises `RequestError` with one line when nothing answers at `address`, or not to our token."""
    # Tune's own signal handler, loggers and checks would talk past our records and our command line
    os.environ.setdefault("TUNE_DISABLE_SIGINT_HANDLER", "1")
    os.environ.setdefault("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")
    os.environ.setdefault("TUNE_DISABLE_STRICT_METRIC_CHECKING", "1")
    os.environ.setdefault("TUNE_GLOBAL_CHECKPOINT_S", "1000000000")  # of all trials at once; ours are in the store
    os.environ.setdefault("TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S", "0")
    os.environ["RAY_AIR_NEW_OUTPUT"] = "0"  # with the other one Tune would leave `SweepProgress` out
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault("RAY_TRAIN_ENABLE_V2_MIGRATION_WARNINGS", "0")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # Ray would send statistics home unasked
    if _has_token():
        # `ray start` protects a cluster with the token it finds, but a driver that joins would not show it unasked
        os.environ.setdefault("RAY_AUTH_MODE", "token")
    target = address or os.environ.get("RAY_ADDRESS") or "local"
    if target == "local":
        # read when Ray is imported: its servers then listen on the loopback interface alone
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")

    import ray

    if ray.is_initialized():
        return
    _keep_secrets()
    _quieten()
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR", "configure_logging": True}
    if target == "local":
        with private():
            ray.init(address="local", include_dashboard=False, **quiet)
        return
    if target != "auto":
        _check_listening(target)
    try:
        with _one_line_at_most():
            ray.init(address=target, **quiet)
    except Exception as error:
        if isinstance(error, ray.exceptions.AuthenticationError) or "InvalidAuthToken" in str(error.__cause__):
            wanted = "the token of the Ray cluster is wanted in ~/.ray/auth_token or RAY_AUTH_TOKEN"
            raise RequestError(f"{wanted} (--address {line(target, 80)})") from None
        raise RequestError(f"no Ray cluster at {line(target, 80)}: {line(str(error), 200)}") from None


def _keep_secrets() -> None:
    """Keep credentials out of what Tune (2.60) tells its workers to set: it is written to logs that all can read.

    Workers of this machine have this process's environment anyway; others have their own.
    """
    from ray.tune.execution import class_cache

    named = class_cache.ENV_VARS_TO_PROPAGATE
    named.difference_update([name for name in named if SECRET_NAME.search(name)])


def _quieten() -> None:
    """Leave out what Ray (2.60) prints, dumps of its state among it, where a process of its own dies: we say so."""
    from ray._private import worker

    worker.print_to_stdstream = lambda *args, **options: None


@contextmanager
def private() -> Iterator[None]:
    """Inside, files are made for this user alone: Ray's token, which lets anybody run code here, and its logs.

    What Ray starts inherits that; trials go back to the mask that is noted here.
    """
    token = Path.home() / ".ray" / "auth_token"
    with suppress(OSError):
        if token.stat().st_mode & 0o077:
            token.chmod(0o600)
    before = os.umask(0o077)
    os.environ[UMASK] = f"{before:o}"
    try:
        yield
    finally:
        os.umask(before)
        del os.environ[UMASK]


@contextmanager
def _one_line_at_most() -> Iterator[None]:
    """Hold standard error back, and drop it where an exception says it all: Ray writes a line for each attempt."""
    kept = os.dup(2)
    with tempfile.TemporaryFile() as held:
        os.dup2(held.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(kept, 2)
            os.close(kept)
        held.seek(0)
        os.write(2, held.read())


def _has_token() -> bool:
    named = any(name in os.environ for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"))
    return named or (Path.home() / ".ray" / "auth_token").is_file()


def fallen() -> str:
    """Which of the processes of Ray that this one has started are dead; empty while all live.

    Without its raylet, Ray (2.60) ends the driver's process too, some ten seconds later and without a word to it.
    """
    from ray._private import worker

    node: Any = worker._global_node
    dead = sorted({kind for kind, _ in node.dead_processes()} & {"raylet", "gcs_server"}) if node else []
    return f"Ray's {' and '.join(dead)} died" if dead else ""


def alive() -> set[str]:
    """The ids of the machines that are part of the cluster now."""
    import ray

    return {node["NodeID"] for node in ray.nodes() if node["Alive"]}


def on_other_nodes(call: Callable[..., Any], *arguments: Any, patience: float) -> list[Any]:
    """What `call(*arguments)` gives on each other machine of the cluster; those that fail or do not answer in
    `patience` seconds are left out."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    if not ray.is_initialized():
        return []
    here = ray.get_runtime_context().get_node_id()
    task = ray.remote(num_cpus=0, max_retries=0)(call)
    asked = [
        task.options(scheduling_strategy=NodeAffinitySchedulingStrategy(machine, soft=False)).remote(*arguments)
        for machine in alive() - {here}
    ]
    if not asked:
        return []
    answers = []
    for answer in ray.wait(asked, num_returns=len(asked), timeout=patience)[0]:
        with suppress(ray.exceptions.RayError, OSError):
            answers.append(ray.get(answer))
    return answers


def capacity() -> dict[str, float]:
    """CPUs and GPUs that the cluster has, or can grow to where it scales by itself."""
    import ray
    from ray._private.state import state  # the limits of an autoscaling cluster have no public way to them

    largest = state.get_max_resources_from_cluster_config() or {}
    here = ray.cluster_resources()
    return {kind: max(here.get(kind, 0), largest.get(kind, 0)) for kind in ("CPU", "GPU")}


def survive_lack_of_memory() -> None:
    """Let a sweep lose only those trials that Ray ends because the memory of their machine runs out.

    Tune takes what Ray (2.60) raises then for an error of its own, and would end with all trials.
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


def require_shared_store(uri: str) -> None:
    """Raise `RequestError` where trials run on several machines and the store is a file on this one."""
    import ray

    nodes = {node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]}
    if len(nodes) > 1 and uri.startswith("sqlite"):
        raise RequestError(
            f"the cluster has {len(nodes)} machines, which cannot write to {uri}: "
            "start an MLflow server and set MLFLOW_TRACKING_URI to it"
        )


def _check_listening(address: str) -> None:
    """Ray itself would try for minutes."""
    try:
        parts = urlsplit(address if "://" in address else f"//{address}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host or not port:
        raise RequestError(f"{quoted(address)} is not a Ray address: write HOST:PORT, ray://HOST:PORT or auto")
    try:
        socket.create_connection((host, port), timeout=PATIENCE).close()
    except (OSError, UnicodeError) as error:  # the latter for a name that no host can have
        reason = getattr(error, "strerror", None) or str(error)
        raise RequestError(f"no Ray cluster answers at {line(address, 80)}: {reason.lower()}") from None
