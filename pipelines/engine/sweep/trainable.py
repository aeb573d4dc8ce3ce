"""A trial as Ray Tune drives it: held at each report until Tune has decided whether it continues."""

import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ray import tune

from featurelab.pipelines.engine.sweep.worker import work

Report = Callable[[Mapping[str, Any]], None]


class Trial(tune.Trainable):
    """Runs `work(assignment, jobs, report)`; each report is a step, and so is what it returns, the last one.

    Not a function trainable: of those Tune ends the process while the stopped trial is still closing its run.
    """

    def setup(self, config: dict[str, Any], jobs: Sequence[Any] = ()) -> None:
        self._jobs = jobs
        self._begin(config)

    def step(self) -> dict[str, Any]:
        return self._steps.next()

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        self._steps.stop()
        self._begin(new_config)
        return True

    def cleanup(self) -> None:
        self._steps.stop()

    def _begin(self, config: dict[str, Any]) -> None:
        self._steps = Steps(lambda report: work(config, self._jobs, report))


class Steps:
    """A function in a thread of its own that is held up whenever it reports, until the next step is asked for."""

    def __init__(self, function: Callable[[Report], dict[str, Any]]) -> None:
        self._function = function
        self._found: queue.SimpleQueue[dict[str, Any] | BaseException] = queue.SimpleQueue()
        self._go_on = threading.Semaphore(0)
        self._stopping = False
        self._thread = threading.Thread(target=self._run, daemon=True)

    def next(self) -> dict[str, Any]:
        """What is reported next, or returned, then with `done`. Raises what the function raises."""
        if self._thread.ident is None:
            self._thread.start()
        else:
            self._go_on.release()
        found = self._found.get()
        if isinstance(found, BaseException):
            raise found
        return found

    def stop(self) -> None:
        """End a function that is held up, by SystemExit from its report, and wait until it has."""
        self._stopping = True
        self._go_on.release()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        try:
            self._found.put(self._function(self._report) | {"done": True})
        except BaseException as error:
            self._found.put(error)

    def _report(self, result: Mapping[str, Any]) -> None:
        self._found.put(dict(result))
        self._go_on.acquire()
        if self._stopping:
            raise SystemExit(0)
