"""Figures 3d-f, K.2 and K.4 (bottom), and Appendix K.4. Unseen classes at the rotated mean R v.

Setup 2: R runs from slight rotations to large ones, by the QR decomposition of I + eps M with M standard normal. The
length of the mean stays; its direction leaves that of v. R is the factor Q, with the first column's sign flipped where
the determinant is -1. LAPACK's QR of a matrix near I gives a Q near -I, so that the printed recipe does not give
"slight to substantial" rotations; `fix_signs` multiplies Q's columns by the signs of the other factor's diagonal.

Here |beta^T mu| and beta^T Sigma beta = |beta|^2 - (beta^T mu)^2 / |mu|^2 trade off. Their sum rises with |beta^T mu|
only for |mu| > 1: with shorter means Elasticity falls, which the paper does not say.

How well the nearest neighbour tells classes at +-v apart depends on |v|^2 / sqrt(d), the difference of inner products
over their spread. |v| = 3 at dimension 256 equals |v| = 5 at the paper's 2048 (0.56 and 0.55), and retrieval uses
these. |v| = 5 at dimension 256, where recall is near its ceiling before the step, is a claim of its own.
"""

from dataclasses import replace
from typing import Literal

from featurelab.pipelines import (
    CATEGORIES, Config, Cost, Experiment, Field, Missing, Recorder, above, at_least, at_most, bars, below, between,
    choice, data, evaluate, learners, legend_below, legend_beside, measures, nets, np, stats, torch,
)
from featurelab.pipelines.alignment_elasticity import one_step
from featurelab.pipelines.alignment_elasticity.one_step import COLOURS, DATA, INSIDE, trend, trends


class RotationConfig(one_step.UnseenConfig):
    rotations: int = Field(30, ge=2, description="rotations of the mean")
    least: float = Field(0.1, gt=0, description="eps sqrt(dim) of the slightest rotation")
    most: float = Field(10.0, gt=0, description="eps sqrt(dim) of the largest; between them logarithmic")
    fix_signs: bool = Field(True, description="whether Q's columns get the signs of the other factor's diagonal")
    recall: bool = Field(False, description="whether retrieval is measured too")


class GeneratorConfig(Config):
    precision: Literal["64-true"] = Field("64-true", description="rotations are orthogonal to rounding")
    dim: int = Field(256, ge=4, description="input coordinates")
    rotations: int = Field(30, ge=3, description="rotations of the mean")
    least: float = Field(0.1, gt=0, description="eps sqrt(dim) of the slightest rotation")
    most: float = Field(10.0, gt=0, description="eps sqrt(dim) of the largest; between them logarithmic")


LAPTOP, GENERATOR = RotationConfig(), GeneratorConfig()
SEEDS = range(6)
LENGTHS = (0.7, 1.0, 1.5, 3.0, 5.0)
RECALLED = [("ball", 3.0), ("sphere", 3.0), ("sphere", 5.0)]
RECALLED_AT_2048 = [("ball", 5.0), ("sphere", 5.0)]
AT = "|v| = 3, or 5 at the paper's dimension"

