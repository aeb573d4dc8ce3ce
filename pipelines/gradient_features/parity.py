"""Lemmas B.47 to B.50. Gradients of neurons on structured parities point at the groups; those of their partners do not.

y = sign(sum_j product of group A_j), r groups of k coordinates, k odd. Neurons w ~ N(0, I) have the threshold b > 0 in
units of sqrt(r k). *Sure* neurons of group j have <w, D_j> >= 3/2 b/sqrt(k) and |<w, D_l>| <= b/(2 sqrt k) for the
others: G is about p sqrt(k) D_j, p the probability of either aligned sample (`aligned`).

The lemmas assume E[y x] = 0 and conclude that the partner (-w, -b) has the same direction, so that (D_j, -1) is also a
gradient feature. But k is odd: y and x change sign together, y x does not, and

    E[y x] = 2 p sqrt(k) sum_j D_j,      G(-w, -b) = E[y x] - G,      cos(G(-w, -b), D_j) = 1/sqrt(1 + 4 (r - 1)).
"""

from typing import Literal

from featurelab.pipelines import (
    CATEGORIES, Config, Cost, Experiment, Field, Missing, Recorder, at_least, at_most, bars, below, between,
    bound_level, choice, data, evaluate, learners, measures, nets, theory, torch, uniform,
)
from featurelab.pipelines.gradient_features.training import with_control


class ParityConfig(Config):
    control: Literal["none", "permuted_labels", "same_moments"] = Field("none",
        description="what is destroyed; same_moments: Gaussian inputs with the moments of each label")
    n_train: int = Field(20_000, ge=2, description="samples")
    dim: int = Field(40, ge=3, description="coordinates")
    groups: int = Field(1, ge=1, description="groups r, odd")
    size: int = Field(9, ge=1, description="coordinates k of a group, odd")
    aligned: float = Field(0.1, ge=0, le=0.5, description="p_A: probability of either aligned sample of each group")
    noise: float = Field(0.1, ge=0, le=0.5, description="p_o: probability of either sign of other coordinates")
    width: int = Field(1000, ge=1, description="neurons, standard normal")
    candidates: int = Field(40_000, ge=1, description="neurons searched for sure ones")
    threshold: float = Field(1.0, ge=0, description="b in units of sqrt(r k)")


MOST_SURE = 500
PRESET = ParityConfig()
THREE = ParityConfig(groups=3, size=5, aligned=0.08, n_train=80_000, candidates=400_000)
SEEDS = range(6)

one = Experiment(
    name="gradient_features/parity", trains=False, figures=("Lemma B.47", "Lemma B.50"), part="r = 1",
    title="Gradients on a structured parity of one group against the threshold",
    caption="Means over seeds, bars their range.", laptop=PRESET,
    paper=PRESET.but(n_train=1_000_000, dim=400, width=10_000, candidates=200_000),
    grid={"threshold": [0.0, 0.5, 1.0, 1.5], "seed": SEEDS},
    sweep_axes={"dim": choice(20, 40, 80), "n_train": choice(5000, 20_000), "threshold": uniform(0.0, 2.0)},
    metric="cosine/median", mode="max", minutes=0.4,
    small={"n_train": 400, "dim": 12, "size": 3, "width": 50, "candidates": 4000, "threshold": [0.0, 0.5, 1.0]},
)
three = one.variant(
    "parity_groups", figures=("Lemma B.47", "Lemma B.50"), part="r = 3",
    title="Gradients on a structured parity of three groups against the threshold", laptop=THREE,
    paper=THREE.but(n_train=4_000_000, dim=400, width=10_000, candidates=1_000_000),
    grid={"threshold": [0.0, 0.5, 1.0], "seed": SEEDS}, minutes=0.8,
    small={"n_train": 400, "dim": 12, "size": 3, "width": 50, "candidates": 60_000, "threshold": [0.0, 0.5, 1.0]},
)


