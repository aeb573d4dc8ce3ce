"""Figures 15 to 17. Distances of hidden clusters against separation, input dimension, width and weight decay.

Networks learn four labels of eight Gaussian clusters, N(mu_c, I) with mu_c ~ N(0, s2 I), two clusters to a label. The
mean squared distance ratio (MSDR) of the hidden layer says how much further apart the two clusters of a label are than
the samples of one cluster:

    MSDR = mean_(i != j of one label) D_ij / mean_i D_ii,     D_ij the mean of |h - h'|^2 over h in i, h' in j.

MSDR is 1 without structure, and 1 + s2 for the input. One trial trains the networks of all s2 side by side.

The paper names no learning rate. We show Figures 16 and 17 at 0.1. At that rate networks fit the training set of Figure
15 even at the smallest s2, so most claims on Figure 15 are judged at 0.02, and the figure shows both rates.
"""

import itertools
import math

from featurelab.pipelines import (
    Experiment, Field, Recorder, above, at_least, at_most, bars, below, data, legend_beside, measures, shades, theory,
    torch,
)
from featurelab.pipelines.fine_grained_structure.clusters import SWEEP_AXES, ClusterConfig, cost, train


class MixtureConfig(ClusterConfig):
    separations: tuple[float, ...] = Field((0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 1.5, 2.0, 4.0, 6.0, 8.0, 10.0),
        min_length=1, description="variances s2 of the cluster means, one network for each")


PAPER = MixtureConfig()
LAPTOP = PAPER.but(n_train=512, dim=128, width=128, steps=300, separations=(0.01, 0.05, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0))
TEN_SEEDS = list(range(10))
SLOW, COMMON = 0.02, 0.1  # learning rates of Figure 15, and of the others
DIMS, WIDTHS, DECAYS = [64, 128, 256], [16, 64, 256], [0.0, 5e-5, 5e-4, 5e-3, 5e-2]

by_dim = Experiment(
    name="fine_grained_structure/input_dimension", figures=("Fig. 15",),
    title="Distance ratio of hidden clusters against separation and input dimension",
    caption="Means over seeds, bars their range. Red: a training set is not fitted. Dashed: the input, 1 + s2.",
    laptop=LAPTOP.but(n_train=800, lr=SLOW), paper=PAPER.but(lr=SLOW),
    grid={"lr": [SLOW, COMMON], "dim": DIMS, "seed": range(6)},
    paper_grid={"lr": [SLOW, COMMON], "dim": [*DIMS, 512], "seed": TEN_SEEDS}, sweep_axes=SWEEP_AXES,
    metric="loss/train", minutes=1.6, small={"n_train": 48, "steps": 4, "measure_every": 2},
)
by_width = by_dim.variant(
    "hidden_dimension", figures=("Fig. 16",), title="Distance ratio of hidden clusters against separation and width",
    caption=f"{by_dim.caption} Above: small initial weights; below: PyTorch's.", laptop=LAPTOP, paper=PAPER,
    grid={"init_scale": [0.1, 1.0], "width": WIDTHS, "seed": TEN_SEEDS},
    paper_grid={"init_scale": [0.1, 1.0], "width": [*WIDTHS, 512], "seed": TEN_SEEDS}, minutes=1.2,
)
by_decay = by_dim.variant(
    "weight_decay", figures=("Fig. 17",), title="Distance ratio of hidden clusters against separation and weight decay",
    laptop=LAPTOP, paper=PAPER, grid={"weight_decay": DECAYS, "seed": range(6)},
    paper_grid={"weight_decay": DECAYS, "seed": TEN_SEEDS}, minutes=0.8,
)
by_dim.cost(lambda config: cost(config, len(config.separations)))


@by_dim.trial
def run(config: MixtureConfig, recorder: Recorder) -> None:
    means = data.spread_means(config.clusters, config.dim, config.separations, seed=config.streams.data)
    train(config, recorder, means, config.separations)


def separations(runs):
    """Return the variances s2 of these trials, increasing."""
    return sorted({float(value) for values in runs.values("separations") for value in values})


def ratios(runs, metric="msdr", low=0.0, high=math.inf, **where):
    """Return the final value of a metric by s2, for low <= s2 <= high."""
    return {s: runs.final(f"{metric}/{s:g}", **where) for s in separations(runs) if low <= s <= high}


def growth(runs, field, low=0.0, high=math.inf, **where):
    """Return the rise of MSDR between neighbouring values of a field, by s2 and pair of values."""
    values = sorted(runs.values(field))
    columns = {value: ratios(runs, low=low, high=high, **{field: value}, **where) for value in values}
    steps = itertools.pairwise(values)
    return {f"s2 = {s:g}, {a} to {b}": columns[b][s] - columns[a][s] for a, b in steps for s in columns[a]}


def accuracies(runs, separation, **where):
    return [runs.final(f"accuracy/train/{separation:g}", dim=dim, **where) for dim in runs.values("dim")]