scores = Experiment(
    name="alignment_elasticity/rotations", figures=("Fig. 3d", "Fig. 3e", "Fig. K.2"),
    title="Alignment and Elasticity of unseen classes at R v",
    caption="Each point is a rotation: the mean over networks and draws of the data, bars the range over draws.",
    laptop=LAPTOP, paper=LAPTOP.but(rotations=300, **one_step.PAPER), grid={"distribution": list(DATA), "seed": SEEDS},
    sweep_axes=one_step.SWEEP_AXES, metric="alignment/trained", mode="max", minutes=0.4,
    small=one_step.SMALL | {"rotations": 8},
)
retrieval = scores.variant(
    "rotations_recall", figures=("Fig. 3f", "Fig. K.4"),
    title="Recall@1 of unseen classes at R v, before and after the step",
    recall=True, laptop=LAPTOP.but(mean_norm=3.0), grid={("distribution", "mean_norm"): RECALLED, "seed": SEEDS},
    paper_grid={("distribution", "mean_norm"): RECALLED_AT_2048, "seed": SEEDS}, metric="recall/cosine_trained",
    minutes=1,
)
short = scores.variant(
    "rotations_short_means", figures=("Sec. 4",),
    title="Elasticity of unseen classes at R v falls with the similarity where |v| < 1",
    caption="The theory predicts this. Each point is a rotation: the mean over networks and draws of the data.",
    grid={"mean_norm": LENGTHS, "seed": range(6)}, metric="elasticity/unseen",
)
generator = Experiment(
    name="alignment_elasticity/rotation_generator", trains=False, figures=("App. K.4",),
    title="Rotations by QR of I + εM: how far they turn a vector",
    caption="Cosine of v and R v. Points are means over seeds, bars their range.", laptop=GENERATOR,
    paper=GENERATOR.but(dim=2048, rotations=300), grid={"seed": range(6)}, sweep_axes={"dim": choice(64, 128, 256)},
    metric="cosine/fixed", minutes=0.1, small={"dim": 16, "rotations": 5},
)


def strengths(config: RotationConfig | GeneratorConfig):
    """The values of eps."""
    return np.logspace(np.log10(config.least), np.log10(config.most), config.rotations) / config.dim**0.5


@scores.trial
def run(config: RotationConfig, recorder: Recorder) -> None:
    task = one_step.training_data(config)
    eps = strengths(config)
    axes = data.rotated_axes(task.axis, eps.tolist(), seed=config.streams.data, fix_signs=config.fix_signs)
    lengths = torch.full((len(eps),), task.length, dtype=torch.float64)
    means = measures.UnseenMeans(axes, lengths, data.mean_shrinkage(lengths, config.projection))
    kinds: tuple[Literal["cosine"], ...] = ("cosine",) if config.recall else ()
    one_step.record_scores(config, recorder, task, means, recall=kinds, eps=eps, cosine=(axes @ task.axis).numpy())


@scores.cost
def cost(config: RotationConfig):
    step = one_step.cost(config, config.rotations, recall=config.recall)
    return replace(step, flops=step.flops + 1.4 * config.rotations * config.dim**3)


@scores.claim("c09_alignment_grows",
    says="over rotations Alignment grows with |beta^T mu| (Spearman; Data 2 is outside the assumptions)",
    paper="positive tendency", where="Figs. 3d, K.2", within=(-1, 1),
    expect=dict.fromkeys(DATA.values(), at_least(0.95)))
def alignment(runs):
    return trends(runs, "alignment/trained")


@scores.claim("c10_elasticity_grows", says="over rotations Elasticity grows with |beta^T mu|, Data 1 and 3 (Spearman)",
    paper="positive tendency", where="Figs. 3e, K.2", within=(-1, 1),
    expect=dict.fromkeys(INSIDE.values(), at_least(0.9)))
def elasticity(runs):
    return trends(runs, "elasticity/unseen", INSIDE)


@scores.claim("c10_elasticity_grows_outside",
    says="outside the assumptions, Data 2, where slight rotations all saturate the features: Elasticity grows with "
    "|beta^T mu| (Spearman)", paper="positive tendency", where="Fig. K.2", within=(-1, 1), expect=at_least(0.9))
def elasticity_outside(runs):
    return trend(runs, "elasticity/unseen", distribution="truncated")


@scores.claim("c10_elasticity_grows_outside_upper", says="outside the assumptions, Data 2: Elasticity grows with "
    "|beta^T mu| among the half of the rotations with the greatest |beta^T mu| (Spearman)", paper="positive tendency",
    where="Fig. K.2", within=(-1, 1), expect=at_least(0.9))
