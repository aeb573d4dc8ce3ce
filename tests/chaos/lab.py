"""The experiments under test, declared as in a user's package. Every value can be computed beforehand.

Installed as `chaos_lab` (see `home.py`), so this file imports nothing from its own package.
"""

import ctypes
import math
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from featurelab.pipelines.engine.experiment.axes import choice
from featurelab.pipelines.engine.experiment.bounds import at_most
from featurelab.pipelines.engine.experiment.config import Config
from featurelab.pipelines.engine.experiment.experiment import Experiment

MOVED_CLOCK = os.environ.get("CHAOS_CLOCK")  # a file with the seconds by which the clocks of this process are wrong
TRUTH = os.environ.get("CHAOS_TRUTH")  # a folder with one file for each trial: the steps whose log() has returned
PONDER = os.environ.get("CHAOS_PONDER", "")  # claims and drawings wait while this file exists

# where values lie that are the same on all seeds, and would otherwise decide nothing
APART = (-1.05, -0.95)


def _move_clocks(path: Path) -> None:
    true_time, true_ns = time.time, time.time_ns

    def offset() -> float:
        try:
            return float(path.read_text() or 0)
        except (OSError, ValueError):
            return 0.0

    time.time = lambda: true_time() + offset()
    time.time_ns = lambda: true_ns() + int(offset() * 1e9)


if MOVED_CLOCK:
    _move_clocks(Path(MOVED_CLOCK))


class ChaosConfig(Config):
    kind: Literal["closed", "trained"] = Field("closed", description="a closed form, or a network with checkpoints")
    level: float = Field(0.0, ge=0, description="limit of the curve")
    points: int = Field(30, ge=1, description="points of the curve, or epochs of the training")
    pause: float = Field(0.04, ge=0, description="seconds between them")


def closed_form(level: float, seed: int, step: int) -> float:
    """Return a value that uses all of its digits."""
    return level + 1.0 / (step + seed + 1) + ((seed * 2654435761 + step * 40503) % 1000003) / 1e9


def _note(config: Config, step: int) -> None:
    if TRUTH:
        name = f"{config.kind}-{config.level}-{config.seed}"  # type: ignore[attr-defined]
        file = os.open(f"{TRUTH}/{name}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.write(file, f"{step}\n".encode())
        os.close(file)


curves = Experiment(
    name="chaos/curves",
    figures=("Fig. 1",),
    title="curves that are known beforehand",
    laptop=ChaosConfig(),
    paper=ChaosConfig(),
    grid={"level": [1.0, 2.0], "seed": [0, 1, 2]},
    sweep_axes={"level": choice(1.0, 2.0)},
    metric="loss/val",
    minutes=0.1,
)


@curves.trial
def curve(config: ChaosConfig, recorder: Any) -> None:
    if config.kind == "trained":
        _train(config, recorder)
        return
    for step in range(1, config.points + 1):
        value = closed_form(config.level, config.seed, step)
        recorder.log({"loss/val": value, "twice": 2 * value}, step=step)
        _note(config, step)
        time.sleep(config.pause)


def _train(config: ChaosConfig, recorder: Any) -> None:
    import pytorch_lightning as pl

    from featurelab.modules import data, learners, nets, probes
    from featurelab.pipelines.engine.trial.fitting.fit import fit

    task = data.ChainMonomials(
        30, 10, 8, 3, seed=config.streams.data, dtype=config.dtype, batch_size=10, order_seed=config.streams.order
    )
    net = nets.mlp(8, 16, 1, seed=config.streams.init, dtype=config.dtype)
    learner = learners.Supervised(net, optimizer=learners.adam(0.01 * (1 + config.level)))

    def on_epoch_end(trainer: Any, module: Any) -> None:
        _note(config, trainer.current_epoch)
        time.sleep(config.pause)

    callbacks = [
        probes.LossProbe({"val": task.test, "train": task.train}, every=3),
        pl.callbacks.LambdaCallback(on_train_epoch_end=on_epoch_end),
    ]
    fit(learner, task, config, recorder, epochs=config.points, probes=callbacks)


def _wait_while_told() -> None:
    while PONDER and Path(PONDER).exists():
        time.sleep(0.1)


@curves.claim(
    "levels_are_apart", says="the level-1 curve ends below the level-2 curve", expect=at_most(-0.9), within=APART
)
def difference(runs: Any) -> float:
    _wait_while_told()
    return runs.final("loss/val", level=1.0) - runs.final("loss/val", level=2.0)


@curves.draw(rows=1, cols=1, size=(3, 2))
def lines(runs: Any, axes: Any) -> None:
    _wait_while_told()
    axes[0, 0].plot(runs.curves("loss/val"))


class EndingConfig(Config):
    ending: str = Field("well", description="how the trial ends")
    points: int = Field(5, ge=0, description="points recorded before the trial ends")


endings = Experiment(
    name="chaos/endings",
    figures=("Fig. 2",),
    title="trials that end in every possible way",
    laptop=EndingConfig(),
    paper=EndingConfig(),
    grid={"ending": ["well"], "seed": [0]},
    metric="loss/val",
    minutes=0.1,
)


@endings.trial
def end(config: EndingConfig, recorder: Any) -> None:
    for step in range(1, config.points + 1):
        recorder.log({"loss/val": closed_form(0.0, config.seed, step)}, step=step)
    match config.ending:
        case "raise":
            raise ZeroDivisionError("the trial broke\nin two lines")
        case "nan":
            recorder.log({"loss/val": math.nan}, step=config.points + 1)
        case "infinity":
            recorder.log({"loss/val": math.inf}, step=config.points + 1)
        case "sys_exit":
            sys.exit(3)
        case "os_exit":
            os._exit(7)
        case "abort":
            os.abort()
        case "segfault":
            ctypes.string_at(0)
        case "interrupt_itself":
            raise KeyboardInterrupt
        case "terminate_itself":
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(5)
        case "recursion":
            _recurse(0)
        case "memory":
            bytearray(2**60)
        case "close_descriptors":
            os.closerange(3, 4096)
        case "impossible_step":
            recorder.log({"loss/val": 1.0}, step=2**70)
        case "hang":
            time.sleep(600)


def _recurse(depth: int) -> int:
    return _recurse(depth + 1) + 1


@endings.draw(rows=1, cols=1, size=(3, 2))
def ends(runs: Any, axes: Any) -> None:
    axes[0, 0].plot(runs.curves("loss/val"))
