"""The general data of appendix A. Noisy inputs and a dictionary whose columns are not orthogonal.

The general result allows noise of up to min(1/sig, sig/sqrt(d)) in each coordinate and a coherence of sqrt(d)/D.
Columns that are drawn at random and scaled to length 1 have products of up to 0.2 at d = 500, far beyond that; the
noise of 0.2 is what is allowed.
"""

from featurelab.pipelines import CATEGORIES, at_least, bars
from featurelab.pipelines.input_structure.comparison import SMALL
from featurelab.pipelines.input_structure.six_methods import figure as parity

NOISES = [0.0, 0.1, 0.2, 0.4]
KINDS = {"orthonormal": "orthonormal", "unit": "random unit columns"}
SETTINGS = {"class_weights": True, "n_train": 10_000, "width": 50, "dim": 500, "steps": 400, "measure_every": 100}

figure = parity.variant(
    "general_dictionary", figures=("App. A",), part="general data",
    title="Noise in the inputs and coherent dictionaries",
    caption="Means over seeds, from the least to the greatest. The theorem allows noise of 0.2, and no random columns.",
    laptop=parity.laptop.but(**SETTINGS), paper=parity.paper.but(class_weights=True), minutes=1.2,
    grid={"kind": list(KINDS), "noise": NOISES, "seed": [0, 1, 2]},
    paper_grid={"kind": list(KINDS), "noise": NOISES, "seed": [0, 1, 2]}, small=SMALL | {"dim": 20},
)


@figure.claim("noise_that_the_theorem_allows", paper="error ≤ ε",
    says="orthonormal dictionary, noise 0.2: test accuracy", expect=at_least(0.98))
def allowed(runs):
    return runs.final("accuracy/test", kind="orthonormal", noise=0.2)


@figure.claim("coherent_columns", origin="ours",
    says="random unit columns without noise: test accuracy", expect=at_least(0.98))
def coherent(runs):
    return runs.final("accuracy/test", kind="unit", noise=0.0)


@figure.claim("neurons_find_the_patterns", origin="ours", within=(0, 1),
    says="orthonormal dictionary, noise 0.2: mean |cos| with s* after step 2", expect=at_least(0.9))
def found(runs):
    return runs.at("cosine/mean_abs_cosine", 2, kind="orthonormal", noise=0.2)


@figure.draw(cols=2, size=(9.5, 3.6))
def panels(runs, axes):
    for (kind, name), colour in zip(KINDS.items(), CATEGORIES, strict=False):
        noises = sorted(runs.values("noise"))
        table = [runs.finals("accuracy/test", kind=kind, noise=noise) for noise in noises]
        bars(axes[0, 0], table, noises, color=colour, label=name)
        cosines = [runs.curves("cosine/mean_abs_cosine", kind=kind, noise=noise).loc[2] for noise in noises]
        bars(axes[0, 1], cosines, noises, color=colour, label=name)
    for axis, label in zip(axes[0], ("test accuracy", "mean |cos| with s* after step 2"), strict=True):
        axis.axvline(0.2, color="#444444", linestyle=":", linewidth=1)
        axis.set(xlabel="noise in each coordinate", ylabel=label, ylim=(None, 1.02))
    axes[0, 0].legend(loc="lower left")
