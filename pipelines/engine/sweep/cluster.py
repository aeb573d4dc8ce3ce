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
from featurelab.pipelines.engine.sweep import workarounds
from featurelab.pipelines.engine.sweep.reasons import cause
from featurelab.pipelines.engine.sweep.session import session_folder
from featurelab.pipelines.engine.trial.place import UMASK
from featurelab.tracking.lines import line, quoted

PATIENCE = 10.0


def connect_ray(address: str | None) -> None:
    """Start or join Ray; raises `RequestError` with one line when nothing answers at `address`, or not to our token."""
    workarounds.set_environment()
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
    workarounds.keep_secrets()
    workarounds.quieten()
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR", "configure_logging": True}
    if target == "local":
        with private(), workarounds.keeping_signal_handlers():
            ray.init(address="local", include_dashboard=False, _temp_dir=session_folder(), **quiet)
        return
    if target != "auto":
        _check_listening(target)
    try:
        with _one_line_at_most(), workarounds.keeping_signal_handlers():
            ray.init(address=target, **quiet)
    except Exception as error:
        if isinstance(error, ray.exceptions.AuthenticationError) or "InvalidAuthToken" in str(error.__cause__):
            wanted = "the token of the Ray cluster is wanted in ~/.ray/auth_token or RAY_AUTH_TOKEN"
            raise RequestError(f"{wanted} (--address {line(target, 80)})") from None
        raise RequestError(f"no Ray cluster at {line(target, 80)}: {cause(error, 200)}") from None


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
