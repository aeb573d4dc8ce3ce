"""Theorems 2.2 and 2.4. The lower bounds, and what they say at the sizes of the figures.

Linear models of N fixed features and weights of norm B have a hinge loss of at least p_o (1 - sqrt(2N) B / 2^k) on some
parity of k patterns. Without structure, an algorithm of statistical queries needs C(D, k)^(1/3) / 2 queries, or a
tolerance of one over that number. The figure shows both against k. At k = 5 the first is below 0, and the second asks
for fewer queries than one gradient has numbers.
"""

from typing import Literal

from featurelab.pipelines import (
    CATEGORIES, Config, Cost, Experiment, Field, Recorder, above, below, bound_level, choice, data, evaluate, learners,
    null_level, theory, torch,
)

SIZES = [5, 7, 9, 11, 13, 15, 17, 19, 21]


class BoundConfig(Config):
    precision: Literal["64-true"] = Field("64-true", description="closed forms")
    size: int = Field(5, gt=3, multiple_of=1, description="patterns k that matter, an odd number")
    patterns: int = Field(100, ge=1, description="hidden patterns D")
    dim: int = Field(500, ge=1, description="input coordinates d, for the numbers in a gradient")
    width: int = Field(300, ge=1, description="features N and neurons 2m: twice this")
    norm: float = Field(10.0, gt=0, description="norm B of the weights")
    unstructured: float = Field(0.5, ge=0, le=1, description="p_o")


PRESET = BoundConfig()

figure = Experiment(
    name="input_structure/bounds", trains=False, figures=("Thm. 2.2", "Thm. 2.4"),
    published={"Thm. 2.2": "Thm. 2"},
    title="Lower bounds against the number of patterns",
    caption="Left: the bound on the loss says nothing below 0; it assumes D ≥ 16 k. Right: the bound on queries.",
    laptop=PRESET, paper=PRESET, grid={"size": SIZES, "seed": range(6)},
    sweep_axes={"width": choice(50, 100, 300, 1000, 3000), "size": choice(5, 7, 9, 11)}, metric="bound", mode="max",
    minutes=0.1, small={"size": [5, 15, 21]},
)


@figure.trial
def run(config: BoundConfig, recorder: Recorder) -> None:
    c = config
    sample = torch.zeros(1, 1, dtype=torch.float64)

    def closed_forms(net, x, y):
        values = {
            f"bound/{b:g}": theory.input_structure.fixed_feature_bound(
                2 * c.width, b, size=c.size, unstructured=c.unstructured
            )
            for b in (1.0, c.norm, c.norm**2)
        }
        queries = theory.input_structure.queries_needed(c.patterns, c.size)
        return values | {"queries": queries, "gradient": 2.0 * c.width * (c.dim + 2)}

    task = data.TensorData((sample, sample), name="closed_form")
    evaluate(learners.Measurement(torch.nn.Identity(), closed_forms), task, config, recorder)


@figure.cost
def cost(config: BoundConfig):
    return Cost(1, 100.0, 1e3)


@figure.claim("nothing_is_said_at_five", origin="ours", kind="identity", where="Thm. 2.2", paper="≥ p_o(1 - ...)",
    says="the formula of the lower bound on the hinge loss of 600 fixed features of norm 1 says nothing at k = 5, and "
    "much at the largest k, for which the theorem needs D >= 16 k (bound at D = 100)",
    expect={"k = 5": below(0), "largest": above(0.4)})
def vacuous(runs):
    at = {"k = 5": 5, "largest": max(runs.values("size"))}
    return {name: runs.final("bound/1", size=size) for name, size in at.items()}


@figure.claim("queries_are_fewer_than_a_gradient", origin="ours", kind="identity", where="Thm. 2.4",
    says="at k = 5 and D = 100 fewer queries are needed than one gradient has numbers, at the largest k more (ratio)",
    paper="C(D,k)^(1/3)/2", expect={"k = 5": below(0.01), "largest": above(1)})
def queries(runs):
    ratio = {size: runs.final("queries", size=size) / runs.final("gradient", size=size) for size in runs.values("size")}
    return {"k = 5": ratio[5], "largest": ratio[max(ratio)]}


@figure.draw(cols=2, size=(9.5, 3.6))
def panels(runs, axes):
    loss, queries = axes[0]
    sizes = sorted(runs.values("size"))
    for norm, colour in zip((1, 10, 100), CATEGORIES, strict=False):
        values = [runs.final(f"bound/{norm}", size=size) for size in sizes]
        loss.plot(sizes, values, "o-", color=colour, markersize=4, label=f"B = {norm}")
    null_level(loss, 0)
    loss.set(xlabel="patterns k", ylabel="least hinge loss of 600 features", ylim=(-0.1, 0.55))
    loss.legend(loc="lower right")
    queries.plot(sizes, [runs.final("queries", size=size) for size in sizes], "o-", markersize=4, color=CATEGORIES[0])
    bound_level(queries, runs.final("gradient"), "numbers in one gradient")
    queries.set(xlabel="patterns k", ylabel="queries needed without structure", yscale="log")
    queries.legend(loc="upper left")
