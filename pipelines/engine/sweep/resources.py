"""What each trial of a sweep may use of a cluster."""

import math

from pydantic import BaseModel, ConfigDict, Field

from featurelab.pipelines.engine.errors import RequestError
from featurelab.pipelines.engine.trial.record import MOST_WORKERS
from featurelab.tracking.lines import line


class Resources(BaseModel):
    """What each trial may use: CPUs and GPUs (fractions too) for each of its workers, and a time limit in seconds."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)

    cpus: float = Field(1.0, gt=0, le=MOST_WORKERS)
    gpus: float = Field(0.0, ge=0, le=MOST_WORKERS)
    workers: int = Field(1, ge=1, le=MOST_WORKERS)
    timeout: float | None = Field(None, gt=0)

    @classmethod
    def of_trial(
        cls, cpus: float | None = None, gpus: float = 0, workers: int | None = None, timeout: float | None = None
    ) -> "Resources":
        """What a whole trial gets, shared out to its workers: by default one for each GPU, with one CPU each.

        Raises `RequestError` for a number that is not above 0 (`gpus` may be 0), and where a worker would have more
        than one GPU or several would share one.
        """
        bounds = (
            ("--cpus-per-trial", cpus, MOST_WORKERS),
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
        return cls(cpus=(cpus or number) / number, gpus=each, workers=number, timeout=timeout)
