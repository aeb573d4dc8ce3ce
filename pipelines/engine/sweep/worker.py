"""What a Ray worker does: take one trial of a sweep, run it, report. Nothing else of a trial knows Ray."""

import functools
import os
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from featurelab.pipelines.engine.experiment import registry
from featurelab.pipelines.engine.experiment.config import Scale
from featurelab.pipelines.engine.sweep.resources import Resources
from featurelab.tracking.lines import line

find = functools.cache(registry.find)  # looks through all installed packages, which a worker need do once


@dataclass(frozen=True)
class Job:
    """A sweep as its workers need to know it; trials are told apart by their index into `configs`."""

    experiment: str
    configs: list[dict[str, Any]]
    names: list[str]
    axes: list[str]
    scale: Scale
    uri: str
    outbox: str
    tags: dict[str, str]
    metric: str | None = None
    resources: Resources = field(default_factory=Resources)
    resumed: dict[int, str] = field(default_factory=dict)  # runs that were cut short, by index
    settings: dict[str, str] = field(default_factory=dict)  # environment variables of ours

    def gpus_of(self, index: int) -> float:
        """The GPUs that each worker of a trial asks for: none where it is told to compute on the CPU."""
        return 0 if self.configs[index].get("device") == "cpu" else self.resources.gpus


def work(
    assignment: dict[str, Any], jobs: Sequence[Any], report: Callable[[Mapping[str, Any]], None]
) -> dict[str, Any]:
    """Run the trial `assignment["trial"]`, which is (job, index); returns how it ended, for the progress line.

    `jobs` holds the reference to {job: Job}, in a list so that Ray leaves it to us to look it up: once in each worker.
    A trial that a scheduler compares with others gives `report` each value of the metric; a report that raises
    SystemExit stops it.
    """
    part, index = assignment["trial"]
    job = _looked_up(jobs[0])[part]
    if job.resources.workers > 1:
        return _data_parallel(index, job)
    return _run(index, job, report)


@functools.lru_cache(1)
def _looked_up(jobs: Any) -> dict[int, Job]:
    import ray

    found: dict[int, Job] = ray.get(jobs)
    return found


def _run(index: int, job: Job, report: Callable[[Mapping[str, Any]], None] | None = None) -> dict[str, Any]:
    from featurelab.pipelines.engine.trial import (
        run as trial,  # torch and lightning are a worker's business: the driver shall not wait for them
    )
    from featurelab.pipelines.engine.trial.place import UMASK, current
    from featurelab.tracking.pages import COLOUR, colour
    from featurelab.tracking.store.connect import attach

    os.environ.update(job.settings)
    if mask := os.environ.get(UMASK):
        os.umask(int(mask, 8))
    experiment = find(job.experiment)
    config = experiment.preset(job.scale).read(job.configs[index])
    store = attach(job.uri)
    details: dict[str, Any] = {"scale": job.scale, "name": job.names[index], "axes": job.axes}
    run_id, attempt = "", 1
    if current().rank == 0 and index in job.resumed:
        run_id = job.resumed[index]
        attempt = 1 + int(store.get_run(run_id).data.tags.get("attempt", "1"))
    elif current().rank == 0:
        tags = job.tags | {
            "trial": str(index),
            "workers": str(job.resources.workers),
            "gpus": f"{job.gpus_of(index):g}",
        }
        tags[COLOUR] = colour(index)
        run_id = trial.start(experiment, config, store, tags=tags, **details)
    with _time_limit(job.resources.timeout, run_id, job), trial.sharing_gpu(job.gpus_of(index)):
        outcome = trial.run_trial(
            experiment,
            config,
            store,
            run_id=run_id,
            attempt=attempt,
            outbox=Path(job.outbox),
            listeners=[_reporter(job.metric, report)] if report and job.metric else [],
            **details,
        )
    return {"run_id": outcome.run_id, "status": outcome.status, "reason": outcome.reason}


def _reporter(metric: str, report: Callable[[Mapping[str, Any]], None]) -> Callable[[Mapping[str, float], int], None]:
    def listen(metrics: Mapping[str, float], step: int) -> None:
        if metric in metrics:
            report({metric: metrics[metric], "step": step})

    return listen


@contextmanager
def _time_limit(seconds: float | None, run_id: str, job: Job) -> Iterator[None]:
    """End this process when a trial hangs: what it recorded is in its journal, and its run says why it ended."""
    if seconds is None or not run_id:
        yield
        return

    def give_up() -> None:
        from featurelab.tracking.store.connect import attach

        reason = f"did not end within {seconds:g} s"
        try:
            store = attach(job.uri)
            store.set_tags(run_id, {"status": "failed", "reason": reason, "cut_short": "true"})
            store.end_run(run_id, "FAILED")
        finally:
            os._exit(70)

    timer = threading.Timer(seconds, give_up)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _data_parallel(index: int, job: Job) -> dict[str, Any]:
    """One trial on several workers, each with its share of every batch."""
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer

    gpus = job.gpus_of(index)
    with tempfile.TemporaryDirectory() as folder:
        trainer = TorchTrainer(
            _one_of_many,
            train_loop_config={"index": index, "job": job},
            scaling_config=ScalingConfig(
                num_workers=job.resources.workers,
                use_gpu=gpus > 0,
                resources_per_worker={"CPU": job.resources.cpus, **({"GPU": gpus} if gpus else {})},
            ),
            run_config=RunConfig(name=f"{job.tags['sweep']}-{index}", storage_path=folder),
        )
        try:
            trainer.fit()
        except Exception as error:  # the run itself says what happened; Ray's wrapping of it is not for the user
            reason = line(str(error).partition("\n")[0] or type(error).__name__)
            return {"run_id": "", "status": "failed", "reason": reason}
    return {"run_id": "", "status": "finished", "reason": ""}


def _one_of_many(loop: dict[str, Any]) -> None:
    import ray.train
    from ray.train.lightning import RayDDPStrategy, RayLightningEnvironment

    from featurelab.pipelines.engine.trial.place import Runtime, running_in

    context = ray.train.get_context()
    place = Runtime(
        rank=context.get_world_rank(),
        world_size=context.get_world_size(),
        strategy=RayDDPStrategy(),
        plugins=(RayLightningEnvironment(),),
        devices="auto",
    )
    with running_in(place):
        outcome = _run(loop["index"], loop["job"])
    if outcome["status"] in ("failed", "diverged"):
        # the other workers wait for this one in their next all-reduce: let Ray end them
        raise RuntimeError(outcome["reason"])
