"""Definition 4.1, Lemma 4.7. The penalty on the norm makes margins large and frequencies single.

As lambda -> 0 the minimisers of the cross-entropy plus lambda |theta|_(2, k+1) have the largest normalised margin. We
compare networks trained with several lambda, and without a penalty.
"""

from featurelab.pipelines import Experiment, Recorder, above, at_least, bars, choice, loguniform
from featurelab.pipelines.fourier_circuits.addition import AdditionConfig, cost, setting, train

STRENGTHS = [0.0, 5e-4, 5e-3, 5e-2]
STATED = 5e-3
PRESET = AdditionConfig(steps=1500, measure_every=250)
SETTINGS = {2: 11, 3: 7}  # k: p
CONTROLS = ("permuted_labels", "untrained")  # without a penalty: the points at lambda = 0

figure = Experiment(
    name="fourier_circuits/penalty", figures=("Def. 4.1", "Lemma 4.7"),
    published={"Def. 4.1": "Def. 3.1", "Lemma 4.7": "Lemma 3.7"}, title="Margin and spectra against the penalty",
    caption="Means over seeds and their range. The leftmost point has no penalty.", laptop=PRESET,
    paper=PRESET.but(steps=20_000, measure_every=1000),
    grid={("terms", "modulus", "width"): [tuple(setting(p, k)[n] for n in ("terms", "modulus", "width"))
        for k, p in SETTINGS.items()], "norm_penalty": STRENGTHS, "seed": [0, 1, 2]},
    paper_grid={("terms", "modulus", "width"): [tuple(setting(p, k)[n] for n in ("terms", "modulus", "width"))
        for k, p in {2: 23, 3: 11}.items()], "norm_penalty": STRENGTHS, "seed": [0, 1, 2]},
    sweep_axes={"norm_penalty": loguniform(1e-5, 1e-1), "lr": loguniform(1e-3, 2e-2), "width": choice(20, 40, 80, 160),
        "weight_decay": loguniform(1e-3, 1.0)}, metric="margin_ratio/worst", mode="max", minutes=1.5, controls=CONTROLS,
    small={("terms", "modulus", "width"): [(2, 5, 12), (3, 3, 12)], "steps": 20, "measure_every": 10},
)


@figure.trial
def run(config: AdditionConfig, recorder: Recorder) -> None:
    train(config, recorder)


figure.cost(cost)


def excess(runs, metric):
    """By how much the stated penalty raises a metric, for each k."""
    return {f"k = {k}": runs.final(metric, terms=k, norm_penalty=STATED) - runs.final(metric, terms=k, norm_penalty=0.0)
        for k in SETTINGS}


BOTH = [f"k = {k}" for k in SETTINGS]


@figure.claim("c08b_the_penalty_raises_the_margin", origin="ours",
    says="the margin over gamma* is larger with the stated lambda = 0.005 than without a penalty (difference)",
    expect=dict.fromkeys(BOTH, at_least(0.2)))
def margin(runs):
    return excess(runs, "margin_ratio/worst")


@figure.claim("c05c_the_penalty_makes_frequencies_single", origin="ours", says="the dominant frequency has a larger "
    "share of a neuron's power with the stated lambda = 0.005 than without a penalty (difference of weighted means)",
    expect=dict.fromkeys(BOTH, at_least(0.1)), within=(-1, 1))
def frequency(runs):
    return excess(runs, "max_power/weighted")


@figure.claim("c07d_phases_need_no_penalty", origin="ours", says="without a penalty phases add up too (medians of the "
    "weighted mean cosine), and every tuple is right (accuracy)", within=(-1, 1),
    expect={"phase": at_least(0.97), "accuracy": at_least(0.99)}, about="median",
    where="Sec. 4.3; bound set after the fact")
def phases(runs):
    where = [{"terms": k, "norm_penalty": 0.0} for k in SETTINGS]
    return {"phase": min(runs.final("phase_alignment", **one) for one in where),
        "accuracy": min(runs.final("accuracy/all", **one) for one in where)}


@figure.claim("c08c_margin_rises_as_lambda_falls", says="the margin over gamma* rises as lambda falls from 0.05 to "
    "0.005 to 0.0005, after equally many steps (differences of the mean over k)", paper="1 as lambda -> 0",
    where="Lemma 4.7",
    expect={"0.005 over 0.05": above(0), "0.0005 over 0.005": above(0)})
def rising(runs):
    ratios = {s: [runs.final("margin_ratio/worst", terms=k, norm_penalty=s) for k in SETTINGS] for s in STRENGTHS}
    means = {s: sum(by_k) / len(by_k) for s, by_k in ratios.items()}
    return {"0.005 over 0.05": means[5e-3] - means[5e-2], "0.0005 over 0.005": means[5e-4] - means[5e-3]}


@figure.draw(cols=3, size=(11, 3.4))
def panels(runs, axes):
    shown = {"margin_ratio/worst": "margin / γ*", "max_power/weighted": "maximum normalised power",
        "phase_alignment": "phase alignment"}
    places = range(len(STRENGTHS))
    for axis, (metric, name) in zip(axes[0], shown.items(), strict=True):
        for k, p in SETTINGS.items():
            modulus = int(runs.where(terms=k).trials.modulus.iloc[0]) if len(runs.where(terms=k).trials) else p
            table = [runs.finals(metric, terms=k, norm_penalty=s) for s in STRENGTHS]
            bars(axis, table, places, label=f"k = {k}, p = {modulus}")
        axis.set_xticks(places, [f"{s:g}" for s in STRENGTHS])
        axis.set(xlabel="penalty λ", ylabel=name, ylim=(None, 1.03))
    axes[0, 0].legend(loc="lower right")
