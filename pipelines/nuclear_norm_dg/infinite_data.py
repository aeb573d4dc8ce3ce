"""Lemma 6.1 and Proposition 6.3. With infinitely many samples an l2 penalty keeps features that fail out of domain.

Of d features r tell the label in every domain. Each of the others is right with probability 1/2 + gamma in domain, and
wrong with that probability out of it. The logistic loss with an l2 penalty has one optimum, in which all invariant
features share a weight alpha and all others a weight beta. We find these two numbers on sums over many samples, and for
one setting all d weights too. Out of domain the other features outvote the invariant ones.
"""

from typing import Literal

from featurelab.pipelines import (
    CATEGORIES, Config, Cost, Experiment, Field, Recorder, at_least, at_most, below, bound_level, choice, data,
    legend_below, loguniform, np, null_level, theory, torch,
)

# (r, d, gamma) that meet the assumptions of the text
MEETING = [(49, 300, 0.45), (64, 400, 0.45), (100, 1200, 0.35)]
STRENGTHS = [0.01, 0.1, 1.0, 3.0]


class InfiniteConfig(Config):
    precision: Literal["64-true"] = Field("64-true", description="Lightning precision: optima need many digits")
    invariant: int = Field(49, ge=1, description="r: features that tell the label in every domain")
    dim: int = Field(300, ge=2, description="d: features")
    gamma: float = Field(0.45, gt=0, lt=0.5, description="the other features are right in domain with 1/2 + gamma")
    strength: float = Field(0.1, gt=0, description="lambda of the l2 penalty")
    n_train: int = Field(20_000, ge=10, description="samples that stand for the distribution in domain")
    in_full: bool = Field(False, description="whether to find all d weights too")


PRESET = InfiniteConfig()
figure = Experiment(
    name="nuclear_norm_dg/infinite_data", trains=False, figures=("Lemma 6.1", "Prop. 6.3"),
    title="An l2 penalty keeps features that fail out of domain",
    caption="Weights of the invariant features and of the others; means over seeds. Dash-dotted: the bounds.",
    laptop=PRESET, paper=PRESET.but(n_train=200_000),
    grid={("invariant", "dim", "gamma"): MEETING, "strength": STRENGTHS, "seed": range(6)},
    sweep_axes={"strength": loguniform(1e-3, 10.0), "gamma": choice(0.35, 0.4, 0.45), "dim": choice(200, 400, 800)},
    metric="ratio", minutes=0.6, small={"n_train": 200, ("invariant", "dim", "gamma"): [(9, 30, 0.45), (16, 60, 0.35)],
        "strength": [0.1, 1.0]},
)
in_full = figure.variant(
    "infinite_data_in_full", figures=("Lemma 6.1",), part="all weights",
    title="All weights of one optimum, and the shared two",
    laptop=PRESET.but(invariant=16, dim=60, gamma=0.3, in_full=True),
    paper=PRESET.but(invariant=16, dim=60, gamma=0.3, in_full=True, n_train=200_000), grid={"seed": range(6)},
    small={"n_train": 200, "dim": 30}, minutes=0.4,
)


