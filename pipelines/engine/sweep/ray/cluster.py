"""Reach Ray: start a local instance, or join the cluster at an address; and leave it again."""

import os
import socket
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from featurelab.pipelines.engine.errors import RequestError, RunError, is_verbose
from featurelab.pipelines.engine.sweep.ray import workarounds
from featurelab.pipelines.engine.sweep.ray.reasons import cause
from featurelab.pipelines.engine.sweep.ray.session import session_folder
from featurelab.pipelines.engine.trial.place import UMASK
from featurelab.tracking.errors import disk_full
from featurelab.tracking.lines import line, quoted

PATIENCE = 10.0


def set_environment(address: str | None) -> str:
    """Set the variables that Ray reads when it is imported; return the address to join, or `local`."""
    workarounds.set_environment()
    if _has_token():
        # `ray start` uses a token that it finds, but a driver sends the token only in this mode
        os.environ.setdefault("RAY_AUTH_MODE", "token")
    target = address or os.environ.get("RAY_ADDRESS") or "local"
    if target == "local":
        # so that its servers listen on the loopback interface only
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    return target


def connect_ray(address: str | None, meanwhile: Sequence[str] = ()) -> None:
    """Start Ray, or join the cluster at `address`; import the modules `meanwhile`, since Ray's processes take seconds.

    Raises `RequestError` where no cluster answers at `address`, or where it refuses our token, and `RunError` where Ray
    does not start on this machine.
    """
    target = set_environment(address)
    import ray

    if ray.is_initialized():
        return
    workarounds.quieten()
    quiet: dict[str, Any] = {
        "log_to_driver": False,
        "logging_level": "INFO" if is_verbose() else "ERROR",
        "configure_logging": True,
    }
    if target == "local":
        folder = session_folder()
        try:
            with (
                private(),
                workarounds.keeping_signal_handlers(),
                workarounds.starting_quickly(),
                importing("ray.tune", *meanwhile),
            ):
                ray.init(address="local", include_dashboard=False, _temp_dir=folder, **quiet)
        except Exception as error:
            if disk_full(error):
                raise
            raise RunError(f"Ray did not start on this machine, nothing was run: {cause(error, 300)}") from None
        workarounds.keep_secrets()
        return
    if target != "auto":
        _check_listening(target)
    try:
        with _one_line_at_most(), workarounds.keeping_signal_handlers():
            ray.init(address=target, **quiet)
    except Exception as error:
        if isinstance(error, ray.exceptions.AuthenticationError) or "InvalidAuthToken" in str(error.__cause__):
            needed = "needs its token in ~/.ray/auth_token or RAY_AUTH_TOKEN"
            raise RequestError(f"the Ray cluster at {line(target, 80)} {needed}") from None
        raise RequestError(f"no Ray cluster at {line(target, 80)}: {cause(error, 200)}") from None
    workarounds.keep_secrets()


@contextmanager
def importing(*modules: str) -> Iterator[None]:
    """Inside, these modules are imported in another thread. An import that fails is left to whoever needs it."""

    def run() -> None:
        with suppress(Exception):
            for module in modules:
                import_module(module)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        thread.join()


@contextmanager
def private() -> Iterator[None]:
    """Inside, only this user can read new files: Ray's token, which lets anybody run code here, and its logs.

    Processes that Ray starts inherit this; trials restore the user's mask, which goes into the environment here.
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
    """Hold standard error back, and drop it if an exception is raised: Ray writes a line for each attempt."""
    stderr = os.dup(2)
    with tempfile.TemporaryFile() as held:
        os.dup2(held.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)
        held.seek(0)
        os.write(2, held.read())


def _has_token() -> bool:
    in_environment = any(name in os.environ for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"))
    return in_environment or (Path.home() / ".ray" / "auth_token").is_file()


def shut_down(*, reconnect: bool = False) -> None:
    """Leave Ray, which ends our workers; with `reconnect`, join the same cluster again, if it still answers."""
    if "ray" not in sys.modules:
        return
    import ray

    address = ray.get_runtime_context().gcs_address if reconnect else ""
    ray.shutdown()
    if address:
        with suppress(RequestError):
            connect_ray(address)


@contextmanager
def left_as_found() -> Iterator[None]:
    """At the end, stop Ray if it was started inside."""
    before = "ray" in sys.modules and sys.modules["ray"].is_initialized()
    try:
        yield
    finally:
        if not before:
            shut_down()


@contextmanager
def connected(address: str | None, meanwhile: Sequence[str] = ()) -> Iterator[None]:
    """Inside, Ray is connected. At the end it stops, unless it was connected before. Raises as `connect_ray`."""
    with left_as_found():
        connect_ray(address, meanwhile)
        yield


def alive() -> set[str]:
    """The ids of the machines that are part of the cluster now."""
    import ray

    return {node["NodeID"] for node in ray.nodes() if node["Alive"]}


def on_other_nodes(call: Callable[..., Any], *arguments: Any, patience: float) -> list[Any]:
    """The results of `call(*arguments)` on the other machines of the cluster.

    Machines that fail, or do not answer within `patience` seconds, are left out.
    """
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
    """Raise `RequestError` if the cluster has several machines and the store is a file on this one."""
    import ray

    nodes = {node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]}
    if len(nodes) > 1 and uri.startswith("sqlite"):
        raise RequestError(
            f"the cluster has {len(nodes)} machines, which cannot write to {uri}: "
            "start an MLflow server and set MLFLOW_TRACKING_URI to it"
        )


def _check_listening(address: str) -> None:
    """Raise `RequestError` unless something listens at `address`: Ray itself would try for minutes."""
    try:
        parts = urlsplit(address if "://" in address else f"//{address}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host or not port:
        raise RequestError(f"{quoted(address)} is not a Ray address: write HOST:PORT, ray://HOST:PORT or auto")
    try:
        socket.create_connection((host, port), timeout=PATIENCE).close()
    except (OSError, UnicodeError) as error:  # the latter for an invalid host name
        reason = getattr(error, "strerror", None) or str(error)
        raise RequestError(f"no Ray cluster answers at {line(address, 80)}: {reason.lower()}") from None
