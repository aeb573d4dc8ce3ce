"""Lemma 2.5. A network of 3(k + 1) truncated ReLUs computes any label that depends on a count of patterns.

It has a bump at each number of patterns, and all neurons point along s*. Heads are at most 32 k, and biases at least
1/8 before scaling.
"""

from typing import Any, Literal

from featurelab.pipelines import (
    CATEGORIES, Config, Cost, Experiment, Field, Recorder, at_least, at_most, choice, data, evaluate, learners, nets,
)


class SolutionConfig(Config):
    precision: Literal["64-true"] = Field("64-true", description="differences are 0 to rounding")
    problem: Literal["parity", "interval"] = Field("parity", description="how patterns make the label")
    n_train: int = Field(4000, ge=4, description="samples on which outputs are compared with labels")
    dim: int = Field(128, ge=2, description="input coordinates d")
    patterns: int = Field(100, ge=1, description="hidden patterns D")
    size: int = Field(5, ge=1, description="patterns k that matter")


ROWS = {("parity", 5): "parity, k = 5", ("parity", 15): "parity, k = 15", ("interval", 30): "interval, k = 30",
    ("interval", 50): "interval, k = 50"}
PRESET = SolutionConfig()

figure = Experiment(
    name="input_structure/good_network", trains=False, figures=("Lemma 2.5",),
    title="The explicit network of 3(k + 1) neurons",
    caption="Largest |g*(x) - y| over samples, and largest head over its bound; the largest over seeds.", laptop=PRESET,
    paper=PRESET.but(n_train=50_000, dim=500), grid={("problem", "size"): list(ROWS), "seed": range(6)},
    sweep_axes={"size": choice(3, 5, 15), "n_train": choice(1000, 2000, 4000, 8000, 16_000)}, metric="difference",
    minutes=0.1, small={"n_train": 100},
)


@figure.trial
def run(config: SolutionConfig, recorder: Recorder) -> None:
    c = config
    if c.problem == "parity":
        law: Any = data.ParityPatterns(c.patterns, c.size)
    else:
        law = data.IntervalPatterns(c.patterns, c.size, 2 * c.size // 3, c.size)
    task = data.DictionaryData(law, c.n_train, 0, c.dim, seed=c.streams.data)
    mean = (task.centre @ task.relevant).item()
    net = nets.pattern_solution(task.relevant, law.counts, c.size, scale=task.scale, mean=mean)

    def errors(net, x, y):
        return {"difference": (net(x) - y).abs().max().item(), "neurons": float(len(net.hidden.bias)),
            "head_over_bound": net.head.weight.abs().max().item() / (32 * c.size),
            "bias": 4 * c.size * net.hidden.bias.abs().min().item()}

    evaluate(learners.Measurement(net, errors), task, config, recorder)


@figure.cost
def cost(config: SolutionConfig):
    neurons = 3 * (config.size + 1)
    flops = 2.0 * config.n_train * config.dim * neurons
    return Cost(neurons * config.dim, flops, 8.0 * config.n_train * (config.dim + 3 * neurons))


def over_rows(runs, metric):
    return [runs.final(metric, problem=problem, size=size) for problem, size in ROWS]


@figure.claim("lemma_2_5_exact", kind="identity", paper="g*(x) = y",
    says="the network's output is the label (largest difference over all samples)", expect=at_most(1e-6))
def exact(runs):
    return max(over_rows(runs, "difference"))


@figure.claim("lemma_2_5_sizes", kind="identity", paper="3(k+1) neurons, |a| ≤ 32k, 1/(32k) ≤ |b| ≤ 1/2",
    says="neurons and heads stay below the lemma's bounds, and biases above their lower one (neurons over 3(k + 1), "
    "largest head over 32 k, smallest bias before scaling)",
    expect={"neurons": at_most(1), "heads": at_most(1), "biases": at_least(0.125 - 1e-9)})
def sizes(runs):
    counts = zip(over_rows(runs, "neurons"), ROWS, strict=True)
    return {"neurons": max(count / (3 * (size + 1)) for count, (_, size) in counts),
        "heads": max(over_rows(runs, "head_over_bound")), "biases": min(over_rows(runs, "bias"))}


@figure.draw(cols=2, size=(9, 2.8))
def panels(runs, axes):
    names = list(ROWS.values())
    labels = {"difference": "largest |g*(x) - y|", "head_over_bound": "largest |a| / 32k"}
    for axis, (metric, label) in zip(axes[0], labels.items(), strict=True):
        values = [max(runs.finals(metric, problem=problem, size=size)) for problem, size in ROWS]
        axis.barh(names, [max(value, 1e-17) for value in values], color=CATEGORIES[0], height=0.6)
        axis.set(xlabel=label)
        axis.invert_yaxis()
    axes[0, 0].set(xscale="log", xlim=(1e-17, 1))
    axes[0, 1].set(xlim=(0, 1.02), yticklabels=[])