def elasticity_outside_upper(runs):
    similarity = abs(runs.curve("similarity/unseen", distribution="truncated"))
    return trend(runs, "elasticity/unseen", only=similarity >= similarity.median(), distribution="truncated")


@scores.claim("c11_initial_alignment_is_flat",
    says="before the step Alignment hardly depends on the rotation (range over mean)", origin="ours", where="Fig. 3d",
    expect=dict.fromkeys(INSIDE.values(), below(0.2)), controls=())
def flat(runs):
    curves = {name: runs.curve("alignment/initial", distribution=d) for d, name in INSIDE.items()}
    return {name: (curve.max() - curve.min()) / curve.mean() for name, curve in curves.items()}


def shortest(runs):
    """The length of the class means at which retrieval is judged: the shorter one of the grid."""
    return min(runs.values("mean_norm"))


@retrieval.claim("c14_recall_rises", says=f"after the step Recall@1 rises with |beta^T mu| (Spearman; {AT})",
    paper="increases", within=(-1, 1), expect=dict.fromkeys(INSIDE.values(), at_least(0.8)))
def recall_rises(runs):
    return trends(runs, "recall/cosine_trained", INSIDE, mean_norm=shortest(runs))


@retrieval.claim("c15_initial_recall_is_flat",
    says=f"before the step Recall@1 does not depend on the rotation (larger range of Data 1 and 3, Spearman with "
    f"|beta^T mu|; {AT})", paper="does not vary",
    expect={"range": below(0.1), "Data 1": between(-0.5, 0.5), "Data 3": between(-0.5, 0.5)}, controls=())
def initial_recall(runs):
    curves = [runs.curve("recall/cosine_initial", mean_norm=shortest(runs), distribution=d) for d in INSIDE]
    largest = max(curve.max() - curve.min() for curve in curves)
    return {"range": largest, **trends(runs, "recall/cosine_initial", INSIDE, mean_norm=shortest(runs))}


@retrieval.claim("c15b_initial_recall_of_one_network",
    says=f"before the step Recall@1 has no trend with |beta^T mu| of either sign on a single seed (|Spearman|; {AT})",
    origin="ours", within=(0, 1), expect=dict.fromkeys(INSIDE.values(), at_most(0.5)), controls=())
def initial_recall_of_one(runs):
    correlations = trends(runs, "recall/cosine_initial", INSIDE, mean_norm=shortest(runs))
    return {name: abs(correlation) for name, correlation in correlations.items()}


@retrieval.claim("c16_far_classes_lose",
    says=f"the step lowers Recall@1 of classes far from the training data and not of near ones (mean gain over the "
    f"rotations with the lowest tenth, and the top third, of |beta^T mu|; {AT})",
    paper="decreases when beta^T mu is too small", expect={"lowest tenth": below(0), "top third": above(-0.005)})
def far_classes(runs):
    lows, highs = zip(*(gains(runs, distribution, shortest(runs)) for distribution in INSIDE), strict=True)
    return {"lowest tenth": max(lows), "top third": min(highs)}


@retrieval.claim("c16_far_classes_lose_longer_means",
    says="at |v| = 5 and dimension 256, near the ceiling of Recall@1: the step lowers it for far classes of Data 3 and "
    "not for near ones (mean gain, lowest tenth and top third of |beta^T mu|)",
    paper="decreases when beta^T mu is too small", expect={"lowest tenth": below(0), "top third": above(-0.005)})
def far_classes_longer(runs):
    longest = max(runs.values("mean_norm"))
    if longest == shortest(runs):
        raise Missing("the class means have one length only")
    low, high = gains(runs, "sphere", longest)
    return {"lowest tenth": low, "top third": high}


