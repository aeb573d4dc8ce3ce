"""Table A.4 and Figure A.7. Parities of five patterns where 0.8 or 0.9 of the samples are negative.

Predicting the larger class gives accuracies of 0.8 and 0.9, so that balanced accuracies (both classes weighted equally)
are measured too. The first two steps weight both classes equally, as the paper's general result does. `weight_maps`
draws Figure A.8.
"""

from featurelab.pipelines import above, at_least, at_most, null_level
from featurelab.pipelines.input_structure.patterns.comparison import (
    AXIS, SEEDS, SMALL, accuracy, cosine, draw_curves, draw_table, rows, tuned,
)
from featurelab.pipelines.input_structure.patterns.six_methods import figure as parity

SHARES = [0.8, 0.9]
GRID = {"negative_share": SHARES, AXIS: rows(0.02, (1e-3, 0.02), ("network",)), "seed": SEEDS}

figure = parity.variant(
    "imbalance", figures=("Table A.4", "Fig. A.7"), title="Parity of five patterns with unequal classes",
    laptop=parity.laptop.but(class_weights=True), paper=parity.paper.but(class_weights=True), grid=GRID,
    paper_grid=GRID, minutes=2, small=SMALL,
)


def margin(runs, share, metric="accuracy/test", best=tuned):
    reached = accuracy(runs, "network", metric=metric, negative_share=share)
    return reached - max(best(runs, method, metric=metric, negative_share=share) for method in ("ntk", "rf"))


def beats(runs, share):
    return {"network": accuracy(runs, "network", negative_share=share), "margin": margin(runs, share, best=accuracy)}


@figure.claim("c10_network_beats_fixed_features",
    says="in at least three of four runs, with 0.8 of the samples negative the network learns and beats NTK and "
    "random features at its learning rate (test accuracy, margin)", paper="100 against 82.7 and 70.4",
    expect={"network": at_least(0.97), "margin": above(0)}, about="share", least=0.75, within=(-1, 1))
def at_08(runs):
    return beats(runs, 0.8)


@figure.claim("c10b_also_at_09", paper="100 against 81.7 and 72.4", says="with 0.9 of the samples negative the network "
    "learns and beats NTK and random features at its learning rate (test accuracy, margin)",
    expect={"network": at_least(0.97), "margin": above(0)}, within=(-1, 1))
def at_09(runs):
    return beats(runs, 0.9)


@figure.claim("c10c_both_classes_alike", origin="ours", says="the network beats NTK and random features at their best "
    "rates in balanced accuracy (smaller margin of 0.8 and 0.9 negative)", expect=at_least(0.2), within=(-1, 1))
def balanced(runs):
    return min(margin(runs, share, "balanced_accuracy/test") for share in SHARES)


@figure.claim("c10d_one_step_is_the_larger_class", origin="ours", paper="75.7 at 0.8, 89.2 at 0.9",
    says="in at least three of four runs, heads on the neurons of step 1 are as accurate as the larger class (largest "
    "distance of test accuracy from its share)", expect=at_most(0.03), about="share", least=0.75, within=(-1, 1))
def one_step(runs):
    return max(abs(accuracy(runs, "one_step", negative_share=share) - share) for share in SHARES)


@figure.claim("c10e_one_step_knows_no_class", origin="ours", says="in at least three of four runs, heads on the "
    "neurons of step 1 do not tell the classes apart (largest balanced accuracy)", expect=at_most(0.55), about="share",
    least=0.75, within=(-1, 1))
def one_step_balanced(runs):
    return max(accuracy(runs, "one_step", metric="balanced_accuracy/test", negative_share=s) for s in SHARES)


@figure.claim("c03_neurons_find_the_patterns", where="Table A.4", paper="0.999, 0.997", within=(-1, 1),
    says="after step 2 a neuron points along s* (largest cosine, smaller of 0.8 and 0.9 negative)",
    expect=at_least(0.99))
def directions(runs):
    return min(cosine(runs, 2, negative_share=share) for share in SHARES)


@figure.draw(rows=2, cols=2, size=(10.5, 7.4))
def panels(runs, axes):
    for (left, right), share in zip(axes, SHARES, strict=True):
        some = runs.where(negative_share=share)
        draw_curves(left, some)
        null_level(left, share, "larger class")
        left.set(title=f"{share} negative", ylim=(0.35, 1.02))
        draw_table(right, some, f"A.4, {share}")
    axes[0, 0].legend(loc="lower right")
