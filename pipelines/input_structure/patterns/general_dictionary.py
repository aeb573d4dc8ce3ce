"""Appendix A.8, Theorem A.28. Noisy inputs, and a dictionary whose columns are not orthogonal.

The general result allows noise of up to min(1/sig, sig/sqrt(d)) in each coordinate, which is 0.2 here, and a coherence
of sqrt(d)/D. Columns drawn at random and scaled to length 1 have products of up to 0.2 at d = 500, far beyond that.
"""

from featurelab.pipelines import CATEGORIES, at_least, bars, bound_level, legend_below
from featurelab.pipelines.input_structure.patterns.comparison import SMALL
from featurelab.pipelines.input_structure.patterns.six_methods import figure as parity

NOISES = [0.0, 0.1, 0.2, 0.4]
KINDS = {"orthonormal": "orthonormal", "unit": "random unit columns"}
SETTINGS = {"class_weights": True, "n_train": 10_000, "width": 50, "dim": 500, "steps": 400, "measure_every": 100}

figure = parity.variant(
    "general_dictionary", figures=("Thm. A.28", "App. A.8"), title="Noise in the inputs and coherent dictionaries",
    caption="Means over seeds, bars their range. The theorem does not allow random columns.",
    laptop=parity.laptop.but(**SETTINGS), paper=parity.paper.but(class_weights=True), minutes=2.4,
    grid={"kind": list(KINDS), "noise": NOISES, "seed": range(6)},
    paper_grid={"kind": list(KINDS), "noise": NOISES, "seed": [0, 1, 2]}, small=SMALL | {"dim": 20},
)


@figure.claim("noise_that_the_theorem_allows", paper="error ≤ ε",
    says="the network learns with noise 0.2, which the theorem allows, and an orthonormal dictionary (test accuracy)",
    expect=at_least(0.98), within=(0, 1))
def allowed(runs):
    return runs.final("accuracy/test", kind="orthonormal", noise=0.2)


@figure.claim("coherent_columns", origin="ours",
    says="in at least three of four runs, the network learns with random unit columns and no noise (test accuracy)",
    expect=at_least(0.98), about="share", least=0.75, within=(0, 1))
def coherent(runs):
    return runs.final("accuracy/test", kind="unit", noise=0.0)


@figure.claim("neurons_find_the_patterns", origin="ours", within=(0, 1),
    says="with noise 0.2 and an orthonormal dictionary all neurons point along s* after step 2 (mean |cos|)",
    expect=at_least(0.9))
def directions(runs):
    return runs.at("cosine/mean_abs_cosine", 2, kind="orthonormal", noise=0.2)


@figure.draw(cols=2, size=(9.5, 3.6))
def panels(runs, axes):
    noises = sorted(runs.values("noise"))
    for (kind, name), colour in zip(KINDS.items(), CATEGORIES, strict=False):
        accuracies = [runs.finals("accuracy/test", kind=kind, noise=noise) for noise in noises]
        cosines = [runs.curves("cosine/mean_abs_cosine", kind=kind, noise=noise).loc[2] for noise in noises]
        for axis, table in zip(axes[0], (accuracies, cosines), strict=True):
            bars(axis, table, noises, color=colour, label=name)
    for axis, label in zip(axes[0], ("test accuracy", "mean |cos| with s* after step 2"), strict=True):
        bound_level(axis, 0.2, "noise that the theorem allows", vertical=True)
        axis.set(xlabel="noise in each coordinate", ylabel=label)
        axis.set_ylim(top=1 + 0.02 * (1 - axis.get_ylim()[0]))
    legend_below(axes)
