"""What a sweep of many short trials costs, next to the recipe of the usual tutorials.

Both sides train the same 24 networks of `neural_feature_ansatz/init_scale` on two CPUs and store the same metrics of
the same steps in a fresh MLflow SQLite store:

    featurelab   what `featurelab sweep` runs: reused workers, a journal, metrics sent in batches; the weights, the
                 configuration, the environment and the data's digest are stored too
    tutorial     a Ray Tune function trainable that imports, fits with a Lightning Trainer and MLFlowLogger, and saves a
                 checkpoint beside the trial; one worker process per trial, Tune's default

Each run has its own process and Ray instance. `tuning` runs from the start of the Tuner until the last result is in the
store; `process` is the whole command with imports and the start and end of Ray. The shorter the fits, the larger the
ratio: `fit_s` is the time of a trial's own work in a worker that has imported everything.
"""

from __future__ import annotations

import argparse
import logging
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks._rows import OURS, Row, Size, compare

ROOT = Path(__file__).resolve().parents[1]
SIDES = ("featurelab", "tutorial")
CPUS = 2
EXPERIMENT = "neural_feature_ansatz/init_scale"
SMALL = {"n_train": 128, "n_test": 200, "dim": 16, "width": 64, "steps": 200, "measure_every": 10}
RATES = (0.003, 0.006, 0.0125, 0.025, 0.05, 0.1)
SCALES = (1.0, 0.1, 0.01, 0.001)
QUANTITIES = ["nfa", "cnfa"]
METRICS = ["loss/train", "loss/test", "nfa/0", "nfa/1", "cnfa/0", "cnfa/1"]


def featurelab(folder: Path, rates: Sequence[float], scales: Sequence[float]) -> float:
    """Sweep with featurelab, and return the seconds from the start of the Tuner to the last stored result."""
    from featurelab.pipelines.engine.experiment import registry
    from featurelab.pipelines.engine.experiment.axes import Axis, Listed
    from featurelab.pipelines.engine.sweep.begin import run_sweep
    from featurelab.pipelines.engine.sweep.plan import plan_search
    from featurelab.tracking.store.connect import connect

    experiment = registry.find(EXPERIMENT)
    axes: dict[str, Axis] = {"lr": Listed(tuple(rates)), "init_scale": Listed(tuple(scales))}
    plan = plan_search(experiment, axes, 1, experiment.laptop.but(**SMALL), scale="laptop")
    store = connect(f"sqlite:///{folder / 'mlflow.db'}")
    _start_ray()
    done = run_sweep(plan, store, outbox=folder / "outbox")
    for trial in done.trials:
        if not trial.went_well:
            raise SystemExit(f"{trial.name} {trial.status}: {trial.reason}")
    return done.seconds


def tutorial(folder: Path, rates: Sequence[float], scales: Sequence[float]) -> float:
    """Sweep as the tutorials do, and return the seconds from the start of the Tuner until it returns."""
    from mlflow import MlflowClient
    from ray import tune

    uri = f"sqlite:///{folder / 'mlflow.db'}"
    MlflowClient(uri).create_experiment(EXPERIMENT, artifact_location=str(folder / "mlruns"))
    _start_ray()
    space = {"lr": tune.grid_search(list(rates)), "init_scale": tune.grid_search(list(scales)), "uri": uri}
    start = time.perf_counter()
    tuner = tune.Tuner(
        tune.with_resources(_fit_one, {"cpu": 1}),
        param_space=space,
        tune_config=tune.TuneConfig(metric="loss/test", mode="min"),
        run_config=tune.RunConfig(storage_path=str(folder / "ray"), verbose=0),
    )
    tuner.fit()
    return time.perf_counter() - start


