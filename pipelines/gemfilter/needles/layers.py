"""Figures 9.2 and 9.5, Table 9.2. An early or middle layer knows where the answer is, and filtering by it works best.

Figure 9.5 has the distance, in tokens, from the needle to the nearest token that a layer would keep. Table 9.2 has the
average on LongBench by the filter layer r (Llama 3.1 8B, k = 1024). Figure 9.2 draws the last row of attention.
"""

from featurelab.pipelines import CATEGORIES, above, at_least, at_most, np
from featurelab.pipelines.gemfilter.needles import haystack
from featurelab.pipelines.gemfilter.needles.haystack import settings, shade_needles
from featurelab.pipelines.gemfilter.printed import LAYERS, TABLE_9_2

figure = haystack.figure.variant(
    "layers", figures=("Fig. 9.2", "Fig. 9.5", "Table 9.2"),
    published={"Fig. 9.2": "Fig. 2", "Fig. 9.5": "Fig. 5", "Table 9.2": "Table 2"},
    title="Where the answer is, by filter layer",
    caption="Prompts of 147 tokens, k = 16, max pooling, keep_last 2; dotted, k = 8. A line for each seed. Grey: the "
    "paper's LongBench averages against r/m. Right: products of the last query with each key of one prompt in the "
    "filter layer; blue: the needle that is asked for; grey: the other three.", reads=haystack.figure,
)


def best(runs, metric="layer/hit"):
    """The filter layer with the most hits."""
    curve = runs.curve(metric)
    return int(curve.idxmax())


@figure.claim("c02_an_early_layer_knows", where="Fig. 9.5",
    paper="distance 0 in early layers; layer 13 of Llama 3.1, counted from zero",
    says="some layer before the last keeps the whole needle in nearly every prompt (share at the best layer), and its "
    "nearest kept token is almost never off it (mean distance, tokens; k = 16, max pooling, keep_last 2), in at least "
    "three of four runs", about="share", least=0.75, expect={"hit": at_least(0.9), "distance": at_most(0.1)})
def knows(runs):
    layer = int(runs.curve("layer/hit").iloc[:-1].idxmax())
    return {"hit": runs.at("layer/hit", layer), "distance": runs.at("layer/distance", layer)}


@figure.claim("c02b_it_follows_the_question", origin="ours", where="Fig. 9.5", says="with k = 8 the filter layer keeps "
    "the whole needle that is asked for (share of prompts), almost never when another key is asked for (share), and "
    "far more often than choices blind to the question: for another key, no filler, random, last (margin; max pooling, "
    "keep_last 2)", expect={"hit": at_least(0.9), "other key": at_most(0.05), "margin": at_least(0.6)})
def follows(runs):
    least = settings(runs, "few")[0]
    own, other = runs.at("hit/gemfilter", least), runs.at("hit/wrong_key", least)
    blind = max(runs.at(f"hit/{name}", least) for name in ("wrong_key", "non_filler", "random", "last"))
    return {"hit": own, "other key": other, "margin": own - blind}


@figure.claim("c02c_more_than_two_needles_of_four", origin="ours", where="Fig. 9.5", says="with k = 8 the filter layer "
    "keeps the needle more often than a random choice of two of the four needles, half of which are right "
    "(difference), and keeps another needle when its key is asked for (share)",
    expect={"difference": at_least(0.3), "other's own": at_least(0.9)})
def beyond_whole(runs):
    least = settings(runs, "few")[0]
    return {"difference": runs.at("hit/gemfilter", least) - runs.at("hit/whole_needles", least),
        "other's own": runs.at("hit/follows_the_key", least)}


@figure.claim("c03_interior_maximum", where="Table 9.2",
    paper="34.50 at 13; 23.50 at 1 and 30.04 at 31, counted from zero",
    says="accuracy is highest with a filter layer between the first and the last (best between less better of the two; "
    "laptop k = 16, max pooling, keep_last 2)", expect=at_least(0.3))
def interior(runs):
    return inside(runs, "layer/accuracy")


@figure.claim("c03b_with_few", where="Table 9.2", origin="ours", says="with k = 8 accuracy is far higher with a filter "
    "layer between the first and the last than with either (best between less better of the two)", expect=at_least(0.6))
def interior_few(runs):
    return inside(runs, "few_layer/accuracy")


@figure.claim("c03c_later_layers_know_less", where="Fig. 9.5", origin="ours", says="every layer after the best one "
    "keeps the whole needle less than half as often (share at the best less twice the greatest after it; k = 16)",
    expect=above(0))
def later(runs):
    layer, curve = best(runs), runs.curve("layer/hit")
    return curve[layer] - 2 * curve[curve.index > layer].max() if layer < curve.index[-1] else -1.0


def inside(runs, metric):
    curve = runs.curve(metric)
    ends = max(curve.iloc[0], curve.iloc[-1])
    return curve.iloc[1:-1].max() - ends if len(curve) > 2 else -ends


@figure.draw(cols=3, size=(12, 3.6))
def panels(runs, axes):
    distance, accuracy, row = axes[0]
    for axis, metric in ((distance, "distance"), (accuracy, "accuracy")):
        for group, label, colour in (("layer", "k = 16", CATEGORIES[0]), ("few_layer", "k = 8", CATEGORIES[1])):
            table = runs.curves(f"{group}/{metric}")
            for place, run in enumerate(table):
                axis.plot(table.index, table[run], color=colour, marker="o", markersize=3, linewidth=1,
                    linestyle=":" if group == "few_layer" else "-", label=None if place else label)
        axis.set_xticks(runs.curve("layer/hit").index)
        axis.set_xlabel("filter layer r")
    distance.set(ylabel="distance to the needle (tokens)", title="Fig. 9.5")
    distance.legend()
    accuracy.set(ylabel="share answered", title="Table 9.2", ylim=(-0.03, 1.05))
    printed, m = accuracy.twinx(), settings(runs, "layers")
    printed.plot([m * r / LAYERS for r in TABLE_9_2], list(TABLE_9_2.values()), color=CATEGORIES[5], marker="s",
        markersize=3, linestyle="--", linewidth=1, label="paper")
    printed.set(ylabel=f"LongBench, Llama 3.1 (at m r / {LAYERS})", ylim=(20, 37))
    printed.grid(visible=False)
    printed.spines["right"].set_visible(True)
    handles = accuracy.get_legend_handles_labels()[0] + printed.get_lines()
    accuracy.legend(handles=handles, loc="lower left", bbox_to_anchor=(0.0, 0.62))
    maps = runs.arrays("maps")[0]
    scores, layer = np.asarray(maps["scores"]), int(maps["layer"][0]) - 1
    shade_needles(row, maps)
    row.plot(scores[layer], color=CATEGORIES[1], linewidth=0.9)
    row.set(xlabel="token of the prompt", ylabel="q · k, summed over heads", title=f"Fig. 9.2, layer {layer + 1}")
    row.set_ylim(top=1.35 * scores[layer].max())
    row.legend(loc="upper right")
