"""Figures 3 c, K.4 (top) and K.5, and Appendix K.5. What one step does to the retrieval of unseen classes at e v.

One class is the unseen one with mean e v; the other is a fresh draw of it with all signs inverted. Recall@1 is the
share of samples whose nearest neighbour among both is of their own class: by the cosine, and by the inner product. The
paper sees three phases: too small an e, or too distant a class, gains nothing; then the gain grows with e; at last
the classes are apart before the step already. Data 2 is left out: its v is so long that recall is 1 throughout.
"""

from featurelab.pipelines import Experiment, Field, Grid, above, at_least, at_most, below, np
from featurelab.pipelines.alignment_elasticity.one_step import (
    DATA,
    PAPER,
    SWEEP_AXES,
    UnseenConfig,
    along_the_axis,
    averaged_scores,
    cost,
    record_curves,
    spearman,
    step,
    training_data,
)
from featurelab.pipelines.alignment_elasticity.scores import TENTHS, band, points

SMALL = (0.005, 0.01, 0.02, 0.03, 0.05, 0.07)
LOGARITHMIC = (*SMALL, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9)


class RecallConfig(UnseenConfig):
    shares: tuple[float, ...] = Field(
        tuple(sorted({*TENTHS, *SMALL})), description="e: the unseen class has the mean e v"
    )


LAPTOP = RecallConfig(networks=1)
GRID: Grid = {"distribution": ["ball", "sphere"], "seed": [0, 1, 2, 3, 4]}

figure = Experiment(
    name="alignment_elasticity/recall",
    figure="Fig. 3 c",
    title="Recall@1 of unseen classes at e v, before and after the step",
    caption="With Figs. K.4 (top) and K.5. Means over draws of the data and networks; bands are the range over draws.",
    laptop=LAPTOP,
    paper=LAPTOP.but(n_test=1000, **PAPER),
    grid=GRID,
    sweep_axes=SWEEP_AXES,
    metric="recall/cosine_trained",
    mode="max",
    minutes=0.4,
)


@figure.trial
def run(config, recorder):
    task = training_data(config)

    def measure(learner):
        means = along_the_axis(task, config.shares, config.projection)
        scores = averaged_scores(config, learner, task, means, recall=("cosine", "inner"))
        record_curves(recorder, scores, shares=np.array(config.shares))

    step(config, recorder, task, measure)


@figure.cost
def costs(config):
    return cost(config, len(config.shares), recall=2)


def curve(runs, metric, distribution, shares):
    """The metric at these e, in order."""
    kept = points(runs).tolist()
    values = runs.curve(metric, distribution=distribution)
    return np.array([values[kept.index(share)] for share in shares])


def rise(runs, kind, when, shares=TENTHS):
    """By data set: Spearman's correlation of Recall@1 with |beta^T mu| over these e."""
    found = {}
    for distribution in ("ball", "sphere"):
        similarity = abs(curve(runs, "similarity/unseen", distribution, shares))
        recall = curve(runs, f"recall/{kind}_{when}", distribution, shares)
        found[DATA[distribution]] = spearman(similarity, recall)
    return found


def gains(runs, distribution):
    after, before = (curve(runs, f"recall/cosine_{when}", distribution, LOGARITHMIC) for when in ("trained", "initial"))
    return after - before


def both(bound):
    return {"Data 1": bound, "Data 3": bound}


@figure.claim(
    "c12_initial_recall_rises",
    says="before the step Recall@1 rises with |e|, as the means of the two classes part (Spearman, e = -0.9, ..., 0.9)",
    paper="increases with e",
    expect=both(at_least(0.9)),
)
def initial(runs):
    return rise(runs, "cosine", "initial")


@figure.claim(
    "c13_three_phases",
    says="the gain of Recall@1 is small at the smallest e, large between (largest), small at the largest e",
    paper="three phases",
    where="Appendix K.5",
    expect={"smallest e": below(0.05), "between": above(0.3), "largest e": below(0.05)},
)
def phases(runs):
    found = [gains(runs, distribution) for distribution in ("ball", "sphere")]
    return {
        "smallest e": max(each[0] for each in found),
        "between": min(each.max() for each in found),
        "largest e": max(each[-1] for each in found),
    }


@figure.claim(
    "c17_inner_product_agrees",
    says="Spearman of Recall@1 after the step with |beta^T mu|: by inner product and by cosine (largest difference)",
    paper="similar trends",
    where="Fig. K.5",
    expect=at_most(0.15),
)
def inner_product(runs):
    cosine, inner = (rise(runs, kind, "trained", LOGARITHMIC) for kind in ("cosine", "inner"))
    return max(abs(cosine[name] - inner[name]) for name in cosine)


@figure.draw(rows=2, cols=3, size=(11, 6.2))
def panels(runs, axes):
    for row, (distribution, title) in enumerate([("ball", "Data 1"), ("sphere", "Data 3")]):
        some = runs.where(distribution=distribution)
        shares = points(some)
        positive = shares > 0
        for column, (kind, name) in enumerate([("cosine", "cosine"), ("cosine", "cosine"), ("inner", "inner product")]):
            axis = axes[row, column]
            chosen = np.isin(shares, TENTHS) if column == 0 else positive
            before, after = (some.curves(f"recall/{kind}_{when}")[chosen] for when in ("initial", "trained"))
            band(axis, shares[chosen], before, "#3566a8", "before the step")
            band(axis, shares[chosen], after, "#d1672c", "after")
            band(axis, shares[chosen], after - before, "#3f8f5b", "gain")
            scale = "linear" if column == 0 else "log"
            axis.set(title=f"{title}, {name}", xlabel="e", ylabel="Recall@1", xscale=scale, ylim=(-0.1, 1.05))
            axis.axhline(0.5, color="#444444", linestyle=":", linewidth=1, label="chance")
    axes[0, 2].legend(loc="center left", bbox_to_anchor=(1, 0.5))
