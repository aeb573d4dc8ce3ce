"""Figures 5.1 and 5.2. Larger language models follow inverted labels in a prompt, smaller ones keep what they learned.

Of M = 16 labelled sentences in the prompt a share p have their labels inverted; accuracy is that of the query's true
label. The figures show Llama chat and base models on five datasets of two classes; the text gives no number.

The desktop preset trains four sizes on sentences of SST-2 with inverted labels, each sentence one token.

The laptop preset has stand-ins of four sizes, all trained for equally many steps. Training makes them follow inverted
labels: in 0.3 of their training prompts all labels are inverted. They can only tell whether size alone orders them once
all of them can do the task: a small model that was trained too little looks robust.
"""

from featurelab.pipelines import (
    CATEGORIES, Experiment, Missing, Recorder, above, at_least, at_most, band, below, choice, legend_beside, loguniform,
    np, null_level,
)
from featurelab.pipelines.icl_scale.in_context_labels import (
    DATASETS, LabelsConfig, attention, cost, flip_curve, task_of,
)

REAL_SIZES = [(12, 4, 1, 1), (25, 8, 1, 1), (54, 16, 2, 2), (122, 32, 4, 2)]
SIZES = {("size", "width", "heads", "layers"): [(1, 4, 1, 1), (2, 8, 1, 1), (10, 16, 2, 2), (31, 32, 4, 2)]}
LLAMA = [("chat", 7, "meta-llama/Llama-2-7b-chat-hf"), ("chat", 13, "meta-llama/Llama-2-13b-chat-hf"),
    ("chat", 70, "meta-llama/Llama-2-70b-chat-hf"), ("base", 7, "meta-llama/Llama-2-7b-hf"),
    ("base", 13, "meta-llama/Llama-2-13b-hf"), ("base", 70, "meta-llama/Llama-2-70b-hf")]
LEARNED = {"steps": 120, "batch_size": 16, "lr": 2e-2, "warmup": 5, "exemplars": 2, "inverted": 0.0,
    "shares": [0.0, 1.0]}
SMALL = LEARNED | {"n_test": 40, "n_attention": 6, ("size", "width", "heads", "layers"): [(2, 8, 1, 1), (5, 16, 1, 1)]}

figure = Experiment(
    name="icl_scale/flipped_labels", figures=("Fig. 5.1", "Fig. 5.2"),
    title="Accuracy against the share of inverted labels",
    caption="Mean over seeds and datasets, bands the range over seeds. Sizes: thousands of parameters of models that "
    "are trained here, billions of published ones.", laptop=LabelsConfig(steps=2250),
    desktop=LabelsConfig(family="trained", dataset="sst2", exemplars=16, n_test=872, steps=3000), desktop_minutes=5,
    desktop_grid={("size", "width", "heads", "layers"): REAL_SIZES, "seed": [0, 1, 2]},
    reduced="decoders of 12 to 122 thousand parameters, trained here on prompts of SST-2, 0.3 of them with all labels "
    "inverted, in place of Llama models; one dataset in place of five, whose sentences are sums of word vectors",
    paper=LabelsConfig(family="base", size=7, model="meta-llama/Llama-2-7b-hf", dataset="sst2", exemplars=16,
        n_test=1000, steps=2500), grid={**SIZES, "seed": [0, 1, 2]},
    paper_grid={("family", "size", "model"): LLAMA, "dataset": list(DATASETS), "seed": [0, 1, 2, 3, 4]},
    sweep_axes={"lr": loguniform(1e-3, 1e-2), "width": choice(4, 8, 16, 32), "weight_decay": loguniform(1e-4, 1.0)},
    metric="accuracy/flipped", mode="max", minutes=2.2, needs=DATASETS,
    stand_in="small decoders trained on a made-up language in place of Llama models and public sentences", small=SMALL,
)
figure.cost(cost)


@figure.trial
def run(config: LabelsConfig, recorder: Recorder) -> None:
    task = task_of(config, recorder)
    flip_curve(task, config, recorder)
    attention(task, config, recorder)


def accuracies(runs, percent):
    """By family and size, averaged over datasets, with this share of the labels inverted."""
    return {
        family: {
            size: runs.at("accuracy/flipped", percent, family=family, size=size)
            for size in sorted(runs.where(family=family).values("size"))
        }
        for family in runs.values("family")
    }


def least(runs, value):
    """The least value of a family's (accuracies with true labels, with all inverted), each by size."""
    plain, flipped = accuracies(runs, 0), accuracies(runs, 100)
    return min(value(plain[family], flipped[family]) for family in plain)


def first(by_size):
    return by_size[min(by_size)]


def last(by_size):
    return by_size[max(by_size)]


def drops(plain, flipped):
    return {size: plain[size] - flipped[size] for size in plain}


@figure.claim("c12_larger_models_fall_more", paper="larger models fall more; curves, no number", expect=above(0),
    says="From true labels to inverted ones, accuracy falls more in the largest model than in the smallest (difference "
    "of falls)", within=(-2, 2))
def fall_more(runs):
    return least(runs, lambda plain, flipped: last(drops(plain, flipped)) - first(drops(plain, flipped)))


