"""Table A.2 and Figure A.3. The label says whether at least 20 of 30 patterns are present.

With structure each of these patterns is present with probability 2/3, without it with 1/2. The classes are not equal:
0.585 of the samples with structure are positive, and 0.049 of those without, so that a constant is right on 0.95 of the
latter. Balanced accuracies (both classes weighted equally) are measured too.

The first two steps weight both classes equally, as the paper does for classes of unequal size. Without these weights
the biases of step 2 follow the larger class, half of the neurons are dead, and the network is 0 on negative inputs.
`weight_maps` draws Figure A.4.
"""

from featurelab.pipelines import above, at_least, at_most, between, data, null_level
from featurelab.pipelines.input_structure.patterns.comparison import (
    AXIS, SEEDS, SMALL, TABLES, accuracy, cosine, draw_curves, draw_table, rows, tuned,
)
from featurelab.pipelines.input_structure.patterns.six_methods import figure as parity

RATE, RATES = 0.02, (2e-3, 5e-3, 0.02, 0.1)
ROWS = [(*row, True) for row in rows(RATE, RATES, ("network", "ntk"))]
ROWS += [("network", True, rate, True) for rate in RATES if rate != RATE] + [("network", True, RATE, False)]
SETTINGS = {"problem": "interval", "size": 30, "steps": 200}

figure = parity.variant(
    "interval", figures=("Table A.2", "Fig. A.3"), title="At least 20 of 30 patterns: a network and fixed features",
    grid={(*AXIS, "class_weights"): ROWS, "seed": SEEDS}, paper_grid={(*AXIS, "class_weights"): ROWS, "seed": SEEDS},
    laptop=parity.laptop.but(measure_every=20, **SETTINGS), paper=parity.paper.but(width=100, **SETTINGS), minutes=1.5,
    small=SMALL | {"size": 6},
)


def weighted(runs, **where):
    return runs.where(class_weights=True, **where)


def at_one_rate(runs):
    return weighted(runs, lr=RATE)


@figure.claim("c08_network_and_ntk_learn", says="network and NTK learn at one learning rate, random features stay "
    "behind (test accuracies; NTK less random features)", paper="100, 100 and 73.2",
    expect={"network": at_least(0.98), "NTK": at_least(0.95), "behind": at_least(0.1)}, within=(-1, 1))
def learn(runs):
    ntk = accuracy(at_one_rate(runs), "ntk")
    reached = accuracy(at_one_rate(runs), "network")
    return {"network": reached, "NTK": ntk, "behind": ntk - accuracy(at_one_rate(runs), "rf")}


@figure.claim("c08b_at_every_rate", origin="ours", says="network and NTK learn at each of four learning rates, random "
    "features stay behind NTK (worst accuracies; difference of the best ones)",
    expect={"network": at_least(0.98), "NTK": at_least(0.95), "behind": at_least(0.1)}, within=(-1, 1))
def at_every_rate(runs):
    some = weighted(runs)
    worst = {method: min(some.final("accuracy/test", method=method, structured=True, lr=rate) for rate in RATES)
        for method in ("network", "ntk")}
    return {"network": worst["network"], "NTK": worst["ntk"], "behind": tuned(some, "ntk") - tuned(some, "rf")}


@figure.claim("c09_learned_without_structure", says="in at least three of four runs, without structure the network "
    "learns and beats the constant -1 (test accuracy, difference)", paper=1.0,
    expect={"network": at_least(0.95), "over a constant": above(0)}, about="share", least=0.75, within=(-1, 1))
def without(runs):
    reached = accuracy(at_one_rate(runs), "network", structured=False)
    majority = at_one_rate(runs).final("majority/test", method="network", structured=False)
    return {"network": reached, "over a constant": reached - majority}


@figure.claim("c09b_both_classes", origin="ours",
    says="in at least three of four runs, without structure the network learns both classes (balanced test accuracy)",
    expect=at_least(0.95), about="share", least=0.75, within=(-1, 1))
def both_classes(runs):
    return accuracy(at_one_rate(runs), "network", structured=False, metric="balanced_accuracy/test")


@figure.claim("c09c_weights_of_classes_are_needed", origin="ours",
    says="the network needs the class weights of the first two steps (test accuracy with them less that without)",
    expect=at_least(0.2), within=(-1, 1))
def weights_needed(runs):
    return accuracy(at_one_rate(runs), "network") - runs.final("accuracy/test", class_weights=False)


@figure.claim("c07_emergence", where="Table A.2", paper="0.153, 0.901, 0.994", within=(-1, 1),
    says="neurons turn to s* in two steps (largest cosine at the start, after step 1, after step 2)",
    expect={"start": at_most(0.5), "step 1": at_least(0.5), "step 2": at_least(0.99)})
def emergence(runs):
    names = {0: "start", 1: "step 1", 2: "step 2"}
    return {name: cosine(at_one_rate(runs), step) for step, name in names.items()}


@figure.claim("c08c_printed_one_step_is_a_constant", origin="ours", kind="identity",
    says="the printed accuracy of one step, 41.0, is that of the constant -1 (distance from the share of negatives)",
    expect=at_most(0.015))
def constant(runs):
    negatives = 1 - weighted(runs).final("majority", method="network", structured=True)
    return abs(TABLES["A.2"]["one_step"]["test"] / 100 - negatives)


@figure.claim("c08d_shares_of_classes", kind="identity", origin="ours", says="the larger class has the share of the "
    "law, 0.585 with structure and 0.951 without (largest distance in standard errors)", expect=between(0, 5))
def shares(runs):
    n, size = (int(runs.values(name)[0]) for name in ("n_train", "size"))
    distances = []
    for structured, inside in ((True, 2 / 3), (False, 0.5)):
        law = data.IntervalPatterns(size, size, 2 * size // 3, size, inside=inside)
        majority = max(law.positive, 1 - law.positive)
        measured = weighted(runs).final("majority", method="network", structured=structured)
        distances.append(abs(measured - majority) / (majority * (1 - majority) / n) ** 0.5)
    return max(distances)


@figure.draw(cols=3, size=(13.5, 4.0))
def panels(runs, axes):
    some = weighted(runs)
    draw_curves(axes[0, 0], some)
    draw_curves(axes[0, 1], some, structured=False)
    axes[0, 0].set(title="with structure", ylim=(0.35, 1.02))
    axes[0, 1].set(title="without structure", ylim=(0.9, 1.005))
    null_level(axes[0, 1], some.final("majority/test", structured=False, method="network"), "constant -1")
    for axis in axes[0, :2]:
        axis.legend(loc="lower right")
    draw_table(axes[0, 2], some, "A.2")
