"""The background thread that delivers what a run records from its journal to the store."""

from __future__ import annotations

import logging
import math
import random
import threading
import time

from mlflow.exceptions import MlflowException

from featurelab.tracking.errors import RunGone, StoreGone
from featurelab.tracking.outbox.delivery import Delivery
from featurelab.tracking.outbox.journal import HandleClosed
from featurelab.tracking.store.addresses import first_line
from featurelab.tracking.store.answers import is_transient

logger = logging.getLogger(__name__)

LONGEST_PAUSE = 10.0  # seconds between two attempts to reach a store that is away


class Sender:
    """Delivers a journal in the background until `close`, which delivers the rest.

    Sends every `flush_seconds`, and earlier once `flush_points` points wait or a request is full. A store that is busy
    or away is tried again. A store or run that is gone is not; `gone` then holds the error that says so.
    """

    def __init__(self, delivery: Delivery, flush_seconds: float, flush_points: int) -> None:
        self.gone: StoreGone | RunGone | HandleClosed | None = None
        self._delivery, self._flush_seconds, self._flush_points = delivery, flush_seconds, flush_points
        self._wake, self._stop = threading.Event(), threading.Event()
        self._flushing = False  # whether to send everything that waits, however little
        self._deadline = math.inf
        self._thread = threading.Thread(target=self._run, name=f"recorder-{delivery.run_id[:8]}", daemon=True)
        self._thread.start()

    @property
    def closed(self) -> bool:
        return self._stop.is_set()

    def wake(self) -> None:
        """Tell the thread that enough points for a request may wait."""
        self._wake.set()

    def flush(self, timeout: float) -> bool:
        """Send everything recorded so far, and return whether it arrived within `timeout` seconds."""
        journal, deadline = self._delivery.journal, time.monotonic() + timeout
        target = journal.size()
        while self._delivery.position < target or journal.spooled():
            if time.monotonic() > deadline or not self._thread.is_alive():
                return False
            self._flushing = True
            self._wake.set()
            time.sleep(0.01)
        return True

    def close(self, timeout: float) -> bool:
        """Finish the delivery, and return whether everything arrived.

        Waits while there is progress, and gives up after `timeout` seconds without any.
        """
        self._deadline = time.monotonic() + timeout
        self._stop.set()
        self._wake.set()
        furthest = self._delivery.position
        while self._thread.is_alive() and time.monotonic() < self._deadline:
            self._thread.join(0.1)
            if self._delivery.position > furthest:  # sending the same lines again is no progress
                furthest = self._delivery.position
                self._deadline = time.monotonic() + timeout
        self._thread.join(1.0)
        return self._delivery.finished

    def _run(self) -> None:
        failures = 0
        woken = self._wake.wait(self._flush_seconds)  # so that a short trial takes one request
        while time.monotonic() < self._deadline and not self._delivery.journal.handle_closed:
            try:
                if self._stop.is_set():
                    return self._delivery.finish("KILLED", running=True)
                self._drain(everything=not woken or self._flushing)
                failures = 0
            except Exception as error:
                if self._delivery.journal.closed or self._is_gone(error):
                    return None
                if not failures:
                    run_id = self._delivery.run_id
                    logger.warning("run %s: the store cannot take its data yet (%s)", run_id, first_line(error))
                failures += 1
                pause = min(LONGEST_PAUSE, 0.25 * 2 ** min(failures, 10)) * random.uniform(0.5, 1.0)
                if self._stop.wait(pause):
                    time.sleep(min(pause, 0.5))
                continue
            woken = self._wake.wait(self._flush_seconds)
            self._wake.clear()
        return None

    def _drain(self, *, everything: bool) -> None:
        """Send all that waits now; if not `everything`, only as much as makes large requests."""
        self._flushing = False
        # points before artifacts: a checkpoint in the store implies everything that was recorded before it
        waiting, target = self._delivery.waiting(), self._delivery.journal.size()
        least = 0 if everything or waiting else self._flush_points
        while not self._stop.is_set() and self._delivery.position < target and self._delivery.step(least=least):
            pass
        if not self._stop.is_set():
            self._delivery.send_artifacts(waiting)

    def _is_gone(self, error: Exception) -> bool:
        """Return whether sending failed because the store, the run or the journal's handle is gone."""
        store, run_id = self._delivery.store, self._delivery.run_id
        try:
            self._delivery.journal.require_in_place()
        except HandleClosed as closed:  # a database's handle may be closed too: another process must send the journal
            self.gone = closed
        except OSError:
            pass
        if self._delivery.journal.handle_closed:
            self.gone = self._delivery.journal.handle_closed
            return True
        try:
            store.require_in_place()
            if isinstance(error, MlflowException) and not is_transient(error):
                store.require_active(run_id)
        except (StoreGone, RunGone) as gone:
            self.gone = gone
            logger.warning("run %s: %s", run_id, gone)
        except Exception:  # the store is away: try again
            return False
        return self.gone is not None
