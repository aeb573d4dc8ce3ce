"""Sweeps of many short trials, next to the recipe of the usual tutorials.

Both sides train networks of `neural_feature_ansatz/init_scale` over learning rate, width and weight decay on two CPUs,
and store the same metrics of the same steps in a fresh MLflow SQLite store:

    featurelab   what `featurelab sweep` runs: reused workers, a journal, metrics sent in batches; the weights, the
                 configuration, the environment and the data's digest are stored too
    tutorial     a Ray Tune function trainable that imports, fits with a Lightning Trainer and MLFlowLogger, and saves a
                 checkpoint beside the trial; one worker process per trial, Tune's default

Each run has its own process and Ray instance. `tuning` runs from the start of the Tuner until the last result is in the
store; `process` is the whole command with imports and the start and end of Ray. A trial of the tutorial takes the same
time however many there are, so the tutorial runs a twelfth of them, one of each width; its tuning counts twelve times.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks._rows import Row, Size

ROOT = Path(__file__).resolve().parents[2]
CPUS = 2
EXPERIMENT = "neural_feature_ansatz/init_scale"
SMALL = {"n_train": 128, "n_test": 200, "dim": 16, "steps": 200, "measure_every": 10}
RATES = (0.0125, 0.025, 0.05, 0.1)
WIDTHS = (16, 32, 64, 128)
DECAYS = (0.0, 1e-4, 1e-2)
QUANTITIES = ["nfa", "cnfa"]
METRICS = ["loss/train", "loss/test", "nfa/0", "nfa/1", "cnfa/0", "cnfa/1"]
Space = dict[str, Sequence[float]]
ALL: Space = {"lr": RATES, "width": WIDTHS, "weight_decay": DECAYS}
TWELFTH: Space = ALL | {"lr": RATES[:1], "weight_decay": DECAYS[:1]}
ONE: Space = {"lr": RATES[:1], "width": WIDTHS[:1], "weight_decay": DECAYS[:1]}


def rows(size: Size) -> list[Row]:
    """Rows for the time in which trials run, and for the whole command."""
    space, part, repeats = (ALL, TWELFTH, 2) if size == "full" else (ONE, ONE, 1)
    trials = len(list(product(*space.values())))
    share = trials // len(list(product(*part.values())))
    if size == "full":
        sweep_once("featurelab", ONE)  # fills the file cache
    ours, theirs = [], []
    for repeat in range(repeats):
        sides = [(ours, "featurelab", space), (theirs, "tutorial", part)]
        for times, side, swept in sides if repeat % 2 == 0 else sides[::-1]:
            times.append(sweep_once(side, swept))
    _require_equal_work(ours[0], theirs[0])
    for run in theirs:
        run["process"] += (share - 1) * run["tuning"]
        run["tuning"] *= share
    fit = median(seconds for run in ours for seconds in run["fits"])
    return [
        _row(id, what, trials, ours, theirs, fit)
        for id, what in (("tuning", "while trials run"), ("process", "with start and end"))
    ]


def _row(id: str, what: str, trials: int, ours: list[Any], theirs: list[Any], fit: float) -> Row:
    ratios = [b[id] / a[id] for a, b in zip(ours, theirs, strict=True)]
    mine = median(run[id] for run in ours)
    return Row(
        id,
        f"sweep of {trials} short trials on {CPUS} CPUs, {what}",
        mine,
        "tutorial",
        median(run[id] for run in theirs),
        median(ratios),
        (min(ratios), max(ratios)),
        len(ratios),
        {"trials_a_minute": 60 * trials / mine, "warm_trial_s": fit},
    )


def _require_equal_work(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> None:
    """Raise SystemExit unless both stored the same points of their trials, and the same losses where they coincide."""
    points = len(METRICS) * (SMALL["steps"] // SMALL["measure_every"] + 1) - 2  # the C-NFA is undefined at step 0
    for side, run in (("featurelab", ours), ("tutorial", theirs)):
        if run["points"] != run["trials"] * points:
            raise SystemExit(f"{side} stored {run['points']} points of {run['trials']} trials")
    if not set(theirs["losses"]) <= set(ours["losses"]):
        raise SystemExit("the two sides trained different networks")


def sweep_once(side: str, space: Space) -> dict[str, Any]:
    """One sweep in a process of its own: its times, and what it left in its store."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "benchmarks.laboratory.sweep", side, json.dumps(space)]
        environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        start = time.perf_counter()
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
        seconds = time.perf_counter() - start
        if done.returncode:
            raise SystemExit(f"the {side} sweep failed: {done.stderr.strip()[-500:]}")
        return {"tuning": float(done.stdout.splitlines()[-1]), "process": seconds, **_stored(Path(folder))}


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


def featurelab(folder: Path, space: Space) -> float:
    """Sweep with featurelab, and return the seconds from the start of the Tuner to the last stored result."""
    from featurelab.pipelines.engine.experiment.axes import Listed
    from featurelab.pipelines.engine.experiment.catalogue import registry
    from featurelab.pipelines.engine.sweep.plan import plan_search
    from featurelab.pipelines.engine.sweep.ray.cluster import connect_ray, shut_down

    experiment = registry.find(EXPERIMENT)
    axes: dict[str, Any] = {name: Listed(tuple(values)) for name, values in space.items()}
    plan = plan_search(experiment, axes, 1, experiment.laptop.but(**SMALL), scale="laptop")
    connect_ray("local", ["featurelab.pipelines.engine.sweep.begin"])  # as the command does

    from featurelab.pipelines.engine.sweep.begin import run_sweep
    from featurelab.tracking.store.connect import connect

    done = run_sweep(plan, connect(f"sqlite:///{folder / 'mlflow.db'}"), outbox=folder / "outbox")
    for trial in done.trials:
        if not trial.went_well:
            raise SystemExit(f"{trial.name} {trial.status}: {trial.reason}")
    shut_down()
    return done.seconds


def tutorial(folder: Path, space: Space) -> float:
    """Sweep as the tutorials do, and return the seconds from the start of the Tuner until it returns."""
    import ray
    from mlflow import MlflowClient
    from ray import tune

    uri = f"sqlite:///{folder / 'mlflow.db'}"
    MlflowClient(uri).create_experiment(EXPERIMENT, artifact_location=str(folder / "mlruns"))
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR, "include_dashboard": False}
    ray.init(address="local", num_cpus=CPUS, **options)
    start = time.perf_counter()
    tuner = tune.Tuner(
        tune.with_resources(_fit_one, {"cpu": 1}),
        param_space={name: tune.grid_search(list(values)) for name, values in space.items()} | {"uri": uri},
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
    net = nets.mlp(SMALL["dim"], config["width"], 2, seed=streams.init)
    every = SMALL["measure_every"]
    optimizer = learners.gd(config["lr"], weight_decay=config["weight_decay"])
    learner = learners.Supervised(net, optimizer=optimizer, steps_per_batch=every)
    losses = probes.LossProbe({"train": task.train, "test": task.test}, every=every)
    ansatz = probes.AnsatzProbe(every=every, inputs=task.train[0], quantities=QUANTITIES, layers=["0", "1"])
    name = " ".join(f"{key}={value}" for key, value in config.items() if key != "uri")
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


if __name__ == "__main__":
    print({"featurelab": featurelab, "tutorial": tutorial}[sys.argv[1]](Path.cwd(), json.loads(sys.argv[2])))
