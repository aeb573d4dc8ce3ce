"""Simulate how often a claim is decided, and how often falsely, and write the tables of `judging.md` again.

    python docs/power.py            # 20,000 draws: 5 minutes on one core

The values of the seeds are drawn from laws of known mean, and the intervals are those that decide claims. A decision is
false if the mean is on one side of a bound and the verdict says that it is on the other. The bound is put just beyond
the mean, on either side; a row shows the worse side. For power, the mean is inside the bound by so many standard
deviations between seeds.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from featurelab.pipelines.engine.experiment.evidence import LOOKS, allowed, interval, looks, mean_ends

if str(Path(__file__).parent) not in sys.path:
    sys.path.append(str(Path(__file__).parent))
from tables import table, write

PAGE = Path(__file__).parent / "judging.md"
DRAWS = 20_000
ANYWHERE = (-np.inf, np.inf)
Draw = Callable[[np.random.Generator, tuple[int, int]], np.ndarray]
Schedule = Mapping[int, float]

# laws of mean 0, with the standard deviation by which effects are measured
LAWS: dict[str, tuple[Draw, float]] = {
    "normal": (lambda rng, shape: rng.standard_normal(shape), 1.0),
    "heavy tails: t with 3 degrees of freedom": (lambda rng, shape: rng.standard_t(3, shape), 3**0.5),
    "bounded: uniform": (lambda rng, shape: rng.random(shape) - 0.5, 12**-0.5),
    "bounded: accuracies near 0.95, Beta(19, 1)": (lambda rng, shape: rng.beta(19, 1, shape) - 0.95, 0.0475),
    "skewed: lognormal, skewness 1.75": (lambda rng, shape: rng.lognormal(0, 0.5, shape) - np.exp(0.125), 0.604),
    "skewed: exponential, skewness 2": (lambda rng, shape: rng.exponential(size=shape) - 1, 1.0),
    "discrete: 20 test items, 0.95 right": (lambda rng, shape: rng.binomial(20, 0.95, shape) / 20 - 0.95, 0.0487),
    "discrete: 500 test items, 0.99 right": (lambda rng, shape: rng.binomial(500, 0.99, shape) / 500 - 0.99, 0.00445),
    "two outcomes, 0.7 to 0.3": (lambda rng, shape: (rng.random(shape) < 0.7) - 0.7, 0.458),
}
RARE: dict[str, tuple[Draw, float]] = {
    "very skewed: lognormal, skewness 6.2": (lambda rng, shape: rng.lognormal(0, 1, shape) - np.exp(0.5), 2.16),
    "one seed in 10 fails": (lambda rng, shape: _failing(rng, shape, 0.1), 0.3),
    "one seed in 20 fails": (lambda rng, shape: _failing(rng, shape, 0.05), 0.218),
}
SHOWN = [most for most in LOOKS if most not in (96, 192)]
FIXED: dict[str, Schedule] = {f"{n} seeds": {n: allowed(n)} for n in (3, 6)}
ADDED: dict[str, Schedule] = {f"`--most-seeds {most}`": looks(most) for most in SHOWN}
SCHEDULES = FIXED | ADDED


def _failing(rng: np.random.Generator, shape: tuple[int, int], often: float) -> np.ndarray:
    """Values of 0 with a little noise, but 1 lower on a share of seeds."""
    return 0.01 * rng.standard_normal(shape) - (rng.random(shape) < often) + often


def decided(values: np.ndarray, schedule: Schedule) -> tuple[np.ndarray, np.ndarray]:
    """For each row of `values` whether it is decided that the mean is above 0 (1), below (-1) or neither, and when."""
    verdict, seeds = np.zeros(len(values)), np.full(len(values), max(schedule))
    for number, error in schedule.items():
        low, high = mean_ends(values[:, :number], error, ANYWHERE)
        now = np.where(verdict == 0, 1.0 * (low > 0) - 1.0 * (high < 0), 0.0)
        seeds[now != 0] = number
        verdict += now
    return verdict, seeds


def false_decisions(draw: Draw, schedule: Schedule, draws: int, seed: int = 0) -> float:
    """The share of draws that decide that a mean of 0 is above 0, or below it, whichever is more."""
    verdict, _ = decided(draw(np.random.default_rng(seed), (draws, max(schedule))), schedule)
    return float(max((verdict > 0).mean(), (verdict < 0).mean()))


def power(draw: Draw, effect: float, schedule: Schedule, draws: int, seed: int = 0) -> tuple[float, float]:
    """The share of draws that decide that a mean is above 0 when it is, by so much, and the mean number of seeds."""
    verdict, seeds = decided(draw(np.random.default_rng(seed), (draws, max(schedule))) + effect, schedule)
    return float((verdict > 0).mean()), float(seeds.mean())


def falsehoods(laws: Mapping[str, tuple[Draw, float]], draws: int) -> str:
    """How often decisions are false, a law in a row."""
    rows = [
        (name, *(f"{false_decisions(draw, schedule, draws):.1%}" for schedule in SCHEDULES.values()))
        for name, (draw, _) in laws.items()
    ]
    return table(["distribution over seeds", *SCHEDULES], rows)


def powers(effects: Sequence[float], draws: int) -> str:
    """How often an effect of so many standard deviations is decided, and after how many seeds on average."""
    rows = []
    for name in ("normal", "skewed: exponential, skewness 2", "bounded: uniform"):
        draw, deviation = LAWS[name]
        for effect in effects:
            cells = [power(draw, effect * deviation, schedule, draws) for schedule in SCHEDULES.values()]
            rows.append((name, f"{effect:g}", *(f"{share:.0%} ({seeds:.0f})" for share, seeds in cells)))
    return table(["distribution over seeds", "effect", *SCHEDULES], rows)


def controls(draws: int = 2_000) -> str:
    """What a control is found to do, by how much of the effect it leaves and on how many seeds it is run."""
    from featurelab.pipelines.engine.experiment.bounds import above
    from featurelab.pipelines.engine.experiment.decision import Rule

    rule, rng = Rule("mean", {"": above(0)}, ANYWHERE, exact=False), np.random.default_rng(0)
    rows = []
    for effect in (1.0, 2.0, 3.0):
        for left in (0.0, 0.25, 0.6, 1.0):
            cells = []
            for seeds in (3, 6, 16):
                plain, under = rng.standard_normal((2, draws, seeds)) + np.array([effect, left * effect])[:, None, None]
                pairs = zip(plain, under, strict=True)
                states = [rule.compare(*([{"": float(v)} for v in values] for values in pair)) for pair in pairs]
                cells.append(" / ".join(f"{states.count(state) / draws:.0%}" for state in ("broken", "survives")))
            rows.append((f"{effect:g}", f"{left:.0%}", *cells))
    return table(["effect", "left under the control", "3 seeds", "6 seeds", "16 seeds"], rows)


def equal() -> str:
    """The interval of the mean of accuracies that all are 1."""
    rows = [(n, interval("mean", [1.0] * n, allowed(n), (0.0, 1.0))) for n in (3, 6, 16, 64)]
    return table(["seeds, all at accuracy 1", "mean at least"], [(n, f"{ends[0]:.2f}") for n, ends in rows if ends])


def tables(draws: int = DRAWS) -> dict[str, str]:
    return {
        "false_decisions": falsehoods(LAWS, draws),
        "rare_failures": falsehoods(RARE, draws),
        "power": powers((0.25, 0.5, 1.0, 2.0), draws),
        "controls": controls(draws // 10),
        "equal_values": equal(),
    }


if __name__ == "__main__":
    write(PAGE, tables())
