"""Table A.1, figures 2.1 and A.1. A network against fixed features on parities, with structure in the data and without.

An input is a dictionary times 100 binary patterns, five of which matter: the label is the parity of their number. With
structure these five are all there or all absent in half of the samples, so that each alone tells of the label; without
it all patterns are fair bits. The network has two steps on all samples and then Adam, 600 steps in all.

Rows "one step" and "two steps" train heads on the neurons as they are then; the best classifier on them is that of
`step_artefact`. A threshold on the number of patterns is right on 84.4% of the samples with structure.
"""

from featurelab.pipelines import Experiment, Recorder, above, at_least, at_most, below, between, theory
from featurelab.pipelines.input_structure.comparison import (
    AXIS,
    SEEDS,
    SMALL,
    SWEEP,
    accuracy,
    cosine,
    draw_curves,
    draw_table,
    rows,
    tuned,
)
from featurelab.pipelines.input_structure.methods import PatternConfig, cost, train

LAPTOP = PatternConfig(measure_every=60)
PAPER = PatternConfig(n_train=50_000, n_test=10_000, dim=500, width=300, batch_size=1000, measure_every=10)

figure = Experiment(
    name="input_structure/six_methods",
    figures=("Table A.1", "Fig. 2.1", "Fig. A.1"),
    title="Parity of five patterns: a network and fixed features, with structure and without",
    caption="Left, middle: means over seeds and their range; thin, other learning rates. Right: diamonds, the paper.",
    laptop=LAPTOP,
    paper=PAPER,
    grid={AXIS: rows(0.02), "seed": SEEDS},
    paper_grid={AXIS: rows(0.02), "seed": [0, 1, 2, 3, 4]},
    sweep_axes=SWEEP,
    metric="accuracy/test",
    mode="max",
    minutes=2.5,
    small=SMALL,
)


@figure.trial
def run(config: PatternConfig, recorder: Recorder) -> None:
    train(config, recorder)


figure.cost(cost)


@figure.claim(
    "c01_network_beats_fixed_features",
    says="test accuracy of the network, and its margin over NTK and random features at the same learning rate",
    paper="100 against 86.4 and 76.0",
    expect={"network": at_least(0.98), "margin": at_least(0.1)},
)
def beats(runs):
    reached = accuracy(runs, "network")
    return {"network": reached, "margin": reached - max(accuracy(runs, method) for method in ("ntk", "rf"))}


@figure.claim(
    "c01b_beats_them_tuned",
    origin="ours",
    says="margin of the network over NTK and random features, each at the best of five learning rates",
    expect=at_least(0.2),
)
def beats_tuned(runs):
    return accuracy(runs, "network") - max(tuned(runs, method) for method in ("ntk", "rf"))


@figure.claim(
    "c02_nothing_learns_without_structure",
    says="without structure: test accuracies of network, NTK and random features, and the network's on training data",
    paper="52.0, trained to 100",
    expect={
        "network": between(0.45, 0.55),
        "NTK": between(0.45, 0.55),
        "random features": between(0.45, 0.55),
        "training": at_least(0.75),
    },
)
def without(runs):
    names = {"network": "network", "NTK": "ntk", "random features": "rf"}
    found = {name: accuracy(runs, method, structured=False) for name, method in names.items()}
    return found | {"training": accuracy(runs, "network", structured=False, metric="accuracy/train")}


@figure.claim(
    "c02b_structure_makes_the_difference",
    origin="ours",
    says="test accuracy of the network with structure less that without",
    expect=at_least(0.4),
)
def difference(runs):
    return accuracy(runs, "network") - accuracy(runs, "network", structured=False)


@figure.claim(
    "c03_neurons_find_the_patterns",
    says="largest cosine of a neuron with s* after step 2 and at the end",
    paper=0.997,
    within=(-1, 1),
    expect={"step 2": at_least(0.99), "end": at_least(0.99)},
)
def found(runs):
    return {"step 2": cosine(runs, 2), "end": cosine(runs, None)}


@figure.claim(
    "c03b_all_neurons_do",
    origin="ours",
    within=(0, 1),
    says="mean |cos| of all neurons with s* after step 2",
    expect=at_least(0.99),
)
def all_found(runs):
    return cosine(runs, 2, "mean_abs_cosine")


def predicted(runs):
    n, patterns, size = (int(runs.values(name)[0]) for name in ("n_train", "patterns", "size"))
    return theory.input_structure.predicted_cosine(
        n, patterns=patterns, size=size, gamma=(1 - runs.values("unstructured")[0]) / 2
    )


@figure.claim(
    "c04_as_predicted",
    paper="> 0.99",
    where="Chapter 2",
    says="largest cosine after step 2 less 1/sqrt(1 + v^2), v the noise of n samples over the signal (distance)",
    expect=at_most(0.005),
)
def near_prediction(runs):
    return abs(cosine(runs, 2) - predicted(runs))


@figure.claim(
    "c07_emergence",
    where="Table A.1",
    paper="0.114, 0.848, 0.997",
    says="largest cosine with s*: at the start, after step 1, and how far it falls from there to step 2",
    within=(-1, 1),
    expect={"start": below(0.5), "step 1": above(0.5), "fall": at_most(0.01)},
)
def emergence(runs):
    first = cosine(runs, 1)
    return {"start": cosine(runs, 0), "step 1": first, "fall": first - cosine(runs, 2)}


@figure.claim(
    "c07b_improvement",
    origin="ours",
    says="mean of 1 - |cos| over neurons after step 1 over that after step 2",
    expect=at_least(1.5),
    where="Chapter 2",
)
def improvement(runs):
    before, after = (1 - cosine(runs, step, "mean_abs_cosine") for step in (1, 2))
    return before / after


@figure.claim(
    "c07c_printed_cosine_of_one_step",
    where="Table A.1",
    paper=0.848,
    within=(-1, 1),
    says="largest cosine with s* after step 1 is 0.85, within 0.05",
    expect=between(0.80, 0.90),
)
def one_step_cosine(runs):
    return cosine(runs, 1)


@figure.claim(
    "c06d_heads_on_two_steps_and_on_one",
    where="Table A.1",
    paper="100 against 52.2",
    says="test accuracy of trained heads on the neurons of step 2 less that on those of step 1",
    expect=at_least(0.15),
)
def heads(runs):
    return accuracy(runs, "two_steps") - accuracy(runs, "one_step")


@figure.draw(cols=3, size=(13.5, 4.0))
def panels(runs, axes):
    draw_curves(axes[0, 0], runs)
    draw_curves(axes[0, 1], runs, structured=False)
    axes[0, 0].axhline(1 - 0.5 * 10 / 32, color="#444444", linestyle=":", linewidth=1)
    axes[0, 0].set(title="with structure; dotted: best threshold", ylim=(0.25, 1.02))
    axes[0, 1].set(title="without structure", ylim=(0.45, 0.55))
    axes[0, 0].legend(loc="lower right")
    draw_table(axes[0, 2], runs, "A.1")
