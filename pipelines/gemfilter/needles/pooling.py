"""Algorithm 2. Max pooling finds the needle more often than the printed average, and the question must be kept.

The text says max pooling; the printed listing averages over five tokens and counts zeros beyond the ends, although raw
products may be negative. Neither makes sure that the question is kept: a large model attends to its last tokens, but
a small one need not.
"""

from featurelab.pipelines import CATEGORIES, above, at_least, band, legend_below
from featurelab.pipelines.gemfilter.needles import haystack
from featurelab.pipelines.gemfilter.needles.haystack import settings, usual

LABELS = {"raw_avg": "q·k, average (listing)", "raw_max": "q·k, maximum (text)", "raw_none": "q·k, not pooled",
    "softmax_avg": "attention, average"}

figure = haystack.figure.variant(
    "pooling", figures=("Algorithm 2",), published={"Algorithm 2": "Algorithm 1"},
    title="Pooling, scores, and whether the question is kept",
    caption="Prompts of 147 tokens. Left: the whole needle is kept, by k, with keep_last 2. Right: answers with k = "
    "16. Means over seeds and their range.", reads=haystack.figure,
)


@figure.claim("p1_hits_as_printed", paper="found by an early layer", where="Fig. 9.5", expect=at_least(0.9),
    says="with the printed listing the layer that is best for max pooling keeps the whole needle in most prompts "
    "(share; average pooling, keep_last 0, k = 16)")
def hits_as_printed(runs):
    return runs.final("printed/hit")


@figure.claim("p2_accuracy_as_printed", paper="LongBench 34.50 against 36.72", says="with the printed listing the "
    "model answers at most 0.05 fewer prompts than with all keys and values (difference of shares; average pooling, "
    "keep_last 0, k = 16)", where="Table 9.1", expect=at_least(-0.05))
def accuracy_as_printed(runs):
    return runs.final("printed/avg_last_0") - runs.at("accuracy/full", usual(runs))


@figure.claim("p3_max_pooling_and_the_question", origin="corrected", paper="LongBench 34.50 against 36.72",
    says="the model answers nearly all prompts (share), and GemFilter with max pooling and the last two tokens kept at "
    "most 0.05 fewer (difference; k = 16)", expect={"full": at_least(0.95), "difference": at_least(-0.05)},
    where="Table 9.1", within=(-1, 1))
def as_it_works(runs):
    full = runs.at("accuracy/full", usual(runs))
    return {"full": full, "difference": runs.at("accuracy/gemfilter", usual(runs)) - full}


@figure.claim("p4_the_question_must_be_kept", origin="ours", says="without the last two tokens GemFilter answers at "
    "least half of the prompts less (difference of shares; max pooling, k = 16)", expect=at_least(0.5))
def question(runs):
    return runs.at("accuracy/gemfilter", usual(runs)) - runs.final("printed/last_0")


@figure.claim("p5_max_beats_average", origin="ours", says="at its best layer, max pooling keeps the whole needle more "
    "often than the printed average does there (differences of shares at k = 8 and 16), and average pooling of "
    "attention at most 0.05 less often (difference at k = 8, plus 0.05)",
    expect={"k = 8": above(0), "k = 16": above(0), "attention": at_least(0)})
def max_beats(runs):
    few, keep = settings(runs, "few")[0], settings(runs, "keep")
    return {**{f"k = {k}": runs.at("hit_of/raw_max", k) - runs.at("hit_of/raw_avg", k) for k in (few, keep)},
        "attention": runs.at("hit_of/softmax_avg", few) - runs.at("hit_of/raw_max", few) + 0.05}


@figure.draw(cols=2, size=(9.5, 3.6))
def panels(runs, axes):
    hits, answers = axes[0]
    for (name, label), colour in zip(LABELS.items(), CATEGORIES, strict=False):
        style = "--" if name == "softmax_avg" else "-"
        band(hits, runs.curves(f"hit_of/{name}"), color=colour, marker="o", label=label, linestyle=style)
    hits.set(xlabel="k", ylabel="whole needle kept", ylim=(-0.03, 1.03))
    hits.set_xticks(runs.curve("hit_of/raw_max").index)
    legend_below(hits, 2)
    ways = {"all KV": runs.curves("accuracy/full").loc[usual(runs)],
        "max, last 2": runs.curves("accuracy/gemfilter").loc[usual(runs)],
        "attention, last 2": runs.curves("printed/softmax_avg").iloc[-1],
        "avg, last 2": runs.curves("printed/avg").iloc[-1], "max, last 0": runs.curves("printed/last_0").iloc[-1],
        "avg, last 0\n(as printed)": runs.curves("printed/avg_last_0").iloc[-1]}
    for place, (_, values) in enumerate(reversed(ways.items())):
        answers.barh(place, values.mean(), color=CATEGORIES[1] if place == 0 else CATEGORIES[0], height=0.6)
        answers.plot([values.min(), values.max()], [place, place], color="black", linewidth=1)
    answers.set_yticks(range(len(ways)), list(reversed(ways)))
    answers.set(xlabel="share answered (k = 16)", xlim=(0, 1.03))
