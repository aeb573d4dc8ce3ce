"""Run the trials of open sweeps with Ray Tune."""

import logging
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from featurelab.pipelines.engine.sweep.plan import Opened
from featurelab.pipelines.engine.sweep.ray.sharing import at_once, requests
from featurelab.pipelines.engine.sweep.ray.workarounds import survive_lack_of_memory
from featurelab.pipelines.engine.sweep.ray.worker import Jobs
from featurelab.pipelines.engine.sweep.reports import Listener
from featurelab.pipelines.engine.trial.place import SETTINGS
from featurelab.tracking.outbox.bound import Bound
from featurelab.tracking.store.connect import Store


def run_trials(sweeps: Mapping[int, Opened], store: Store, outbox: Path, title: str, listener: Listener) -> None:
    """Run the trials of these sweeps, told apart by the keys of `sweeps`, and tell `listener` what becomes of them.

    The scheduler and the resources are those of the first sweep.
    """
    import ray
    from ray import tune

    from featurelab.pipelines.engine.sweep.ray.progress import SweepProgress
    from featurelab.pipelines.engine.sweep.ray.schedulers import Asha, Fifo
    from featurelab.pipelines.engine.sweep.ray.trainable import Trial

    first = next(iter(sweeps.values()))
    plan, resources = first.plan, first.plan.resources
    settings = {name: os.environ[name] for name in SETTINGS if name in os.environ}
    jobs = Jobs(sweeps, store.uri, str(outbox), settings, store.file)
    trials: list[tuple[int, int | None]] = []
    for number, sweep in sweeps.items():
        trials += [(number, index) for index in sweep.indices] + [(number, None)] * sweep.plan.undrawn
    assignments = _assignments(trials, listener)
    logging.getLogger("ray.tune").setLevel(logging.CRITICAL)  # we report what becomes of each trial ourselves
    survive_lack_of_memory()
    watching = SweepProgress(title, trials, listener, Bound(outbox).trouble)
    with watching as progress, tempfile.TemporaryDirectory() as folder:
        tune.Tuner(
            tune.with_resources(
                tune.with_parameters(Trial, jobs=[ray.put(jobs)]),
                requests({number: sweep.plan for number, sweep in sweeps.items()}),
            ),
            # not a grid: Tune would copy the whole grid for every trial
            param_space={"trial": tune.sample_from(lambda spec: next(assignments))},
            tune_config=tune.TuneConfig(
                num_samples=len(trials),
                reuse_actors=resources.workers == 1,
                scheduler=Asha(plan.metric, plan.mode) if plan.scheduler == "asha" else Fifo(),
                # a trial is drawn when there is room for it, so that it learns from all that have ended
                max_concurrent_trials=at_once(resources, as_many_as_fit=plan.study is not None),
            ),
            run_config=tune.RunConfig(
                name=first.name,
                storage_path=folder,
                verbose=0,
                callbacks=[progress],
                checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
            ),
        ).fit()


def _assignments(
    trials: Iterable[tuple[int, int | None]], listener: Listener
) -> Iterator[tuple[int, int, dict[str, Any] | None]]:
    """Yield for each trial the number of its sweep, its index, and its config if it is drawn only now.

    Ray's `OptunaSearch` is of no use here: it learns only what trials report to Tune, where ours have reached the
    store, and it resumes from a pickle, not from records.
    """
    for number, index in trials:
        if index is None:
            yield number, *listener.draw(number)
        else:
            yield number, index, None
