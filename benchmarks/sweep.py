"""What a sweep of many short trials costs, next to the recipe of the usual tutorials.

Both sides train the same 24 networks of `neural_feature_ansatz/init_scale` on two CPUs and store the same metrics of
the same steps in a fresh MLflow SQLite store:

    featurelab   what `featurelab sweep` runs: reused workers, a journal, metrics sent in batches; the weights, the
                 configuration, the environment and the data's digest are stored too
    tutorial     a Ray Tune function trainable that imports, fits with a Lightning Trainer and MLFlowLogger, and saves a
                 checkpoint beside the trial; one worker process per trial, Tune's default

Each run has its own process and Ray instance. Repeats alternate which side comes first, and a short uncounted sweep
warms the file cache. `tuning` runs from the start of the Tuner until the last result is in the store; `process` is the
whole command with imports and the start and end of Ray. The shorter the fits, the larger the ratio: `fit` is the time
of a trial's own work in a worker that has imported everything.

    python -m benchmarks.sweep [--json] [--repeats 3]
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SIDES = ("featurelab", "tutorial")
CPUS = 2
EXPERIMENT = "neural_feature_ansatz/init_scale"
SMALL = {"n_train": 128, "n_test": 200, "dim": 16, "width": 64, "steps": 200, "measure_every": 10}
RATES = (0.003, 0.006, 0.0125, 0.025, 0.05, 0.1)
SCALES = (1.0, 0.1, 0.01, 0.001)
QUANTITIES = ["nfa", "cnfa"]
METRICS = ["loss/train", "loss/test", "nfa/0", "nfa/1", "cnfa/0", "cnfa/1"]


def featurelab(folder: Path, rates: Sequence[float]) -> float:
    """Sweep with featurelab, and return the seconds from the start of the Tuner to the last stored result."""
    from featurelab.pipelines.engine.experiment import registry
    from featurelab.pipelines.engine.experiment.axes import Axis, Listed
    from featurelab.pipelines.engine.sweep.begin import run_sweep
    from featurelab.pipelines.engine.sweep.plan import plan_search
    from featurelab.tracking.store.connect import connect

    experiment = registry.find(EXPERIMENT)
    axes: dict[str, Axis] = {"lr": Listed(tuple(rates)), "init_scale": Listed(SCALES)}
    plan = plan_search(experiment, axes, 1, experiment.laptop.but(**SMALL), scale="laptop")
    store = connect(f"sqlite:///{folder / 'mlflow.db'}")
    _start_ray()
    done = run_sweep(plan, store, outbox=folder / "outbox")
    for trial in done.trials:
        if not trial.went_well:
            raise SystemExit(f"{trial.name} {trial.status}: {trial.reason}")
    return done.seconds


def tutorial(folder: Path, rates: Sequence[float]) -> float:
    """Sweep as the tutorials do, and return the seconds from the start of the Tuner until it returns."""
    from mlflow import MlflowClient
    from ray import tune

    uri = f"sqlite:///{folder / 'mlflow.db'}"
    MlflowClient(uri).create_experiment(EXPERIMENT, artifact_location=str(folder / "mlruns"))
    _start_ray()
    space = {"lr": tune.grid_search(list(rates)), "init_scale": tune.grid_search(list(SCALES)), "uri": uri}
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


def sweep_once(side: str, rates: Sequence[float] = RATES) -> dict[str, Any]:
    """One sweep in a process of its own: its times, and what it left in its store."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "benchmarks.sweep", "--side", side, "--rates", *map(str, rates)]
        environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        start = time.perf_counter()
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
        seconds = time.perf_counter() - start
        if done.returncode:
            raise SystemExit(f"the {side} sweep failed:\n{done.stderr[-2000:]}")
        return {"tuning": float(done.stdout.splitlines()[-1]), "process": seconds, **_stored(Path(folder))}


def measure(repeats: int) -> dict[str, Any]:
    """Measure both sides `repeats` times. Raises SystemExit if they did not do the same work."""
    sweep_once("featurelab", RATES[:1])
    runs_by_side: dict[str, list[dict[str, Any]]] = {side: [] for side in SIDES}
    for repeat in range(repeats):
        for side in SIDES if repeat % 2 == 0 else SIDES[::-1]:
            runs_by_side[side].append(sweep_once(side))
    trials, points = len(RATES) * len(SCALES), len(METRICS) * (SMALL["steps"] // SMALL["measure_every"] + 1)
    # the C-NFA is undefined, and not recorded, at step 0
    expected = {"trials": trials, "points": trials * (points - 2), "losses": runs_by_side["featurelab"][0]["losses"]}
    for side, runs in runs_by_side.items():
        for run in runs:
            if {name: run[name] for name in expected} != expected:
                raise SystemExit(f"{side} did different work: {run}")
    rows = [
        {
            "method": side,
            "seconds": median(run["tuning"] for run in runs),
            "trials_per_minute": 60 * trials / median(run["tuning"] for run in runs),
            "ratio": _ratio(runs_by_side["featurelab"], runs, "tuning"),
            "seconds_with_start": median(run["process"] for run in runs),
            "ratio_with_start": _ratio(runs_by_side["featurelab"], runs, "process"),
        }
        for side, runs in runs_by_side.items()
    ]
    fit = median(second for run in runs_by_side["featurelab"] for second in run["fits"])
    return {"cpus": CPUS, "repeats": repeats, "trials": trials, "trial_seconds": fit, "methods": rows}


def _ratio(ours: Sequence[Mapping[str, float]], theirs: Sequence[Mapping[str, float]], name: str) -> float:
    """Return the median over repeats of the ratio to our run in the same repeat."""
    return median(b[name] / a[name] for a, b in zip(ours, theirs, strict=True))


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of a table")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--side", choices=SIDES, help="run one sweep in this process and print its seconds")
    parser.add_argument("--rates", type=float, nargs="+", default=RATES, help="learning rates of that sweep")
    args = parser.parse_args(argv)
    if args.side:
        side = {"featurelab": featurelab, "tutorial": tutorial}[args.side]
        print(side(Path.cwd(), args.rates))
        return
    results = measure(args.repeats)
    if args.json:
        print(json.dumps(results))
        return
    print(
        f"{results['trials']} trials of {EXPERIMENT} on {CPUS} CPUs; one takes {results['trial_seconds']:.2f} s "
        f"in a running worker; medians of {args.repeats} alternating repeats"
    )
    print(f"{'':12}{'seconds':>9}{'per minute':>11}{'ratio':>8}{'with start':>12}{'ratio':>8}")
    for row in results["methods"]:
        print(
            f"{row['method']:12}{row['seconds']:9.1f}{row['trials_per_minute']:11.1f}{row['ratio']:8.2f}"
            f"{row['seconds_with_start']:12.1f}{row['ratio_with_start']:8.2f}"
        )


if __name__ == "__main__":
    main()
