"""Tables A.3 and A.5, Figures A.5 and A.9. Other input dimensions, and fewer samples and neurons.

Inputs lie in the span of the dictionary, and so do erased neurons: the first two steps do not depend on d. Adam's steps
do, since Adam is not invariant to rotations; gradient descent would stay in the span. `weight_maps` draws Figures A.6
and A.10.
"""

from featurelab.pipelines import at_least, at_most, below, between, theory
from featurelab.pipelines.input_structure.patterns.comparison import (
    AXIS, RATES, SEEDS, SMALL, accuracy, cosine, draw_curves, draw_table, rows, tuned,
)
from featurelab.pipelines.input_structure.patterns.six_methods import figure as parity

FEW = {"n_train": 10_000, "width": 50}
ROWS = rows(0.02, (0.02,), ("network",))
SIZES = [(25_000, 300), (10_000, 50)]

fewer = parity.variant(
    "sample_size", figures=("Table A.5", "Fig. A.9"), title="Parity of five patterns from fewer samples",
    laptop=parity.laptop.but(**FEW), paper=parity.paper.but(**FEW), minutes=2.4,
    grid={AXIS: rows(0.02, RATES, ("network",)), "seed": range(6)},
    paper_grid={("n_train", "width"): SIZES, AXIS: rows(0.02, RATES, ("network",)), "seed": SEEDS},
)
dimension = parity.variant(
    "dimension", figures=("Table A.3", "Fig. A.5"), title="Parity of five patterns in other dimensions",
    laptop=parity.laptop.but(**FEW, steps=400, measure_every=40), minutes=2.4,
    grid={"dim": [100, 500], AXIS: ROWS, "seed": range(6)}, paper_grid={"dim": [100, 2000], AXIS: ROWS, "seed": SEEDS},
    small=SMALL | {"dim": [12, 20]},
)


@fewer.claim("c11_fewer_samples", paper="100; 75.0; 74.3; 0.994", says="in at least three of four runs, with 10,000 "
    "samples and m = 50 the network learns and fixed features do not (test accuracies, largest cosine with s* after "
    "step 2)",
    expect={"network": at_least(0.98), "cosine": at_least(0.99), "NTK": below(0.9), "random features": below(0.9)},
    about="share", least=0.75, within=(-1, 1))
def few(runs):
    some = fewest(runs)
    reached = {"network": accuracy(some, "network"), "cosine": cosine(some, 2)}
    return reached | {"NTK": accuracy(some, "ntk"), "random features": accuracy(some, "rf")}


@fewer.claim("c11b_beats_them_tuned", origin="ours", says="with 10,000 samples the network beats NTK and random "
    "features at the best of five learning rates (margin in test accuracy)", expect=at_least(0.2), within=(-1, 1))
def few_tuned(runs):
    some = fewest(runs)
    return accuracy(some, "network") - max(tuned(some, method) for method in ("ntk", "rf"))


def fewest(runs):
    return runs.where(n_train=min(runs.values("n_train")))


def dims(runs):
    return sorted(runs.values("dim"))


@dimension.claim("c12_robust_in_the_dimension", says="in at least three of four runs, the network is as accurate in "
    "one input dimension as in the other (difference of test accuracies)", paper="100 for d = 100, 500, 2000",
    expect=at_most(0.02), about="share", least=0.75, within=(-1, 1))
def robust(runs):
    low, high = (accuracy(runs, "network", dim=d) for d in dims(runs))
    return abs(low - high)


@dimension.claim("c12b_and_right_in_both", origin="ours",
    says="in at least three of four runs, the network learns in both input dimensions (smaller test accuracy)",
    expect=at_least(0.98), about="share", least=0.75, within=(0, 1))
def right(runs):
    return min(accuracy(runs, "network", dim=d) for d in dims(runs))


@dimension.claim("c12c_two_steps_stay_in_the_span", origin="ours", kind="identity",
    says="neurons stay in the span of the dictionary for two steps (largest share of |w|^2 outside)",
    expect=at_most(1e-6))
def in_span(runs):
    return max(1 - cosine(runs, 2, "in_span", dim=d) for d in dims(runs))


@dimension.claim("c13_random_neurons_are_far_from_s", controls=[],
    says="the largest cosine of initial neurons with s* is about sqrt(2 ln m / d) (ratio, least and greatest over d)",
    paper="0.354, 0.114, 0.056 for d = 100, 500, 2000", expect={"least": between(0.5, 2), "greatest": between(0.5, 2)})
def geometry(runs):
    m = int(runs.values("width")[0])
    ratios = [cosine(runs, None, method="rf", dim=d) / theory.input_structure.extreme_cosine(m, d) for d in dims(runs)]
    return {"least": min(ratios), "greatest": max(ratios)}


@dimension.claim("c03_neurons_find_the_patterns", where="Table A.3", paper="1.000, 0.998", within=(-1, 1),
    says="after step 2 a neuron points along s* in each input dimension (largest cosine, smallest over d)",
    expect=at_least(0.99))
def directions(runs):
    return min(cosine(runs, 2, dim=d) for d in dims(runs))


@fewer.draw(cols=2, size=(10.5, 4.0))
def few_panels(runs, axes):
    some = fewest(runs)
    draw_curves(axes[0, 0], some)
    axes[0, 0].set(title=f"n = {min(runs.values('n_train'))}")
    axes[0, 0].legend(loc="lower right")
    draw_table(axes[0, 1], some, "A.5, n = 10000")


@dimension.draw(rows=2, cols=2, size=(10.5, 7.4))
def dimension_panels(runs, axes):
    for (left, right), d in zip(axes, dims(runs), strict=True):
        some = runs.where(dim=d)
        draw_curves(left, some)
        left.set(title=f"d = {d}")
        draw_table(right, some, {100: "A.3, d = 100", 2000: "A.3, d = 2000"}.get(d, "A.1"))
    axes[0, 0].legend(loc="lower right")
