"""What a trial will need, before it runs: datasets, and the resources that its experiment estimates."""

from collections.abc import Sequence
from typing import Any

from featurelab.modules import data
from featurelab.pipelines.engine.errors import RequestError
from featurelab.pipelines.engine.experiment.config import Config, Scale
from featurelab.pipelines.engine.experiment.cost import SECONDS_A_STEP, SUSTAINED_FLOPS
from featurelab.pipelines.engine.experiment.experiment import Experiment


def require_data(experiment: Experiment, configs: Sequence[Config]) -> None:
    """Raise `RequestError`, with how to fetch it, when a dataset that these trials read is not on this machine."""
    if experiment.estimate is None:
        return
    for name in dict.fromkeys(name for config in configs for name in experiment.estimate(config).data):
        try:
            data.require(name)
        except data.DatasetMissing as missing:
            raise RequestError(str(missing)) from None


def dry_run(experiment: Experiment, config: Config, scale: Scale) -> dict[str, Any]:
    """What `run --dry-run` says of one trial and of the figure's whole grid; nothing is read or written."""
    said: dict[str, Any] = {
        "experiment": experiment.name,
        "scale": scale,
        "config": config.model_dump(mode="json"),
        "grid_trials": len(experiment.configs(scale)),
        "data": {},
    }
    if experiment.estimate is None:
        return said
    cost = experiment.estimate(config)
    for name in cost.data:
        try:
            data.require(name)
            said["data"][name] = "here"
        except data.DatasetMissing as missing:
            said["data"][name] = str(missing)
    return said | {
        "parameters": cost.parameters,
        "memory_bytes": round(cost.memory_bytes),
        "flops": cost.flops,
        "optimiser_steps": cost.steps,
        "trial_gpu_hours": round(cost.gpu_hours, 5),
        "grid_gpu_hours": experiment.gpu_hours(scale),
        "assumes": f"{SUSTAINED_FLOPS:.0e} FLOP/s sustained, at least {SECONDS_A_STEP * 1e3:g} ms a step",
    }
