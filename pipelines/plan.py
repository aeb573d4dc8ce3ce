"""What a trial will need, before it runs: data, parameters, memory, arithmetic."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from modules import data
from pipelines.config import Config
from pipelines.errors import RequestError
from pipelines.experiment import Experiment, Scale

# A sustained rate for the matrix products of small and middle-sized networks, well below the peak of a data-centre GPU,
# and the least time an optimiser step takes there however small the network: the launches of its kernels.
SUSTAINED_FLOPS = 1e13
SECONDS_A_STEP = 1e-3


@dataclass(frozen=True)
class Cost:
    """An estimate for one trial; memory is that at the peak, data the names of public datasets."""

    parameters: int
    flops: float
    memory_bytes: float
    steps: int = 1
    data: tuple[str, ...] = ()

    @property
    def gpu_hours(self) -> float:
        return max(self.flops / SUSTAINED_FLOPS, self.steps * SECONDS_A_STEP) / 3600


def mlp_cost(
    *,
    dim: int,
    width: int,
    hidden: int,
    outputs: int,
    n_train: int,
    steps: int,
    batch_size: int | None = None,
    measures: int = 0,
    bytes_a_number: int = 8,
    data: tuple[str, ...] = (),
) -> Cost:
    """The cost of training a bias-free MLP and measuring its tangent covariances `measures` times on all samples."""
    sizes = [dim, *[width] * hidden, outputs]
    parameters = sum(a * b for a, b in itertools.pairwise(sizes))
    batch = min(batch_size or n_train, n_train)
    training = 6.0 * parameters * batch * steps
    measuring = measures * n_train * outputs * (4.0 * parameters + 2.0 * hidden * width * width)
    rows = max(batch, min(n_train, 1024) * outputs)
    numbers = 4 * parameters + n_train * dim + 3 * rows * (dim + hidden * width)
    return Cost(parameters, training + measuring, float(numbers * bytes_a_number), steps, data)


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
