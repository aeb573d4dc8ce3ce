"""Figures 4.1, 4.2, C.1 to C.4. Trained neurons are cosines of a single frequency, and every frequency is used.

One-hidden-layer networks with the activation z^k and 2^(2k-2) (p-1) neurons learn (a_1 + ... + a_k) mod p. For each
neuron the dots show an embedding u_i1(a), the curve the function of a real argument with the same spectrum, and the
bars its power at each frequency. The right column shows how often a frequency dominates a neuron, and the largest share
of one frequency in a neuron's power (over its k embeddings, the power of the mean included), at random and after
training.

The laptop presets train on all tuples, which is the theorem's setting, since half of so few does not determine the rest
(see `half_split`). The paper trains on half of 10^6 to 10^7 tuples.
"""

from featurelab.pipelines import CATEGORIES, Experiment, Recorder, above, at_least, at_most, choice, loguniform, np
from featurelab.pipelines.fourier_circuits.addition import AdditionConfig, cost, setting, train

PAPER = AdditionConfig(train_share=0.5, batch_size=1024, steps=50_000, measure_every=1000, n_test=20_000)
SEEDS = range(6)
SHOWN = 3  # neurons

four = Experiment(
    name="fourier_circuits/spectra_4", figures=("Fig. 4.1", "Fig. 4.2"),
    published={"Fig. 4.1": "Fig. 1", "Fig. 4.2": "Fig. 2"}, title="Spectra of trained neurons, k = 4",
    caption="Random active neurons of one seed. Histograms are of one seed.",
    laptop=AdditionConfig(**setting(7, 4), init_scale=0.25, steps=1200),
    paper=PAPER.but(**setting(47, 4), init_scale=0.25), grid={"seed": SEEDS},
    sweep_axes={"lr": loguniform(1e-3, 2e-2), "width": choice(96, 192, 384, 768),
        "norm_penalty": loguniform(1e-4, 5e-2), "weight_decay": loguniform(1e-3, 1.0)}, metric="margin_ratio/worst",
    mode="max", minutes=1.4, small={"modulus": 5, "width": 20, "steps": 40, "measure_every": 20},
)
three = four.variant(
    "spectra_3", figures=("Fig. C.1", "Fig. C.2"), published={"Fig. C.1": "Fig. 5", "Fig. C.2": "Fig. 6"},
    title="Spectra of trained neurons, k = 3",
    laptop=AdditionConfig(**setting(23, 3), steps=1000), paper=PAPER.but(**setting(97, 3)), minutes=6.5,
)
five = four.variant(
    "spectra_5", figures=("Fig. C.3", "Fig. C.4"), published={"Fig. C.3": "Fig. 7", "Fig. C.4": "Fig. 8"},
    title="Spectra of trained neurons, k = 5",
    laptop=AdditionConfig(**setting(5, 5), init_scale=0.1, batch_size=512, steps=1500),
    paper=PAPER.but(**setting(23, 5), init_scale=0.1), minutes=2,
    small={"modulus": 5, "width": 20, "steps": 20, "measure_every": 10, "batch_size": 100},
)
ALL = [three, five]


@four.trial
def run(config: AdditionConfig, recorder: Recorder) -> None:
    train(config, recorder)


four.cost(cost)


@four.claim("c05_neurons_have_one_frequency", also=ALL, says="after training one frequency has nearly all of a "
    "neuron's power (mean over neurons weighted by |theta_i|^(k+1)), more than twice its share in random neurons "
    "(ratio)", paper="almost 1 for all neurons", expect={"trained": at_least(0.99), "over random": above(2)})
def single(runs):
    trained = runs.final("max_power/weighted")
    return {"trained": trained, "over random": trained / runs.at("max_power/weighted", 0)}


@four.claim("c05b_all_neurons_have_one_frequency", also=ALL, says="after training one frequency has nearly all of a "
    "neuron's power, also counting the neurons that the penalty has killed (unweighted mean over all neurons)",
    paper="almost 1 for all neurons", expect=at_least(0.95), within=(0, 1))
def every_neuron(runs):
    return runs.final("max_power/all")


@four.claim("c06_every_frequency_dominates_some_neuron", also=ALL, says="in at least three of four runs, every "
    "frequency dominates some active neuron (share of frequencies), and all dominate about equally many (entropy of "
    "the counts over log n)", paper="almost uniform over all frequencies",
    expect={"coverage": at_least(1.0), "uniformity": at_least(0.9)}, within=(0, 1), about="share", least=0.75)
def coverage(runs):
    return {"coverage": runs.final("coverage/active"), "uniformity": runs.final("uniformity/active")}


@four.claim("c06b_clean_neurons_share_the_frequencies", also=ALL, origin="ours",
    says="in at least three of four runs, neurons with 95% of their power at one frequency have nine tenths of the "
    "norm |theta|^(k+1), every frequency has at least half of its equal share in it, and shares are about equal "
    "(entropy over log n)", expect={"clean": at_least(0.9), "coverage": at_least(1.0), "uniformity": at_least(0.9)},
    within=(0, 1), about="share", least=0.75)
