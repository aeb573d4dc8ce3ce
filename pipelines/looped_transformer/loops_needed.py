"""Theorem 8.1, informal. O(d) examples and O(log 1/eps) loops suffice for a prediction error of eps.

We count the fewest loops T with |<TF, theta*> - alpha| <= eps |alpha|, from q = 0 with eta = 1/L, of the median prompt:
with n = 16 d examples as d grows; with n = d + 4, which is not in proportion; and at n = 64, d = 4 as eps falls. They
are counted in closed form, and by running the transformer where few are needed.
"""

import math

from featurelab.pipelines import (
    CATEGORIES, Experiment, Field, Recorder, at_least, at_most, band, between, choice, evaluate, learners, legend_below,
    np, randint, theory,
)
from featurelab.pipelines.looped_transformer.prompts import CheckedConfig, block, cost, drawn, followed, parts

LEVELS = (1e-2, 1e-3, 1e-4, 1e-6)
MANY, FEW = [(4, 64), (16, 256), (64, 1024), (128, 2048)], [(4, 8), (16, 20), (64, 68)]
PROMPTS = {4: 500, 16: 200, 64: 50, 128: 20}  # medians vary less in more dimensions


class LoopsConfig(CheckedConfig):
    level: float = Field(1e-3, gt=0, lt=1, description="eps of the sweep's metric")


PRESET = LoopsConfig(loops=40, prompts=100)

figure = Experiment(
    name="looped_transformer/loops_needed", trains=False, figures=("Thm. 8.16",), part="loops",
    title="Loops to a given error", caption="Of the median prompt; means over seeds and their range.", laptop=PRESET,
    paper=PRESET, grid={("dim", "n_train", "prompts"): [(d, n, PROMPTS[d]) for d, n in MANY + FEW], "seed": range(6)},
    sweep_axes={"n_train": choice(16, 32, 64, 128), "dim": choice(2, 4, 8), "loops": randint(20, 60)},
    metric="loops_needed", minutes=0.1,
    small={("dim", "n_train", "prompts"): [(d, n, 10) for d, n in MANY + FEW], "loops": 20},
)


@figure.trial
def run(config: LoopsConfig, recorder: Recorder) -> None:
    def count(net, Z, theta):
        X = parts(Z)[0]
        _, prediction, kappa = followed(net, Z, theta)
        values, off, over = {"condition_number": kappa.median().item()}, 0.0, 0.0
        for level in (*LEVELS, config.level):
            needed = theory.looped_transformer.loops_needed(X, theta, level)
            over = max(over, (needed / bound(kappa, level).ceil()).max().item())
            counted = theory.looped_transformer.first_loop_below(prediction, level)
            name = "loops_needed" if level == config.level else f"loops_needed/{level:g}"
            values[name] = needed.median().item()
            values[f"loops_needed/{level:g}"] = values[name]
            most = config.loops + 1
            off = max(off, (needed.clamp(max=most) - counted.clamp(max=most)).abs().max().item())
        return values | {"miscounted": off, "over_theory": over}

    evaluate(learners.Measurement(block(config), count), drawn(config), config, recorder)


def bound(kappa, level):
    """2 kappa log(1/eps): the loops that theorem 8.16 asks for."""
    return 2 * kappa * math.log(1 / level)


figure.cost(cost)


def loops(runs, size, level=1e-3):
    d, n = size
    return runs.final(f"loops_needed/{level:g}", dim=d, n_train=n)


@figure.claim("c10_examples_in_proportion_suffice", paper="O(d) examples suffice", where="Thm. 8.1",
    says="In at least three of four runs, with n = 16 d examples, an error of 1e-3 takes about as many loops at d = "
    "128 as at d = 4, and at most 12 (ratio, largest number of loops)",
    expect={"d = 128 over 4": between(2 / 3, 1.5), "loops": at_most(12)}, controls=(), about="share", least=0.75)
def in_proportion(runs):
    needed = [loops(runs, size) for size in MANY]
    return {"d = 128 over 4": needed[-1] / needed[0], "loops": max(needed)}


@figure.claim("c10b_fewer_do_not", origin="ours",
    says="With n = d + 4 examples, the loops to an error of 1e-3 grow at least fourfold from d = 4 to 16 and from 16 "
    "to 64 (ratios)", expect={"d = 16 over 4": at_least(4), "d = 64 over 16": at_least(4)}, controls=())
def not_in_proportion(runs):
    needed = [loops(runs, size) for size in FEW]
    return {"d = 16 over 4": needed[1] / needed[0], "d = 64 over 16": needed[2] / needed[1]}


@figure.claim("c11_loops_grow_with_the_digits", paper="O(log 1/ε) loops", where="Thm. 8.1",
    says="In at least three of four runs, at n = 64, d = 4 the loops are linear in log(1/eps) for eps = 1e-2 to 1e-6, "
    "and twice as many digits take about twice as many loops (R^2, ratio of 1e-6 to 1e-3)",
    expect={"R²": at_least(0.98), "ratio": between(1.6, 2.4)}, controls=(), within=(-10, 10), about="share", least=0.75)
def linear(runs):
    xs, ys = np.log(1 / np.array(LEVELS)), np.array([loops(runs, (4, 64), level) for level in LEVELS])
    return {"R²": float(np.corrcoef(xs, ys)[0, 1] ** 2), "ratio": float(ys[3] / ys[1])}


@figure.claim("c11b_fewer_than_the_theorem_asks_for", paper="2κ log(1/ε) suffice", kind="identity",
    says="Every prompt needs at most the 2 kappa log(1/eps) loops of theorem 8.16, rounded up (largest ratio)",
    expect=at_most(1))
def within_theory(runs):
    return max(runs.final("over_theory", dim=d, n_train=n) for d, n in MANY + FEW)


@figure.claim("c11c_counts_agree", origin="ours", kind="identity", controls=("permuted_labels", "itself", "drifting"),
    says="The closed form counts as many loops as a run of the transformer needs (largest difference)",
    expect=at_most(0))
def agree(runs):
    return max(runs.final("miscounted", dim=d, n_train=n) for d, n in MANY + FEW)


@figure.draw(cols=2, size=(9.5, 4))
def panels(runs, axes):
    left, right = axes[0]
    for sizes, name, colour in ((MANY, "n = 16 d", CATEGORIES[0]), (FEW, "n = d + 4", CATEGORIES[1])):
        rows = [runs.finals("loops_needed/0.001", dim=d, n_train=n) for d, n in sizes]
        band(left, rows, [d for d, _ in sizes], color=colour, marker="o", markersize=3.5, label=name)
    left.set(xscale="log", yscale="log", xlabel="coordinates d", ylabel="loops to 10⁻³", xticks=[4, 16, 64, 128],
        xticklabels=[4, 16, 64, 128])
    left.minorticks_off()
    legend_below(left)
    rows = [runs.finals(f"loops_needed/{level:g}", dim=4, n_train=64) for level in LEVELS]
    band(right, rows, LEVELS, color=CATEGORIES[0], marker="o", markersize=3.5, label="n = 64, d = 4")
    predicted = [bound(runs.final("condition_number", dim=4, n_train=64), level) for level in LEVELS]
    right.plot(LEVELS, predicted, "k-.", linewidth=1, label="2κ log(1/ε)")
    right.set(xscale="log", xlabel="error ε", ylabel="loops", ylim=(0, None))
    right.invert_xaxis()
    legend_below(right)
