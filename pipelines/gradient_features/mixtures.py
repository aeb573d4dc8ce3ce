"""Lemmas B.30 to B.33 and B.37 to B.41. Gradients of neurons on Gaussian mixtures point at clusters.

x = mu_j + std z with cluster means of length sqrt(d): orthogonal ones with labels +, -, +, -, or two opposite pairs
with the labels of an XOR. Neurons w ~ N(0, I) have the threshold b > 0. A *sure* neuron of cluster j, with
w.mu_j >= C1 b and w.mu_l <= C2 b for the others, fires on that cluster alone, and G(w, b) is about p_j y_j mu_j. C1 and
C2 are those of the lemmas; for the XOR so is b = sqrt(d log log d).

G is the mean over a sample; we compare it with G of the whole law, in closed form (ours). The lemmas assume tau >= 8 or
a "large enough" d, where p is too small to sample on a laptop, so we do not test p.
"""

import itertools
import math
from typing import Literal

from featurelab.pipelines import (
    CATEGORIES, Config, Cost, Experiment, Field, Missing, Recorder, above, at_least, at_most, band, bars, below,
    between, bound_level, choice, data, evaluate, learners, measures, nets, np, theory, torch, uniform,
)
from featurelab.pipelines.gradient_features.training import with_control


class MixtureConfig(Config):
    control: Literal["none", "permuted_labels", "same_moments"] = Field("none",
        description="what is destroyed; same_moments: Gaussian inputs with the moments of each label")
    problem: Literal["orthogonal", "xor"] = Field("orthogonal", description="cluster means, and labels")
    n_train: int = Field(10_000, ge=4, multiple_of=4, description="samples, as many of each of the four clusters")
    dim: int = Field(60, ge=4, description="input coordinates d; cluster means have length sqrt(d)")
    noise: float = Field(0.3, gt=0, description="standard deviation of the noise in each coordinate")
    width: int = Field(6000, ge=1, description="neurons, standard normal")
    threshold: float = Field(1.0, ge=0, description="b in units of sqrt(d); xor: of sqrt(d log log d)")


THRESHOLDS = [0.0, 0.5, 1.0, 1.5]
LABELS = (1.0, -1.0, 1.0, -1.0)
PRESET = MixtureConfig()
XOR = MixtureConfig(problem="xor", dim=100, noise=1.0)
SEEDS = range(6)

orthogonal = Experiment(
    name="gradient_features/mixture", trains=False,
    figures=("Lemma 3.13", "Lemma 3.17", "Lemma B.30", "Lemma B.31", "Lemma B.32", "Lemma B.33"),
    title="Gradients on four Gaussian clusters against the threshold",
    caption="Means over seeds, bars their range.", laptop=PRESET,
    paper=PRESET.but(n_train=1_000_000, dim=200, width=100_000), grid={"threshold": THRESHOLDS, "seed": SEEDS},
    sweep_axes={"dim": choice(30, 60, 120), "width": choice(1500, 6000), "threshold": uniform(0.0, 1.5)},
    metric="cosine/median", mode="max", minutes=0.1,
    small={"n_train": 400, "dim": 12, "width": 3000, "threshold": [0.0, 0.5, 1.0, 1.5]},
)
xor = orthogonal.variant(
    "xor", figures=("Lemma B.37", "Lemma B.38", "Lemma B.39", "Lemma B.40", "Lemma B.41", "Lemma B.71"),
    title="Gradients on the XOR of four Gaussian clusters",
    laptop=XOR, paper=XOR.but(n_train=1_000_000, dim=400, width=100_000), grid={"dim": [100, 200, 400], "seed": SEEDS},
    paper_grid={"dim": [100, 400, 1600], "seed": SEEDS},
    sweep_axes={"dim": choice(50, 100, 200, 400), "width": choice(1500, 6000), "noise": uniform(0.5, 1.5)},
    small={"n_train": 400, "width": 3000, "dim": [12, 24]}, minutes=0.1,
)


def bounds(config: MixtureConfig):
    """Return C1 and C2 of the sure sets."""
    return (1.5, 0.5) if config.problem == "orthogonal" else (1.2, (2 / math.log(math.log(config.dim))) ** 0.5)


