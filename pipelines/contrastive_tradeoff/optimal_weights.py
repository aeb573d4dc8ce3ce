"""Propositions 7.3 and F.8. The weight of shared features that is optimal on an even mixture: always 1.

The loss of a representation with weights alpha and beta = min(1, (r - alpha s)/(T (r - s))) is E l(alpha Z + beta Z_1),
Z and Z_1 chi-square with s and r - s degrees of freedom. For r = 2s the paper proves that alpha = 1 is best, so that
beta = 1/T; for other s it says "some alpha". Here alpha is looked for on a grid, on samples that all alphas share, for
three losses.
"""

from typing import Literal

from featurelab.pipelines import (
    CATEGORIES,
    Config,
    Cost,
    Experiment,
    Field,
    Recorder,
    above,
    at_most,
    choice,
    data,
    np,
    shades,
    theory,
    torch,
)

KINDS: tuple[Literal["logistic", "exp", "linear"], ...] = ("logistic", "exp", "linear")
PROVEN = [(4, 4, 2), (4, 4, 4), (4, 4, 8)]
OTHERS = [(2, 8, 4), (8, 2, 4), (1, 10, 3), (10, 1, 3)]


class OptimumConfig(Config):
    precision: Literal["64-true"] = Field("64-true", description="losses of neighbouring weights are compared")
    shared: int = Field(4, ge=1, description="s: features that all tasks share")
    private: int = Field(4, ge=1, description="q = r - s: features of each task alone")
    tasks: int = Field(4, ge=1, description="T: tasks in the mixture")
    samples: int = Field(20_000, ge=10, description="samples of each chi-square law")
    points: int = Field(201, ge=2, description="alphas that are tried in [0, 1]")


PRESET = OptimumConfig()

figure = Experiment(
    name="contrastive_tradeoff/optimal_weights", trains=False, figures=("Prop. 7.3", "Prop. F.8"), part="optimum",
    title="The contrastive loss against the weight of shared features",
    caption="Loss less its least, one line a setting (s, r - s, T), first seed; dots: the least.", laptop=PRESET,
    paper=PRESET.but(samples=400_000), grid={("shared", "private", "tasks"): PROVEN + OTHERS, "seed": [0, 1, 2]},
    sweep_axes={"shared": choice(1, 4, 10), "private": choice(1, 4, 10), "tasks": choice(1, 2, 4, 8, 16)},
    metric="alpha/logistic", mode="max", minutes=0.1, small={"samples": 100, "points": 21},
)


@figure.trial
def run(config: OptimumConfig, recorder: Recorder) -> None:
    c = config
    chance = data.stream(c.streams.init, "chi-square")
    Z, Z1 = (torch.from_numpy(chance.chisquare(k, c.samples)) for k in (c.shared, c.private))
    values: dict[str, float] = {}
    losses = {}
    for kind in KINDS:
        found = theory.contrastive_tradeoff.even_optimum(
            Z, Z1, shared=c.shared, private=c.private, tasks=c.tasks, kind=kind, points=c.points
        )
        losses[kind] = found.losses.numpy()
        values |= {f"alpha/{kind}": found.alpha, f"beta/{kind}": found.beta}
        values[f"last_step/{kind}"] = losses[kind][-2] - losses[kind][-1]
    recorder.log(values, step=0)
    recorder.array("losses", alphas=found.alphas.numpy(), **losses)


@figure.cost
def cost(config: OptimumConfig):
    return Cost(2, 60.0 * config.samples * config.points, 64.0 * config.samples)


def farthest(runs, settings):
    """The greatest |alpha - 1| and |beta - 1/T| over settings and losses."""
    found = {"α": 0.0, "β": 0.0}
    for s, q, T in settings:
        one = runs.where(shared=s, private=q, tasks=T)
        for kind in KINDS:
            found["α"] = max(found["α"], abs(one.final(f"alpha/{kind}") - 1))
            found["β"] = max(found["β"], abs(one.final(f"beta/{kind}") - 1 / T))
    return found


BOUNDS = {"α": at_most(1e-12), "β": at_most(1e-12)}
SAYS = "the best alpha of the grid is 1 and beta 1/T, for three losses (greatest distance)"


@figure.claim("c07_alpha_is_one", kind="identity", where="Prop. F.8", paper="α = 1, β = 1/T for r = 2s",
    says=f"r = 2s: {SAYS}", expect=BOUNDS)
def proven(runs):
    return farthest(runs, PROVEN)


@figure.claim("c07b_and_where_nothing_is_proven", kind="identity", origin="ours", where="Prop. 7.3",
    says=f"for other s, of which the paper says some alpha in [0, 1]: {SAYS}", expect=BOUNDS)
def elsewhere(runs):
    return farthest(runs, OTHERS)


@figure.claim("c07c_the_loss_still_falls_there", kind="identity", origin="ours", where="Prop. 7.3",
    says="over the last step of the grid towards alpha = 1 the loss falls (least fall over settings and losses)",
    expect=above(0))
def falls(runs):
    some = [runs.where(shared=s, private=q, tasks=T) for s, q, T in PROVEN + OTHERS]
    return min(one.final(f"last_step/{kind}") for one in some for kind in KINDS)


@figure.draw(cols=3, size=(11.5, 3.8))
def panels(runs, axes):
    first = runs.where(seed=runs.values("seed")[0])
    settings = PROVEN + OTHERS
    for axis, kind in zip(axes[0], KINDS, strict=True):
        for (s, q, T), colour in zip(settings, [*shades(len(PROVEN)), *CATEGORIES[1:]], strict=False):
            (kept,) = first.arrays("losses", shared=s, private=q, tasks=T)
            above_least = kept[kind] - kept[kind].min()
            line = above_least / np.max(above_least)
            axis.plot(kept["alphas"], line, color=colour, label=f"{s}, {q}, {T}")
            axis.plot(kept["alphas"][line.argmin()], 0, "o", color=colour, markersize=4)
        axis.set(xlabel="weight α of shared features", title=f"{kind} loss")
    axes[0, 0].set(ylabel="loss less its least, over the range")
    axes[0, 0].legend(loc="upper right", title="s, r - s, T")