@one.trial
def run(config: ParityConfig, recorder: Recorder) -> None:
    c = config
    task = data.StructuredParity(c.n_train, 0, c.dim, groups=c.groups, size=c.size, aligned=c.aligned, noise=c.noise,
        seed=c.streams.data, dtype=c.dtype)
    task = with_control(c, task)
    W, a = nets.random_neurons(c.dim, c.width, seed=c.streams.init)
    b = c.threshold * (c.groups * c.size) ** 0.5
    net = nets.thresholded_net(W, a, torch.full((c.width,), b), c.dtype)
    W_sure, which = sure_ones(c, b, task.directions)

    def measure(net, x, y):
        W, D = net.hidden.weight.detach(), task.directions
        G = theory.gradient_features.simplified_gradient(x, y, W, net.thresholds)
        mean = (y * x).mean(0)
        values = {
            "cosine/median": measures.direction_cosines(G, D).abs().amax(1).median().item(),
            "mean_product": mean.norm().item(),
            "mean_product_predicted": task.mean_product.norm().item(),
            "sure/neurons": len(which),
        }
        if len(which):
            sure = theory.gradient_features.simplified_gradient(x, y, W_sure.to(x), torch.full((len(which),), b).to(x))
            own = torch.arange(len(which)), which
            partner = measures.direction_cosines(mean - sure, D)[own]
            values |= {
                "cosine/sure": measures.direction_cosines(sure, D)[own].mean().item(),
                "projection/sure": ((sure @ D.to(sure).T)[own].mean() / (c.size**0.5 * max(c.aligned, 1e-9))).item(),
                "cosine/partner": partner.mean().item(),
            }
        return values

    evaluate(learners.Measurement(net, measure), task, config, recorder)


def sure_ones(config: ParityConfig, b, directions):
    """Return sure neurons among the candidates, at most MOST_SURE, and the group of each."""
    W, _ = nets.random_neurons(config.dim, config.candidates, seed=config.streams.order)
    features = config.size**0.5 * directions
    thresholds = torch.full((len(W),), b, dtype=W.dtype)
    sure = theory.gradient_features.sure_neurons(W, thresholds, features, own=1.5, other=0.5, both_signs=True)
    rows, which = sure.nonzero(as_tuple=True)
    return W[rows[:MOST_SURE]], which[:MOST_SURE]


@one.cost
def cost(config: ParityConfig):
    n, d, m = config.n_train, config.dim, config.width + MOST_SURE
    numbers = n * d + 2 * config.candidates * d
    return Cost(m * d, 4.0 * n * d * m, 8.0 * numbers + 3e8)


def enough(runs, threshold):
    """Return the trials at this threshold. Raises Missing where they have fewer than 50 sure neurons."""
    chosen = runs.where(threshold=threshold)
    if chosen.final("sure/neurons") < 50:
        raise Missing(f"{chosen.final('sure/neurons'):g} sure neurons at threshold {threshold:g}, 50 are needed")
    return chosen


def positive(runs):
    return [b for b in sorted(runs.values("threshold")) if b > 0]


@one.claim("c09_sure_neurons_point_at_the_group",
    says="the gradients of sure neurons point at the group for b > 0 (smallest mean of cos(G, D))",
    paper="≥ 1 - d^-(τ-2)", expect=at_least(0.99), within=(-1, 1))
def sure_cosine(runs):
    return min(enough(runs, b).final("cosine/sure") for b in positive(runs))


@one.claim("c09b_projection_is_the_aligned_share", says="the gradients of sure neurons have the projection p_A sqrt(k) "
    "on the group for b > 0 (smallest and largest mean of <G, D> over it)", paper="1 - O(d^-τ)",
    expect={"smallest": between(0.75, 1.1), "largest": between(0.75, 1.1)})
def projection(runs):
    means = [enough(runs, b).final("projection/sure") for b in positive(runs)]
    return {"smallest": min(means), "largest": max(means)}


@three.claim("c10_sure_neurons_point_at_their_group",
    says="the gradients of sure neurons point at their group at b = sqrt(r k) (mean of cos(G, D_j))",
    paper="≥ 1 - d^-(τ-2)", expect=at_least(0.9), within=(-1, 1))
