"""Figure 5.3. The last token attends to the relevant part of a prompt, and in larger models also to an addition.

A prompt is one sentence with an irrelevant one after it, and ends with the true or with the wrong label. The magnitude
is the norm, over heads and over the tokens of a part, of the last row of the last layer's attention: one number a
prompt, 100 prompts. In the paper the model of 13 billion parameters attends to the relevant part, that of 70 billion to
both.

Balance is the irrelevant part's mean norm over the relevant part's. The trials are those of `flipped_labels`.
"""

from featurelab.pipelines import CATEGORIES, Missing, above
from featurelab.pipelines.icl_scale.flipped_labels import LLAMA, SIZES
from featurelab.pipelines.icl_scale.flipped_labels import figure as flipped
from featurelab.pipelines.icl_scale.in_context_labels import SPANS

LABELS = ("correct", "wrong")
SEEDS = [0, 1, 2, 3, 4]

figure = flipped.variant(
    "attention_magnitude", figures=("Fig. 5.3",), title="Attention to relevant and irrelevant parts of a prompt",
    caption="Norm of the last layer's last row of attention on a part of the prompt, 100 prompts of each seed. Boxes: "
    "quartiles; whiskers: 1.5 times their distance.", grid=SIZES | {"seed": [0, 1, 2]},
    paper_grid={("family", "size", "model"): LLAMA[4:], "dataset": ["sst2"], "seed": SEEDS},
    metric="attention_norm/correct_balance", mode="max", minutes=2.2, needs=("sst2",), reads=flipped,
)


def only_published(runs):
    if "stand_in" in runs.values("family"):
        raise Missing("small decoders on a made-up language say nothing about language models; this needs Llama-2")


def gain(runs, kind):
    """The largest model's balance less the smallest's, after the true and after the wrong label."""
    sizes, metric = runs.values("size"), f"attention_{kind}/{{}}_balance".format
    return {label: runs.final(metric(label), size=max(sizes)) - runs.final(metric(label), size=min(sizes))
        for label in LABELS}


@figure.claim("c13_larger_models_attend_to_both", paper="13B: relevant part; 70B: both; panels, no number",
    says="The larger model attends more to the irrelevant part of a prompt (norm of attention on it over that on the "
    "relevant part, differences between models)", expect={label: above(0) for label in LABELS})
def attends_to_both(runs):
    only_published(runs)
    return gain(runs, "norm")


@figure.claim("c13b_in_stand_ins", origin="ours", where="Fig. 5.3, stand-ins",
    says="The largest stand-in attends more to the irrelevant part of a prompt than the smallest (norm of attention on "
    "it over that on the relevant part, differences)", expect={label: above(0) for label in LABELS})
def in_stand_ins(runs):
    if runs.values("family") != ["stand_in"]:
        raise Missing("this claim is about stand-ins")
    return gain(runs, "norm")


@figure.claim("c13c_a_token_for_a_token", origin="ours",
    says="Token for token, the larger model attends more to the irrelevant part of a prompt (norms over the root of "
    "the part's tokens: irrelevant over relevant, differences)", expect={label: above(0) for label in LABELS})
def a_token(runs):
    only_published(runs)
    return gain(runs, "per_token")


@figure.draw(rows=2, cols=2, size=(8.5, 5.6))
def panels(runs, axes):
    sizes = sorted(runs.values("size"))
    unit = "thousands" if "stand_in" in runs.values("family") else "billions"
    for row, label in zip(axes, LABELS, strict=True):
        for axis, span in zip(row, SPANS, strict=True):
            norms = [[value for arrays in runs.arrays("attention", size=size) for value in arrays[f"{label}_{span}"]]
                for size in sizes]
            boxes = axis.boxplot(norms, widths=0.5, patch_artist=True, showfliers=False, medianprops={"color": "black"})
            for box, colour in zip(boxes["boxes"], CATEGORIES, strict=False):
                box.set(facecolor=colour, alpha=0.6)
            axis.set(title=f"{label} label, {span} part", ylim=(0, None), ylabel="norm of attention")
            axis.set_xticks(range(1, len(sizes) + 1), [f"{size:g}" for size in sizes])
    for axis in axes[1]:
        axis.set_xlabel(f"parameters ({unit})")
    top = max(axis.get_ylim()[1] for axis in axes.flat)
    for axis in axes.flat:
        axis.set_ylim(0, top)
