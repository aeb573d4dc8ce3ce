"""Figures 2, 9 and 10. Small initialisation makes weights and tangent features align.

A two-hidden-layer ReLU network learns the chain monomial of rank 5. Only the variance s_0 of the first layer's initial
weights changes. While the network trains we follow in each layer

    UC-NFA = rho(W'W, W'KW)          C-NFA = rho(V'V, V'KV),   V = W - W_0,

with K the covariance of the tangent features (Ansatz 1 and 4). Figure 2 has isotropic inputs; in Figures 9 and 10 the
inputs' covariance has eigenvalues 1/(1+k) and 1/(1+k^2).

The printed learning rate 0.05 makes the loss jump by an order of magnitude in the first steps at s_0 = 1; the laptop
presets halve it, which is the same as the loss with one half in front at the printed rate.
"""

import itertools

from featurelab.pipelines import Experiment, Recorder, above, at_least, at_most, choice, curves, loguniform, mlp_cost
from featurelab.pipelines.neural_feature_ansatz.chain import ChainConfig, train

PAPER = ChainConfig(n_train=256, dim=32, width=256, lr=0.05, steps=800, measure_every=5)
SCALES = [1.0, 0.1, 0.01, 0.001]

isotropic = Experiment(
    name="neural_feature_ansatz/init_scale", figures=("Fig. 2",), title="UC-NFA and C-NFA against initialisation scale",
    caption="Lines are means over seeds, bands their range. Losses are divided by their largest value.",
    laptop=PAPER.but(lr=0.025, measure_every=10), paper=PAPER, grid={"init_scale": SCALES, "seed": range(6)},
    sweep_axes={"lr": loguniform(3e-3, 1e-1), "width": choice(64, 128, 256, 512), "init_scale": loguniform(1e-3, 1.0),
        "weight_decay": loguniform(1e-6, 1e-2)}, minutes=1.2,
    small={"n_train": 16, "n_test": 8, "dim": 6, "width": 8, "steps": 20, "measure_every": 10},
    headline=True,
)
slow_decay = isotropic.variant(
    "init_scale_decay_1", figures=("Fig. 9",), title=f"{isotropic.title}, covariance eigenvalues 1/(1+k)", decay=1.0,
    minutes=1.6,
)
fast_decay = isotropic.variant(
    "init_scale_decay_2", figures=("Fig. 10",), title=f"{isotropic.title}, covariance eigenvalues 1/(1+k²)", decay=2.0,
    minutes=1.6,
)


@isotropic.trial
def run(config: ChainConfig, recorder: Recorder) -> None:
    train(config, recorder, ["nfa", "cnfa"])