def three_cosine(runs):
    return enough(runs, 1.0).final("cosine/sure")


@three.claim("c10b_mean_product_printed",
    says="the mean of y x is 0, as remark B.45 states (its length over that of p_A sqrt(k) D_j)", paper="E[yx] = 0",
    where="Remark B.45", kind="identity", expect=at_most(0.1))
def mean_printed(runs):
    c = runs.trials.iloc[0]
    return runs.final("mean_product") / (c["aligned"] * c["size"] ** 0.5)


@three.claim("c10c_mean_product_corrected", also=[one],
    says="the mean of y x has the length 2 p_A sqrt(r k) (relative distance)", origin="corrected", where="Remark B.45",
    kind="identity", expect=at_most(0.05))
def mean_corrected(runs):
    return abs(runs.final("mean_product") / runs.final("mean_product_predicted") - 1)


@three.claim("c11_partner_printed",
    says="the partner (-w, -b) of a sure neuron also points at D_j at b = sqrt(r k) (|mean cos|)",
    paper="(D_j, -1) ∈ S", where="Lemma B.47", expect=at_least(0.9), within=(0, 1))
def partner_printed(runs):
    return abs(enough(runs, 1.0).final("cosine/partner"))


@three.claim("c11b_partner_corrected", says="the partner (-w, -b) of a sure neuron has the cosine 1/sqrt(1 + 4 (r - "
    "1)) with D_j, well below 1 (distance of the mean, mean)", origin="corrected", where="Lemma B.47",
    expect={"distance": at_most(0.15), "cosine": below(0.6)})
def partner_corrected(runs):
    cosine = enough(runs, 1.0).final("cosine/partner")
    return {"distance": abs(cosine - (1 + 4 * (runs.values("groups")[0] - 1)) ** -0.5), "cosine": cosine}


@three.claim("c11c_without_a_threshold_neurons_see_the_sum",
    says="without a threshold, gradients point at the sum of all D_j, at cosine 1/sqrt(r) to each (distance of the "
    "median of max_j |cos(G, D_j)|)", origin="ours", expect=at_most(0.1))
def sum_of_all(runs):
    return abs(runs.final("cosine/median", threshold=0.0) - runs.values("groups")[0] ** -0.5)


@one.draw(cols=3, size=(11, 3.3))
def panels(runs, axes):
    r = runs.values("groups")[0]
    names = {"cosine/median": "all neurons, median of max |cos|", "cosine/sure": "sure neurons, mean"}
    if r > 1:
        names["cosine/partner"] = "their partners (-w, -b), mean"
        bound_level(axes[0, 0], (1 + 4 * (r - 1)) ** -0.5, "corrected")
    for (metric, name), colour in zip(names.items(), CATEGORIES, strict=False):
        drawn(axes[0, 0], runs, metric, color=colour, label=name)
    axes[0, 0].set(ylabel="cosine with D", ylim=(0, 1.05))
    axes[0, 0].legend(loc="lower right", fontsize=7)
    drawn(axes[0, 1], runs, "projection/sure", color=CATEGORIES[1], label="sure neurons")
    bound_level(axes[0, 1], 1.0, "lemma B.50")
    axes[0, 1].set(ylabel=r"$\langle G, D\rangle / p_A\sqrt{k}$", ylim=(0, 1.3))
    axes[0, 1].legend(loc="lower right")
    measured, form = (runs.final(name) for name in ("mean_product", "mean_product_predicted"))
    axes[0, 2].bar(["printed", "corrected", "measured"], [0.0, form, measured], color=CATEGORIES[:3])
    axes[0, 2].set(ylabel="|E[y x]|")
    for axis in axes[0, :2]:
        axis.set(xlabel=r"threshold b / $\sqrt{rk}$")


def drawn(axis, runs, metric, **look):
    measured = [b for b in sorted(runs.values("threshold")) if runs.has(metric, threshold=b)]
    bars(axis, [runs.finals(metric, threshold=b) for b in measured], measured, **look)
