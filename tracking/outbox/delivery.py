"""The thread that takes what a run records from its journal to the store."""

from __future__ import annotations

import logging
import math
import random
import threading
import time

from mlflow.exceptions import MlflowException

from featurelab.tracking.errors import RunGone, StoreGone
from featurelab.tracking.outbox.journal import HandleClosed
from featurelab.tracking.outbox.sending import Delivery
from featurelab.tracking.store.answers import is_transient
from featurelab.tracking.store.store import first_line

logger = logging.getLogger(__name__)

LONGEST_PAUSE = 10.0  # seconds between two attempts to reach a store that is away


class Sender:
    """Sends a journal in the background until it is closed, and then what is left.

    What was recorded goes out every `flush_seconds`; in between, as soon as it is `flush_points` or fills a request. A
    store that is busy or
    away is asked again. One that is gone is not: `gone` says what became of it, or of the run.
    """

    def __init__(self, delivery: Delivery, flush_seconds: float, flush_points: int) -> None:
        self.gone: StoreGone | RunGone | HandleClosed | None = None
        self._delivery, self._flush_seconds, self._flush_points = delivery, flush_seconds, flush_points
        self._wake, self._stop = threading.Event(), threading.Event()
        self._everything = False  # whether it is woken to send what there is
        self._deadline = math.inf
        self._thread = threading.Thread(target=self._run, name=f"recorder-{delivery.run_id[:8]}", daemon=True)
        self._thread.start()

    @property
    def closed(self) -> bool:
        return self._stop.is_set()

    def wake(self) -> None:
        """Say that there may be enough points for a request."""
        self._wake.set()

    def flush(self, timeout: float) -> bool:
        """Send all that is there now, and say whether it arrived within `timeout` seconds."""
        journal, deadline = self._delivery.journal, time.monotonic() + timeout
        target = journal.size()
        while self._delivery.read < target or journal.spooled():
            if time.monotonic() > deadline or not self._thread.is_alive():
                return False
            self._everything = True
            self._wake.set()
            time.sleep(0.01)
        return True

    def close(self, timeout: float) -> bool:
        """Finish the delivery and say whether it is finished.

        Waits as long as something arrives, and gives up after `timeout` seconds in which nothing did.
        """
        self._deadline = time.monotonic() + timeout
        self._stop.set()
        self._wake.set()
        arrived = self._delivery.read
        while self._thread.is_alive() and time.monotonic() < self._deadline:
            self._thread.join(0.1)
            if self._delivery.read > arrived:  # farther than ever: what is only sent again is no progress
                arrived = self._delivery.read
                self._deadline = time.monotonic() + timeout
        self._thread.join(1.0)
        return self._delivery.finished

    def _run(self) -> None:
        failures = 0
        woken = self._wake.wait(self._flush_seconds)  # a short trial is sent in one request
        while time.monotonic() < self._deadline and not self._delivery.journal.handle_closed:
            try:
                if self._stop.is_set():
                    return self._delivery.finish("KILLED", running=True)
                self._drain(everything=not woken or self._everything)
                failures = 0
            except Exception as error:
                if self._delivery.journal.closed or self._is_gone(error):
                    return None
                if not failures:
                    run_id = self._delivery.run_id
                    logger.warning("run %s: the store does not take its data yet (%s)", run_id, first_line(error))
                failures += 1
                pause = min(LONGEST_PAUSE, 0.25 * 2 ** min(failures, 10)) * random.uniform(0.5, 1.0)
                if self._stop.wait(pause):
                    time.sleep(min(pause, 0.5))
                continue
            woken = self._wake.wait(self._flush_seconds)
            self._wake.clear()
        return None

    def _drain(self, *, everything: bool) -> None:
        """Send all that is there now, or, while more is being recorded, what makes large requests."""
        self._everything = False
        # what was recorded before an artifact must be in the store before it: a checkpoint stands for all before it
        waiting, until = self._delivery.waiting(), self._delivery.journal.size()
        least = 0 if everything or waiting else self._flush_points
        while not self._stop.is_set() and self._delivery.read < until and self._delivery.step(least=least):
            pass
        if not self._stop.is_set():
            self._delivery.send_artifacts(waiting)

    def _is_gone(self, error: Exception) -> bool:
        """Whether the store does not take this because what it belongs to is not there any more."""
        store, run_id = self._delivery.store, self._delivery.run_id
        try:
            self._delivery.journal.require_in_place()
        except HandleClosed as closed:  # those of a database too: another process must send it
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
        except Exception:  # the store is away: it is asked again
            return False
        return self.gone is not None
