"""Figures 6 and 7. What the centred ansatz leaves out: changes of the tangent features, and the initial weights.

Training as in Figure 2. With V = W - W_0 and Kb the covariance of the change J - J_0 of the tangent features,

    DC/C ratio       tr(V'V V'Kb V) / tr(V'V V'K V):     how much of the centred alignment is due to changed features;
    PTK-centred NFA  rho(W_0'W_0, W_0'Kb W_0):           how the changed features align with the initial weights.

Figure 7 shows the latter with isotropic inputs (a) and with covariance eigenvalues 1/(1+k^2) (b).
"""

from featurelab.pipelines import Recorder, above, at_least, at_most, curves
from featurelab.pipelines.neural_feature_ansatz.chain import train
from featurelab.pipelines.neural_feature_ansatz.init_scale import SCALES, isotropic

double_centred = isotropic.variant(
    "double_centered", figures=("Fig. 6",), title="Share of changed tangent features in the centred alignment",
    caption="Ratio of the double-centred to the centred unnormalised NFA. It is undefined at step 0.",
    metric="double_centered_ratio/0", minutes=1.6,
)
ptk_centred = isotropic.variant(
    "ptk_centered", figures=("Fig. 7",), title="PTK-centred NFA against initialisation scale",
    caption="Alignment of the initial weights with the change of the tangent features; undefined at step 0.",
    grid={"decay": [None, 2.0], **isotropic.grid}, metric="ptk_centered_nfa/0", minutes=2,
)
INPUTS = {None: "isotropic", 2.0: "eigenvalues 1/(1+k²)"}


@double_centred.trial
def run_double(config, recorder: Recorder) -> None:
    train(config, recorder, ["cnfa", "double_centered_nfa", "double_centered_ratio"])


@ptk_centred.trial
def run_ptk(config, recorder: Recorder) -> None:
    train(config, recorder, ["ptk_centered_nfa"])


@double_centred.claim("c20_small_early_relevant_late",
    says="for s_0 ≤ 0.1 the ratio is small at step 10 (largest) and relevant at the end (smallest), in both layers",
    paper="curves, no number", expect={"at step 10": at_most(0.1), "at the end": at_least(0.3)})
def early_and_late(runs):
    cases = [(f"double_centered_ratio/{layer}", s) for layer in (0, 1) for s in (0.1, 0.01, 0.001)]
    return {"at step 10": max(runs.at(metric, 10, init_scale=s) for metric, s in cases),
        "at the end": min(runs.final(metric, init_scale=s) for metric, s in cases)}


@double_centred.claim("c21_smaller_at_large_init",
    says="layer 1: the final ratio is smaller at s_0 = 1 than at 0.001 (difference)", paper="curves, no number",
    expect=above(0))
def large_init(runs):
    small, large = (runs.final("double_centered_ratio/0", init_scale=s) for s in (0.001, 1.0))
    return small - large


@double_centred.claim("c21b_nothing_at_large_init",
    says="at s_0 = 1 the ratio stays small to the end (larger of both layers)", where="Appendix B",
    paper="does not significantly contribute at large initialisation", expect=at_most(0.1))
def at_large_init(runs):
    return max(runs.final(f"double_centered_ratio/{layer}", init_scale=1.0) for layer in (0, 1))


def ptk_drop(runs):
    """The smallest fall of the PTK-centred NFA from step 10 to the end, over small initialisations and layers."""
    cases = [(f"ptk_centered_nfa/{layer}", s) for layer in (0, 1) for s in (0.01, 0.001)]
    return min(runs.at(metric, 10, init_scale=s) - runs.final(metric, init_scale=s) for metric, s in cases)


@ptk_centred.claim("c22_falls_during_training",
    says="for s_0 ≤ 0.01 the PTK-centred NFA falls during training (smallest fall over both layers)",
    paper="curves, no number", expect={name: at_least(0.15) for name in INPUTS.values()})
def falls(runs):
    return {name: ptk_drop(runs.where(decay=decay)) for decay, name in INPUTS.items()}


@ptk_centred.claim("c22b_falls_at_every_scale",
    says="the PTK-centred NFA falls during training at every s_0, as the text has it (smallest fall over both layers)",
    paper="decreases through training", expect={name: above(0) for name in INPUTS.values()})
def falls_everywhere(runs):
    def drop(some):
        cases = [(f"ptk_centered_nfa/{layer}", s) for layer in (0, 1) for s in SCALES]
        return min(some.at(metric, 10, init_scale=s) - some.final(metric, init_scale=s) for metric, s in cases)

    return {name: drop(runs.where(decay=decay)) for decay, name in INPUTS.items()}


@double_centred.draw(cols=2, size=(8, 3.4))
def ratios(runs, axes):
    for layer in (0, 1):
        curves(axes[0, layer], runs, f"double_centered_ratio/{layer}", across="init_scale")
        axes[0, layer].set(title=f"layer {layer + 1}", xlabel="step", ylabel="DC / C ratio", ylim=(0, None))
    axes[0, 0].legend()


@ptk_centred.draw(rows=2, cols=2, size=(8, 6))
def scores(runs, axes):
    for row, (decay, inputs) in zip(axes, {None: "isotropic inputs", 2.0: INPUTS[2.0]}.items(), strict=True):
        for layer, axis in enumerate(row):
            curves(axis, runs.where(decay=decay), f"ptk_centered_nfa/{layer}", across="init_scale")
            axis.set(title=f"layer {layer + 1}, {inputs}", xlabel="step", ylabel="PTK-centred NFA", ylim=(0, 1.02))
    axes[0, 0].legend()
