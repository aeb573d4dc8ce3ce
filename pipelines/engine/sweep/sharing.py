"""How trials share a cluster: what each asks of Ray, and how many run at once."""

from collections.abc import Callable, Mapping
from typing import Any

from featurelab.pipelines.engine.errors import RequestError
from featurelab.pipelines.engine.sweep.plan import Plan
from featurelab.pipelines.engine.sweep.resources import Resources
from featurelab.pipelines.engine.sweep.workarounds import capacity


def require(resources: Resources) -> None:
    """Raise `RequestError` when a trial asks for more than the whole cluster has."""
    have = capacity()
    for kind, each in (("CPU", resources.cpus), ("GPU", resources.gpus)):
        asked = each * resources.workers
        if asked > have[kind]:
            raise RequestError(f"--{kind.lower()}s-per-trial {asked:g}: the cluster has {have[kind]:g} {kind}")


def requests(plans: Mapping[int, Plan]) -> Callable[[Mapping[str, Any]], Any]:
    """What each trial asks of Ray. One that is to compute on the CPU leaves the GPUs to those beside it."""
    from ray import tune

    # Tune takes a copy of what this function holds for every trial: no more than it needs
    resources = {part: plan.resources for part, plan in plans.items()}
    shares = {part: (each.workers, each.cpus, each.gpus) for part, each in resources.items()}
    without = {
        (part, i)
        for part, plan in plans.items()
        if plan.resources.gpus
        for i in range(len(plan.configs))
        if not plan.gpus_of(i)
    }

    def request(assignment: Mapping[str, Any]) -> Any:
        workers, cpus, gpus = shares[assignment["trial"][0]]
        if workers > 1:
            # it only waits for its workers, which ask for their own; but Ray wants some request, be it a byte
            return tune.PlacementGroupFactory([{"CPU": 0, "memory": 1}])
        on_gpu = gpus and tuple(assignment["trial"]) not in without
        return tune.PlacementGroupFactory([{"CPU": cpus, **({"GPU": gpus} if on_gpu else {})}])

    return request


def at_once(resources: Resources) -> int | None:
    """Data-parallel trials ask for their workers one by one: more at once than fit whole would wait on each other."""
    if resources.workers == 1:
        return None
    have = capacity()
    asked = {"CPU": resources.cpus * resources.workers, "GPU": resources.gpus * resources.workers}
    return max(1, int(min(have[kind] / number for kind, number in asked.items() if number)))