@figure.claim("c12_larger_is_as_good_with_true_labels", paper="at 0% larger is better", expect=at_least(-0.05),
    says="With true labels the largest model is at least as accurate as the smallest, to 0.05 (difference)",
    within=(-1, 1))
def as_good(runs):
    return least(runs, lambda plain, flipped: last(plain) - first(plain))


@figure.claim("c12_larger_is_worse_with_inverted_labels", paper="at 100% larger is worse", expect=above(0),
    says="With all labels inverted the largest model is less accurate than the smallest (difference of accuracies)",
    within=(-1, 1))
def worse(runs):
    return least(runs, lambda plain, flipped: first(flipped) - last(flipped))


@figure.claim("c12_small_models_stay_flat", paper="smaller models stay flat and are seldom below chance",
    says="The smallest model falls by at most 0.1, and is not below chance with all labels inverted (fall, accuracy)",
    expect={"fall": at_most(0.1), "accuracy": at_least(0.5)}, within=(-1, 1))
def flat(runs):
    return {"fall": -least(runs, lambda plain, flipped: first(flipped) - first(plain)),
        "accuracy": least(runs, lambda plain, flipped: first(flipped))}


@figure.claim("c12_pattern_in_numbers", origin="ours", where="Figs. 5.1, 5.2, stand-ins; thresholds set after the fact",
    says="In at least three of four runs, in stand-ins, falls of the largest and the smallest model differ by half; "
    "with inverted labels the smallest stays above chance and the largest is nearly always wrong (thresholds from runs "
    "of unequal length)",
    expect={"difference": above(0.5), "ahead": above(0), "smallest": above(0.5), "largest": below(0.1)}, about="share",
    least=0.75)
def pattern(runs):
    if runs.values("family") != ["stand_in"]:
        raise Missing("this claim is about stand-ins, on which its thresholds were set")
    return {"difference": fall_more(runs), "ahead": as_good(runs),
        "smallest": least(runs, lambda plain, flipped: first(flipped)),
        "largest": -least(runs, lambda plain, flipped: -last(flipped))}


@figure.claim("c12b_all_sizes_can_do_the_task", origin="ours", says="In at least three of four runs, with true labels "
    "every stand-in is right in 0.95 of the prompts (least accuracy)", expect=at_least(0.95), within=(0, 1),
    controls=("permuted_labels", "untrained"), about="share", least=0.75)
def able(runs):
    if runs.values("family") != ["stand_in"]:
        raise Missing("this claim is about stand-ins, whose training is ours")
    return least(runs, lambda plain, flipped: min(plain.values()))


@figure.claim("c12c_among_those_that_can", origin="ours", says="In at least three of four runs, among models that are "
    "right in 0.95 of the prompts with true labels, the largest falls by more than each other (least difference of "
    "falls)", expect=above(0.1), about="share", least=0.75)
def among_able(runs):
    return least(runs, lambda plain, flipped: min(beyond(plain, flipped).values()))


@figure.claim("c12d_than_the_smallest_that_can", origin="ours", says="In at least three of four runs, among models "
    "that are right in 0.95 of the prompts with true labels, the largest falls by more than the smallest (difference "
    "of falls)", expect=above(0.1), about="share", least=0.75)
def than_smallest(runs):
    return least(runs, lambda plain, flipped: first(beyond(plain, flipped)))


def beyond(plain, flipped):
    """By how much the largest model falls more than each other, where both can do the task; else raises `Missing`."""
    falls = drops(plain, flipped)
    able = [size for size in plain if plain[size] >= 0.95]
    if max(plain) not in able or len(able) < 2:
        raise Missing(f"with true labels {len(able)} of {len(plain)} sizes are right in 0.95 of the prompts")
    return {size: last(falls) - falls[size] for size in able if size != max(plain)}


@figure.draw(cols=2, size=(11, 3.8))
def panels(runs, axes):
    curve, fall = axes[0]
    unit = "thousand" if {"stand_in", "trained"} & set(runs.values("family")) else "billion"
    for family in runs.values("family"):
        own, marker = runs.where(family=family), "s" if family == "base" else "o"
        sizes = sorted(own.values("size"))
        for size, colour in zip(sizes, CATEGORIES, strict=False):
            seeds = own.where(size=size).values("seed")
            table = np.stack([own.curve("accuracy/flipped", size=size, seed=seed) for seed in seeds], axis=1)
            percent = own.curve("accuracy/flipped", size=size).index
            label = f"{family.replace('_', '-')}, {size:g} {unit}"
            band(curve, table, percent, color=colour, marker="o", markersize=3, label=label,
                linestyle="--" if family == "base" else "-")
            ends = table[list(percent).index(0)] - table[list(percent).index(100)]
            fall.scatter([size] * len(ends), ends, color=colour, marker=marker, s=18, zorder=3)
    null_level(curve, 0.5, "chance")
    curve.set(xlabel="labels inverted (%)", ylabel="accuracy (query's own label)", ylim=(-0.03, 1.03))
    legend_beside(curve)
    sizes = sorted(set(runs.values("size")))
    null_level(fall, 0)
    fall.set(xscale="log", xlabel=f"parameters ({unit}s)", ylabel="accuracy at 0% less that at 100%", ylim=(-0.2, 1.1))
    fall.set_xticks(sizes, [f"{size:g}" for size in sizes])
    fall.minorticks_off()
