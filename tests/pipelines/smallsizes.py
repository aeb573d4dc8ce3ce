"""Small trials that a claim can be judged on: the check runs two seeds of a figure, and most claims need three."""

from typing import TypeVar

from featurelab.pipelines.engine.experiment.config import Config
from featurelab.pipelines.engine.experiment.experiment import Experiment

C = TypeVar("C", bound=Config)


def on_three_seeds(figure: Experiment[C], **changes: object) -> list[C]:
    """The trials of a figure at its small sizes with these settings changed, on the seeds 0 to 2."""
    first = [config for config in figure.small_configs() if config.seed == 0]
    return [config.but(seed=seed, **changes) for config in first for seed in range(3)]
