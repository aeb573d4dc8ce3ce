"""Experiments that take their time, so that they can be cut short in the middle: one trains, one only records."""

import time
from typing import Any

from pydantic import Field

from featurelab.pipelines.engine.experiment.axes import choice
from featurelab.pipelines.engine.experiment.bounds import at_most
from featurelab.pipelines.engine.experiment.config import Config
from featurelab.pipelines.engine.experiment.experiment import Experiment

# where values lie that are the same on all seeds, and would otherwise decide nothing
APART = (-1.05, -0.95)


class PatientConfig(Config):
    level: float = Field(0.0, ge=0, description="what the curve falls to")
    points: int = Field(40, ge=1, description="points of the curve, or epochs of the training")
    pause: float = Field(0.05, ge=0, description="seconds between them")


training = Experiment(
    name="patient/training",
    figures=("Fig. 1",),
    title="a network that is trained slowly",
    laptop=PatientConfig(points=150, pause=0.05),
    paper=PatientConfig(),
    grid={"seed": [0]},
    sweep_axes={"seed": choice(0, 1)},
    metric="loss/train",
    minutes=0.1,
)


@training.trial
def train(config: PatientConfig, recorder: Any) -> None:
    import pytorch_lightning as pl

    from featurelab.modules import data, learners, nets, probes
    from featurelab.pipelines.engine.trial.fitting.fit import fit

    task = data.ChainMonomials(
        30, 10, 8, 3, seed=config.streams.data, dtype=config.dtype, batch_size=10, order_seed=config.streams.order
    )
    net = nets.mlp(8, 16, 1, seed=config.streams.init, dtype=config.dtype)
    learner = learners.Supervised(net, optimizer=learners.adam(0.01))
    watching = [
        probes.LossProbe({"train": task.train, "test": task.test}, every=3),
        probes.AnsatzProbe(every=30),
        pl.callbacks.LambdaCallback(on_train_epoch_end=lambda trainer, module: time.sleep(config.pause)),
    ]
    fit(learner, task, config, recorder, epochs=config.points, probes=watching)
    recorder.log({"largest_weight": net.layers[0].weight.abs().max().item()}, step=0)


curves = Experiment(
    name="patient/curves",
    figures=("Fig. 2",),
    title="losses that are known beforehand",
    laptop=PatientConfig(),
    paper=PatientConfig(),
    grid={"level": [1.0, 2.0], "seed": [0, 1, 2]},
    metric="loss/val",
    minutes=0.1,
)
others = Experiment(
    name="patient/others",
    figures=("Fig. 3",),
    title="a figure that is done at once",
    laptop=PatientConfig(points=3, pause=0),
    paper=PatientConfig(),
    grid={"seed": [0, 1]},
    metric="loss/val",
    minutes=0.1,
)


@others.trial
@curves.trial
def curve(config: PatientConfig, recorder: Any) -> None:
    for step in range(1, config.points + 1):
        recorder.log({"loss/val": config.level + 1 / (step + config.seed)}, step=step)
        time.sleep(config.pause)


@curves.claim(
    "levels_are_apart", says="the level-1 curve ends below the level-2 curve", expect=at_most(-0.9), within=APART
)
def difference(runs: Any) -> float:
    return runs.final("loss/val", level=1.0) - runs.final("loss/val", level=2.0)


@others.draw(rows=1, cols=1, size=(3, 2))
@curves.draw(rows=1, cols=1, size=(3, 2))
def lines(runs: Any, axes: Any) -> None:
    axes[0, 0].plot(runs.curves("loss/val"))