@by_dim.claim("c12_separation_raises_msdr", paper="increases", says="MSDR rises with the variance s2 of the cluster "
    "means in at least three of four runs (rank correlation, for each input dimension)", about="share", least=0.75,
    within=(-1, 1), expect=at_least(0.999))
def separation(runs):
    correlations = {}
    for dim in runs.values("dim"):
        variances, measured = zip(*ratios(runs, dim=dim, lr=SLOW).items(), strict=True)
        correlations[f"d = {dim}"] = measures.spearman(torch.tensor(variances), torch.tensor(measured)).item()
    return correlations


@by_dim.claim("c13_input_dimension_raises_msdr", paper="a clear positive correlation",
    says="MSDR rises with the input dimension at every s2 from 0.05 on (differences of neighbouring dimensions)",
    expect=above(0))
def input_dimension(runs):
    return growth(runs, "dim", low=0.05, lr=SLOW)


@by_dim.claim("c13c_at_the_rate_of_the_other_figures", paper="a clear positive correlation",
    says="at learning rate 0.1, as in Figs. 16 to 18, MSDR rises with the input dimension at every s2 from 0.05 on "
    "(differences of neighbouring dimensions)", expect=above(0))
def input_dimension_at_common_rate(runs):
    return growth(runs, "dim", low=0.05, lr=COMMON)


@by_dim.claim("c13b_not_at_initialisation", origin="ours",
    says="before training, MSDR falls with the input dimension (256 inputs less 64, s2 = 1, step 0)", expect=below(0))
def untrained(runs):
    return runs.at("msdr/1", 0, dim=256, lr=SLOW) - runs.at("msdr/1", 0, dim=64, lr=SLOW)


@by_dim.claim("c14_small_separation_is_not_fitted", paper="red lines on the left end",
    says="the network does not fit the training set at the smallest s2, and fits it at the largest, in at least three "
    "of four runs (training accuracy)", about="share", least=0.75, within=(0, 1),
    expect={"highest at the smallest s2": below(1), "lowest at the largest s2": at_least(1)})
def fitted(runs):
    return ends(runs, SLOW)


@by_dim.claim("c14c_at_the_rate_of_the_other_figures", paper="red lines on the left end",
    says="at learning rate 0.1, as in Figs. 16 to 18, the network does not fit the training set at the smallest s2, "
    "and fits it at the largest, in at least three of four runs (training accuracy)", about="share", least=0.75,
    within=(0, 1), expect={"highest at the smallest s2": below(1), "lowest at the largest s2": at_least(1)})
def fitted_at_common_rate(runs):
    return ends(runs, COMMON)


def ends(runs, lr):
    """Return the highest training accuracy at the smallest s2, and the lowest at the largest."""
    smallest, *_, largest = (accuracies(runs, s, lr=lr) for s in separations(runs))
    return {"highest at the smallest s2": max(smallest), "lowest at the largest s2": min(largest)}


@by_dim.claim("c14b_fitted_from_one_on", origin="ours",
    says="the network fits the training set at every s2 from 1 on (lowest training accuracy)", expect=at_least(0.999),
    within=(0, 1))
def fitted_from_one(runs):
    return min(share for s in separations(runs) if s >= 1 for share in accuracies(runs, s, lr=SLOW))


@by_dim.claim("c12b_null_level", origin="ours",
    says="permuting the clusters inside each label gives the MSDR of no structure, 1 + 1/(n_c - 1) (largest deviation)",
    expect=at_most(0.01), controls=())
def null(runs):
    expected = 1 + 1 / (runs.values("n_train")[0] / runs.values("clusters")[0] - 1)
    levels = [ratios(runs, "msdr_null", dim=dim, lr=SLOW) for dim in runs.values("dim")]
    return max(abs(value - expected) for one in levels for value in one.values())


@by_dim.claim("c12c_training_adds_to_it", origin="ours",
    says="trained MSDR exceeds both its initial value and the null level at every s2 from 0.05 on (smallest ratios)",
    expect={"over initialisation": above(1), "over null": above(1)})
def gained(runs):
    runs = runs.where(lr=SLOW)
    pairs = [(dim, s) for dim in runs.values("dim") for s in separations(runs) if s >= 0.05]
    final = {(dim, s): runs.final(f"msdr/{s:g}", dim=dim) for dim, s in pairs}
    return {"over initialisation": min(final[dim, s] / runs.at(f"msdr/{s:g}", 0, dim=dim) for dim, s in pairs),
        "over null": min(final[dim, s] / runs.final(f"msdr_null/{s:g}", dim=dim) for dim, s in pairs)}


@by_dim.claim("c12d_above_the_input", origin="ours", says="the hidden layer has a higher MSDR than the input, whose "
    "value is 1 + s2 (smallest difference over s2 >= 1, each d)", expect={"d = 64": above(0), "d = 256": above(0)})
