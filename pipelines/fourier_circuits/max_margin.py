"""Theorem 4.9. The largest normalised margin of a network that adds k residues, and a network that attains it.

    gamma* = 2 k! / ((2k+2)^((k+1)/2) (p-1) p^((k-1)/2)),    attained with 2^(2k-2) (p-1) neurons,

in the norm (sum_i |theta_i|^(k+1))^(1/(k+1)). We build the network theta* of Lemma 4.11, evaluate it at all p^k tuples,
and compare it with random networks. We check three printed details together with corrected forms: the values of
sum_zeta cos(2 pi zeta (a_1 + ... + a_k - c) / p) at wrong classes, the number of neurons of each frequency for k = 3,
and the second line of the stationary pair, (4.4).
"""

import itertools
import math
from typing import Literal

from featurelab.pipelines import (
    CATEGORIES, Config, Cost, Experiment, Field, Recorder, above, at_most, bound_level, choice, data, evaluate,
    learners, legend_below, measures, nets, np, theory, torch,
)
from featurelab.pipelines.fourier_circuits.addition import margins, theorem_width


class TheoremConfig(Config):
    precision: Literal["64-true"] = Field("64-true", description="Lightning precision: identities hold to rounding")
    modulus: int = Field(5, ge=3, description="residues p, a prime")
    terms: int = Field(3, ge=2, le=6, description="residues k that are added")
    width: int = Field(12, ge=1, description="neurons of the random networks")
    random: int = Field(20, ge=1, description="random networks")


# (k, p): gamma* to all digits, evaluated independently
TABLE = {
    (2, 5): 0.03042903097250922, (2, 7): 0.017144816662454657, (2, 11): 0.008206099398622182, (3, 5): 0.009375,
    (3, 7): 0.004464285714285714, (4, 3): 0.01460593486680443, (4, 5): 0.003394112549695428,
    (5, 3): 0.007716049382716049,
}
PRINTED_WIDTHS = {(4, 47): 2944, (3, 97): 1536, (5, 23): 5632}
PRESET = TheoremConfig()

figure = Experiment(
    name="fourier_circuits/max_margin", trains=False,
    figures=("Thm. 4.9", "Lemma 4.11", "Lemma C.17", "Lemma C.18", "Eq. 4.4"),
    published={"Thm. 4.9": "Thm. 4.1", "Lemma 4.11": "Lemma 4.3", "Eq. 4.4": "Eq. 4"},
    title="The network of the largest margin",
    caption="Left: relative errors of the least and greatest margin of the built network over all tuples. Right: "
    "greatest margins of random networks over gamma*.",
    laptop=PRESET, paper=PRESET, grid={("terms", "modulus"): list(TABLE), "seed": range(6)},
    sweep_axes={"modulus": choice(3, 5, 7, 11), "width": choice(4, 12, 40, 160)}, metric="margin_error/worst",
    minutes=0.6, small={"random": 2, "width": 3}, headline=True,
)


@figure.trial
def run(config: TheoremConfig, recorder: Recorder) -> None:
    task = data.ModularAddition(config.modulus, config.terms, seed=config.streams.data)
    net = nets.max_margin_net(config.modulus, config.terms)

    def checks(net, x, y):
        return attained(net, x, y) | construction(net, x) | printed(config) | below(config, x, y) | expansions(config)

    evaluate(learners.Measurement(net, checks), task, config, recorder)


