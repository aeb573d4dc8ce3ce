"""An experiment whose trials only record numbers that are known beforehand."""

from typing import Any

import numpy as np
from pydantic import Field

from featurelab.pipelines.engine.experiment.axes import choice, loguniform
from featurelab.pipelines.engine.experiment.bounds import at_most
from featurelab.pipelines.engine.experiment.config import Config
from featurelab.pipelines.engine.experiment.experiment import Experiment


class NothingConfig(Config):
    lr: float = Field(0.1, gt=0, description="swept, and otherwise without effect on the work")
    points: int = Field(1, ge=1, description="points of each curve")
    curves: int = Field(1, ge=1, description="metrics beside the loss")


at_all = Experiment(
    name="nothing/at_all",
    figures=("Fig. 0",),
    title="known numbers",
    laptop=NothingConfig(),
    paper=NothingConfig(),
    grid={"seed": [0]},
    sweep_axes={"lr": loguniform(1e-4, 1.0), "seed": choice(0, 1)},
    metric="loss/val",
    minutes=0.1,
)


def curves(config: NothingConfig) -> dict[str, np.ndarray]:
    """Return what a trial records: by metric, the values at steps 0, 1, ..."""
    steps = np.arange(config.points)
    loss = {"loss/val": config.lr + 1 / (1 + steps + config.seed % 7)}
    return loss | {f"known/{number}": np.cos(config.lr * (steps + number)) for number in range(config.curves - 1)}


@at_all.trial
def trial(config: NothingConfig, recorder: Any) -> None:
    by_metric = curves(config)
    for step in range(config.points):
        recorder.log({name: float(values[step]) for name, values in by_metric.items()}, step=step)


@at_all.claim("falls", says="the loss falls", expect=at_most(0.0), origin="ours", seeds=2)
def fall(runs: Any) -> float:
    curve = runs.curve("loss/val")
    return float(curve.iloc[-1] - curve.iloc[0])


@at_all.draw(rows=1, cols=1, size=(4, 3))
def mean_loss(runs: Any, axes: Any) -> None:
    for seed, of_seed in runs.by_seed():
        axes[0, 0].plot(of_seed.curve("loss/val"), label=f"seed {seed}")
    axes[0, 0].set(xlabel="step", ylabel="loss")
