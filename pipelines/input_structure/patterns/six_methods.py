"""Table A.1, Figures 2.1 and A.1. A network against fixed features on parities, with structure in the data and without.

An input is a dictionary times 100 binary patterns, five of which matter: the label is the parity of their number. With
structure these five are all present or all absent in half of the samples, so that each alone tells of the label;
without it all patterns are fair bits. The network takes two steps on all samples and then Adam, 600 steps in all.

The rows "one step" and "two steps" train heads on the neurons of that step; `step_artefact` has the best classifier on
them. With structure, a threshold on the number of patterns is right on 84.4% of the samples.
"""

from featurelab.pipelines import (
    Experiment, Recorder, above, at_least, at_most, below, between, legend_below, null_level, theory,
)
from featurelab.pipelines.input_structure.patterns.comparison import (
    AXIS, SEEDS, SMALL, SWEEP, accuracy, cosine, draw_curves, draw_table, rows, tuned,
)
from featurelab.pipelines.input_structure.patterns.methods import PatternConfig, cost, train

THRESHOLD = 1 - 0.5 * 10 / 32  # accuracy of the best threshold on the number of patterns
LAPTOP = PatternConfig(measure_every=60)
PAPER = PatternConfig(n_train=50_000, n_test=10_000, dim=500, width=300, batch_size=1000, measure_every=10)

figure = Experiment(
    name="input_structure/six_methods", figures=("Table A.1", "Fig. 2.1", "Fig. A.1"),
    published={"Fig. 2.1": "Fig. 1"},
    title="Parity of five patterns: a network and fixed features, with structure and without",
    caption="Left, middle: means over seeds and their range; thin: other learning rates. Right: final accuracies.",
    laptop=LAPTOP, paper=PAPER, grid={AXIS: rows(0.02), "seed": SEEDS},
    paper_grid={AXIS: rows(0.02), "seed": [0, 1, 2, 3, 4]}, sweep_axes=SWEEP, metric="accuracy/test", mode="max",
    minutes=2.5, small=SMALL,
)


@figure.trial
def run(config: PatternConfig, recorder: Recorder) -> None:
    train(config, recorder)


figure.cost(cost)


@figure.claim("c01_network_beats_fixed_features", says="in at least three of four runs, the network learns and beats "
    "NTK and random features at the same learning rate (test accuracy, margin)", paper="100 against 86.4 and 76.0",
    expect={"network": at_least(0.98), "margin": at_least(0.1)}, about="share", least=0.75, within=(-1, 1))
def beats(runs):
    reached = accuracy(runs, "network")
    return {"network": reached, "margin": reached - max(accuracy(runs, method) for method in ("ntk", "rf"))}


@figure.claim("c01b_beats_them_tuned", origin="ours",
    says="the network beats NTK and random features at the best of five learning rates (margin in test accuracy)",
    expect=at_least(0.2), within=(-1, 1))
def beats_tuned(runs):
    return accuracy(runs, "network") - max(tuned(runs, method) for method in ("ntk", "rf"))


@figure.claim("c02_nothing_learns_without_structure",
    says="without structure network, NTK and random features stay at chance on test data, and the network fits most "
    "of its training data (accuracies)", paper="52.0, trained to 100",
    expect={"network": between(0.45, 0.55), "NTK": between(0.45, 0.55), "random features": between(0.45, 0.55),
        "training": at_least(0.75)}, within=(0, 1))
def without(runs):
    names = {"network": "network", "NTK": "ntk", "random features": "rf"}
    tested = {name: accuracy(runs, method, structured=False) for name, method in names.items()}
    return tested | {"training": accuracy(runs, "network", structured=False, metric="accuracy/train")}


@figure.claim("c02b_structure_makes_the_difference", origin="ours",
    says="structure in the data makes the network learn (test accuracy with structure less that without)",
    expect=at_least(0.4), within=(-1, 1))
def difference(runs):
    return accuracy(runs, "network") - accuracy(runs, "network", structured=False)


@figure.claim("c03_neurons_find_the_patterns",
    says="a neuron points along s* after step 2 and at the end (largest cosine)", paper=0.997, within=(-1, 1),
    expect={"step 2": at_least(0.99), "end": at_least(0.99)})
def directions(runs):
    return {"step 2": cosine(runs, 2), "end": cosine(runs, None)}


@figure.claim("c03b_all_neurons_do", origin="ours", within=(0, 1),
    says="all neurons point along s* after step 2 (mean |cos|)", expect=at_least(0.99))
def all_directions(runs):
    return cosine(runs, 2, "mean_abs_cosine")


def predicted(runs):
    n, patterns, size = (int(runs.values(name)[0]) for name in ("n_train", "patterns", "size"))
    return theory.input_structure.predicted_cosine(n, patterns=patterns, size=size,
        gamma=(1 - runs.values("unstructured")[0]) / 2)


@figure.claim("c04_as_predicted", paper="> 0.99", where="Sec. 2.6", says="the largest cosine with s* after step 2 is "
    "the predicted 1/sqrt(1 + v^2), v the noise of n samples over the signal (distance)", expect=at_most(0.005),
    within=(0, 2))
def near_prediction(runs):
    return abs(cosine(runs, 2) - predicted(runs))


@figure.claim("c07_emergence", where="Table A.1", paper="0.114, 0.848, 0.997",
    says="a neuron turns to s* in step 1 and stays there in step 2 (largest cosine at the start and after step 1, its "
    "fall in step 2)", within=(-1, 1), expect={"start": below(0.5), "step 1": above(0.5), "fall": at_most(0.01)})
def emergence(runs):
    first = cosine(runs, 1)
    return {"start": cosine(runs, 0), "step 1": first, "fall": first - cosine(runs, 2)}


@figure.claim("c07b_improvement", origin="ours",
    says="step 2 improves the direction of neurons (mean of 1 - |cos| after step 1 over that after step 2)",
    expect=at_least(1.5), where="Sec. 2.5.1")
def improvement(runs):
    before, after = (1 - cosine(runs, step, "mean_abs_cosine") for step in (1, 2))
    return before / after


@figure.claim("c07c_printed_cosine_of_one_step", where="Table A.1", paper=0.848, within=(-1, 1),
    says="the largest cosine with s* after step 1 is the printed 0.85, within 0.05", expect=between(0.80, 0.90))
def one_step_cosine(runs):
    return cosine(runs, 1)


@figure.claim("c06d_heads_on_two_steps_and_on_one", where="Table A.1", paper="100 against 52.2",
    says="heads trained on the neurons of step 2 beat those trained on the neurons of step 1 (difference of test "
    "accuracies)", expect=at_least(0.15), within=(-1, 1))
def heads(runs):
    return accuracy(runs, "two_steps") - accuracy(runs, "one_step")


@figure.draw(cols=3, size=(13.5, 4.0))
def panels(runs, axes):
    with_structure, without_structure, table = axes[0]
    draw_curves(with_structure, runs)
    null_level(with_structure, THRESHOLD, "best threshold")
    with_structure.set(title="with structure", ylim=(0.25, 1.02))
    draw_curves(without_structure, runs, structured=False)
    without_structure.set(title="without structure", ylim=(0.45, 0.55))
    legend_below(with_structure, 2)
    draw_table(table, runs, "A.1")
