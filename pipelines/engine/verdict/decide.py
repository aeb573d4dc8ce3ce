"""Which further trials could decide the claims that are still undecided."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from featurelab.pipelines.engine.errors import Missing, RequestError
from featurelab.pipelines.engine.experiment.claims import Claim, Verdict
from featurelab.pipelines.engine.experiment.evidence import LOOKS, MOST_SEEDS
from featurelab.pipelines.engine.experiment.experiment import Experiment
from featurelab.pipelines.engine.experiment.results import Results
from featurelab.pipelines.engine.sweep.plan import Plan


def seed_limit(decide: bool, most_seeds: int | None) -> int | None:
    """Return how many seeds a claim may get, None without --decide; raise `RequestError` for an invalid number."""
    if not decide:
        if most_seeds is not None:
            raise RequestError("--most-seeds limits --decide: give both, or neither")
        return None
    limit = MOST_SEEDS if most_seeds is None else most_seeds
    if not LOOKS[0] <= limit <= LOOKS[-1]:
        raise RequestError(f"--most-seeds {limit}: must be from {LOOKS[0]} to {LOOKS[-1]}")
    return limit


def further_trials(
    experiment: Experiment, plan: Plan, verdicts: Sequence[Verdict], results: Results
) -> list[dict[str, Any]]:
    """Return the configs, as plain JSON values, of further trials that undecided claims need.

    Every undecided claim gets seeds up to its next look, and at most `plan.most_seeds`. New seeds follow the present
    ones, so that earlier looks stay the same. Seeds on which a claim could not be measured are not replaced.
    """
    if plan.most_seeds is None:
        return []
    planned = [c for c in plan.configs if c.get("control", "none") == "none" and isinstance(c.get("seed"), int)]
    seeds = sorted({config["seed"] for config in planned})
    seeds += range(max(seeds, default=-1) + 1, max(seeds, default=-1) + 1 + plan.most_seeds)
    wanted: list[dict[str, Any]] = []
    for claim, verdict in zip(experiment.claims, verdicts, strict=True):
        look = next((look for look in LOOKS if look > verdict.seeds), LOOKS[-1] + 1)
        if verdict.status == "undecided" and look <= plan.most_seeds:
            for template in looked_at(claim, results, planned):
                wanted += [config for seed in seeds[:look] if (config := template | {"seed": seed}) not in wanted]
    return [config for config in wanted if config not in planned]


def looked_at(claim: Claim, results: Results, configs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the configs, among those of one seed, whose trials the claim needs to measure that seed.

    These are the trials that it reads, or all trials of the seed, if it measures something else without the others: it
    may count them.
    """
    for seed, runs in results.by_seed():
        read: set[str] = set()  # the ids of the runs that the claim reads
        measured = None
        with suppress(Missing):
            measured = claim.measure(replace(runs, looked_at=read))
        chosen = runs.trials[runs.trials.run_id.isin(read)]
        if len(chosen):
            if not _suffice(claim, replace(runs, trials=chosen), measured):
                chosen = runs.trials
            names = [name for name in chosen.columns if name not in ("run_id", "status")]
            rows = [{name: _listed(row[name]) for name in names} for _, row in chosen.iterrows()]
            return [config for config in configs if config["seed"] == seed and config in rows]
    return []


def _suffice(claim: Claim, runs: Results, measured: Any) -> bool:
    """Whether the claim measures the same on these trials alone."""
    try:
        return bool(claim.measure(runs) == measured)
    except Missing:
        return measured is None
    except Exception:  # without some trials of a seed, a claim may fail to index or divide
        return False


def _listed(value: Any) -> Any:
    return list(map(_listed, value)) if isinstance(value, tuple) else value
