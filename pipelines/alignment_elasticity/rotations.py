"""Figures 3 d-f, K.2 and K.4 (bottom), and Appendix K.4. Unseen classes at the rotated mean R v.

Setup 2: R runs from slight rotations to large ones, by QR of I + eps M with M standard normal; the length of the mean
stays, only its direction leaves that of v. LAPACK's QR of a matrix near I gives a Q near -I, so that the printed recipe
does not give slight rotations; the signs of R's diagonal mend it, `fix_signs`.

Here |beta^T mu| and beta^T Sigma beta = |beta|^2 - (beta^T mu)^2 / |mu|^2 trade off, and their sum rises with
|beta^T mu| only for |mu| > 1: with shorter means Elasticity falls, which the paper's statement leaves out.

|v| = 5, and 3 for retrieval: at dimension 256 and |v| = 5 Recall@1 is at its ceiling. The paper gives no number for |v|
that could decide it, so that what is shown is a setting in which the statements on retrieval hold.
"""

from featurelab.pipelines import (
    CATEGORIES,
    Experiment,
    Field,
    Grid,
    above,
    at_least,
    at_most,
    below,
    between,
    data,
    measures,
    np,
    torch,
)
from featurelab.pipelines.alignment_elasticity.one_step import (
    COLOURS,
    DATA,
    PAPER,
    SWEEP_AXES,
    UnseenConfig,
    averaged_scores,
    cost,
    record_curves,
    spearman,
    step,
    training_data,
)


class RotationConfig(UnseenConfig):
    rotations: int = Field(30, ge=2, description="rotations of the mean")
    least: float = Field(0.1, gt=0, description="eps sqrt(dim) of the slightest rotation")
    most: float = Field(10.0, gt=0, description="eps sqrt(dim) of the largest; between them logarithmic")
    fix_signs: bool = Field(True, description="columns of Q by the signs of R's diagonal; false: as printed")
    recall: bool = Field(False, description="whether retrieval is measured too")


LAPTOP = RotationConfig()
MORE = {"n_test": 1000, "rotations": 300, **PAPER}
SHORT = (0.7, 1.0, 1.5, 3.0, 5.0)
GRID: Grid = {"distribution": list(DATA), "seed": [0, 1, 2, 3, 4]}
RECALLED = [("ball", 3.0), ("sphere", 3.0), ("sphere", 5.0)]
RECALL_GRID: Grid = {("distribution", "mean_norm"): RECALLED, "seed": [0, 1, 2, 3, 4]}
SHORT_GRID: Grid = {"mean_norm": SHORT, "seed": [0, 1, 2]}

scores = Experiment(
    name="alignment_elasticity/rotations",
    figure="Fig. 3 d, e",
    title="Alignment and Elasticity of unseen classes at R v",
    caption="With Fig. K.2. Every point is a rotation: the mean over networks and draws of the data.",
    laptop=LAPTOP,
    paper=LAPTOP.but(**MORE),
    grid=GRID,
    sweep_axes=SWEEP_AXES,
    metric="alignment/trained",
    mode="max",
    minutes=0.3,
)
retrieval = Experiment(
    name="alignment_elasticity/rotations_recall",
    figure="Fig. 3 f",
    title="Recall@1 of unseen classes at R v, before and after the step",
    caption="With Fig. K.4 (bottom). Every point is a rotation: the mean over networks and draws of the data.",
    laptop=LAPTOP.but(recall=True, mean_norm=3.0),
    paper=LAPTOP.but(recall=True, mean_norm=3.0, **MORE),
    grid=RECALL_GRID,
    sweep_axes=SWEEP_AXES,
    metric="recall/cosine_trained",
    mode="max",
    minutes=0.8,
)
short = Experiment(
    name="alignment_elasticity/rotations_short_means",
    figure="Sec. 4",
    title="Elasticity of unseen classes at R v falls with the similarity where |v| < 1",
    caption="A control that the theory predicts. Every point is a rotation: the mean over networks and draws.",
    laptop=LAPTOP,
    paper=LAPTOP.but(**MORE),
    grid=SHORT_GRID,
    sweep_axes=SWEEP_AXES,
    metric="elasticity/unseen",
    mode="max",
    minutes=0.3,
)


@scores.trial
@retrieval.trial
@short.trial
def run(config, recorder):
    task = training_data(config)
    eps = strengths(config)
    axes = data.rotated(task.axis, eps.tolist(), seed=config.streams.data, fix_signs=config.fix_signs)
    lengths = torch.full((len(eps),), task.length, dtype=torch.float64)
    means = measures.UnseenMeans(axes, lengths, data.shrinkage(lengths, config.projection))

    def measure(learner):
        found = averaged_scores(config, learner, task, means, recall=("cosine",) * config.recall)
        record_curves(recorder, found, eps=eps, cosine=(axes @ task.axis).numpy())

    step(config, recorder, task, measure)


