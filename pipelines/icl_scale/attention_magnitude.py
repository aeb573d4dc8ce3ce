"""Figure 5.3. Which parts of a sentence the last token attends to: relevant ones, or also what has been added.

A prompt is one sentence with an irrelevant one after it, and ends with the true or with the wrong label. The magnitude
is the norm, over heads and over the tokens of a part, of the last row of the last layer's attention: one number a
prompt, 100 prompts. The paper finds that 13 billion parameters attend to the relevant part and 70 billion to both.

Balance is the irrelevant part's mean norm over the relevant part's. The trials are those of `flipped_labels`.
"""

from typing import Any

from featurelab.pipelines import CATEGORIES, Missing, above
from featurelab.pipelines.icl_scale.flipped_labels import LLAMA, SIZES
from featurelab.pipelines.icl_scale.flipped_labels import figure as flipped
from featurelab.pipelines.icl_scale.in_context_labels import SPANS

LABELS = ("correct", "wrong")
SEEDS = [0, 1, 2, 3, 4]

figure = flipped.variant(
    "attention_magnitude", figures=("Fig. 5.3",), title="Attention to relevant and irrelevant parts of a prompt",
    caption="Norm of the last layer's last row of attention on a part of the prompt, 100 prompts of each seed. Boxes: "
    "quartiles; whiskers: 1.5 times their distance.", grid={**SIZES, "seed": [0, 1, 2]},
    paper_grid={("family", "size", "model"): LLAMA[4:], "dataset": ["sst2"], "seed": SEEDS},
    metric="attention_norm/correct_balance", mode="max", minutes=1.5, needs=("sst2",), reads=flipped,
)
NEEDS_ONE: dict[Any, str] = {
    "laptop": "small decoders on a made-up language cannot speak for language models: it needs Llama-2"
}


def gain(runs, kind):
    """The largest model's balance less the smallest's, after the true and after the wrong label."""
    small, large = min(runs.values("size")), max(runs.values("size"))
    return {
        label: runs.final(f"attention_{kind}/{label}_balance", size=large)
        - runs.final(f"attention_{kind}/{label}_balance", size=small)
        for label in LABELS
    }


@figure.claim("c13_larger_models_attend_to_both", paper="13B: relevant part; 70B: both; panels, no number",
    says="the irrelevant part's norm over the relevant part's is larger in the larger model (differences)",
    expect={label: above(0) for label in LABELS})
def attends_to_both(runs):
    if "stand_in" in runs.values("family"):
        raise Missing(NEEDS_ONE["laptop"])
    return gain(runs, "norm")


@figure.claim("c13b_in_stand_ins", origin="ours", where="Fig. 5.3, stand-ins",
    says="the same of stand-ins, the largest against the smallest (differences)",
    expect={label: above(0) for label in LABELS})
def in_stand_ins(runs):
    if runs.values("family") != ["stand_in"]:
        raise Missing("it is asked of stand-ins")
    return gain(runs, "norm")


@figure.claim("c13c_a_token_for_a_token", origin="ours",
    says="the same of norms divided by the root of the part's tokens (differences)",
    expect={label: above(0) for label in LABELS})
def a_token(runs):
    if "stand_in" in runs.values("family"):
        raise Missing(NEEDS_ONE["laptop"])
    return gain(runs, "per_token")


@figure.draw(rows=2, cols=2, size=(8.5, 5.6))
def panels(runs, axes):
    sizes = sorted(runs.values("size"))
    unit = "thousands" if "stand_in" in runs.values("family") else "billions"
    for row, label in zip(axes, LABELS, strict=True):
        for axis, span in zip(row, SPANS, strict=True):
            found = [
                [value for kept in runs.arrays("attention", size=size) for value in kept[f"{label}_{span}"]]
                for size in sizes
            ]
            boxes = axis.boxplot(found, widths=0.5, patch_artist=True, showfliers=False, medianprops={"color": "black"})
            for box, colour in zip(boxes["boxes"], CATEGORIES, strict=False):
                box.set(facecolor=colour, alpha=0.6)
            axis.set(title=f"{label} label, {span} part", ylim=(0, None), ylabel="norm of attention")
            axis.set_xticks(range(1, len(sizes) + 1), [f"{size:g}" for size in sizes])
    for axis in axes[1]:
        axis.set_xlabel(f"parameters ({unit})")
    top = max(axis.get_ylim()[1] for axis in axes.flat)
    for axis in axes.flat:
        axis.set_ylim(0, top)
