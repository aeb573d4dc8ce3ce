"""What a Ray worker does: take one trial of a sweep, run it, report. Nothing else of a trial knows Ray."""

import functools
import os
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from featurelab.pipelines.engine.sweep.plan import Opened
from featurelab.pipelines.engine.sweep.reasons import cause


@dataclass(frozen=True)
class Jobs:
    """Sweeps as their workers need to know them, by their place, and where trials are recorded."""

    sweeps: Mapping[int, Opened]
    uri: str
    outbox: str
    settings: Mapping[str, str]  # environment variables of ours
    file: tuple[int, int] | None = None  # what the store is where it is a file: not another that replaced it meanwhile


def work(
    assignment: dict[str, Any], jobs: Sequence[Any], report: Callable[[Mapping[str, Any]], None]
) -> dict[str, Any]:
    """Run the trial `assignment["trial"]`, (sweep, index); returns how it ended, for the progress line.

    `jobs` holds the reference to `Jobs`, in a list so that Ray leaves it to us to look it up: once in each worker.
    A trial that a scheduler compares with others gives `report` each value of the metric; a report that raises
    SystemExit stops it.
    """
    part, index = assignment["trial"]
    known = _looked_up(jobs[0])
    if known.sweeps[part].plan.resources.workers > 1:
        return _data_parallel(index, known.sweeps[part], known)
    return _run(index, known.sweeps[part], known, report)


@functools.lru_cache(1)
def _looked_up(jobs: Any) -> Jobs:
    import ray

    found: Jobs = ray.get(jobs)
    return found


def _run(
    index: int, sweep: Opened, jobs: Jobs, report: Callable[[Mapping[str, Any]], None] | None = None
) -> dict[str, Any]:
    from featurelab.pipelines.engine.trial import (
        run as trial,  # torch and lightning are a worker's business: the driver shall not wait for them
    )
    from featurelab.pipelines.engine.trial.place import UMASK, current
    from featurelab.tracking.pages import COLOUR, colour
    from featurelab.tracking.store.connect import attach

    os.environ.update(jobs.settings)
    if mask := os.environ.get(UMASK):
        os.umask(int(mask, 8))
    plan = sweep.plan
    experiment, config, gpus = plan.declared, plan.config(index), plan.gpus_of(index)
    store = attach(jobs.uri)
    store.expect(jobs.file)
    details: dict[str, Any] = {"scale": plan.scale, "name": plan.label(index), "axes": plan.axes}
    run_id, attempt = "", 1
    if current().rank == 0 and index in sweep.resumed:
        run_id = sweep.resumed[index]
        attempt = 1 + int(store.get_run(run_id).data.tags.get("attempt", "1"))
    elif current().rank == 0:
        tags = {"sweep": sweep.name, "sweep_run_id": sweep.run_id, "kind": plan.kind, **plan.tags}
        place = {"index": index, "workers": plan.resources.workers, "gpus": gpus}
        run_id = trial.start(experiment, config, store, tags=tags | {COLOUR: colour(index)}, place=place, **details)
    with _time_limit(plan.resources.timeout, run_id, jobs.uri), trial.sharing_memory(gpus):
        outcome = trial.run_trial(
            experiment,
            config,
            store,
            run_id=run_id,
            attempt=attempt,
            outbox=Path(jobs.outbox),
            listeners=[_reporter(plan.metric, report)] if report and plan.scheduler == "asha" else [],
            **details,
        )
    return {"run_id": outcome.run_id, "status": outcome.status, "reason": outcome.reason}


def _reporter(metric: str, report: Callable[[Mapping[str, Any]], None]) -> Callable[[Mapping[str, float], int], None]:
    def listen(metrics: Mapping[str, float], step: int) -> None:
        if metric in metrics:
            report({metric: metrics[metric], "step": step})

    return listen


@contextmanager
def _time_limit(seconds: float | None, run_id: str, uri: str) -> Iterator[None]:
    """End this process when a trial hangs: what it recorded is in its journal, and its run says why it ended."""
    if seconds is None or not run_id:
        yield
        return

    def give_up() -> None:
        from featurelab.tracking.store.connect import attach

        reason = f"did not end within {seconds:g} s"
        try:
            store = attach(uri)
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


def _data_parallel(index: int, sweep: Opened, jobs: Jobs) -> dict[str, Any]:
    """One trial on several workers, each with its share of every batch."""
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer

    resources, gpus = sweep.plan.resources, sweep.plan.gpus_of(index)
    with tempfile.TemporaryDirectory() as folder:
        trainer = TorchTrainer(
            _one_of_many,
            train_loop_config={"index": index, "sweep": sweep, "jobs": replace(jobs, sweeps={})},
            scaling_config=ScalingConfig(
                num_workers=resources.workers,
                use_gpu=gpus > 0,
                resources_per_worker={"CPU": resources.cpus, **({"GPU": gpus} if gpus else {})},
            ),
            run_config=RunConfig(name=f"{sweep.name}-{index}", storage_path=folder),
        )
        try:
            trainer.fit()
        except Exception as error:  # the run itself says what happened; Ray's wrapping of it is not for the user
            return {"run_id": "", "status": "failed", "reason": cause(str(error).partition("\n")[0] or error)}
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
        outcome = _run(loop["index"], loop["sweep"], loop["jobs"])
    if outcome["status"] in ("failed", "diverged"):
        # the other workers wait for this one in their next all-reduce: let Ray end them
        raise RuntimeError(outcome["reason"])