def strengths(config):
    return np.logspace(np.log10(config.least), np.log10(config.most), config.rotations) / config.dim**0.5


@scores.cost
@retrieval.cost
@short.cost
def costs(config):
    found = cost(config, config.rotations, recall=config.recall)
    return type(found)(found.parameters, found.flops + 1.4 * config.rotations * config.dim**3, found.memory_bytes)


def trend(runs, metric, **where):
    """Spearman's correlation over rotations of the metric with |beta^T mu|."""
    return spearman(abs(runs.curve("similarity/unseen", **where)), runs.curve(metric, **where))


def each_data(runs, metric):
    return {name: trend(runs, metric, distribution=distribution) for distribution, name in DATA.items()}


@scores.claim(
    "c09_alignment_grows",
    says="over rotations Alignment grows with |beta^T mu| (Spearman; Data 2 is outside the assumptions)",
    paper="positive tendency",
    where="Figs. 3d, K.2",
    expect=dict.fromkeys(DATA.values(), at_least(0.95)),
)
def alignment(runs):
    return each_data(runs, "alignment/trained")


@scores.claim(
    "c10_elasticity_grows",
    says="over rotations Elasticity grows with |beta^T mu|, Data 1 and 3 (Spearman)",
    paper="positive tendency",
    where="Figs. 3e, K.2",
    expect={"Data 1": at_least(0.9), "Data 3": at_least(0.9)},
)
def elasticity(runs):
    found = each_data(runs, "elasticity/unseen")
    return {name: found[name] for name in ("Data 1", "Data 3")}


@scores.claim(
    "c10_elasticity_grows_outside",
    says="outside the assumptions: the same for Data 2, where slight rotations all saturate the features (Spearman)",
    paper="positive tendency",
    where="Fig. K.2",
    expect=at_least(0.9),
)
def elasticity_outside(runs):
    return each_data(runs, "elasticity/unseen")["Data 2"]


@scores.claim(
    "c11_initial_alignment_is_flat",
    says="before the step Alignment does not depend on the rotation: its range over its mean, Data 1 and 3",
    origin="ours",
    where="Fig. 3d",
    expect={"Data 1": below(0.2), "Data 3": below(0.2)},
)
def flat(runs):
    found = {}
    for distribution in ("ball", "sphere"):
        values = runs.curve("alignment/initial", distribution=distribution)
        found[DATA[distribution]] = (values.max() - values.min()) / values.mean()
    return found


TESTED = {"Data 1": "ball", "Data 3": "sphere"}


@retrieval.claim(
    "c14_recall_rises",
    says="after the step Recall@1 rises with |beta^T mu|, |v| = 3 (Spearman)",
    paper="increases",
    expect=dict.fromkeys(TESTED, at_least(0.8)),
)
def recall_rises(runs):
    return {
        name: trend(runs, "recall/cosine_trained", distribution=distribution, mean_norm=3.0)
        for name, distribution in TESTED.items()
    }


@retrieval.claim(
    "c15_initial_recall_is_flat",
    says="before the step Recall@1 does not depend on the rotation, |v| = 3: its range (larger of Data 1 and 3), and"
    " Spearman's correlation with |beta^T mu|",
    paper="does not vary",
    expect={"range": below(0.1), "Data 1": between(-0.5, 0.5), "Data 3": between(-0.5, 0.5)},
)
def initial_recall(runs):
    ranges, trends = [], {}
    for name, distribution in TESTED.items():
        where = {"distribution": distribution, "mean_norm": 3.0}
        values = runs.curve("recall/cosine_initial", **where)
        ranges.append(values.max() - values.min())
        trends[name] = trend(runs, "recall/cosine_initial", **where)
    return {"range": max(ranges), **trends}


@retrieval.claim(
    "c15b_initial_recall_of_one_network",
    says="the same of each network by itself, whichever its sign: |Spearman|, |v| = 3 (mean over networks)",
    origin="ours",
    expect={"Data 1": at_most(0.5), "Data 3": at_most(0.5)},
    fails="rotations share one path of means, so a single network's flat curve still correlates with it by about 0.5",
)
def initial_recall_of_one(runs):
    return {
        name: abs(trend(runs, "recall/cosine_initial", distribution=distribution, mean_norm=3.0))
        for name, distribution in TESTED.items()
    }


@retrieval.claim(
    "c16_far_classes_lose",
    says="the gain of Recall@1, |v| = 3: mean over the tenth of the rotations with the least |beta^T mu| (largest over"
    " Data 1 and 3), and over the third with the greatest (least)",
    paper="decreases when beta^T mu is too small",
    expect={"lowest tenth": below(0), "top third": above(-0.005)},
)
def far_classes(runs):
    found = [gains(runs, distribution, 3.0) for distribution in TESTED.values()]
    return {"lowest tenth": max(low for low, _ in found), "top third": min(high for _, high in found)}


