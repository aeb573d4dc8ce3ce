"""Lemma F.5, Sections 7.2.2 and F.2.3. The Rademacher complexity of predictors on representations of T tasks.

Of {u . phi, |u| <= B} on m samples it is (B/m) E|sum_i sigma_i phi(x_i)|, drawn here with features of weight alpha = 1
and beta = 1/T and the B of lemma F.5; |u*| = 1, half on shared and half on private features, r = 2s. The bound's
leading term is sqrt((v_1/alpha + v_2/beta)(s alpha + (r - s) beta)/m), which for two representations differs by
(1 + T)/(2 sqrt T): the price of universality.

Two formulas are misprinted. X_(t,j) = alpha sum_i z_j has the factor alpha in place of its root: the variance m alpha
that follows is that of sqrt(alpha) sum_i z_j. The universal rate, O(L sqrt(T/m) |u*|) in section 7.2.2, lacks an r.
"""

import math
from typing import Literal

from featurelab.pipelines import (
    CATEGORIES, Config, Cost, Experiment, Field, Recorder, at_most, bars, between, choice, data, legend_below, np,
    theory, torch,
)

TASKS, SIZES = [1, 2, 4, 8, 16], [10, 40]
CHUNK = 200  # draws at once


class ComplexityConfig(Config):
    precision: Literal["64-true"] = Field("64-true", description="means of many draws")
    tasks: int = Field(1, ge=1, description="T: tasks in the mixture")
    shared: int = Field(10, ge=1, description="s = r - s: shared features, and private ones of each task")
    samples: int = Field(100, ge=1, description="m: samples")
    draws: int = Field(4000, ge=2, description="draws of samples and signs")


PRESET = ComplexityConfig()

figure = Experiment(
    name="contrastive_tradeoff/rademacher", trains=False, figures=("Lemma F.5", "Sec. 7.2.2", "Sec. F.2.3"),
    title="Rademacher complexity of predictors on representations of T tasks",
    caption="Means over seeds; bars from the least to the greatest.", laptop=PRESET, paper=PRESET.but(draws=20_000),
    grid={"shared": SIZES, "tasks": TASKS, "seed": range(6)},
    sweep_axes={"tasks": choice(*TASKS), "shared": choice(5, 10, 40), "samples": choice(10, 100, 1000)},
    metric="complexity", minutes=0.1, small={"draws": 200},
)


@figure.trial
def run(config: ComplexityConfig, recorder: Recorder) -> None:
    s, m, T = config.shared, config.samples, config.tasks
    weights = torch.tensor([1.0] * s + [1 / T] * s, dtype=torch.float64)
    radius = theory.contrastive_tradeoff.predicted_predictor_norm(0.5, 0.5, 1, 1 / T)
    chance = data.stream(config.streams.data, "samples")
    complexities, sums = [], []
    for start in range(0, config.draws, CHUNK):
        number = min(CHUNK, config.draws - start)
        z = torch.from_numpy(chance.standard_normal((number, m, 2 * s)))
        signs = torch.from_numpy(chance.choice([-1.0, 1.0], (number, m)))
        complexities.append(theory.contrastive_tradeoff.rademacher_complexity(z * weights.sqrt(), signs, radius))
        sums.append(z.sum(1)[:, s:])
    complexity = torch.cat(complexities).mean().item()
    leading = theory.contrastive_tradeoff.rademacher_leading(0.5, 0.5, 1, 1 / T, shared=s, private=s, m=m)
    spread = torch.cat(sums).var().item() / m  # of a sum of private features, over m
    recorder.log(
        {"complexity": complexity, "leading": leading, "over_leading": complexity / leading,
            "variance/printed": T**-2 * spread * T, "variance/corrected": T**-1 * spread * T},
        step=0,
    )


@figure.cost
def cost(config: ComplexityConfig) -> Cost:
    numbers = config.draws * config.samples * 2.0 * config.shared
    return Cost(2 * config.shared, 10 * numbers, 24.0 * CHUNK * config.samples * 2 * config.shared)


def over_grid(runs, measure):
    return [measure(runs.where(shared=s, tasks=t), s, t) for s in SIZES for t in TASKS]


