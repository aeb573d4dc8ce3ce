"""Section 6.3. With infinitely many samples the nuclear norm has a better optimum out of domain than an l2 penalty.

The data are those of Figures 6.2 and 6.3. For features of rank one the nuclear norm over the root of the batch size is
sqrt(w'Mw), with M the second moment of the inputs. Both optima are thus minima over two numbers, found to ten digits by
quadrature. At equal strength the nuclear norm also has the longer w, so we compare slopes at equal |w| too.
"""

from typing import Literal

from featurelab.pipelines import (
    CATEGORIES, Config, Cost, Experiment, Field, Recorder, above, at_least, at_most, bound_level, choice, legend_below,
    np, paper_level, theory, uniform,
)
from featurelab.pipelines.nuclear_norm_dg.printed import SYNTHETIC

OUT = {"in domain": 0.7, "out of domain": 0.3}
NAMES: dict[Literal["l2", "nuclear"], str] = {"l2": "l2 penalty", "nuclear": "nuclear norm"}
# slopes with a closed form: of the first gradient step, and of least squares
FIRST_STEP, LEAST_SQUARES = 0.4, 0.1 / 0.88


class PopulationConfig(Config):
    precision: Literal["64-true"] = Field("64-true", description="Lightning precision: optima need many digits")
    strengths: tuple[float, ...] = Field((0.3, 0.2, 0.1, 0.03, 0.01, 0.003, 0.001, 0.0003, 0.0001), min_length=2,
        description="lambda, decreasing")
    agreement: float = Field(0.7, gt=0.5, lt=1, description="share of right second coordinates in domain")
    nodes: int = Field(200, ge=8, description="nodes of the quadrature a side")


figure = Experiment(
    name="nuclear_norm_dg/population", trains=False, figures=("Sec. 6.3",),
    title="Optimal decisions with infinitely many samples",
    caption="Each dot is a strength of the penalty. Exact: nothing is random.", laptop=PopulationConfig(),
    paper=PopulationConfig(nodes=400), grid={"seed": range(6)},
    sweep_axes={"agreement": uniform(0.55, 0.95), "nodes": choice(50, 100, 200, 400)}, metric="ood/nuclear/0.01",
    mode="max", minutes=0.1, small={"strengths": (0.3, 0.03, 0.003), "nodes": 30},
)


@figure.trial
def run(config: PopulationConfig, recorder: Recorder) -> None:
    optima, values = {}, {}
    for name in NAMES:
        optima[name] = np.array([
            theory.nuclear_norm_dg.population_optimum(name, strength, config.agreement, config.nodes).numpy()
            for strength in config.strengths
        ])
        for strength, w in zip(config.strengths, optima[name], strict=True):
            values[f"ood/{name}/{strength:g}"] = theory.nuclear_norm_dg.direction_accuracy(tuple(w),
                1 - config.agreement)
            values[f"slope/{name}/{strength:g}"] = w[1] / w[0]
    recorder.log(values, step=0)
    recorder.array("optima", strengths=np.array(config.strengths), **optima)


@figure.cost
def cost(config: PopulationConfig):
    return Cost(parameters=2, flops=2e3 * config.nodes**2 * len(config.strengths), memory_bytes=64.0 * config.nodes**2)


def slopes_at_equal_norm(optima):
    """Norms that both penalties reach, and the slopes of both there, interpolated in ln |w|."""
    norms = {name: np.log(np.linalg.norm(optima[name], axis=1)) for name in NAMES}
    low, high = max(n.min() for n in norms.values()), min(n.max() for n in norms.values())
    shared = np.linspace(low, high, 20)
    slopes = {name: np.interp(shared, norms[name], optima[name][:, 1] / optima[name][:, 0]) for name in NAMES}
    return np.exp(shared), slopes


@figure.claim("c4_better_at_equal_strength", kind="identity", origin="ours",
    says="at every strength the optimum with the nuclear norm is more accurate out of domain than the optimum with an "
    "l2 penalty (least difference)", expect=above(0))
def equal_strength(runs):
    strengths = runs.values("strengths")[0]
    return min(runs.final(f"ood/nuclear/{s:g}") - runs.final(f"ood/l2/{s:g}") for s in strengths)


@figure.claim("c4b_better_at_equal_norm", kind="identity", origin="ours", says="at equal |w| the optimum with the "
    "nuclear norm has a smaller slope than the optimum with an l2 penalty (least difference)", expect=above(0))
def equal_norm(runs):
    (optima,) = runs.arrays("optima")
    _, slopes = slopes_at_equal_norm(optima)
    return float((slopes["l2"] - slopes["nuclear"]).min())


@figure.claim("c2_no_optimum_is_as_bad", kind="identity", origin="ours", where="Fig. 6.2",
    paper="0.76, for trained networks", says="with some strength of an l2 penalty the optimum has an accuracy of about "
    "0.76 out of domain (least accuracy over strengths)", expect=at_most(0.79))
def as_bad(runs):
    return min(runs.final(f"ood/l2/{s:g}") for s in runs.values("strengths")[0])


@figure.claim("c4c_between_the_closed_forms", kind="identity", origin="ours",
    says="slopes of the optima lie below their limits at large strength: that of the mean of y x for l2, that of least "
    "squares for the nuclear norm (least distance)", expect={"l2": at_least(0), "nuclear": at_least(0)})
def limits(runs):
    largest = {"l2": FIRST_STEP, "nuclear": LEAST_SQUARES}
    strengths = runs.values("strengths")[0]
    return {name: min(top - runs.final(f"slope/{name}/{s:g}") for s in strengths) for name, top in largest.items()}


@figure.draw(cols=2, size=(8.5, 3.6))
def panels(runs, axes):
    left, right = axes[0]
    optima = runs.arrays("optima")[0]
    for (name, label), colour, limit in zip(NAMES.items(), CATEGORIES, (FIRST_STEP, LEAST_SQUARES), strict=False):
        w = optima[name]
        ood = [runs.final(f"ood/{name}/{s:g}") for s in optima["strengths"]]
        left.plot(optima["strengths"], ood, marker="o", markersize=3.5, color=colour, label=label)
        right.plot(np.linalg.norm(w, axis=1), w[:, 1] / w[:, 0], marker="o", markersize=3.5, color=colour)
        bound_level(right, limit, f"limit of large λ, {label}", color=colour)
    for method, colour in zip(SYNTHETIC, CATEGORIES, strict=False):
        paper_level(left, SYNTHETIC[method], f"paper, {method}", color=colour)
    left.set(xscale="log", xlabel="strength λ", ylabel="accuracy out of domain", ylim=(0.74, 1.005))
    legend_below(left, 2)
    right.set(xscale="log", xlabel="|w|", ylabel="slope $w_2/w_1$", ylim=(0, None))
    legend_below(right, 1)
