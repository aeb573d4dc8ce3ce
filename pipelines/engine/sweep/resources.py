"""What each trial of a sweep may use of a cluster."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from featurelab.pipelines.engine.errors import RequestError
from featurelab.pipelines.engine.sweep.cluster import capacity
from featurelab.pipelines.engine.sweep.worker import Job
from featurelab.tracking.lines import line

MOST_WORKERS = 2**31


@dataclass(frozen=True)
class Resources:
    """What each trial may use: CPUs and GPUs (fractions too) for each of its workers, and a time limit in seconds."""

    cpus: float = 1
    gpus: float = 0
    workers: int = 1
    timeout: float | None = None

    @classmethod
    def of_trial(
        cls, cpus: float | None = None, gpus: float = 0, workers: int | None = None, timeout: float | None = None
    ) -> "Resources":
        """What a whole trial gets, shared out to its workers: by default one for each GPU, with one CPU each.

        Raises `RequestError` for a number that is not above 0 (`gpus` may be 0), and where a worker would have more
        than one GPU or several would share one.
        """
        bounds = (
            ("--cpus-per-trial", cpus, math.inf),
            ("--workers-per-trial", workers, MOST_WORKERS),
            ("--trial-timeout", timeout, math.inf),
        )
        for option, value, most in bounds:
            if value is not None and not 0 < value < most:
                raise RequestError(f"{option} {line(str(value), 40)} must be above 0")
        if not 0 <= gpus < MOST_WORKERS:
            raise RequestError(f"--gpus-per-trial {line(str(gpus), 40)} must not be below 0")
        number = workers or max(1, math.floor(gpus))
        each = gpus / number
        if each > 1 or (number > 1 and 0 < each < 1):
            whole = f"--gpus-per-trial {gpus:g}" + (f" --workers-per-trial {workers}" if workers else "")
            raise RequestError(f"{whole}: a trial has a share of one GPU, or a worker on each of several")
        return cls((cpus or number) / number, each, number, timeout)


def require(resources: Resources) -> None:
    """Raise `RequestError` when a trial asks for more than the whole cluster has."""
    have = capacity()
    for kind, each in (("CPU", resources.cpus), ("GPU", resources.gpus)):
        asked = each * resources.workers
        if asked > have[kind]:
            raise RequestError(f"--{kind.lower()}s-per-trial {asked:g}: the cluster has {have[kind]:g} {kind}")


def requests(jobs: Mapping[int, Job]) -> Callable[[Mapping[str, Any]], Any]:
    """What each trial asks of Ray. One that is to compute on the CPU leaves the GPUs to those beside it."""
    from ray import tune

    # Tune takes a copy of what this function holds for every trial: no more than it needs
    shares = {part: (job.workers, job.cpus, job.gpus) for part, job in jobs.items()}
    without = {
        (part, i) for part, job in jobs.items() if job.gpus for i in range(len(job.configs)) if not job.gpus_of(i)
    }

    def request(assignment: Mapping[str, Any]) -> Any:
        workers, cpus, gpus = shares[assignment["trial"][0]]
        if workers > 1:
            # it only waits for its workers, which ask for their own; but Ray wants some request, be it a byte
            return tune.PlacementGroupFactory([{"CPU": 0, "memory": 1}])
        on_gpu = gpus and tuple(assignment["trial"]) not in without
        return tune.PlacementGroupFactory([{"CPU": cpus, **({"GPU": gpus} if on_gpu else {})}])

    return request


def at_once(resources: Resources) -> int | None:
    """Data-parallel trials ask for their workers one by one: more at once than fit whole would wait on each other."""
    if resources.workers == 1:
        return None
    have = capacity()
    asked = {"CPU": resources.cpus * resources.workers, "GPU": resources.gpus * resources.workers}
    return max(1, int(min(have[kind] / number for kind, number in asked.items() if number)))
