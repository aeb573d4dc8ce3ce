"""Which further trials could decide the claims that are still undecided, or show what controls make of the others."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from featurelab.pipelines.engine.errors import Missing, RequestError
from featurelab.pipelines.engine.experiment.claims import Claim, Verdict
from featurelab.pipelines.engine.experiment.evidence import LOOKS, MOST_SEEDS, looks
from featurelab.pipelines.engine.experiment.experiment import Experiment
from featurelab.pipelines.engine.experiment.results import Results
from featurelab.pipelines.engine.sweep.plan import Plan
from featurelab.pipelines.engine.sweep.records import as_text


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
    """Return the configs, as plain JSON values, of further trials that claims need.

    Every undecided claim gets seeds up to its next look. New seeds follow the present ones, so that earlier looks stay
    the same. Seeds on which a claim could not be measured are not replaced. If the plan asks for controls, a claim that
    holds and names some gets those of the whole figure on each of its seeds.
    """
    if plan.most_seeds is None:
        return []
    schedule = looks(plan.most_seeds)
    planned = [c for c in plan.configs if c.get("control", "none") == "none" and isinstance(c.get("seed"), int)]
    seeds = sorted({config["seed"] for config in planned})
    seeds += range(max(seeds, default=-1) + 1, max(seeds, default=-1) + 1 + plan.most_seeds)
    wanted: list[dict[str, Any]] = []
    for claim, verdict in zip(experiment.claims, verdicts, strict=True):
        look = next((look for look in schedule if look > verdict.seeds), None)
        changes: list[dict[str, Any]] = []
        if verdict.status == "undecided" and look is not None:
            changes = [{"seed": seed} for seed in seeds[:look]]
        elif verdict.status == "holds" and plan.controls and claim.controls:
            used = claim.seeds_of(verdict, results)
            changes = [{"seed": seed, "control": c} for c in experiment.named_controls for seed in used]
        templates = looked_at(claim, results, planned) if changes else []
        wanted += [template | change for template in templates for change in changes]
    return _new(wanted, plan.configs)


def _new(wanted: Sequence[dict[str, Any]], planned: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The configs, each once, that are not planned already."""
    known = set(map(as_text, planned))
    return list({text: config for config in wanted if (text := as_text(config)) not in known}.values())


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
