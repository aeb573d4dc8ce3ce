"""An estimate of what one trial will take: parameters, memory, arithmetic."""

import itertools
from dataclasses import dataclass

# A sustained rate for the matrix products of small and middle-sized networks, well below the peak of a data-centre GPU,
# and the least time an optimiser step takes there however small the network: the launches of its kernels.
SUSTAINED_FLOPS = 1e13
SECONDS_A_STEP = 1e-3
# What two cores sustain. Only the proportion of arithmetic and steps matters: measured minutes set the scale.
CPU_FLOPS = 5e10


@dataclass(frozen=True)
class Cost:
    """An estimate for one trial; memory is that at the peak, data and models the names of public ones that it reads."""

    parameters: int
    flops: float
    memory_bytes: float
    steps: int = 1
    data: tuple[str, ...] = ()
    models: tuple[str, ...] = ()

    @property
    def gpu_hours(self) -> float:
        return max(self.flops / SUSTAINED_FLOPS, self.steps * SECONDS_A_STEP) / 3600

    @property
    def cpu_seconds(self) -> float:
        return self.flops / CPU_FLOPS + self.steps * SECONDS_A_STEP


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
