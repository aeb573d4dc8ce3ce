"""Figures G.5 to G.7. GemFilter keeps one set of tokens for all layers, SnapKV one for each head and layer.

The paper's scatter plots (k = 100 of 46,530 tokens and more) show GemFilter's tokens on the needle and at the end, and
SnapKV's all over the prompt, each set with parts of the answer. We measure the share of the chosen tokens that belong
to the needle or lie within two tokens of it, the share of sets that hold the needle or a part of it, and the spread of
a set: the mean distance of its tokens, relative to random tokens.
"""

from featurelab.pipelines import CATEGORIES, above, at_least, between, legend_below, np
from featurelab.pipelines.gemfilter.needles import haystack

figure = haystack.figure.variant(
    "index_maps", figures=("Fig. G.5", "Fig. G.6", "Fig. G.7"), title="Which tokens are kept",
    caption="One prompt of 147 tokens, k = 10, seed 0. GemFilter: by filter layer (the one in use is filled). SnapKV: "
    "by layer and head of keys and values. Shaded: the needle that is asked for, blue, and the others.",
    reads=haystack.figure,
)


@figure.claim("c12_how_many_sets", kind="identity", paper="1, and m h", says="GemFilter keeps one set of indices, and "
    "SnapKV one for each layer and head of keys and values (number of sets less the expected number)",
    expect={"GemFilter": between(0, 0), "SnapKV": between(0, 0)})
def sets(runs):
    return {"GemFilter": runs.final("sets/gemfilter") - 1,
        "SnapKV": runs.final("sets/snapkv") - runs.final("sets/heads")}


@figure.claim("g5_gemfilter_is_at_the_needle", paper="GemFilter on the needle, SnapKV diffuse; no number",
    says="more of the tokens that GemFilter chooses than of those that SnapKV chooses belong to the needle or lie "
    "within two tokens of it (difference of shares; k = 10, max pooling, keep_last 2)", expect=above(0), origin="ours")
def near(runs):
    return runs.final("near/gemfilter") - runs.final("near/snapkv")


@figure.claim("g5b_the_whole_needle", paper="SnapKV holds parts of the answer; no number", origin="ours",
    says="GemFilter's set holds the whole needle in nearly every prompt (share), and more often than a set of SnapKV "
    "(difference; k = 10)", expect={"GemFilter": at_least(0.9), "difference": above(0)})
def whole(runs):
    return {"GemFilter": runs.final("whole/gemfilter"),
        "difference": runs.final("whole/gemfilter") - runs.final("whole/snapkv")}


@figure.claim("g5c_parts_of_it", paper="SnapKV holds parts of the answer; no number", origin="ours", expect=above(0),
    says="SnapKV's sets hold only a part of the needle more often than GemFilter's (difference of shares)")
def parts(runs):
    return runs.final("part/snapkv") - runs.final("part/gemfilter")


@figure.claim("g5d_less_spread", paper="GemFilter concentrates, SnapKV is diffuse; no number", origin="ours",
    says="the tokens of a SnapKV set lie farther apart than those of GemFilter's set (difference of spreads)",
    expect=above(0))
def less_spread(runs):
    return runs.final("spread/snapkv") - runs.final("spread/gemfilter")


@figure.draw(cols=2, size=(11, 3.4))
def panels(runs, axes):
    maps = runs.arrays("maps")[0]
    layer = int(maps["layer"][0])
    length, heads = int(maps["length"][0]), len(maps["snapkv"]) // len(maps["gemfilter"])
    for axis in axes[0]:
        haystack.shade_needles(axis, maps)
        axis.set(xlabel="token of the prompt", ylabel="layer", xlim=(-2, length + 1),
            ylim=(0.4, len(maps["gemfilter"]) + 0.6))
        axis.set_yticks(range(1, len(maps["gemfilter"]) + 1))
    for index, tokens in enumerate(maps["gemfilter"], 1):
        filled, label = (CATEGORIES[1], "filter layer") if index == layer else ("none", "another layer")
        axes[0, 0].scatter(tokens, [index] * len(tokens), s=22, facecolor=filled, edgecolor=CATEGORIES[1],
            linewidth=0.8, label=label)
    for place, tokens in enumerate(maps["snapkv"]):
        height = 1 + place // heads + (place % heads - (heads - 1) / 2) * 0.3
        axes[0, 1].scatter(tokens, np.full(len(tokens), height), s=14, color=CATEGORIES[2 + place % heads % 3],
            linewidth=0, label=f"head {place + 1}" if place < heads else None)
    near, whole = ([runs.final(f"{kind}/{name}") for name in ("gemfilter", "snapkv")] for kind in ("near", "whole"))
    for axis, name, a, b in zip(axes[0], ("GemFilter", "SnapKV"), near, whole, strict=True):
        axis.set_title(f"{name}: {a:.2f} near the needle, {b:.2f} of the sets hold it")
    legend_below(axes, columns=6)
