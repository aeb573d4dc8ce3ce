"""A trial as Ray Tune runs it: it waits at each report until Tune has decided whether it continues."""

import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ray import tune

from featurelab.pipelines.engine.sweep.ray.worker import work

Report = Callable[[Mapping[str, Any]], None]


class Trial(tune.Trainable):
    """Runs `work(assignment, jobs, report)`: every report is a step, and the returned value is the last step.

    Not a function trainable, whose process Tune ends while a stopped trial is still closing its run.
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
    """Runs a function in a thread of its own, which waits at each report until the next step is requested."""

    def __init__(self, function: Callable[[Report], dict[str, Any]]) -> None:
        self._function = function
        self._results: queue.SimpleQueue[dict[str, Any] | BaseException] = queue.SimpleQueue()
        self._continue = threading.Semaphore(0)
        self._stopping = False
        self._thread = threading.Thread(target=self._run, daemon=True)

    def next(self) -> dict[str, Any]:
        """Return the next report, or with `done` the function's result. Raises what the function raises."""
        if self._thread.ident is None:
            self._thread.start()
        else:
            self._continue.release()
        result = self._results.get()
        if isinstance(result, BaseException):
            raise result
        return result

    def stop(self) -> None:
        """End a waiting function by raising SystemExit from its report, and wait until it has ended."""
        self._stopping = True
        self._continue.release()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        try:
            self._results.put(self._function(self._report) | {"done": True})
        except BaseException as error:
            self._results.put(error)

    def _report(self, result: Mapping[str, Any]) -> None:
        self._results.put(dict(result))
        self._continue.acquire()
        if self._stopping:
            raise SystemExit(0)
