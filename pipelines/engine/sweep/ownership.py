"""Which process runs a sweep, written into the store: a lock in an outbox works on one machine only."""

import os
import re
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any
from uuid import uuid4

from mlflow.exceptions import MlflowException

from featurelab.pipelines.engine.sweep import schemas
from featurelab.pipelines.engine.sweep.records import JUDGING, VERDICTS
from featurelab.tracking.outbox.locks import in_use
from featurelab.tracking.store import query
from featurelab.tracking.store.connect import Store, StoreError

BEAT = 20.0  # seconds between two signs of life
SILENCE = 60.0  # seconds without one after which a driver counts as dead; clocks must differ by less
DRIVER = re.compile(r"([\w.-]{1,255}) (\d{1,9}) [0-9a-f]{32}")


def driver_tags() -> dict[str, str]:
    """Tags that say that this process runs a sweep."""
    return {"driver": _driver(), "seen": f"{time.time():.0f}"}


@contextmanager
def heartbeat(sweep_run_id: str, store: Store) -> Iterator[None]:
    """Inside, write signs of life to one sweep, on behalf of all that this process runs, while the store answers."""
    ended = threading.Event()
    impatient = replace(store, patience=0.0)

    def beat() -> None:
        while not ended.wait(BEAT):
            with suppress(StoreError, MlflowException):
                impatient.set_tags(sweep_run_id, {"seen": f"{time.time():.0f}"})

    threading.Thread(target=beat, daemon=True).start()
    try:
        yield
    finally:
        ended.set()


def where_run(sweep_run_id: str, tags: Mapping[str, Any], store: Store, outbox: Path) -> str:
    """Where the sweep with these tags is running, such as "on gpu-07, process 12 (...)"; empty if it is not."""
    if in_use(outbox, sweep_run_id):
        return "by another process"
    driver = DRIVER.fullmatch(str(tags.get("driver")))
    if not driver or tags.get("status") not in ("running", JUDGING):
        return ""
    host, pid = driver[1], int(driver[2])
    if host == _host() and not _is_alive(pid):
        return ""
    signs = [row.get("tags.seen") for row in query.rows(store, VERDICTS, tags={"driver": driver[0]})]
    silent = min((abs(time.time() - schemas.seconds(seen)) for seen in signs), default=SILENCE)
    return f"on {host}, process {pid} (last seen {silent:.0f} s ago)" if silent < SILENCE else ""


def _is_alive(pid: int) -> bool:
    """Whether another process of this machine has this id."""
    if pid == os.getpid():
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _host() -> str:
    return re.sub(r"[^\w.-]", "_", socket.gethostname())[:255]


@cache
def _driver() -> str:
    return f"{_host()} {os.getpid()} {uuid4().hex}"