@isotropic.cost
def cost(config: ChainConfig):
    return mlp_cost(dim=config.dim, width=config.width, hidden=config.hidden, outputs=1, n_train=config.n_train,
        steps=config.steps, measures=config.steps // config.measure_every)


def spread(runs, metric, step=None):
    """The range of a metric over the initialisation scales, at a step or at the end."""
    values = [runs.final(metric, init_scale=s) if step is None else runs.at(metric, step, init_scale=s) for s in SCALES]
    return max(values) - min(values)


@isotropic.claim("c6_small_init_raises_uc_nfa",
    says="layer 1: the final UC-NFA rises as s_0 falls from 0.1 to 0.01 to 0.001 (differences)",
    paper="curves, no number", expect={"0.01 over 0.1": above(0), "0.001 over 0.01": above(0)})
def uc_order(runs):
    large, middle, small = (runs.final("nfa/0", init_scale=s) for s in (0.1, 0.01, 0.001))
    return {"0.01 over 0.1": middle - large, "0.001 over 0.01": small - middle}


@isotropic.claim("c7_early_c_nfa_is_invariant",
    says="layer 1: the C-NFA at step 10 hardly depends on s_0 (range over the four scales)",
    paper="invariant to scale early on", where="Section 2.3", expect=at_most(0.06))
def early_range(runs):
    return spread(runs, "cnfa/0", step=10)


@isotropic.claim("c7b_c_nfa_remains_high", also=(slow_decay, fast_decay),
    says="from step 10 on the C-NFA of both layers remains above the 0.53 of Fig. 1's random K (least over training)",
    paper="remains high throughout training across initialization scale", where="Section 2.3, App. G", within=(-1, 1),
    expect={f"s_0 = {s:g}": above(0.53) for s in SCALES})
def remains_high(runs):
    def least(s):
        followed = [runs.curve(f"cnfa/{layer}", init_scale=s) for layer in (0, 1)]
        return min(curve[curve.index >= 10].min() for curve in followed)

    return {f"s_0 = {s:g}": least(s) for s in SCALES}


@isotropic.claim("c8_small_init_generalises",
    says="the final test loss rises strictly with s_0 (smallest difference between neighbours)",
    paper="curves, no number", expect=above(0))
def test_order(runs):
    losses = [runs.final("loss/test", init_scale=s) for s in sorted(SCALES)]
    return min(b - a for a, b in itertools.pairwise(losses))


@isotropic.claim("c9_second_layer_centred",
    says="layer 2: the final C-NFA exceeds the UC-NFA at every s_0 (smallest difference)", paper="curves, no number",
    expect=at_least(0.4))
def second_layer(runs):
    return min(runs.final("cnfa/1", init_scale=s) - runs.final("nfa/1", init_scale=s) for s in SCALES)


@isotropic.claim("c10_second_layer_uncentred", says="layer 2: the UC-NFA becomes high and depends on s_0",
    paper="curves, no number", expect={"highest": at_least(0.5), "range": at_least(0.1)})
def second_layer_uncentred(runs):
    final = [runs.final("nfa/1", init_scale=s) for s in SCALES]
    return {"highest": max(final), "range": max(final) - min(final)}


@isotropic.claim("c10b_uncentred_is_small_at_first", also=(slow_decay, fast_decay), controls=(),
    says="before training the UC-NFA is small (largest over s_0)", paper="small at initialization", where="Appendix G",
    within=(0, 1), expect={"layer 1": at_most(0.3), "layer 2": at_most(0.3)})
def uncentred_at_first(runs):
    return {f"layer {k + 1}": max(runs.at(f"nfa/{k}", 0, init_scale=s) for s in SCALES) for k in (0, 1)}


@isotropic.claim("c10c_uncentred_rises", also=(slow_decay, fast_decay),
    says="the UC-NFA ends above its value before training at every s_0 (smallest rise)",
    paper="become high through training, while being small at initialization", where="Appendix G",
    expect={"layer 1": above(0), "layer 2": above(0)})
def uncentred_rises(runs):
    def rise(metric, s):
        return runs.final(metric, init_scale=s) - runs.at(metric, 0, init_scale=s)

    return {f"layer {k + 1}": min(rise(f"nfa/{k}", s) for s in SCALES) for k in (0, 1)}


@isotropic.claim("c27_c_nfa_is_the_more_robust", also=(slow_decay, fast_decay),
    says="layer 1: the final UC-NFA depends more on s_0 than the final C-NFA (difference of ranges)",
    paper="curves, no number", expect=at_least(0))
def robustness(runs):
    return spread(runs, "nfa/0") - spread(runs, "cnfa/0")


@slow_decay.claim("c28_small_init_generalises",
    says="the final test loss is lower at s_0 = 0.01 than at 1 (difference)", paper="curves, no number",
    expect=above(0))
@fast_decay.claim("c29_small_init_generalises",
    says="the final test loss is lower at s_0 = 0.01 than at 1 (difference)", paper="curves, no number",
    expect=above(0))
def generalisation(runs):
    return runs.final("loss/test", init_scale=1.0) - runs.final("loss/test", init_scale=0.01)


@isotropic.draw(rows=2, cols=3, size=(10, 5.6))
def panels(runs, axes):
    for row, part in enumerate(["train", "test"]):
        for axis, (metric, name) in zip(axes[row], {"nfa": "UC-NFA", "cnfa": "C-NFA"}.items(), strict=False):
            curves(axis, runs, f"{metric}/{row}", across="init_scale")
            axis.set(title=f"{name}, layer {row + 1}", ylim=(0, 1.02), xlabel="step", ylabel="correlation")
        curves(axes[row, 2], runs, f"loss/{part}", across="init_scale", scaled=True)
        axes[row, 2].set(title=f"{part} loss", xlabel="step", ylabel="loss / its maximum", ylim=(0, 1.02))
    axes[1, 0].legend(loc="upper right")
