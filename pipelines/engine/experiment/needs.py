"""What a trial will need, before it runs: datasets, models, and the resources that its experiment estimates."""

from collections.abc import Iterator, Sequence
from typing import Any

from featurelab.modules import data, language
from featurelab.pipelines.engine.errors import RequestError
from featurelab.pipelines.engine.experiment.config import Config, Scale
from featurelab.pipelines.engine.experiment.cost import SECONDS_A_STEP, SUSTAINED_FLOPS, Cost
from featurelab.pipelines.engine.experiment.experiment import Experiment


def require_data(experiment: Experiment, configs: Sequence[Config]) -> None:
    """Raise `RequestError`, with how to fetch it, when what these trials read is not on this machine.

    That is a dataset or a model.
    """
    if experiment.estimate is None:
        return
    costs = [experiment.estimate(config) for config in configs]
    for cost in dict.fromkeys(Cost(0, 0, 0, data=cost.data, models=cost.models) for cost in costs):
        for _, missing in _read(cost):
            if missing:
                raise RequestError(missing)


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
    said["data"] = {name: missing or "here" for name, missing in _read(cost)}
    return said | {
        "parameters": cost.parameters,
        "memory_bytes": round(cost.memory_bytes),
        "flops": cost.flops,
        "optimiser_steps": cost.steps,
        "trial_gpu_hours": round(cost.gpu_hours, 5),
        "grid_gpu_hours": experiment.gpu_hours(scale),
        "assumes": f"{SUSTAINED_FLOPS:.0e} FLOP/s sustained, at least {SECONDS_A_STEP * 1e3:g} ms a step",
    }


def _read(cost: Cost) -> Iterator[tuple[str, str]]:
    """The datasets and models that are read, and of each what is missing; empty where nothing is."""
    for name in cost.data:
        try:
            data.require_dataset(name)
            yield name, ""
        except data.DatasetMissing as missing:
            yield name, str(missing)
    for name in cost.models:
        try:
            language.find_model(name)
            yield name, ""
        except language.ModelMissing as missing:
            yield name, str(missing)