@orthogonal.trial
def run(config: MixtureConfig, recorder: Recorder) -> None:
    c, d, seed = config, config.dim, config.streams.data
    if c.problem == "xor":
        means, labels = data.opposite_pairs(data.orthogonal_means(2, d, d**0.5, seed=seed)), (1.0, 1.0, -1.0, -1.0)
        b = c.threshold * (d * math.log(math.log(d))) ** 0.5
    else:
        means, labels = data.orthogonal_means(4, d, d**0.5, seed=seed), LABELS
        b = c.threshold * d**0.5
    task = data.GaussianClusters(means, torch.tensor(labels), c.n_train, noise=c.noise, seed=seed, dtype=c.dtype)
    task = with_control(c, task)
    W, a = nets.random_neurons(d, c.width, seed=c.streams.init)
    net = nets.thresholded_net(W, a, torch.full((c.width,), b), c.dtype)
    own, other = bounds(c)

    def measure(net, x, y):
        W, b = net.hidden.weight.detach(), net.thresholds
        sure = theory.gradient_features.sure_neurons(W, b, means, own=own, other=other)
        mu, signs = means.to(W), torch.tensor(labels).to(W)
        whole = theory.gradient_features.mixture_gradient(W, b, mu, signs, std=c.noise)
        G = theory.gradient_features.simplified_gradient(x, y, W, b)
        values = scores(G, sure, mu, signs, c.noise / d**0.5) | {"cosine/initial": best(W, mu).max().item()}
        values |= {f"whole/{name}": value for name, value in scores(whole, sure, mu, signs, c.noise / d**0.5).items()}
        values["gradient_error"] = ((G - whole).norm(dim=1).mean() / whole.norm(dim=1).mean()).item()
        values["mean_product"] = (y * x).mean(0).norm().item()
        heads = net.head.weight.detach()[0]  # a hinge gradient is -a G
        cone = theory.gradient_features.hit_probability(G, mu[:1], gamma=0.1)
        nice = theory.gradient_features.nice_neurons(-heads[:, None] * G, heads, mu[0], gamma=0.1)
        return values | {"hit_probability": cone.item(), "nice_share": nice.double().mean().item()}

    evaluate(learners.Measurement(net, measure), task, config, recorder)


def best(vectors, directions):
    """Return max_j |cos(v, D_j)| of every vector v."""
    return measures.direction_cosines(vectors, directions).abs().amax(1)


def scores(G, sure, means, signs, gamma):
    """Return cosines of all and of sure neurons, and projections in units of p_j |mu_j|; nan without sure neurons."""
    cosines = measures.direction_cosines(G, means) * signs
    along = (G @ means.T) * signs / means.square().sum(1) * len(means)
    worst = torch.stack([cosines[:, j][sure[:, j]].mean() for j in range(len(means))]).min()
    values = {
        "cosine/median": best(G, means).median(),
        "cosine/greatest": best(G, means).max(),
        "cosine/sure": cosines[sure].mean(),
        "cosine/sure_worst_cluster": worst,
        "cone/sure": (cosines[sure] > 1 - gamma).double().mean(),
        "sign/sure": (cosines[sure] > 0).double().mean(),
        "projection/sure": along[sure].mean(),
        "sure/share": sure.double().mean(),
        "sure/neurons": sure.sum(),
    }
    return {name: value.item() for name, value in values.items()}


@orthogonal.cost
def cost(config: MixtureConfig):
    n, d, m = config.n_train, config.dim, config.width
    return Cost(m * d, 4.0 * n * d * m, 4.0 * (n * d + 6 * m * d) + 3e8)


def at(runs, metric, b):
    return runs.final(metric, threshold=b)


@orthogonal.claim("c05_sure_neurons_point_at_their_cluster",
    says="the gradients of sure neurons point at their cluster for b >= 0.5 sqrt(d) (smallest mean of y_j cos(G, D_j))",
    paper="≥ 1 - γ, γ → 0", expect=at_least(0.99), within=(-1, 1))
def sure_cosine(runs):
    return min(at(runs, "cosine/sure", b) for b in THRESHOLDS[1:])


@orthogonal.claim("c05b_purer_with_the_threshold", says="the gradients of all neurons turn to a single cluster as b "
    "grows to sqrt(d) (smallest rise of the median of max_j |cos(G, D_j)|)", paper="γ falls with τ", expect=above(0))
def purer(runs):
    medians = [at(runs, "cosine/median", b) for b in THRESHOLDS[:3]]
    return min(np.diff(medians))


@orthogonal.claim("c05c_level_and_signs", says="at b = sqrt(d), most gradients point at a cluster, and those of sure "
    "neurons to their own cluster's side (median of max_j |cos(G, D_j)|, smallest mean over clusters of y_j cos(G, "
    "D_j))", origin="ours", expect={"median": at_least(0.98), "worst cluster": at_least(0.98)}, within=(-1, 1))
