"""Figure 12. Speed up whichever layer is least aligned, and all layers end equally aligned.

A network with three hidden layers learns the chain monomial of rank 3. At every step the hidden layer with the smallest
UC-NFA gets the learning speed 20, every other layer and the readout 1/20 (Appendix J). Gradient descent beside it.
"""

from featurelab.pipelines import CATEGORIES, Experiment, above
from featurelab.pipelines.neural_feature_ansatz.chain import SWEEP_AXES, ChainConfig, cost, train

PAPER = ChainConfig(
    n_train=256, dim=32, rank=3, width=256, hidden=3, init_scale=0.1, other_scale=0.1,
    optimizer="adaptive_slo", lr=0.05, high_speed=20, eps=0.01, steps=500, measure_every=5,
)  # fmt: skip
HIDDEN = ("0", "1", "2")

figure = Experiment(
    name="neural_feature_ansatz/adaptive_speed",
    figure="Fig. 12",
    title="Adaptive Speed Limited Optimization against gradient descent",
    caption="UC-NFA of each hidden layer, and losses. Means over seeds; bands are their range.",
    laptop=PAPER.but(width=128, measure_every=10),
    paper=PAPER,
    grid={("optimizer", "lr"): [("gd", 0.25), ("adaptive_slo", 0.05)], "seed": [0, 1, 2, 3, 4, 5]},
    sweep_axes=SWEEP_AXES,
    minutes=0.6,
)
figure.cost(cost)


@figure.trial
def run(config, recorder):
    train(config, recorder, ["nfa"])


def final(runs, optimizer):
    return [runs.final(f"nfa/{layer}", optimizer=optimizer) for layer in HIDDEN]


@figure.claim(
    "c30_least_aligned_layer_gains",
    says="the least aligned hidden layer ends with a higher UC-NFA than under gradient descent (difference)",
    paper="curves, no number",
    expect=above(0),
)
def least(runs):
    return min(final(runs, "adaptive_slo")) - min(final(runs, "gd"))


@figure.claim(
    "c31_above_gd_best",
    says="every hidden layer ends above gradient descent's best layer (difference)",
    paper="higher than the highest UC-NFA of standard training",
    where="Appendix J",
    expect=above(0),
    fails="about half of the seeds end above; the others stay below gradient descent's best layer",
)
def above_best(runs):
    return min(final(runs, "adaptive_slo")) - max(final(runs, "gd"))


@figure.claim(
    "c32_generalises_better",
    says="the final test loss is lower than under gradient descent (difference)",
    paper="lower generalisation loss",
    where="Appendix J",
    expect=above(0),
    fails="at eps = 0.01 every step has nearly unit length: the training loss oscillates and does not converge",
)
def test_loss(runs):
    return runs.final("loss/test", optimizer="gd") - runs.final("loss/test", optimizer="adaptive_slo")


@figure.draw(cols=3, size=(11, 3.5))
def panels(runs, axes):
    for column, (optimizer, said) in enumerate([("gd", "gradient descent"), ("adaptive_slo", "adaptive SLO")]):
        for layer, colour in zip(HIDDEN, CATEGORIES, strict=False):
            table = runs.curves(f"nfa/{layer}", optimizer=optimizer)
            axes[0, column].plot(table.index, table.mean(axis=1), color=colour, label=f"layer {int(layer) + 1}")
            axes[0, column].fill_between(
                table.index, table.min(axis=1), table.max(axis=1), color=colour, alpha=0.15, linewidth=0
            )
        axes[0, column].set(title=f"UC-NFA, {said}", xlabel="step", ylabel="correlation", ylim=(0, 1.02))
        for part, line in (("train", ":"), ("test", "-")):
            mean = runs.curve(f"loss/{part}", optimizer=optimizer)
            axes[0, 2].plot(mean.index, mean, line, color=CATEGORIES[column], label=f"{part}, {said}")
    axes[0, 0].legend(loc="lower right")
    axes[0, 2].set(title="losses", xlabel="step", ylabel="mean squared error", yscale="log")
    axes[0, 2].legend()
