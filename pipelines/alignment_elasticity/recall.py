"""Figures 3c, K.4 (top) and K.5, and Appendix K.5. What one step does to the retrieval of unseen classes at e v.

One class is the unseen one with the mean e v; the other is a fresh sample of it with all signs inverted. Recall@1 is
the share of samples whose nearest neighbour among both classes is of their own class, by the cosine or by the inner
product. The paper sees three phases: for small e nothing is gained, then the gain grows with e, and for large e the
classes are apart before the step. Data 2 is left out: its v is so long that recall is 1 throughout.
"""

from featurelab.pipelines import (
    CATEGORIES, Experiment, Recorder, above, at_least, at_most, band, below, legend_beside, np, null_level,
)
from featurelab.pipelines.alignment_elasticity import one_step
from featurelab.pipelines.alignment_elasticity.one_step import INSIDE, TENTHS, shares_of, trends

CLOSE = (0.005, 0.01, 0.02, 0.03, 0.05, 0.07)
LOGARITHMIC = (*CLOSE, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9)
LAPTOP = one_step.ShareConfig(networks=1, shares=tuple(sorted({*TENTHS, *CLOSE})))

figure = Experiment(
    name="alignment_elasticity/recall", figures=("Fig. 3c", "Fig. K.4", "Fig. K.5", "App. K.5"),
    title="Recall@1 of unseen classes at e v, before and after the step",
    caption="Means over draws of the data and networks; bands are the range over draws of the data.",
    laptop=LAPTOP, paper=LAPTOP.but(**one_step.PAPER), grid={"distribution": list(INSIDE), "seed": range(6)},
    sweep_axes=one_step.SWEEP_AXES, metric="recall/cosine_trained", mode="max", minutes=0.5,
    small=one_step.SMALL,
)


@figure.trial
def run(config: one_step.ShareConfig, recorder: Recorder) -> None:
    one_step.record_shares(config, recorder, config.shares, recall=("cosine", "inner"))


@figure.cost
def cost(config: one_step.ShareConfig):
    return one_step.cost(config, len(config.shares), recall=2)


@figure.claim("c12_initial_recall_rises",
    says="before the step Recall@1 rises with |e|, as the means of the two classes part (Spearman over e = -0.9, ..., "
    "0.9)", paper="increases with e", within=(-1, 1), expect=dict.fromkeys(INSIDE.values(), at_least(0.9)), controls=())
def initial(runs):
    return trends(runs, "recall/cosine_initial", INSIDE, only=np.isin(shares_of(runs), TENTHS))


@figure.claim("c13_three_phases", says="the step gains little Recall@1 at the smallest e (largest gain), much in "
    "between (least maximum) and little at the largest e (largest gain)", paper="three phases", where="Appendix K.5",
    expect={"smallest e": below(0.05), "between": above(0.3), "largest e": below(0.05)})
def phases(runs):
    each_data = [runs.where(distribution=distribution) for distribution in INSIDE]
    gains = [some.curve("recall/cosine_trained") - some.curve("recall/cosine_initial") for some in each_data]
    curves = [gain[np.isin(shares_of(runs), LOGARITHMIC)].to_numpy() for gain in gains]
    return {"smallest e": max(curve[0] for curve in curves), "between": min(curve.max() for curve in curves),
        "largest e": max(curve[-1] for curve in curves)}


@figure.claim("c17_inner_product_agrees", says="Recall@1 after the step follows |beta^T mu| by inner product as it "
    "does by cosine in at least three of four runs (difference of Spearman's correlations, larger of Data 1 and 3)",
    paper="similar trends", where="Fig. K.5", about="share", least=0.75, expect=at_most(0.15))
def inner_product(runs):
    only = np.isin(shares_of(runs), LOGARITHMIC)
    cosine, inner = (trends(runs, f"recall/{kind}_trained", INSIDE, only=only) for kind in ("cosine", "inner"))
    return max(abs(cosine[name] - inner[name]) for name in cosine)


@figure.draw(rows=2, cols=3, size=(11, 6.2))
def panels(runs, axes):
    shares = shares_of(runs)
    columns = [("cosine", "cosine", "linear", np.isin(shares, TENTHS)), ("cosine", "cosine", "log", shares > 0),
        ("inner", "inner product", "log", shares > 0)]
    for row, (distribution, data) in zip(axes, INSIDE.items(), strict=True):
        some = runs.where(distribution=distribution)
        for axis, (kind, name, scale, chosen) in zip(row, columns, strict=True):
            before, after = (some.curves(f"recall/{kind}_{when}")[chosen] for when in ("initial", "trained"))
            lines = {"before the step": before, "after": after, "gain": after - before}
            for (label, table), colour in zip(lines.items(), CATEGORIES, strict=False):
                band(axis, table, shares[chosen], color=colour, label=label)
            axis.set(title=f"{data}, {name}", xlabel="e", ylabel="Recall@1", xscale=scale, ylim=(-0.1, 1.05))
            null_level(axis, 0.5, "chance")
    legend_beside(axes[0, 2])