def over_input(runs):
    smallest = {}
    for dim in (64, 256):
        hidden, raw = (ratios(runs, metric, low=1.0, dim=dim, lr=SLOW) for metric in ("msdr", "msdr_input"))
        smallest[f"d = {dim}"] = min(hidden[s] - raw[s] for s in hidden)
    return smallest


@by_width.claim("c15_width_raises_msdr", paper="a clear positive correlation",
    says="with small initial weights, MSDR rises with the width at every s2 from 0.05 to 2 (differences of "
    "neighbouring widths)", expect=above(0))
def width(runs):
    return growth(runs, "width", low=0.05, high=2.0, init_scale=0.1)


@by_width.claim("c15b_width_at_large_separation", paper="a clear positive correlation",
    says="with small initial weights, MSDR rises with the width at every s2 above 2 (differences of neighbouring "
    "widths)", expect=above(0))
def width_far(runs):
    return growth(runs, "width", low=2.1, init_scale=0.1)


@by_width.claim("c15c_width_at_default_init", paper="a clear positive correlation",
    says="with PyTorch's initial weights, MSDR rises with the width at every s2 from 0.05 on (differences of "
    "neighbouring widths)", expect=above(0))
def width_default(runs):
    return growth(runs, "width", low=0.05, init_scale=1.0)


@by_width.claim("c15d_reversed_at_default_init", origin="ours", says="with PyTorch's initial weights, MSDR falls from "
    "the narrowest to the widest network (largest difference over s2 >= 1)", expect=below(0))
def width_reversed(runs):
    widths = runs.values("width")
    narrow, wide = (ratios(runs, low=1.0, width=end(widths), init_scale=1.0) for end in (min, max))
    return max(wide[s] - narrow[s] for s in narrow)


@by_decay.claim("c16_weight_decay_has_no_effect", paper="no impact",
    says="weight decay up to 5e-4 changes MSDR by at most 2% (largest relative change)", expect=at_most(0.02))
def weak_decay(runs):
    return max(abs(change) for decay in (5e-5, 5e-4) for change in changes(runs, decay))


@by_decay.claim("c16b_strong_decay_raises_msdr", origin="ours",
    says="weight decay of 5e-3 and of 5e-2 raises MSDR (smallest relative change over s2 >= 0.05)",
    expect={"5e-3": above(0), "5e-2": above(0.02)})
def strong_decay(runs):
    return {"5e-3": min(changes(runs, 5e-3, low=0.05)), "5e-2": min(changes(runs, 5e-2, low=0.05))}


def changes(runs, decay, low=0.0):
    """Return relative changes of MSDR against no weight decay, one for each s2."""
    free, held = (ratios(runs, low=low, weight_decay=value) for value in (0.0, decay))
    return [held[s] / free[s] - 1 for s in free]


@by_dim.draw(rows=2, cols=2, size=(10, 6.6))
def dim_panels(runs, axes):
    for row, lr in zip(axes, (SLOW, COMMON), strict=True):
        lines(row, runs, "dim", "{} inputs", lr=lr)
        row[0].set_title(f"learning rate {lr:g}", loc="left")


@by_decay.draw(cols=2, size=(10, 3.6))
def decay_panels(runs, axes):
    lines(axes[0], runs, "weight_decay", "decay {:g}")


@by_width.draw(rows=2, cols=2, size=(10, 6.6))
def width_panels(runs, axes):
    for row, scale, name in zip(axes, (0.1, 1.0), ("a tenth of PyTorch's", "PyTorch's"), strict=True):
        lines(row, runs, "width", "{} units", init_scale=scale)
        row[0].set_title(f"initial weights: {name}", loc="left")


def lines(axes, runs, field, label, **where):
    """Draw MSDR against s2, below and above 2 as in the paper, one line for each value of a field."""
    values = sorted(runs.values(field))
    for axis, (low, high) in zip(axes, [(0.0, 2.0), (2.0, math.inf)], strict=True):
        shown = [s for s in separations(runs) if low <= s <= high]
        for value, colour in zip(values, shades(len(values)), strict=True):
            chosen = runs.where(**{field: value}, **where)
            bars(axis, [chosen.finals(f"msdr/{s:g}") for s in shown], shown, color=colour, label=label.format(value))
            short = [s for s in shown if chosen.final(f"accuracy/train/{s:g}") != 1]
            axis.plot(short, [chosen.final(f"msdr/{s:g}") for s in short], "o", color="red", markersize=4, zorder=3)
        levels = [theory.fine_grained_structure.mixture_msdr(s) for s in shown]
        axis.plot(shown, levels, "--", color="#444444", linewidth=1, label="input")
        axis.set(xlabel="variance of the means, σ²", ylabel="MSDR of the hidden layer")
    axes[-1].plot([], [], "o", color="red", markersize=4, label="training set\nnot fitted")
    legend_beside(axes[-1])