def level(runs):
    return {"median": at(runs, "cosine/median", 1.0), "worst cluster": at(runs, "cosine/sure_worst_cluster", 1.0)}


@orthogonal.claim("c06_projection_is_the_weight_of_the_cluster", says="the gradients of sure neurons have the "
    "projection p_j |mu_j| on their cluster for b >= 0.5 sqrt(d) (smallest and largest mean of y_j <G, D_j> over it)",
    paper="≥ 1 - O(1/d^τ)", expect={"smallest": between(0.9, 1.1), "largest": between(0.9, 1.1)})
def projection(runs):
    means = [at(runs, "projection/sure", b) for b in THRESHOLDS[1:]]
    return {"smallest": min(means), "largest": max(means)}


@orthogonal.claim("c06b_sure_neurons_get_rarer",
    says="sure neurons become rarer as b grows from 0.5 sqrt(d) on (largest ratio of neighbouring shares)",
    paper="p falls with b̃", expect=below(1))
def rarer(runs):
    shares = [at(runs, "sure/share", b) for b in THRESHOLDS[1:]]
    return max(b / a for a, b in itertools.pairwise(shares))


@orthogonal.claim("c06c_nice_neurons",
    says="nice neurons are at least a quarter as many as the cone's hits at b = sqrt(d) (share of [m] over p)",
    paper="≥ m p/4 of 2m", where="Lemma 3.13", expect=at_least(0.25))
def nice(runs):
    p = at(runs, "hit_probability", 1.0)
    if p == 0:
        raise Missing("no neuron hits the cone")
    return at(runs, "nice_share", 1.0) / p


@orthogonal.claim("c05d_closed_form_of_the_whole_law", also=[xor], origin="ours", kind="identity",
    says="the gradients of a sample equal those of the whole law up to sampling error (largest relative error over the "
    "grid)", expect=at_most(0.5))
def whole_law(runs):
    return max(one.final("gradient_error") for _, one in grid(runs))


def grid(runs):
    """Return the trials at each value of the field that varies."""
    field = "dim" if len(runs.values("dim")) > 1 else "threshold"
    return [(value, runs.where(**{field: value})) for value in sorted(runs.values(field))]


def dims(runs):
    return sorted(runs.values("dim"))


@xor.claim("c07_sure_neurons_lie_in_the_cone",
    says="the gradients of sure neurons lie in the cone of gamma = std/sqrt(d) (share with y_j cos(G, D_j) > 1 - "
    "gamma, smallest over d)", paper="all of them", where="Lemma B.37", expect=at_least(0.99), within=(0, 1))
def in_the_cone(runs):
    return min(runs.final("cone/sure", dim=d) for d in dims(runs))


@xor.claim("c07b_features_are_not_there_at_the_start",
    says="in at least three of four runs, no neuron points at a cluster before the step, and gradients do (largest "
    "|cos(w, D_j)| and |cos(G, D_j)|; of sure neurons the share with the label's sign, and the smallest mean y_j "
    "cos(G, D_j))", paper="emergence", where="Lemma B.37", within=(-1, 1),
    expect={"before": below(0.6), "after": above(0.99), "sign": at_least(0.99), "cosine": at_least(0.9)}, about="share",
    least=0.75)
def emergence(runs):
    return {
        "before": max(runs.final("cosine/initial", dim=d) for d in dims(runs)),
        "after": min(runs.final("cosine/greatest", dim=d) for d in dims(runs)),
        "sign": min(runs.final("sign/sure", dim=d) for d in dims(runs)),
        "cosine": min(runs.final("cosine/sure", dim=d) for d in dims(runs)),
    }


@xor.claim("c08_projection_in_a_wide_band", says="the projection of sure neurons' gradients, y_j <G, D_j> / sqrt(d), "
    "lies in a wide band around its limit 1/4 (smallest and largest mean)", paper="1/4 for d → ∞",
    where="Lemma B.40; band set after the fact", expect={"smallest": at_least(0.15), "largest": at_most(0.27)})
def wide_band(runs):
    means = [runs.final("projection/sure", dim=d) / 4 for d in dims(runs)]
    return {"smallest": min(means), "largest": max(means)}


@xor.claim("c08b_projection_is_a_quarter",
    says="the projection of sure neurons' gradients, y_j <G, D_j> / sqrt(d), is within 10% of 1/4 at the largest d "
    "(relative distance)", paper="≥ 1/4 (1 - O((log d)^(-τ/50)))", where="Lemma B.40", expect=at_most(0.1))