def _fit_one(config: dict[str, Any]) -> None:
    """Train one network: the trainable of the tutorials."""
    import pytorch_lightning as pl
    from pytorch_lightning.loggers import MLFlowLogger
    from ray import tune

    from featurelab.modules import data, learners, nets, probes
    from featurelab.pipelines.engine.experiment.config import Config

    streams = Config().streams  # of seed 0, so that both sides have the same data and initial weights
    task = data.ChainMonomials(SMALL["n_train"], SMALL["n_test"], SMALL["dim"], 5, seed=streams.data)
    net = nets.mlp(SMALL["dim"], SMALL["width"], 2, init_scale=[config["init_scale"], 1.0, 1.0], seed=streams.init)
    every = SMALL["measure_every"]
    learner = learners.Supervised(net, optimizer=learners.gd(config["lr"]), steps_per_batch=every)
    losses = probes.LossProbe({"train": task.train, "test": task.test}, every=every)
    ansatz = probes.AnsatzProbe(every=every, inputs=task.train[0], quantities=QUANTITIES, layers=["0", "1"])
    name = f"lr={config['lr']} init_scale={config['init_scale']}"
    logger = MLFlowLogger(experiment_name=EXPERIMENT, run_name=name, tracking_uri=config["uri"])
    logger.log_hyperparams(config)
    trainer = pl.Trainer(
        max_steps=SMALL["steps"],
        accelerator="cpu",
        precision="64-true",
        callbacks=[losses, ansatz],
        logger=logger,
        limit_val_batches=0,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(learner, datamodule=task)
    trainer.save_checkpoint("last.ckpt", weights_only=True)
    tune.report(losses.latest())


def _start_ray() -> None:
    import ray

    ray.init(
        address="local",
        num_cpus=CPUS,
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
    )


def _stored(folder: Path) -> dict[str, Any]:
    """What a sweep left in its store: how many runs and points, the final test losses, and how long our trials took."""
    from featurelab.tracking.store import query
    from featurelab.tracking.store.connect import attach

    store = attach(f"sqlite:///{folder / 'mlflow.db'}")
    runs = query.runs(store, EXPERIMENT, status="FINISHED")
    points = query.histories(store, list(runs.run_id), METRICS)
    losses = points[(points.metric == "loss/test") & (points.step == SMALL["steps"])].value
    fits = list(runs["tags.seconds"].astype(float)) if "tags.seconds" in runs else []
    return {"trials": len(runs), "points": len(points), "losses": sorted(losses), "fits": fits}


def sweep_once(side: str, rates: Sequence[float] = RATES, scales: Sequence[float] = SCALES) -> dict[str, Any]:
    """One sweep in a process of its own: its times, and what it left in its store."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "benchmarks.sweep", "--side", side, "--rates", *map(str, rates)]
        command += ["--scales", *map(str, scales)]
        environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        start = time.perf_counter()
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
        seconds = time.perf_counter() - start
        if done.returncode:
            raise SystemExit(f"the {side} sweep failed:\n{done.stderr[-2000:]}")
        return {"tuning": float(done.stdout.splitlines()[-1]), "process": seconds, **_stored(Path(folder))}


def rows(size: Size) -> list[Row]:
    """Raises SystemExit if both sides did not do the same work."""
    rates, scales = (RATES[:1], SCALES[:1]) if size == "tiny" else (RATES, SCALES)
    if size == "full":
        sweep_once(OURS, RATES[:1])  # warms the file cache
    runs = {side: sweep_once(side, rates, scales) for side in SIDES}
    trials, points = len(rates) * len(scales), len(METRICS) * (SMALL["steps"] // SMALL["measure_every"] + 1)
    # the C-NFA is undefined, and not recorded, at step 0
    expected = {"trials": trials, "points": trials * (points - 2), "losses": runs[OURS]["losses"]}
    for side, run in runs.items():
        if {name: run[name] for name in expected} != expected:
            raise SystemExit(f"{side} did different work: {run}")
    found = []
    for part, says in (("tuning", "while trials run"), ("process", "with start and exit")):
        taken = {side: [run[part]] for side, run in runs.items()}
        numbers = {"trials_a_minute": 60 * trials / taken[OURS][0], "fit_s": median(runs[OURS]["fits"])}
        numbers["peer_trials_a_minute"] = 60 * trials / taken["tutorial"][0]
        found += compare(part, f"sweep of {trials} short trials, {CPUS} CPUs, {says}", taken, numbers=numbers)
    return found


def main() -> None:
    """Run one sweep in this process, and print its seconds."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--side", choices=SIDES, required=True)
    parser.add_argument("--rates", type=float, nargs="+", required=True)
    parser.add_argument("--scales", type=float, nargs="+", required=True)
    args = parser.parse_args()
    print({OURS: featurelab, "tutorial": tutorial}[args.side](Path.cwd(), args.rates, args.scales))


if __name__ == "__main__":
    main()
