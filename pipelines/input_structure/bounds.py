"""The lower bounds of chapter 2, and what they say at the sizes of the figures.

Linear models of N fixed features and weights of norm B have a hinge loss of at least p_o (1 - sqrt(2N) B / 2^k) on some
parity of k patterns. Without structure an algorithm of statistical queries needs C(D, k)^(1/3) / 2 of them, or a
tolerance of one over that number. Both are shown as curves; at k = 5 the first says nothing, and the second asks for
fewer queries than the numbers that one gradient consists of.
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
    below,
    choice,
    data,
    evaluate,
    learners,
    theory,
    torch,
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
    name="input_structure/bounds", trains=False, figures=("Ch. 2",), part="lower bounds",
    title="Lower bounds against the number of patterns",
    caption="Left: below 0 the bound says nothing; it is for D ≥ 16 k. Right: dashed, numbers in one gradient.",
    laptop=PRESET, paper=PRESET, grid={"size": SIZES, "seed": [0, 1, 2]},
    sweep_axes={"width": choice(50, 100, 300, 1000, 3000), "size": choice(5, 7, 9, 11)}, metric="bound", mode="max",
    minutes=0.1, small={"size": [5, 15, 21]},
)


@figure.trial
def run(config: BoundConfig, recorder: Recorder) -> None:
    c = config
    sample = torch.zeros(1, 1, dtype=torch.float64)

    def found(net, x, y):
        norms = {f"bound/{b:g}": b for b in (1.0, c.norm, c.norm**2)}
        bounds = {
            name: theory.input_structure.fixed_feature_bound(2 * c.width, b, size=c.size, unstructured=c.unstructured)
            for name, b in norms.items()
        }
        queries = theory.input_structure.queries_needed(c.patterns, c.size)
        return bounds | {"queries": queries, "gradient": 2.0 * c.width * (c.dim + 2)}

    task = data.TensorData((sample, sample), name="closed_form")
    evaluate(learners.Measurement(torch.nn.Identity(), found), task, config, recorder)


@figure.cost
def cost(config: BoundConfig):
    return Cost(1, 100.0, 1e3)


@figure.claim("nothing_is_said_at_five", origin="ours", kind="identity", where="Chapter 2", paper="≥ p_o(1 - ...)",
    says="bound for N = 600 and B = 1 at k = 5, and at the largest k", expect={"k = 5": below(0), "largest": above(0.4)}
)
def vacuous(runs):
    return {
        "k = 5": runs.final("bound/1", size=5),
        "largest": runs.final("bound/1", size=max(runs.values("size"))),
    }


@figure.claim("queries_are_fewer_than_a_gradient", origin="ours", kind="identity", where="Chapter 2",
    paper="C(D,k)^(1/3)/2",
    says="queries needed over the numbers in one gradient, D = 100: at k = 5 and at the largest k",
    expect={"k = 5": below(0.01), "largest": above(1)})
def queries(runs):
    ratio = {size: runs.final("queries", size=size) / runs.final("gradient", size=size) for size in runs.values("size")}
    return {"k = 5": ratio[5], "largest": ratio[max(ratio)]}


@figure.draw(cols=2, size=(9.5, 3.6))
def panels(runs, axes):
    sizes = sorted(runs.values("size"))
    for norm, colour in zip((1, 10, 100), CATEGORIES, strict=False):
        values = [runs.final(f"bound/{norm}", size=size) for size in sizes]
        axes[0, 0].plot(sizes, values, "o-", color=colour, markersize=4, label=f"B = {norm}")
    axes[0, 0].axhline(0, color="#444444", linestyle="--", linewidth=1)
    axes[0, 0].set(xlabel="patterns k", ylabel="least hinge loss of 600 features", ylim=(-0.1, 0.55))
    axes[0, 0].legend(loc="lower right")
    axes[0, 1].plot(
        sizes, [runs.final("queries", size=size) for size in sizes], "o-", markersize=4, color=CATEGORIES[0]
    )
    axes[0, 1].axhline(runs.final("gradient"), color="#444444", linestyle="--", linewidth=1)
    axes[0, 1].set(xlabel="patterns k", ylabel="queries needed without structure", yscale="log")
