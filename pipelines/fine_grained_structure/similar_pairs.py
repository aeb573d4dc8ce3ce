"""Figure 18. Similar hidden clusters stay mixed; dissimilar ones stay apart.

The mixture is that of Figures 15 to 17 at s2 = 4, except that in the first half of the labels both clusters have means
N(mu, tau2 I) around a common mu ~ N(0, s2 I). The mean squared distance ratio of the hidden layer is measured on these
labels and on the other labels separately. At tau2 = s2 the means of both kinds of pairs are equally far apart.
"""

import itertools

from featurelab.pipelines import (
    CATEGORIES, Experiment, Field, Recorder, above, at_least, at_most, band, between, bound_level, data, legend_beside,
    torch,
)
from featurelab.pipelines.fine_grained_structure.clusters import SWEEP_AXES, ClusterConfig, cost, train

SIMILAR, DISSIMILAR = "msdr_similar", "msdr_dissimilar"


class PairsConfig(ClusterConfig):
    variance: float = Field(4.0, gt=0, description="variance s2 of means, and of the centres of similar pairs")
    pair_variances: tuple[float, ...] = Field((0.01, 0.05, 0.25, 1.0, 4.0), min_length=1,
        description="variances tau2 of the means of a similar pair around its centre, one network for each")


figure = Experiment(
    name="fine_grained_structure/similar_pairs", figures=("Fig. 18",),
    title="Distance ratio of similar and dissimilar pairs of clusters",
    caption="Lines are means over seeds, bands their range. Dashed: s2.",
    laptop=PairsConfig(n_train=512, dim=128, width=128, steps=300), paper=PairsConfig(), grid={"seed": range(6)},
    paper_grid={"seed": list(range(10))}, sweep_axes=SWEEP_AXES, metric="loss/train", minutes=0.1,
    small={"n_train": 48, "steps": 4, "measure_every": 2, "dim": 16, "width": 8},
)
figure.cost(lambda config: cost(config, len(config.pair_variances)))


@figure.trial
def run(config: PairsConfig, recorder: Recorder) -> None:
    groups = torch.arange(config.clusters) % config.labels
    alike = data.similar_groups(groups)
    means = data.paired_means(groups, config.dim, config.variance, config.pair_variances, seed=config.streams.data)
    parts = {"similar": range(alike), "dissimilar": range(alike, config.labels)}
    train(config, recorder, means, config.pair_variances, parts)


def spreads(runs):
    return sorted(runs.values("pair_variances")[0])


def column(runs, metric):
    return [runs.final(f"{metric}/{tau2:g}") for tau2 in spreads(runs)]


@figure.claim("c17_similar_pairs_need_dissimilarity", paper="requires sufficient dissimilarity",
    says="MSDR of similar pairs is near 1 at the smallest variance tau2 inside a pair, and rises with tau2 (smallest "
    "ratio of neighbours)", expect={"neighbours": above(1), "smallest tau2": at_most(1.1)})
def similar(runs):
    ratios = column(runs, SIMILAR)
    return {"neighbours": min(b / a for a, b in itertools.pairwise(ratios)), "smallest tau2": ratios[0]}


@figure.claim("c17b_dissimilar_pairs_stay", paper="stay high",
    says="MSDR of dissimilar pairs is high at every tau2 (smallest value, range over mean)",
    expect={"smallest": at_least(2), "relative range": at_most(0.05)})
def dissimilar(runs):
    ratios = column(runs, DISSIMILAR)
    return {"smallest": min(ratios), "relative range": (max(ratios) - min(ratios)) * len(ratios) / sum(ratios)}


@figure.claim("c17c_equal_at_equal_spread", where="Appendix B.1", origin="ours",
    says="at tau2 = s2, similar pairs are as far apart as dissimilar ones (ratio of MSDR)", expect=between(0.8, 1.2))
def equal(runs):
    name = f"{runs.values('variance')[0]:g}"
    return runs.final(f"{SIMILAR}/{name}") / runs.final(f"{DISSIMILAR}/{name}")


@figure.claim("c17f_equal_before_training", origin="ours",
    says="before training, similar and dissimilar pairs are equally far apart at tau2 = s2 (ratio of MSDR at step 0)",
    expect=between(0.8, 1.2), controls=())
def equal_before(runs):
    name = f"{runs.values('variance')[0]:g}"
    return runs.at(f"{SIMILAR}/{name}", 0) / runs.at(f"{DISSIMILAR}/{name}", 0)


@figure.claim("c17d_fitted", origin="ours",
    says="every network fits its coarse labels in at least three of four runs (smallest training accuracy)",
    about="share", least=0.75, within=(0, 1), expect=at_least(1))
def fitted(runs):
    return min(column(runs, "accuracy/train"))


@figure.claim("c17e_above_the_null", origin="ours",
    says="the most similar pairs stay above the null level 1 + 1/(n_c - 1) (difference of MSDR at the smallest tau2)",
    expect=above(0))
def over_null(runs):
    size = runs.values("n_train")[0] / runs.values("clusters")[0]
    return column(runs, SIMILAR)[0] - (1 + 1 / (size - 1))


@figure.draw(size=(6.4, 3.6))
def panels(runs, axes):
    axis, xs = axes[0, 0], spreads(runs)
    for metric, name, colour in zip((SIMILAR, DISSIMILAR), ("similar", "dissimilar"), CATEGORIES, strict=False):
        table = [runs.finals(f"{metric}/{tau2:g}") for tau2 in xs]
        band(axis, table, xs, color=colour, marker="o", markersize=3.5, label=f"{name} pairs")
    bound_level(axis, runs.values("variance")[0], "τ² = σ²", vertical=True)
    axis.set(xscale="log", xlabel="variance inside a similar pair, τ²", ylabel="MSDR of the hidden layer")
    legend_beside(axis)