@figure.trial
def run(config: InfiniteConfig, recorder: Recorder) -> None:
    r, d = config.invariant, config.dim
    counts = torch.tensor([r, d - r], dtype=torch.float64)
    features = [
        data.environmental_features(min(500, config.n_train), d, r, config.gamma, config.streams.data, f"part {part}")
        for part in range(-(-config.n_train // 500))
    ]
    sums = torch.cat([torch.stack([z[:, :r].sum(1), z[:, r:].sum(1)], 1) for z in features])
    alpha, beta = theory.nuclear_norm_dg.ridge_weights(sums, config.strength, counts).tolist()
    log_ood = theory.nuclear_norm_dg.log_accuracy_out_of_domain(alpha, beta, r, d, config.gamma)
    values = {"alpha": alpha, "beta": beta, "ratio": alpha / beta, "log_accuracy_ood": log_ood}
    if config.in_full:
        w = theory.nuclear_norm_dg.ridge_weights(torch.cat(features), config.strength)
        recorder.array("weights", w=w.numpy())
        for name, part, shared in (("alpha", w[:r], alpha), ("beta", w[r:], beta)):
            values |= {f"{name}_mean": part.mean().item(), f"{name}_spread": part.std().item() / shared}
    recorder.log(values, step=0)


@figure.cost
def cost(config: InfiniteConfig):
    numbers = config.n_train * (config.dim if config.in_full else 500 * config.dim / config.n_train)
    return Cost(config.dim, 2e2 * config.n_train * config.dim, 16.0 * numbers)


def settings(runs):
    """The results of each setting (r, d, gamma) and strength."""
    for r, d, gamma in sorted({tuple(row) for row in runs.trials[["invariant", "dim", "gamma"]].to_numpy()}):
        for strength in sorted(runs.values("strength")):
            yield r, d, gamma, runs.where(invariant=r, dim=d, gamma=gamma, strength=strength)


@figure.claim("lem61_order", where="Lemma 6.1", paper="0 < β < α < 1/√r",
    says="at the optimum 0 < beta < alpha < 1/sqrt(r) for every strength (largest alpha sqrt(r), range of beta/alpha)",
    expect={"α√r": below(1), "least β/α": at_least(0.01), "greatest β/α": below(1)})
def order(runs):
    weights = [(one.final("alpha"), one.final("beta"), r) for r, _, _, one in settings(runs)]
    shares = [beta / alpha for alpha, beta, _ in weights]
    largest = max(alpha * r**0.5 for alpha, _, r in weights)
    return {"α√r": largest, "least β/α": min(shares), "greatest β/α": max(shares)}


@figure.claim("lem61_ratio", where="Lemma 6.1", paper="α/β < 3/(4γ)",
    says="the ratio of the weights alpha/beta stays below 3/(4 gamma) (largest ratio to this bound)", expect=below(1))
def ratio_bound(runs):
    return max(one.final("ratio") * 4 * gamma / 3 for _, _, gamma, one in settings(runs))


@figure.claim("lem61_ratio_sharp", origin="ours", where="Lemma 6.1", says="the ratio of the weights alpha/beta equals "
    "the ratio of the features' means, 1/(2 gamma) (greatest relative distance)", expect=at_most(0.03))
def ratio_sharp(runs):
    return max(abs(2 * gamma * one.final("ratio") - 1) for _, _, gamma, one in settings(runs))


@figure.claim("prop63_worse_than_chance", where="Prop. 6.3", paper="OOD accuracy at most exp(-r/10)",
    says="with an l2 penalty accuracy out of domain is at most exp(-r/10) (least ratio of ln accuracy to -r/10)",
    expect=at_least(1))
def far_below_chance(runs):
    return min(one.final("log_accuracy_ood") / (-r / 10) for r, _, _, one in settings(runs))


@in_full.claim("lem61_shared_weights", where="Lemma 6.1", paper="all invariant features share alpha, all others beta",
    says="an optimum over all d weights has the two shared weights (relative distances of means, largest relative "
    "spread)", expect={"α": at_most(0.02), "β": at_most(0.02), "spread": at_most(0.05)})
def shared(runs):
    distances = {sign: abs(runs.final(f"{name}_mean") / runs.final(name) - 1)
        for name, sign in (("alpha", "α"), ("beta", "β"))}
    return distances | {"spread": max(runs.final("alpha_spread"), runs.final("beta_spread"))}


@figure.draw(cols=3, size=(12, 3.6))
def panels(runs, axes):
    left, middle, right = axes[0]
    for (r, d, gamma), colour in zip(dict.fromkeys((r, d, g) for r, d, g, _ in settings(runs)), CATEGORIES,
            strict=False):
        some = runs.where(invariant=r, dim=d, gamma=gamma)
        xs = sorted(some.values("strength"))
        name = f"r = {r:g}, d = {d:g}, γ = {gamma:g}"
        mean = {m: np.array([some.where(strength=x).final(m) for x in xs])
            for m in ("alpha", "beta", "log_accuracy_ood")}
        left.plot(xs, mean["alpha"] * r**0.5, color=colour, marker="o", markersize=3.5, label=name)
        left.plot(xs, mean["beta"] * r**0.5, color=colour, marker="s", markersize=3.5, linestyle=":")
        middle.plot(xs, mean["alpha"] / mean["beta"], color=colour, marker="o", markersize=3.5)
        bound_level(middle, 3 / (4 * gamma), color=colour)
        null_level(middle, 1 / (2 * gamma), color=colour)
        right.plot(xs, mean["log_accuracy_ood"] / np.log(10), color=colour, marker="o", markersize=3.5)
        bound_level(right, -r / 10 / np.log(10), color=colour)
    bound_level(left, 1, "bound (in each panel)")
    left.set(yscale="log", ylabel="α√r (dots), β√r (squares)")
    legend_below(axes)
    middle.set(ylabel="α/β (dotted: ratio of the means)")
    right.set(ylabel="$\\log_{10}$ accuracy out of domain")
    for axis in axes[0]:
        axis.set(xscale="log", xlabel="strength λ of the l2 penalty")


@in_full.draw(size=(6, 3.6))
def weights(runs, axes):
    axis = axes[0, 0]
    first = runs.where(seed=runs.values("seed")[0])
    w, r = first.arrays("weights")[0]["w"], runs.values("invariant")[0]
    for name, rows, colour in (("invariant", slice(0, r), CATEGORIES[0]), ("others", slice(r, None), CATEGORIES[1])):
        axis.scatter(np.arange(len(w))[rows], w[rows], s=14, color=colour, label=name)
    for name, colour in (("alpha", CATEGORIES[0]), ("beta", CATEGORIES[1])):
        bound_level(axis, first.final(name), f"shared {name}", color=colour)
    axis.set(xlabel="feature", ylabel="weight", ylim=(0, None))
    axis.legend()