@retrieval.claim(
    "c16_far_classes_lose_longer_means",
    says="the same for Data 3 at |v| = 5, where Recall@1 is near its ceiling before the step",
    paper="decreases when beta^T mu is too small",
    expect={"lowest tenth": below(0), "top third": above(-0.005)},
)
def far_classes_longer(runs):
    low, high = gains(runs, "sphere", 5.0)
    return {"lowest tenth": low, "top third": high}


def gains(runs, distribution, norm):
    """Mean gain over the lowest tenth (two rotations at least) and the top third of |beta^T mu|."""
    where = {"distribution": distribution, "mean_norm": norm}
    gain = (runs.curve("recall/cosine_trained", **where) - runs.curve("recall/cosine_initial", **where)).to_numpy()
    order = np.argsort(abs(runs.curve("similarity/unseen", **where).to_numpy()))
    return gain[order[: max(2, len(order) // 10)]].mean(), gain[order[-(len(order) // 3) :]].mean()


@short.claim(
    "c32_elasticity_turns",
    says="over rotations of Data 3: Spearman of Elasticity with |beta^T mu|, below |v| = 1 and above",
    origin="ours",
    expect={"0.7": at_most(0), "1.5": at_least(0.9), "3": at_least(0.9), "5": at_least(0.9)},
)
def turns(runs):
    return {f"{norm:g}": trend(runs, "elasticity/unseen", mean_norm=norm) for norm in SHORT if norm != 1}


@short.claim(
    "c32_alignment_does_not_turn",
    says="over rotations of Data 3: Spearman of Alignment with |beta^T mu|, at every |v|",
    origin="ours",
    expect={f"{norm:g}": at_least(0.8) for norm in SHORT},
)
def alignment_stays(runs):
    return {f"{norm:g}": trend(runs, "alignment/trained", mean_norm=norm) for norm in SHORT}


def scatter(axis, runs, metric, colour, label, size=14):
    """A metric against |beta^T mu|: means over draws of the data, bars from the least to the greatest."""
    x, table = abs(runs.curve("similarity/unseen")), runs.curves(metric)
    mean = table.mean(axis=1)
    bars = np.array([mean - table.min(axis=1), table.max(axis=1) - mean]).clip(min=0)
    axis.errorbar(
        x, mean, yerr=bars, color=colour, linestyle="", marker="o", markersize=3.5, elinewidth=0.6, label=label
    )
    axis.set_xlabel(r"$|\beta^\top \mu|$")


@scores.draw(rows=2, cols=3, size=(11, 6.2))
def panels(runs, axes):
    for column, (distribution, name) in enumerate(DATA.items()):
        some = runs.where(distribution=distribution)
        scatter(axes[0, column], some, "alignment/trained", COLOURS[distribution], "after the step")
        scatter(axes[0, column], some, "alignment/initial", "#8a939b", "before")
        scatter(axes[1, column], some, "elasticity/unseen", COLOURS[distribution], None)
        axes[0, column].set(title=f"Alignment, {name}", ylabel="Alignment")
        axes[1, column].set(title=f"Elasticity, {name}", ylabel="Elasticity")
    axes[0, 0].legend()


@retrieval.draw(cols=3, size=(12, 3.4))
def recall_panels(runs, axes):
    for axis, (distribution, norm) in zip(axes[0], RECALLED, strict=True):
        some = runs.where(distribution=distribution, mean_norm=norm)
        scatter(axis, some, "recall/cosine_initial", "#3566a8", "before the step")
        scatter(axis, some, "recall/cosine_trained", "#d1672c", "after")
        x = abs(some.curve("similarity/unseen"))
        gain = some.curve("recall/cosine_trained") - some.curve("recall/cosine_initial")
        lower = axis.twinx()
        lower.plot(x, gain, "x", color="#3f8f5b", markersize=4, label="gain (right axis)")
        lower.set_ylabel("gain")
        lower.grid(visible=False)
        axis.set(title=f"{DATA[distribution]}, |v| = {norm:g}", ylabel="Recall@1, cosine")
    handles = [h for shown in (axis, lower) for h in shown.get_legend_handles_labels()[0]]
    axis.legend(handles=handles, loc="upper left", bbox_to_anchor=(1.25, 1))


@short.draw(cols=2, size=(9.5, 3.6))
def short_panels(runs, axes):
    for norm, colour in zip(SHORT, CATEGORIES, strict=False):
        some = runs.where(mean_norm=norm)
        x = abs(some.curve("similarity/unseen"))
        for axis, metric in zip(axes[0], ("elasticity/unseen", "alignment/trained"), strict=True):
            values = some.curve(metric)
            axis.plot(x / x.max(), values / values.max(), "o", markersize=3.5, color=colour, label=f"|v| = {norm:g}")
    for axis, name in zip(axes[0], ("Elasticity", "Alignment"), strict=True):
        axis.set(title=name, xlabel=r"$|\beta^\top \mu|$ / its maximum", ylabel=f"{name} / its maximum")
    axes[0, 1].legend(loc="center left", bbox_to_anchor=(1, 0.5))
