"""The resources of each trial of a sweep."""

import math

from pydantic import BaseModel, ConfigDict, Field

from featurelab.pipelines.engine.errors import RequestError
from featurelab.pipelines.engine.trial.record import MOST_WORKERS
from featurelab.tracking.lines import line


class Resources(BaseModel):
    """The resources of a trial: CPUs and GPUs (may be fractions) of each worker, and a time limit in seconds."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False)

    cpus: float = Field(1.0, gt=0, le=MOST_WORKERS)
    gpus: float = Field(0.0, ge=0, le=MOST_WORKERS)
    workers: int = Field(1, ge=1, le=MOST_WORKERS)
    timeout: float | None = Field(None, gt=0)

    @classmethod
    def of_trial(
        cls, cpus: float | None = None, gpus: float = 0, workers: int | None = None, timeout: float | None = None
    ) -> "Resources":
        """Divide the resources of a whole trial among its workers: by default one for each GPU, with one CPU each.

        Raises `RequestError` for a number that is not above 0 (`gpus` may be 0), and if a worker would have more than
        one GPU, or several workers would share one.
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
            given = f"--gpus-per-trial {gpus:g}" + (f" --workers-per-trial {workers}" if workers else "")
            raise RequestError(f"{given}: a trial has a share of one GPU, or one worker on each of several GPUs")
        return cls(cpus=(cpus or number) / number, gpus=each, workers=number, timeout=timeout)
