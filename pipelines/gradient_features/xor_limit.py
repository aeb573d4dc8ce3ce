"""Lemma B.40 as d grows. Gradients on the XOR approach their limit only in very large dimensions.

On the XOR of four clusters, G depends only on a neuron's length and its components along the two axes. So we sample a
neuron of R^d as three numbers, and its G of the whole law has three coordinates in closed form: d can be 10^100. As in
the lemma, b = sqrt(d log log d), C1 = 6/5 and C2 = sqrt(2/log log d), with tau = 1 and std = 1.
"""

from typing import Literal

from featurelab.pipelines import (
    CATEGORIES, Config, Cost, Experiment, Field, Recorder, above, at_least, at_most, band, between, bound_level, choice,
    data, evaluate, learners, measures, nets, np, theory, torch,
)


class LimitConfig(Config):
    precision: Literal["64-true"] = Field("64-true", description="the share of sure neurons is small")
    log10_dim: int = Field(2, ge=2, le=300, description="the dimension is ten to this power")
    width: int = Field(40_000, ge=1, description="neurons, standard normal")
    margin: float = Field(1.2, gt=1, description="C1: a sure neuron has w.mu >= C1 b on its cluster")


PRESET = LimitConfig()

figure = Experiment(
    name="gradient_features/xor_limit", trains=False, figures=("Lemma B.37", "Lemma B.40", "Lemma B.41"),
    title="Gradients on the XOR of clusters as d grows",
    caption="Sure neurons of the first cluster. Means over seeds, bands their range.", laptop=PRESET,
    paper=PRESET.but(width=1_000_000), grid={"log10_dim": [2, 4, 8, 16, 32, 100], "seed": range(6)},
    sweep_axes={"width": choice(10_000, 40_000), "log10_dim": choice(2, 8, 32)}, metric="projection/sure", mode="max",
    minutes=0.1, small={"log10_dim": [2, 4, 100], "width": 20_000},
)


@figure.trial
def run(config: LimitConfig, recorder: Recorder) -> None:
    log_dim = config.log10_dim * np.log(10.0)
    log_log = float(np.log(log_dim))
    W, a = nets.random_neurons(3, config.width, seed=config.streams.init)
    rest = data.stream(config.streams.init, "rest").standard_normal(config.width)
    # in units of sqrt(d), so that means have length 1; the neuron's length across the axes is chi with d - 2 degrees of
    # freedom, by Wilson and Hilferty, whose error is O(1/d)
    k, std = 10.0**config.log10_dim - 2, 10.0 ** (-config.log10_dim / 2)
    W[:, 2] = torch.from_numpy(k**0.5 * (1 - 2 / (9 * k) + rest * (2 / (9 * k)) ** 0.5) ** 1.5)
    net = nets.thresholded_net(W, a, torch.full((config.width,), log_log**0.5))
    means = data.opposite_pairs(torch.eye(3, dtype=torch.float64)[:2])
    labels = torch.tensor([1.0, 1.0, -1.0, -1.0], dtype=torch.float64)
    task = data.TensorData((means, labels[:, None]), name="xor_means")

    def measure(net, x, y):
        W, b = net.hidden.weight.detach(), net.thresholds
        sure = theory.gradient_features.sure_neurons(W, b, x, own=config.margin, other=(2 / log_log) ** 0.5)[:, 0]
        G = theory.gradient_features.mixture_gradient(W[sure], b[sure], x, y[:, 0], std=std)
        cosine = measures.direction_cosines(G, x[:1])[:, 0]
        return {
            "cosine/sure": cosine.mean().item(),
            "cosine/least": cosine.min().item(),
            "projection/sure": G[:, 0].mean().item(),
            "projection/least": G[:, 0].min().item(),
            "sure/share": sure.double().mean().item(),
        }

    evaluate(learners.Measurement(net, measure), task, config, recorder)


@figure.cost
def cost(config: LimitConfig):
    return Cost(3 * config.width, 400.0 * config.width, 400.0 * config.width)


def powers(runs):
    return sorted(runs.values("log10_dim"))


def along(runs, metric):
    return np.array([runs.final(metric, log10_dim=p) for p in powers(runs)])


@figure.claim("c08e_projection_rises", says="the projection of sure neurons' gradients, y_j <G, D_j> / sqrt(d), is "
    "larger at d = 10^100 than at d = 100 (difference of means)", paper="≥ 1/4 (1 - O((log d)^(-τ/50)))",
    expect=above(0))
def rises(runs):
    means = along(runs, "projection/sure")
    return float(means[-1] - means[0])


@figure.claim("c08f_projection_is_a_quarter",
    says="the projection of sure neurons' gradients, y_j <G, D_j> / sqrt(d), is within 10% of 1/4 at d = 10^100 "
    "(relative distance of the mean)", paper="≥ 1/4 (1 - O((log d)^(-τ/50)))", expect=at_most(0.1))
def quarter(runs):
    return abs(4 * float(along(runs, "projection/sure")[-1]) - 1)


@figure.claim("c08g_length_of_every_sure_neuron",
    says="at some d up to 10^100, every sure neuron's projection y_j <G, D_j> / sqrt(d) reaches 1/5 (largest minimum "
    "over neurons)", paper="B_G = √d/5", where="Lemma B.41", expect=at_least(0.2))
def every(runs):
    return float(along(runs, "projection/least").max())


@figure.claim("c08h_cone_printed", says="the gradients of sure neurons lie in the cone of gamma = 1/sqrt(d) (least "
    "cosine less the cone's edge, smallest over d)", paper="1 - cos < σ/√d", where="Lemma B.37", expect=at_least(0))
def cone(runs):
    edges = [1 - 10.0 ** (-p / 2) for p in powers(runs)]
    return float((along(runs, "cosine/least") - edges).min())


@figure.claim("c08i_cone_corrected",
    says="1 - cos of sure neurons falls as a power of log d (slope of the log of its mean against log log d)",
    where="Lemma B.37", origin="corrected", expect=between(-1, -0.5))
def cone_corrected(runs):
    logs = np.log(np.array(powers(runs)) * np.log(10.0))
    return float(np.polyfit(np.log(logs), np.log(1 - along(runs, "cosine/sure")), 1)[0])


@figure.draw(cols=2, size=(8.5, 3.4))
def panels(runs, axes):
    shown = [("projection", r"$y_j\langle G, D_j\rangle/\sqrt{d}$"), ("cosine", "cosine with the cluster mean")]
    for axis, (kind, name) in zip(axes[0], shown, strict=True):
        for (part, label), colour in zip({"sure": "mean", "least": "least"}.items(), CATEGORIES, strict=False):
            rows = [runs.finals(f"{kind}/{part}", log10_dim=p) for p in powers(runs)]
            band(axis, rows, powers(runs), color=colour, label=label, marker="o")
        axis.set(xlabel="log₁₀ of the dimension d", ylabel=name, xscale="log")
        axis.set_xticks(powers(runs), [str(p) for p in powers(runs)])
        axis.minorticks_off()
    bound_level(axes[0, 0], 0.25, "limit, lemma B.40")
    bound_level(axes[0, 0], 0.2, "$B_G$, lemma B.41", linestyle=":")
    axes[0, 0].set(ylim=(0, 0.28))
    axes[0, 1].plot(powers(runs), [1 - 10.0 ** (-p / 2) for p in powers(runs)], "--", color="#444444", label="1 - σ/√d")
    for axis in axes[0]:
        axis.legend(loc="lower right")