def ends(runs, metric):
    """The least and the greatest value over r and T."""
    values = over_grid(runs, lambda one, s, t: one.final(metric))
    return {"least": min(values), "greatest": max(values)}


@figure.claim("c10_leading_term", kind="identity", where="Lemma F.5", paper="leading term (1 + o(1))",
    says="The complexity is near the leading term of the bound (ratio, least and greatest over r and T)",
    expect={"least": between(0.95, 1), "greatest": between(0.95, 1)})
def over_leading(runs):
    return ends(runs, "over_leading")


@figure.claim("c10b_price_of_universality", kind="identity", where="Prop. F.8", paper="(1 + T)/(2√T), from its bound",
    says="The complexity grows with T as (1 + T)/(2 sqrt T) (ratio to T = 1 over this, greatest distance from 1)",
    expect=at_most(0.05))
def price(runs):
    def off(one, s, t):
        ratio = one.final("complexity") / runs.final("complexity", shared=s, tasks=1)
        return abs(ratio / ((1 + t) / (2 * math.sqrt(t))) - 1)

    return max(over_grid(runs, off))


def growth(runs, rate):
    """By what the complexity over a rate changes from r = 20 to r = 80, at the greatest T."""
    small, large = (runs.final("complexity", shared=s, tasks=TASKS[-1]) / rate(2 * s, TASKS[-1])
        for s in (SIZES[0], SIZES[-1]))
    return large / small


@figure.claim("c10c_rate_printed", kind="identity", where="Sec. 7.2.2", paper="O(L √(T/m) |u*|)",
    says="The complexity over sqrt(T/m) does not depend on r (ratio of r = 80 to r = 20)", expect=between(0.95, 1.05))
def printed_rate(runs):
    return growth(runs, lambda r, t: math.sqrt(t))


@figure.claim("c10d_rate", kind="identity", origin="corrected", where="Sec. 7.2.2",
    says="The complexity over sqrt(r T/m) does not depend on r (ratio of r = 80 to r = 20)", expect=between(0.95, 1.05))
def rate(runs):
    return growth(runs, lambda r, t: math.sqrt(r * t))


ONE = {"least": between(0.97, 1.03), "greatest": between(0.97, 1.03)}


@figure.claim("c10e_variance_printed", kind="identity", where="Lemma F.5, proof", paper="X_{t,j} = α Σ z_j, E X² = mα",
    says="The variance of beta sum_i z_j is m beta (ratio, least and greatest over r and T)", expect=ONE)
def printed_variance(runs):
    return ends(runs, "variance/printed")


@figure.claim("c10f_variance", kind="identity", origin="corrected", where="Lemma F.5, proof",
    says="The variance of sqrt(beta) sum_i z_j is m beta (ratio, least and greatest over r and T)", expect=ONE)
def variance(runs):
    return ends(runs, "variance/corrected")


@figure.draw(cols=2, size=(9.5, 4))
def panels(runs, axes):
    left, right = axes[0]
    for s, color in zip(SIZES, CATEGORIES, strict=False):
        some = runs.where(shared=s)
        bars(left, [some.finals("complexity", tasks=t) for t in TASKS], TASKS, color=color, label=f"r = {2 * s}")
        left.plot(TASKS, [some.final("leading", tasks=t) for t in TASKS], "-.", color=color, linewidth=1)
        base = some.final("complexity", tasks=1)
        bars(right, [some.finals("complexity", tasks=t) / base for t in TASKS], TASKS, color=color, linestyle="none")
    left.plot([], [], "k-.", linewidth=1, label="leading term")
    left.set(ylabel="complexity")
    many = np.geomspace(1, TASKS[-1], 50)
    right.plot(many, (1 + many) / (2 * np.sqrt(many)), "k-.", linewidth=1, label="$(1+T)/(2\\sqrt{T})$")
    right.plot(many, np.sqrt(many), "k:", linewidth=1, label="$\\sqrt{T}$")
    right.set(ylabel="complexity over that of T = 1")
    for axis in (left, right):
        axis.set(xscale="log", xlabel="tasks T", ylim=(0, None))
        axis.set_xticks(TASKS, [str(t) for t in TASKS])
        axis.minorticks_off()
        legend_below(axis, 3)