def attained(net, x, y):
    """Returns relative errors of theta*: margins at all tuples, norm, parts of the frequencies, and spectra."""
    with torch.no_grad():
        largest = theory.fourier_circuits.max_margin(net.modulus, net.terms)
        f = net(x)
        g = measures.class_margins(f, y)
        wrong = f.scatter(1, y[:, None], math.nan)
        spread = wrong.nan_to_num(nan=-math.inf).amax(1) - wrong.nan_to_num(nan=math.inf).amin(1)
        parts = theory.fourier_circuits.frequency_margins(net.neurons).sum(0)
        spectra = measures.neuron_spectra(net.neurons)
        return {
            "gamma_star": largest,
            "margin_error/worst": abs(g.worst.min() / largest - 1),
            "margin_error/best": abs(g.worst.max() / largest - 1),
            "margin_error/mean": abs(g.mean.mean() / largest - 1),
            "margin_error/norm": abs(measures.group_norm(net.neurons, net.terms + 1) - 1),
            "margin_error/ties": spread.max() / largest,
            "margin_error/by_frequency": (parts * len(parts) / largest - 1).abs().max(),
            "margin_error/single_neuron": abs(alone(net) / largest - 1),
            "spectrum_error/peak": 1 - spectra.peak.min(),
            "spectrum_error/phase": 1 - spectra.phase.min(),
            "spectrum_error/spread": spectra.spread.max() - 1,
            "neurons": len(net.neurons),
            "neurons/least_of_a_frequency": spectra.frequency.bincount(minlength=net.modulus // 2 + 1)[1:].min(),
            "neurons/greatest_of_a_frequency": spectra.frequency.bincount().max(),
        }


def alone(net):
    """Returns the class-weighted margin of one neuron of theta* at unit length."""
    neuron = net.neurons[:1]
    return theory.fourier_circuits.frequency_margins(neuron / measures.group_norm(neuron, net.terms + 1)).sum()


def construction(net, x):
    """Returns errors of sum_zeta cos(2 pi zeta (sum a - c) / p), which is theta* without its scale over 2^(k-1) k!."""
    with torch.no_grad():
        k, p = net.terms, net.modulus
        beta = net.neurons.abs().max()  # the amplitude of the cosines, met by some residue to rounding at phase 0
        sums = net(x) / (2 ** (k - 1) * math.factorial(k) * beta ** (k + 1))
        right = torch.nn.functional.one_hot(x.long().sum(1) % p, p).bool()
        return {
            "construction/right": (sums[right] - p // 2).abs().max(),
            "construction/wrong_printed": sums[~right].abs().max(),
            "construction/wrong_corrected": (sums[~right] + 0.5).abs().max(),
        }


def printed(config: TheoremConfig):
    """Returns how far the mean margin of theta* is above that of another network of norm 1, over gamma*."""
    net = nets.max_margin_net(config.modulus, config.terms)
    own = theory.fourier_circuits.frequency_margins(net.neurons).sum()
    with torch.no_grad():
        net.head.weight.neg_()  # of the same norm
    largest = theory.fourier_circuits.max_margin(config.modulus, config.terms)
    return {"stationary/above_another": (own - theory.fourier_circuits.frequency_margins(net.neurons).sum()) / largest}


def below(config: TheoremConfig, x, y):
    """Returns the greatest margins over gamma* of random networks, half Gaussian and half theta* with random noise."""
    greatest = {"worst": -math.inf, "mean": -math.inf}
    for draw in range(config.random):
        seed = int(data.stream(config.streams.init, f"network {draw}").integers(2**62))
        net = nets.polynomial_net(config.modulus, config.terms, config.width, seed=seed)
        if draw % 2:
            chance = data.stream(seed, "noise")
            net = nets.max_margin_net(config.modulus, config.terms)
            size = 10 ** chance.uniform(-4, 0) * net.head.weight.std().item()
            with torch.no_grad():
                for weight in net.parameters():
                    weight.add_(torch.from_numpy(size * chance.standard_normal(tuple(weight.shape))).to(weight))
        ratios = margins(net.to(x.device), x, y)
        greatest = {name: max(value, ratios[f"margin_ratio/{name}"]) for name, value in greatest.items()}
    return {f"margin_ratio/random_{name}": value for name, value in greatest.items()}


def expansions(config: TheoremConfig):
    """Returns errors of the polarisation identity and the cosine of a sum on random numbers (proof of Lemma 4.11)."""
    k = config.terms
    a = data.stream(config.streams.init, "angles").uniform(-2, 2, k)
    polar = sum((-1) ** ((k - sum(signs)) // 2) * np.dot(signs, a) ** k
        for signs in itertools.product((1, -1), repeat=k))
    cosine = sum((-1) ** (sum(b) % 4 == 2) * np.prod([np.sin(x) if s else np.cos(x) for x, s in zip(a, b, strict=True)])
        for b in itertools.product((0, 1), repeat=k) if sum(b) % 2 == 0)
    product = 2**k * math.factorial(k) * np.prod(a)
    return {"expansion/polarisation": abs(polar - product), "expansion/cosine": abs(cosine - np.cos(a.sum()))}


@figure.cost
def cost(config: TheoremConfig):
    tuples, width = config.modulus**config.terms, theorem_width(config.modulus, config.terms)
    flops = 4.0 * tuples * width * config.modulus * (config.terms + 1) * (config.random + 2)
    return Cost(width * (config.terms + 1) * config.modulus, flops, 24.0 * tuples * width)


def over_table(runs, measure, pick=max):
    return float(pick(measure(runs.where(terms=k, modulus=p)) for k, p in TABLE))


@figure.claim("c01_the_margin_is_attained_everywhere", says="theta* has norm 1 and margin gamma* at each of the p^k "
    "tuples, wrong classes tie, frequencies have equal parts in the margin, and a single neuron attains gamma* too "
    "(largest relative error)", paper="exact", kind="identity", expect=at_most(1e-9))
def exact(runs):
    names = ("worst", "best", "mean", "norm", "ties", "by_frequency", "single_neuron")
    return max(over_table(runs, lambda one, name=name: one.final(f"margin_error/{name}")) for name in names)


@figure.claim("c01b_the_closed_form_is_that_of_the_table",
    says="the closed form of gamma* agrees with independently computed values (largest relative error)",
    paper="closed form", kind="identity", expect=at_most(1e-12))
def closed_form(runs):
    return max(abs(runs.final("gamma_star", terms=k, modulus=p) / value - 1) for (k, p), value in TABLE.items())


@figure.claim("c02_neurons_of_the_construction",
    says="theta* has 2^(2k-2) (p-1) neurons, which are the printed widths (largest difference)",
    paper="2944, 1536, 5632", kind="identity", expect=at_most(0))
def widths(runs):
    built = [abs(runs.final("neurons", terms=k, modulus=p) - theorem_width(p, k)) for k, p in TABLE]
    return max(*built, *(abs(theorem_width(p, k) - width) for (k, p), width in PRINTED_WIDTHS.items()))


@figure.claim("c02b_neurons_of_a_frequency_printed", where="Lemma C.17",
    says="for k = 3 each frequency has 56 neurons in theta*, as printed (least, greatest)", paper=56, kind="identity",
    expect={"least": above(55), "greatest": at_most(56)})
def printed_count(runs):
    return {name: runs.final(f"neurons/{name}_of_a_frequency", terms=3, modulus=5) for name in ("least", "greatest")}


@figure.claim("c02c_neurons_of_a_frequency", where="Lemmas C.17, C.18", origin="corrected",
    says="each frequency has 2^(2k-1) neurons in theta* (largest difference)", kind="identity", expect=at_most(0))
def corrected_count(runs):
    ends = ("least", "greatest")
    return max(abs(runs.final(f"neurons/{end}_of_a_frequency", terms=k, modulus=p) - 2 ** (2 * k - 1))
        for (k, p), end in itertools.product(TABLE, ends))


@figure.claim("c03_no_network_exceeds_it",
    says="random networks, and theta* with noise, have margins and mean margins of at most gamma* (greatest ratio)",
    paper="gamma* is the maximum", kind="identity", expect=at_most(1 + 1e-6))
def bound(runs):
    return max(over_table(runs, lambda one, n=n: one.final(f"margin_ratio/random_{n}")) for n in ("worst", "mean"))


@figure.claim("c12_neurons_are_cosines_whose_phases_add_up",
    says="every neuron of theta* has one frequency, one amplitude, and phases that add up (largest error)",
    paper="exact", kind="identity", expect=at_most(1e-9))
def cosines(runs):
    names = ("peak", "phase", "spread")
    return max(over_table(runs, lambda one, name=name: one.final(f"spectrum_error/{name}")) for name in names)


@figure.claim("c13_sums_of_cosines_printed", where="Lemma C.18",
    says="sum_zeta cos(2 pi zeta (a_1 + ... + a_k - c) / p) is (p-1)/2 at the sum and 0 elsewhere, as printed (errors)",
    paper="0 at wrong classes", kind="identity", expect={"right": at_most(1e-9), "wrong": at_most(1e-9)})
def printed_sums(runs):
    names = {"right": "right", "wrong": "wrong_printed"}
    return {part: over_table(runs, lambda one, n=n: one.final(f"construction/{n}")) for part, n in names.items()}


@figure.claim("c13b_sums_of_cosines", where="Lemma C.18", origin="corrected",
    says="the sum of cosines is (p-1)/2 at the sum and -1/2 elsewhere, so that the margin is p/2 (errors)",
    kind="identity", expect={"right": at_most(1e-9), "wrong": at_most(1e-9)})
def corrected_sums(runs):
    names = {"right": "right", "wrong": "wrong_corrected"}
    return {part: over_table(runs, lambda one, n=n: one.final(f"construction/{n}")) for part, n in names.items()}


@figure.claim("c14_stationary_pair_printed", where="(4.4)",
    says="theta* minimises the expected margin under q*, as printed (its expected margin less that of another network "
    "of norm 1, over gamma*)", paper="argmin over theta", kind="identity", expect=at_most(0))
def argmin(runs):
    return over_table(runs, lambda one: one.final("stationary/above_another"))


@figure.claim("c14b_stationary_pair", where="(4.4)", origin="corrected",
    says="theta* maximises the expected margin under q*, the uniform distribution (greatest mean margin of random "
    "networks, over gamma*)", kind="identity", expect=at_most(1 + 1e-6))
def argmax(runs):
    return over_table(runs, lambda one: one.final("margin_ratio/random_mean"))


@figure.claim("c15_identities_of_the_proof", where="Lemma 4.11",
    says="the polarisation identity and the cosine of a sum hold on random numbers (largest error)", paper="exact",
    kind="identity", expect=at_most(1e-9))
def proof(runs):
    return max(over_table(runs, lambda one, n=n: one.final(f"expansion/{n}")) for n in ("polarisation", "cosine"))


@figure.draw(cols=2, size=(10, 3.6))
def panels(runs, axes):
    left, right = axes[0]
    names = [f"{k}, {p}" for k, p in TABLE]
    spots = np.arange(len(TABLE))
    for shift, (metric, label) in enumerate({"worst": "θ*, least over tuples", "best": "θ*, greatest"}.items()):
        errors = [max(runs.final(f"margin_error/{metric}", terms=k, modulus=p), 1e-17) for k, p in TABLE]
        left.bar(spots + 0.4 * shift - 0.2, errors, 0.38, color=CATEGORIES[shift], label=label)
    bound_level(left, 1e-9, "tolerance")
    left.set(yscale="log", xlabel="k, p", ylabel="|margin / γ* - 1|", title="margin of the built network")
    for colour, (metric, label) in zip(CATEGORIES, {"worst": "margin", "mean": "mean margin"}.items(), strict=False):
        ratios = [runs.final(f"margin_ratio/random_{metric}", terms=k, modulus=p) for k, p in TABLE]
        right.plot(spots, ratios, "o", color=colour, label=f"{label}, greatest of the random networks")
    bound_level(right, 1, "γ*")
    right.set(xlabel="k, p", ylabel="over γ*", title="random networks, and θ* with noise")
    for axis in (left, right):
        axis.set_xticks(spots, names)
        legend_below(axis, 2)
