"""Theorem 8.1, informal. O(d) Gaussian examples have a condition number that does not grow.

    kappa(X^T X) <= 1 + O(eps)    with n >= Omega(d / eps^2) examples;    ((1 + r)/(1 - r))^2, r = sqrt(d/n), as d grows

These are facts on random matrices alone; they turn a bound in kappa into one in examples.
"""

from featurelab.pipelines import (
    CATEGORIES, Cost, Experiment, Field, Recorder, at_most, band, between, bound_level, choice, data, np, randint,
    theory,
)
from featurelab.pipelines.looped_transformer.convergence import PAPER
from featurelab.pipelines.looped_transformer.prompts import PromptConfig

# mean kappa at d = 4 and how far from it a mean of thousands of prompts may lie, from an earlier run
KNOWN = {16: (4.77, 0.15), 32: (2.82, 0.06), 64: (2.04, 0.03), 128: (1.64, 0.02)}
SIZES = [(16, 20_000), (32, 8000), (64, 4000), (128, 4000), (256, 1000), (512, 1000), (1024, 1000)]
DIMS = [4, 8, 16, 32, 64, 128]


class ConditionConfig(PromptConfig):
    at_once: int = Field(500, ge=1, description="prompts drawn at once, which bounds the memory")


PRESET = ConditionConfig(loops=1)

figure = Experiment(
    name="looped_transformer/condition_number", trains=False, figures=("Thm. 8.16",), part="examples",
    title="Condition number against the number of examples", caption="d = 4. Means over seeds.", laptop=PRESET,
    paper=PRESET.but(dim=4), grid={("n_train", "prompts"): SIZES, "seed": range(6)},
    sweep_axes={"n_train": choice(16, 64, 256, 1024), "dim": choice(2, 4, 8, 16), "prompts": randint(100, 1000)},
    metric="condition_number", minutes=0.1, small={("n_train", "prompts"): [(n, 20) for n, _ in SIZES]},
)
of_dim = figure.variant(
    "condition_number_of_dim", figures=("Thm. 8.16",), part="dimension", title="Condition number against the dimension",
    caption="Means over seeds. Dashes and dots: the limit of large matrices.",
    grid={("dim", "n_train", "prompts"): [(d, c * d, max(20, 1600 // d)) for c in (4, 16) for d in DIMS],
        "seed": range(6)}, small={("dim", "n_train", "prompts"): [(d, c * d, 10) for c in (4, 16) for d in DIMS]},
    at_once=20,
)


@figure.trial
def run(config: ConditionConfig, recorder: Recorder) -> None:
    parts = []
    for start in range(0, config.prompts, config.at_once):
        count = min(config.at_once, config.prompts - start)
        X = data.prompt_examples(count, config.n_train, config.dim, seed=config.streams.data, part=f"prompts {start}")
        parts.append(theory.looped_transformer.condition_number(X).numpy())
    kappa = np.concatenate(parts)
    mean = float(kappa.mean())
    recorder.log({"condition_number": mean, "over_one": mean - 1, "condition_number/median": np.median(kappa)}, step=0)


@figure.cost
def cost(config: ConditionConfig) -> Cost:
    n, d = config.n_train, config.dim
    return Cost(1, config.prompts * (6.0 * n * d * d + 20.0 * d**3), 16.0 * config.at_once * n * d)


def means(runs, names, metric="condition_number"):
    return np.array([runs.final(metric, n_train=n) for n in names])


@figure.claim("c03b_condition_numbers_of_thousands", origin="ours", says="Mean condition numbers of thousands of "
    "prompts are 4.77, 2.82, 2.04 and 1.64 for n = 16, 32, 64 and 128 (means)",
    expect={f"n = {n}": between(mean - off, mean + off) for n, (mean, off) in KNOWN.items()},
    where="Fig. 8.1; bands set after the fact")
def known(runs):
    return {f"n = {n}": float(mean) for n, mean in zip(KNOWN, means(runs, KNOWN), strict=True)}


@figure.claim("c07_condition_number_tends_to_one", paper="κ ≤ 1 + O(ε) for n ≥ Ω(d/ε²)", where="Sec. 8.1",
    says="The mean condition number tends to 1 at least as fast as n^(-1/2) (slope of log (mean kappa - 1) against log "
    "n, n = 64 to 1,024)", expect=at_most(-0.5))
def slope(runs):
    sizes = [n for n in runs.values("n_train") if n >= 64]
    return float(np.polyfit(np.log(sizes), np.log(means(runs, sizes, "over_one")), 1)[0])


@of_dim.claim("c07b_examples_in_proportion_suffice", paper="O(d) examples", where="Sec. 8.1",
    says="With n = 16 d examples the mean condition number stays below ((1 + 1/4)/(1 - 1/4))^2 for d = 4 to 128 "
    "(largest mean)", expect=at_most((5 / 3) ** 2))
def suffice(runs):
    return max(runs.final("condition_number", dim=d, n_train=16 * d) for d in DIMS)


@of_dim.claim("c07c_the_limit_is_approached", origin="ours",
    says="At d = 128 the mean condition number is within a tenth of the limit of large matrices, for n = 4 d and 16 d "
    "(ratios)", expect={"n = 4 d": between(0.9, 1.0), "n = 16 d": between(0.9, 1.0)})
def limits(runs):
    return {
        f"n = {c} d": runs.final("condition_number", dim=DIMS[-1], n_train=c * DIMS[-1])
        / theory.looped_transformer.marchenko_pastur_condition(c)
        for c in (4, 16)
    }


@figure.draw(size=(6, 3.8))
def panel(runs, axes):
    axis, sizes = axes[0, 0], sorted(runs.values("n_train"))
    rows = np.array([runs.finals("condition_number", n_train=n) for n in sizes]) - 1
    band(axis, rows, sizes, color=CATEGORIES[0], marker="o", markersize=3.5, label="measured")
    axis.plot(list(PAPER), np.array(list(PAPER.values())) - 1, "x", color=CATEGORIES[1], label="Fig. 8.1, ten prompts")
    curve = rows[-1].mean() * (np.array(sizes) / sizes[-1]) ** -0.5
    axis.plot(sizes, curve, "k-.", linewidth=1, label="$n^{-1/2}$")
    axis.set(xscale="log", yscale="log", xlabel="examples n", ylabel="mean κ - 1", xticks=sizes, xticklabels=sizes)
    axis.minorticks_off()
    axis.set_yticks([0.2, 0.5, 1, 2, 4], ["0.2", "0.5", "1", "2", "4"])
    axis.legend()


@of_dim.draw(size=(6, 3.8))
def dim_panel(runs, axes):
    axis = axes[0, 0]
    for c, colour in zip((4, 16), CATEGORIES, strict=False):
        rows = [runs.finals("condition_number", dim=d, n_train=c * d) for d in DIMS]
        band(axis, rows, DIMS, color=colour, marker="o", markersize=3.5, label=f"n = {c} d")
        bound_level(axis, theory.looped_transformer.marchenko_pastur_condition(c), f"limit, n = {c} d", color=colour)
    axis.set(xscale="log", xlabel="coordinates d", ylabel="mean κ", ylim=(0, None), xticks=DIMS, xticklabels=DIMS)
    axis.minorticks_off()
    axis.legend(loc="center right")