def gains(runs, distribution, norm):
    """The mean gain over the lowest tenth (at least two rotations) and the top third of |beta^T mu|."""
    some = runs.where(distribution=distribution, mean_norm=norm)
    gain = (some.curve("recall/cosine_trained") - some.curve("recall/cosine_initial")).to_numpy()
    order = np.argsort(abs(some.curve("similarity/unseen").to_numpy()))
    return gain[order[: max(2, len(order) // 10)]].mean(), gain[order[-(len(order) // 3) :]].mean()


@short.claim("c32_elasticity_turns", says="over rotations of Data 3 Elasticity falls with |beta^T mu| where |v| is "
    "below 1 and rises where it is above (Spearman)", origin="ours", within=(-1, 1),
    expect={"0.7": at_most(0), "1.5": at_least(0.9), "3": at_least(0.9), "5": at_least(0.9)})
def turns(runs):
    return {f"{norm:g}": trend(runs, "elasticity/unseen", mean_norm=norm) for norm in LENGTHS if norm != 1}


@short.claim("c32_alignment_does_not_turn",
    says="over rotations of Data 3 Alignment rises with |beta^T mu| at every |v| (Spearman)", origin="ours",
    within=(-1, 1), expect={f"{norm:g}": at_least(0.8) for norm in LENGTHS})
def alignment_stays(runs):
    return {f"{norm:g}": trend(runs, "alignment/trained", mean_norm=norm) for norm in LENGTHS}


def scatter(axis, runs, metric, colour, label):
    """Draw a metric against |beta^T mu|: means over draws of the data, bars from least to greatest."""
    x = abs(runs.curve("similarity/unseen"))
    bars(axis, runs.curves(metric), x, color=colour, label=label, linestyle="", elinewidth=0.6, capsize=0)
    axis.set_xlabel(r"$|\beta^\top \mu|$")


@scores.draw(rows=2, cols=3, size=(11, 6.2))
def panels(runs, axes):
    for (top, bottom), (distribution, name) in zip(axes.T, DATA.items(), strict=True):
        some = runs.where(distribution=distribution)
        scatter(top, some, "alignment/trained", COLOURS[distribution], "after the step")
        scatter(top, some, "alignment/initial", CATEGORIES[5], "before")
        scatter(bottom, some, "elasticity/unseen", COLOURS[distribution], None)
        top.set(title=f"Alignment, {name}", ylabel="Alignment")
        bottom.set(title=f"Elasticity, {name}", ylabel="Elasticity")
    axes[0, 0].legend()


@retrieval.draw(cols=3, size=(12, 3.8))
def recall_panels(runs, axes):
    settings = dict.fromkeys(zip(runs.trials.distribution, runs.trials.mean_norm, strict=True))
    for unused in axes[0, len(settings) :]:
        unused.set_visible(False)
    for axis, (distribution, norm) in zip(axes[0], settings, strict=False):
        some = runs.where(distribution=distribution, mean_norm=norm)
        scatter(axis, some, "recall/cosine_initial", CATEGORIES[0], "before the step")
        scatter(axis, some, "recall/cosine_trained", CATEGORIES[1], "after")
        gain = some.curve("recall/cosine_trained") - some.curve("recall/cosine_initial")
        right = axis.twinx()
        right.plot(abs(some.curve("similarity/unseen")), gain, "x", color=CATEGORIES[2], markersize=4)
        axis.plot([], [], "x", color=CATEGORIES[2], markersize=4, label="gain (right axis)")
        right.set_ylabel("gain")
        right.grid(visible=False)
        axis.set(title=f"{DATA[distribution]}, |v| = {norm:g}", ylabel="Recall@1, cosine")
    legend_below(axes)


@short.draw(cols=2, size=(9.5, 3.6))
def short_panels(runs, axes):
    named = {"elasticity/unseen": "Elasticity", "alignment/trained": "Alignment"}
    for axis, (metric, name) in zip(axes[0], named.items(), strict=True):
        for norm, colour in zip(LENGTHS, CATEGORIES, strict=False):
            x, values = (runs.curve(each, mean_norm=norm) for each in ("similarity/unseen", metric))
            x = abs(x) / abs(x).max()
            axis.plot(x, values / values.max(), "o", markersize=3.5, color=colour, label=f"|v| = {norm:g}")
        axis.set(title=name, xlabel=r"$|\beta^\top \mu|$ / its maximum", ylabel=f"{name} / its maximum")
    legend_beside(axes[0, 1])


@generator.trial
def turn(config: GeneratorConfig, recorder: Recorder) -> None:
    seed = config.streams.data
    axis = data.SubGaussianClasses(2, config.dim, "sphere", seed=seed).axis
    task = data.TensorData((axis[None], torch.ones(1, 1)), dtype=config.dtype, name="rotated_axis")
    eps, cosines = strengths(config), []

    def errors(*_):
        worst = []
        turned = data.rotated_axes(axis, eps.tolist(), seed=seed)
        for index, strength in enumerate(eps.tolist()):
            R = data.random_rotation(config.dim, strength, seed=seed, index=index)
            printed = data.random_rotation(config.dim, strength, seed=seed, index=index, fix_signs=False)
            cosines.append({"cosine/fixed": (axis @ R @ axis).item(), "cosine/printed": (axis @ printed @ axis).item()})
            orthogonality = (R.T @ R - torch.eye(config.dim)).abs().max().item()
            determinant = abs(torch.linalg.det(R).item() - 1)
            worst.append([orthogonality, determinant, (R @ axis - turned[index]).abs().max().item()])
        names = ("orthogonality", "determinant", "vector")
        return {f"rotation_error/{name}": max(values) for name, *values in zip(names, *worst, strict=True)}

    net = nets.two_layer(config.dim, 1, seed=config.streams.init, dtype=config.dtype)
    evaluate(learners.Measurement(net, errors), task, config, recorder)
    for index, values in enumerate(cosines):
        recorder.log(values, step=index)
    recorder.array("grid", eps=eps)


@generator.cost
def turning_cost(config: GeneratorConfig):
    return Cost(config.dim, 10.0 * config.rotations * config.dim**3, 40.0 * config.dim**2)


@generator.claim("c23_rotations",
    says="every R is orthogonal with determinant 1 (largest error of an entry of R'R, and of the determinant)",
    paper="a valid rotation", kind="identity", expect={"orthogonality": at_most(1e-8), "determinant": at_most(1e-8)})
def valid(runs):
    return {name: runs.final(f"rotation_error/{name}") for name in ("orthogonality", "determinant")}


@generator.claim("c23_slight_to_substantial", says="with corrected signs the rotations go from slight to large (cosine "
    "of v and R v at the slightest; Spearman of minus the cosine with eps)", paper="from slight to more substantial",
    origin="corrected", expect={"slightest": above(0.99), "Spearman": at_least(0.9)})
def slight(runs):
    eps, cosine = runs.arrays("grid")[0]["eps"], runs.curve("cosine/fixed")
    return {"slightest": cosine.iloc[0], "Spearman": float(stats.spearmanr(eps, -cosine).statistic)}


@generator.claim("c23_as_printed",
    says="with Q as LAPACK returns it, the slightest rotation is slight (cosine of v and R v)",
    paper="from slight to more substantial", kind="identity", expect=above(0.99))
def as_printed(runs):
    return runs.curve("cosine/printed").iloc[0]


@generator.draw(size=(6.5, 4))
def cosine_panel(runs, axes):
    axis = axes[0, 0]
    x = runs.arrays("grid")[0]["eps"] * runs.values("dim")[0] ** 0.5
    bars(axis, runs.curves("cosine/fixed"), x, color=CATEGORIES[0], label="signs corrected")
    bars(axis, runs.curves("cosine/printed"), x, color=CATEGORIES[1], label="as printed")
    axis.plot(x, (1 + x**2) ** -0.5, "-.", color=CATEGORIES[5], label="(1 + ε²d)^(-1/2)")
    axis.set(xlabel="ε √d", ylabel="cosine of v and R v", xscale="log")
    legend_beside(axis)
