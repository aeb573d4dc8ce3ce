"""Seconds a trial on one GPU, by the number of trials that share it, with MPS and without.

Networks of `neural_feature_ansatz/init_scale` are trained on the GPU, in sweeps that differ only in `--gpus-per-trial`
and FEATURELAB_MPS. Each sweep has its own process and Ray instance. The first trial of each worker, which imports
torch and starts CUDA, does not count: the clock runs from the end of as many trials as share the GPU to the end of the
last. Sweeps with and without MPS alternate, and must store the same losses.

Where there is no GPU nothing is measured, and without `nvidia-cuda-mps-control` only what needs no MPS.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks._rows import Row, Size

ROOT = Path(__file__).resolve().parents[2]
CONTROL = "nvidia-cuda-mps-control"
EXPERIMENT = "neural_feature_ansatz/init_scale"
SMALL = {"n_train": 128, "n_test": 200, "dim": 16, "width": 64, "steps": 1000, "measure_every": 100}
SHARES: dict[Size, tuple[int, ...]] = {"tiny": (2,), "full": (1, 8)}
ROUNDS: dict[Size, int] = {"tiny": 1, "full": 4}  # trials of each worker that count
REPEATS: dict[Size, int] = {"tiny": 1, "full": 2}
WHAT = "a small network on one GPU, {sharing} at a time"


def rows(size: Size) -> list[Row]:
    """One row for each number of trials that share the GPU: seconds a trial with MPS, next to those without."""
    import torch

    if not torch.cuda.is_available():
        return [Row("skipped", WHAT.format(sharing="1 or 8"), None, note="skipped: needs a CUDA GPU")]
    return [_row(sharing, size) for sharing in SHARES[size]]


def _row(sharing: int, size: Size) -> Row:
    trials, id, what = sharing * (1 + ROUNDS[size]), str(sharing), WHAT.format(sharing=sharing)
    with_mps = sharing > 1 and shutil.which(CONTROL) is not None
    ours, theirs = list[float](), list[float]()
    for repeat in range(REPEATS[size]):
        sides = [(theirs, False), *([(ours, True)] if with_mps else [])]
        losses = []
        for seconds, mps in sides if repeat % 2 == 0 else sides[::-1]:
            done = sweep_once(sharing, trials, mps=mps)
            seconds.append(done["seconds"])
            losses.append(done["losses"])
        if losses[0] != losses[-1]:
            raise SystemExit(f"{sharing} at a time, the networks trained with MPS differ from those without")
    if not with_mps:
        note = f"MPS skipped: {CONTROL} is not installed" if sharing > 1 else ""
        numbers = {"trials_a_minute": 60 / median(theirs)}
        spread = (min(theirs), max(theirs))
        return Row(id, what, median(theirs), spread=spread, repeats=len(theirs), numbers=numbers, note=note)
    ratios = [b / a for a, b in zip(ours, theirs, strict=True)]
    each = {"trials_a_minute": 60 / median(ours), "peer_trials_a_minute": 60 / median(theirs)}
    spread = (min(ratios), max(ratios))
    return Row(id, what, median(ours), "time slices", median(theirs), median(ratios), spread, len(ours), each)


def sweep_once(sharing: int, trials: int, *, mps: bool, device: str = "gpu", **settings: Any) -> dict[str, Any]:
    """Sweep in a process of its own: seconds a trial once all workers are warm, and the test losses by seed."""
    with tempfile.TemporaryDirectory() as folder:
        request = json.dumps([sharing, trials, SMALL | {"device": device} | settings])
        path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        environment = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "FEATURELAB_MPS": str(int(mps))}
        command = [sys.executable, "-m", "benchmarks.laboratory.sharing", request]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
        if done.returncode or "without MPS" in done.stderr:
            raise SystemExit(f"{sharing} at a time, the sweep failed: {done.stderr.strip()[-500:]}")
        numbers: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return numbers


def _here(sharing: int, trials: int, settings: dict[str, Any]) -> dict[str, Any]:
    import ray

    from featurelab.pipelines.engine.experiment.axes import Listed
    from featurelab.pipelines.engine.experiment.catalogue import registry
    from featurelab.pipelines.engine.sweep.begin import run_sweep
    from featurelab.pipelines.engine.sweep.plan import plan_search
    from featurelab.pipelines.engine.sweep.ray.cluster import connect_ray
    from featurelab.pipelines.engine.sweep.resources import Resources
    from featurelab.tracking.store.connect import connect

    os.environ["RAY_ADDRESS"] = "local"
    # as many CPUs as there are workers, so that the GPU alone decides how many trials run at once
    ray.init(address="local", num_cpus=sharing, num_gpus=1, include_dashboard=False, log_to_driver=False)
    connect_ray(None)
    experiment = registry.find(EXPERIMENT)
    seeds = {"seed": Listed(tuple(range(trials)))}
    resources = Resources.of_trial(gpus=1 / sharing)
    base = experiment.laptop.but(**settings)
    plan = plan_search(experiment, seeds, 1, base, scale="laptop", resources=resources)
    store = connect(f"sqlite:///{Path.cwd() / 'mlflow.db'}")
    done = run_sweep(plan, store, outbox=Path.cwd() / "outbox")
    ray.shutdown()
    losses = _losses(done.trials)
    ends = sorted(store.get_run(trial.run_id).info.end_time for trial in done.trials)
    return {"seconds": (ends[-1] - ends[sharing - 1]) / 1e3 / (trials - sharing), "losses": losses}


def _losses(trials: Sequence[Any]) -> list[float]:
    for trial in trials:
        if not trial.went_well:
            raise SystemExit(f"{trial.name} {trial.status}: {trial.reason}")
    return [trial.metrics["loss/test"] for trial in trials]


if __name__ == "__main__":
    print(json.dumps(_here(*json.loads(sys.argv[1]))))
