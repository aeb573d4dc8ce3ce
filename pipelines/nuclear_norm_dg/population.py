"""Section 6.3. The optimum over infinitely many samples: the slope of the decision with an l2 penalty and with ERM-NU.

The data are those of Figures 6.2 and 6.3. With features of rank one the nuclear norm over the root of the batch size is
sqrt(w'Mw), M the second moment of the inputs, so both optima are minima over two numbers, found to ten digits by
quadrature. At equal strength the nuclear norm has the flatter slope, but also the longer w: the honest comparison is at
equal |w|.
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
    at_least,
    at_most,
    choice,
    np,
    theory,
    uniform,
)

OUT = {"in domain": 0.7, "out of domain": 0.3}
NAMES: dict[Literal["l2", "nuclear"], str] = {"l2": "l2 penalty", "nuclear": "nuclear norm"}
# Directions that have a closed form: of the first gradient step, and of least squares.
FIRST_STEP, LEAST_SQUARES = 0.4, 0.1 / 0.88


class PopulationConfig(Config):
    precision: Literal["64-true"] = Field("64-true", description="optima are wanted to many digits")
    strengths: tuple[float, ...] = Field(
        (0.3, 0.2, 0.1, 0.03, 0.01, 0.003, 0.001, 0.0003, 0.0001), min_length=2, description="lambda, decreasing"
    )
    agreement: float = Field(0.7, gt=0.5, lt=1, description="how often the second coordinate agrees in domain")
    nodes: int = Field(200, ge=8, description="nodes of the quadrature a side")


figure = Experiment(
    name="nuclear_norm_dg/population", trains=False, figures=("Sec. 6.3",),
    title="Optimal decisions with infinitely many samples",
    caption="Every dot is a strength of the penalty. Exact: there is nothing random.", laptop=PopulationConfig(),
    paper=PopulationConfig(nodes=400), grid={"seed": [0, 1, 2]},
    sweep_axes={"agreement": uniform(0.55, 0.95), "nodes": choice(50, 100, 200, 400)}, metric="ood/nuclear/0.01",
    mode="max", minutes=0.1, small={"strengths": (0.3, 0.03, 0.003), "nodes": 30},
)


@figure.trial
def run(config: PopulationConfig, recorder: Recorder) -> None:
    found, values = {}, {}
    for name in NAMES:
        found[name] = np.array([
            theory.nuclear_norm_dg.population_optimum(name, strength, config.agreement, config.nodes).numpy()
            for strength in config.strengths
        ])
        for strength, w in zip(config.strengths, found[name], strict=True):
            values[f"ood/{name}/{strength:g}"] = theory.nuclear_norm_dg.direction_accuracy(
                tuple(w), 1 - config.agreement
            )
            values[f"slope/{name}/{strength:g}"] = w[1] / w[0]
    recorder.log(values, step=0)
    recorder.array("optima", strengths=np.array(config.strengths), **found)


@figure.cost
def cost(config: PopulationConfig):
    return Cost(parameters=2, flops=2e3 * config.nodes**2 * len(config.strengths), memory_bytes=64.0 * config.nodes**2)


def slopes_at_equal_norm(kept):
    """Norms that both penalties reach, and the slopes of both there, interpolated in ln |w|."""
    norms = {name: np.log(np.linalg.norm(kept[name], axis=1)) for name in NAMES}
    low, high = max(n.min() for n in norms.values()), min(n.max() for n in norms.values())
    shared = np.linspace(low, high, 20)
    return np.exp(shared), {name: np.interp(shared, norms[name], kept[name][:, 1] / kept[name][:, 0]) for name in NAMES}


@figure.claim("c4_better_at_equal_strength", kind="identity", paper="0.94 against 0.76",
    says="at every strength the optimum with the nuclear norm is better out of domain than with l2 (least difference)",
    expect=above(0))
def equal_strength(runs):
    strengths = runs.values("strengths")[0]
    return min(runs.final(f"ood/nuclear/{s:g}") - runs.final(f"ood/l2/{s:g}") for s in strengths)


@figure.claim("c4b_better_at_equal_norm", kind="identity", origin="ours",
    says="at equal |w| too: the slope with the nuclear norm is the smaller one (least difference)", expect=above(0)
)
def equal_norm(runs):
    (kept,) = runs.arrays("optima")
    _, slopes = slopes_at_equal_norm(kept)
    return float((slopes["l2"] - slopes["nuclear"]).min())


@figure.claim("c2_no_optimum_is_as_bad", kind="identity", paper=0.76, where="Fig. 6.2",
    says="some strength of an l2 penalty has 0.76 out of domain at its optimum (least accuracy)", expect=at_most(0.79))
def as_bad(runs):
    return min(runs.final(f"ood/l2/{s:g}") for s in runs.values("strengths")[0])


@figure.claim("c4c_between_the_closed_forms", kind="identity", origin="ours",
    says="slopes lie below those of the limits of large strength: the mean y x for l2, least squares for the nuclear "
    "norm (least distance)", expect={"l2": at_least(0), "nuclear": at_least(0)})
def limits(runs):
    largest = {"l2": FIRST_STEP, "nuclear": LEAST_SQUARES}
    strengths = runs.values("strengths")[0]
    return {name: min(top - runs.final(f"slope/{name}/{s:g}") for s in strengths) for name, top in largest.items()}


@figure.draw(cols=2, size=(8.5, 3.6))
def panels(runs, axes):
    left, right = axes[0]
    kept = runs.arrays("optima")[0]
    looks = zip(NAMES.items(), CATEGORIES, ((LEAST_SQUARES, FIRST_STEP)[::-1]), strict=False)
    for (name, label), colour, limit in looks:
        w = kept[name]
        ood = [runs.final(f"ood/{name}/{s:g}") for s in kept["strengths"]]
        left.plot(kept["strengths"], ood, marker="o", markersize=3.5, color=colour, label=label)
        right.plot(np.linalg.norm(w, axis=1), w[:, 1] / w[:, 0], marker="o", markersize=3.5, color=colour)
        right.axhline(limit, color=colour, linestyle=":", linewidth=1)
    for level, label in ((0.94, "paper: ERM-NU"), (0.76, "paper: ERM")):
        left.axhline(level, color="#444444", linestyle="--", linewidth=1)
        left.annotate(label, (0.02, level), xycoords=("axes fraction", "data"), va="bottom", fontsize=8)
    left.set(xscale="log", xlabel="strength λ", ylabel="accuracy out of domain", ylim=(0.74, 1.005))
    left.legend()
    right.set(xscale="log", xlabel="|w|", ylabel="slope $w_2/w_1$ (dotted: limit of large λ)", ylim=(0, None))