def quarter(runs):
    return abs(runs.final("projection/sure", dim=max(dims(runs))) - 1)


@xor.claim("c08c_length_of_a_feature",
    says="the projection of sure neurons' gradients, y_j <G, D_j> / sqrt(d), reaches the B_G of theorem B.42 (largest "
    "mean over d)", paper="B_G = √d/5", where="Lemma B.41", expect=at_least(0.2))
def reaches(runs):
    return max(runs.final("projection/sure", dim=d) / 4 for d in dims(runs))


@xor.claim("c08d_no_mean_product", says="the sample mean of y x is sampling noise (largest |E_n[y x]|^2 n / E|x|^2)",
    paper="E[yx] = 0", where="Lemma B.71", kind="identity", expect=at_most(2))
def no_mean(runs):
    n = runs.values("n_train")[0]
    return max(runs.final("mean_product", dim=d) ** 2 * n / (2 * d) for d in dims(runs))


@orthogonal.draw(cols=3, size=(11, 3.4))
def panels(runs, axes):
    kinds = {"cosine/median": "all neurons, median of max |cos|", "cosine/sure": "sure neurons, mean"}
    for (metric, name), colour in zip(kinds.items(), CATEGORIES, strict=False):
        drawn(axes[0, 0], runs, metric, color=colour, label=name)
    axes[0, 0].set(xlabel="threshold b / √d", ylabel="cosine with cluster means", ylim=(0.5, 1.02))
    axes[0, 0].legend(loc="lower right")
    drawn(axes[0, 1], runs, "projection/sure", color=CATEGORIES[1], label="measured")
    bound_level(axes[0, 1], 1.0, "lemma B.33")
    axes[0, 1].set(xlabel="threshold b / √d", ylabel=r"$y_j\langle G, D_j\rangle / p_j|\mu_j|$", ylim=(0, 1.2))
    axes[0, 1].legend(loc="lower right")
    for (metric, name), colour in zip(
        {"sure/share": "sure (share of neurons and clusters)", "hit_probability": "γ = 0.1 around D₁"}.items(),
        CATEGORIES, strict=False,
    ):
        drawn(axes[0, 2], runs, metric, color=colour, label=name)
    axes[0, 2].set(xlabel="threshold b / √d", ylabel="share of neurons", ylim=(0, 0.25))
    axes[0, 2].legend(loc="upper right")


def drawn(axis, runs, metric, **look):
    bars(axis, [runs.finals(metric, threshold=b) for b in THRESHOLDS], THRESHOLDS, **look)


@xor.draw(cols=2, size=(8.5, 3.4))
def xor_panels(runs, axes):
    cosines = {
        "cosine/initial": "w, best neuron",
        "cosine/median": "G, median neuron",
        "cosine/sure": "G, sure neurons",
    }
    for (metric, name), colour in zip(cosines.items(), CATEGORIES, strict=False):
        rows = [runs.finals(metric, dim=d) for d in dims(runs)]
        band(axes[0, 0], rows, dims(runs), color=colour, label=name, marker="o")
    axes[0, 0].plot(dims(runs), [1 - d**-0.5 for d in dims(runs)], "--", color="#444444", label="1 - σ/√d")
    axes[0, 0].set(xlabel="dimension d", ylabel="|cos| with cluster means", xscale="log", ylim=(0, 1.05))
    looks: dict[str, dict] = {"": {"marker": "o", "label": "sample"},
        "whole/": {"marker": "x", "markersize": 9, "linestyle": "--", "label": "whole law"}}
    for (metric, look), colour in zip(looks.items(), CATEGORIES, strict=False):
        rows = [runs.finals(f"{metric}projection/sure", dim=d) / 4 for d in dims(runs)]
        band(axes[0, 1], rows, dims(runs), color=colour, **look)
    bound_level(axes[0, 1], 0.25, "limit, lemma B.40")
    bound_level(axes[0, 1], 0.2, "$B_G$, lemma B.41", linestyle=":")
    ylabel = r"sure: $y_j\langle G, D_j\rangle/\sqrt{d}$"
    axes[0, 1].set(xlabel="dimension d", ylabel=ylabel, xscale="log", ylim=(0, 0.3))
    for axis in axes[0]:
        axis.set_xticks(dims(runs), [str(d) for d in dims(runs)])
        axis.minorticks_off()
        axis.legend(loc="lower left")