def clean_coverage(runs):
    parts = {name: runs.final(f"{name}/clean") for name in ("coverage", "uniformity")}
    return {"clean": runs.final("single_frequency_share")} | parts


@four.claim("c06c_frequencies_have_equal_parts_in_the_margin", also=ALL,
    says="the transform fhat(j, ..., j, -j) of the network is positive and about equal for all j (least over greatest)",
    paper="fhat(j, ..., j, -j) > 0, lambda p^k in the proof", where="Lemma C.20", expect=at_least(0.9))
def parts(runs):
    return runs.final("margin_by_frequency/least_over_greatest")


@four.claim("c07_vectors_of_a_neuron_agree", also=ALL,
    says="all k + 1 vectors of a neuron have the same frequency (weighted share of neurons)",
    paper="exact at the optimum", where="Theorem 4.9", expect=at_least(0.98), within=(0, 1))
def agreement(runs):
    return runs.final("frequency_agreement")


@four.claim("c07b_phases_add_up", also=ALL,
    says="the phases of a neuron's inputs add up to the phase of its output (weighted mean cosine of the difference)",
    paper="exact at the optimum", where="Theorem 4.9", expect=at_least(0.99), within=(-1, 1))
def phases(runs):
    return runs.final("phase_alignment")


@four.claim("c07c_vectors_have_equal_lengths", also=ALL,
    says="the k + 1 vectors of a neuron have the same length (longest over shortest, weighted median)",
    paper="one beta for all", where="Theorem 4.9", expect=at_most(1.05))
def lengths(runs):
    return runs.final("amplitude_ratio")


@four.claim("c08_margin_is_nearly_the_largest", also=ALL, says="the trained network's normalised margin, and its mean "
    "over tuples, are nearly the largest possible (ratios to gamma*)", paper="1 as lambda -> 0", where="Lemma 4.7",
    expect={"margin": at_least(0.9), "mean": at_least(0.97)})
def margin(runs):
    return {"margin": runs.final("margin_ratio/worst"), "mean": runs.final("margin_ratio/mean")}


@four.claim("c03_no_network_exceeds_the_largest_margin", also=ALL,
    says="neither the margin nor its mean over tuples exceeds gamma* at any time during training (greatest ratio)",
    paper="gamma* is the maximum", where="Theorem 4.9", kind="identity", expect=at_most(1 + 1e-6))
def bound(runs):
    return max(runs.curve(f"margin_ratio/{name}").max() for name in ("worst", "mean"))


@four.draw(rows=3, cols=3, size=(11, 7.2))
def panels(runs, axes):
    neurons = runs.where(seed=runs.values("seed")[0]).arrays("neurons")[0]
    chosen = np.random.default_rng(0).permutation(min(len(neurons["strongest"]), len(neurons["peaks"])))[:SHOWN]
    for row, neuron in zip(axes, neurons["strongest"][chosen], strict=False):
        u = neuron[0]
        p = len(u)
        a = np.linspace(0, p - 1, 400)
        transform = np.fft.rfft(u)
        terms = np.exp(2j * np.pi * np.outer(a, np.arange(len(transform))) / p) * transform
        row[0].plot(a, (2 * terms.sum(1) - terms[:, 0]).real / p, color=CATEGORIES[0], alpha=0.4, linewidth=2)
        row[0].plot(np.arange(p), u, "o", color=CATEGORIES[1], markersize=4)
        row[0].set(xlabel="residue a", ylabel="$u_{i1}(a)$")
        power = np.abs(transform) ** 2
        row[1].bar(np.arange(1, len(power)), power[1:] / power.sum(), color=CATEGORIES[0], width=0.6)
        row[1].set(xlabel="frequency", ylabel="share of the power", ylim=(0, 1.02), xticks=np.arange(1, len(power)))
    axes[0, 0].set_title("embedding of a neuron, and its interpolation")
    axes[0, 1].set_title("its power spectrum")
    n = p // 2
    counts, random, trained = axes[:, 2]
    counts.bar(np.arange(1, n + 1), np.bincount(neurons["frequencies"], minlength=n + 1)[1:], color=CATEGORIES[2])
    counts.set(title="(a) dominant frequency of active neurons", xlabel="frequency", ylabel="neurons")
    if n <= 12:
        counts.set_xticks(np.arange(1, n + 1))
    for axis, name, title in ((random, "initial_peaks", "(b) random"),
            (trained, "peaks", "(c) trained, active neurons")):
        axis.hist(neurons[name], bins=np.linspace(0, 1, 41), color=CATEGORIES[1 if axis is random else 0])
        axis.set(title=title, xlabel="maximum normalised power", ylabel="neurons")
