"""Notes 4.4 and 4.5. Larger learning rates move features further; the sign of beta does not matter.

Note 4.5: with eta = n^a, Alignment and Elasticity grow with a. Note 4.4: labels with opposite signs give the same
scores. With the two heads exchanged the step is exactly the same one; with the heads as they are, a draw from the same
distribution. An odd activation gives a class and its mirror image the same scores. And a step of rate 0 moves nothing.
"""

import copy

from featurelab.pipelines import CATEGORIES, Experiment, Grid, above, at_most, data, learners, measures, np, torch
from featurelab.pipelines.alignment_elasticity.one_step import (
    PAPER,
    SWEEP_AXES,
    UnseenConfig,
    along_the_axis,
    averaged_scores,
    cost,
    record_curves,
    step,
    training_data,
)

SHARES = (0.2, 0.8)
EXPONENTS = (-0.25, 0.0, 0.1, 0.25, 0.3, 0.4, 0.5)
GRID: Grid = {"lr_exponent": EXPONENTS, "seed": [0, 1, 2]}

figure = Experiment(
    name="alignment_elasticity/learning_rate",
    figure="Notes 4.4, 4.5",
    title="Scores against the learning rate, and their symmetries",
    caption="η = n^a. Points are means over draws of the data and networks, bars the range over draws.",
    laptop=UnseenConfig(),
    paper=UnseenConfig(n_test=1000, **PAPER),
    grid=GRID,
    sweep_axes=SWEEP_AXES,
    metric="alignment/trained",
    mode="max",
    minutes=0.3,
)


@figure.trial
def run(config, recorder):
    task = training_data(config)
    means = along_the_axis(task, SHARES, config.projection)
    changes = {}

    def measure(learner):
        scores = averaged_scores(config, learner, task, means)
        record_curves(recorder, scores, shares=np.array(SHARES))
        changes.update(symmetries(config, learner, task, means, scores))

    step(config, recorder, task, measure)
    recorder.log(changes, step=1)


def symmetries(config, learner, task, means, scores):
    """What changes with the signs of labels and inputs, and at rate 0: of exact symmetries the largest change."""
    x, y = (t.to(learner.device) for t in task.train)
    means = means.to(x)
    mirror = measures.UnseenMeans(means.axes, -means.lengths, means.shrink)
    z = data.gaussian(config.n_test, config.dim, config.streams.data).to(x)
    how = {"lr": learner.lr, "weight_decay": learner.weight_decay}
    found: dict[str, list[float]] = {
        name: [] for name in ("change/heads", "change/mirror", "elasticity/no_step", "change/no_step")
    }
    other_labels = []
    for net, start, end in learner.weights():
        initial = copy.deepcopy(net)
        initial.hidden.weight.copy_(start.T)
        flipped, still = learners.stepped(initial, x, -y, **how), learners.stepped(initial, x, y, lr=0.0)
        initial.head.weight.copy_(net.head.weight.flip(0))
        found["change/heads"].append(change(learners.stepped(initial, x, -y, **how) - start, end - start))
        here, none, opposite = (
            measures.unseen_scores(z, means, start, W, net.activation) for W in (end, still, flipped)
        )
        other_labels.append(opposite)
        there = measures.unseen_scores(-z, mirror, start, end, net.activation)
        found["change/mirror"].append(max(change(there[name], here[name]) for name in here))
        found["elasticity/no_step"].append(none["elasticity/unseen"].max().item())
        found["change/no_step"].append(change(none["alignment/trained"], none["alignment/initial"]))
    changes = {name: max(values) for name, values in found.items()}
    for kind in ("alignment/trained", "elasticity/unseen"):
        average = torch.stack([each[kind] for each in other_labels]).mean(0)
        changes[f"change/labels_{kind.partition('/')[0]}"] = change(average, scores[kind])
    return changes


def change(first, second):
    return (torch.linalg.norm(first - second) / torch.linalg.norm(second)).item()


@figure.cost
def costs(config):
    found = cost(config, 4 * len(SHARES))
    return type(found)(found.parameters, 4 * found.flops, found.memory_bytes)


def rises(runs, metric):
    """The least rise of a score from one rate to the next, relative to its largest value, over both classes."""
    found = []
    for index in range(len(SHARES)):
        values = np.array([runs.at(metric, index, lr_exponent=a) for a in sorted(EXPONENTS)])
        found.append((np.diff(values) / abs(values).max()).min())
    return min(found)


@figure.claim(
    "c30_scores_grow_with_the_rate",
    says="Alignment and Elasticity rise from each learning rate to the next, e = 0.2 and 0.8 (least rise over the"
    " largest value)",
    paper="larger learning rates update the features more aggressively",
    where="Note 4.5",
    expect={"Alignment": above(0), "Elasticity": above(0)},
)
def grow(runs):
    return {"Alignment": rises(runs, "alignment/trained"), "Elasticity": rises(runs, "elasticity/unseen")}


@figure.claim(
    "c31_no_step_moves_nothing",
    says="at rate 0 Elasticity is 0 and Alignment stays (largest Elasticity, largest relative change)",
    origin="ours",
    where="Defs. 1.1, 1.2",
    expect={"Elasticity": at_most(1e-20), "Alignment": at_most(1e-12)},
)
def nothing(runs):
    return {"Elasticity": runs.final("elasticity/no_step"), "Alignment": runs.final("change/no_step")}


@figure.claim(
    "c31_sign_of_beta",
    says="with opposite labels and exchanged heads the step is the same, and a class and its mirror image have the same"
    " scores (largest relative change)",
    paper="the same result is obtained",
    where="Note 4.4",
    expect={"labels and heads": at_most(1e-12), "mirror image": at_most(1e-10)},
)
def sign(runs):
    return {"labels and heads": runs.final("change/heads"), "mirror image": runs.final("change/mirror")}


@figure.claim(
    "c31_labels_flipped",
    says="with opposite labels and the same heads, the scores at a = 0.25 change within the noise of the networks"
    " (relative change of their averages)",
    paper="the same result is obtained",
    where="Note 4.4",
    expect={"Alignment": at_most(0.1), "Elasticity": at_most(0.1)},
)
def labels_flipped(runs):
    return {name: runs.final(f"change/labels_{name.lower()}", lr_exponent=0.25) for name in ("Alignment", "Elasticity")}


@figure.draw(cols=2, size=(9.5, 3.6))
def panels(runs, axes):
    exponents = sorted(runs.values("lr_exponent"))
    width = runs.values("width")[0]
    lines = [("alignment/trained", "Alignment"), ("elasticity/unseen", "Elasticity")]
    for axis, (metric, name) in zip(axes[0], lines, strict=True):
        for index, colour in zip(range(len(SHARES)), CATEGORIES, strict=False):
            tables = [runs.curves(metric, lr_exponent=a).loc[index].to_numpy() for a in exponents]
            means = np.array([t.mean() for t in tables])
            bars = np.array([[m - t.min(), t.max() - m] for m, t in zip(means, tables, strict=True)]).clip(min=0)
            axis.errorbar(
                exponents, means, yerr=bars.T, color=colour, marker="o", markersize=3.5, capsize=2,
                label=f"e = {SHARES[index]}",
            )  # fmt: skip
        axis.axhline(width, color="#444444", linestyle="--", linewidth=1, label="N")
        axis.set(title=name, xlabel="a in η = n^a", ylabel=name)
    axes[0, 1].legend(loc="center left", bbox_to_anchor=(1, 0.5))
