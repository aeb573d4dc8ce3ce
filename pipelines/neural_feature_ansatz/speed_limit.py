"""Figures 4, 5 and 11. Limit the speed of every layer, and the centred part of the ansatz dominates at any scale.

Speed Limited Optimization replaces each layer's gradient g_l by C_l g_l / (eps + |g_l|). With a fast first layer the
unnormalised C-NFA becomes nearly all of the UC-NFA, whatever the first layer's initial variance s_0 (Figure 4), and the
first layer's NFM and AGOP show the target's structure where gradient descent leaves the NFM close to the identity
(Figures 5 and 11).

The text says that the readout's initial weights are divided by 0.01. Multiplied by 0.01 the figures come out; divided,
the loss starts above 2000. Each s_0 has its own learning rate, for both optimisers.
"""

from featurelab.pipelines import Recorder, above, at_least, at_most, curves, heatmap
from featurelab.pipelines.neural_feature_ansatz.chain import ChainConfig, keep_features, train
from featurelab.pipelines.neural_feature_ansatz.init_scale import isotropic

PRESET = ChainConfig(n_train=256, dim=32, width=256, readout_factor=0.01, lr=0.03, steps=600, measure_every=10,
    speeds=(500.0, 0.002, 0.002), eps=0.1)
RATES = {1.0: 0.03, 0.1: 0.1, 0.01: 0.2, 0.001: 0.4}  # s_0: learning rate
SEEDS = range(6)

ratio = isotropic.variant(
    "speed_limit", figures=("Fig. 4",),
    title="UC-NFA, C-NFA and their ratio with and without Speed Limited Optimization",
    caption="First layer; above gradient descent, below speed-limited.", laptop=PRESET,
    paper=PRESET.but(measure_every=5),
    grid={"optimizer": ["gd", "slo"], ("init_scale", "lr"): list(RATES.items()), "seed": SEEDS}, minutes=2.4,
)
large_init = ratio.variant(
    "large_init_features", figures=("Fig. 5",), title="Features learned from a large initialisation",
    caption="First layer after training from s_0 = 1, one seed; correlations with the EGOP are means over seeds.",
    grid={"optimizer": ["gd", "slo"], "seed": SEEDS}, reads=ratio, minutes=0.8,
)
all_inits = ratio.variant(
    "features_by_init_scale", figures=("Fig. 11",), title="Features learned from every initialisation scale",
    caption="First layer after training, one seed; correlations with the target's EGOP are means over seeds.",
    reads=ratio, minutes=2,
)


@ratio.trial
def run(config: ChainConfig, recorder: Recorder) -> None:
    net, task = train(config, recorder, ["nfa", "cnfa", "centered_ratio"])
    keep_features(config, recorder, net, task)


@ratio.claim("c13_ratio_under_gd", says="gradient descent: the centred part's share rises as s_0 falls",
    paper="curves, no number", where="Fig. 4a",
    expect={"s_0 = 1": at_most(0.05), "s_0 = 0.1": at_most(0.2), "s_0 = 0.001": at_least(0.7)})
def gd_ratio(runs):
    return {f"s_0 = {s:g}": runs.final("centered_ratio/0", optimizer="gd", init_scale=s) for s in (1.0, 0.1, 0.001)}


@ratio.claim("c14_ratio_under_slo", says="speed-limited: the centred part dominates at every s_0 (smallest ratio)",
    paper="close to 1", where="Fig. 4b", expect=at_least(0.85))
def slo_ratio(runs):
    return min(runs.final("centered_ratio/0", optimizer="slo", init_scale=s) for s in RATES)


@ratio.claim("c15_both_near_one_under_slo",
    says="speed-limited: UC-NFA and C-NFA agree and are high at every s_0 (largest gap, smallest UC-NFA)",
    paper="close to 1", where="Section 4.2", expect={"gap": at_most(0.02), "UC-NFA": at_least(0.88)})
def slo_scores(runs):
    slo = runs.where(optimizer="slo")
    uc = {s: slo.final("nfa/0", init_scale=s) for s in RATES}
    gap = max(abs(uc[s] - slo.final("cnfa/0", init_scale=s)) for s in uc)
    return {"gap": gap, "UC-NFA": min(uc.values())}


def quality(runs, matrix, optimizer, init_scale):
    """How much the NFM or AGOP resembles the target's EGOP after training."""
    return runs.final(f"feature_quality/{matrix}", optimizer=optimizer, init_scale=init_scale)


@large_init.claim("c16_slo_learns_features",
    says="from s_0 = 1 the NFM resembles the target's EGOP more after SLO than after gradient descent (difference)",
    paper="heat maps, no number", expect=at_least(0.3))
def better_features(runs):
    return quality(runs, "nfm", "slo", 1.0) - quality(runs, "nfm", "gd", 1.0)


@large_init.claim("c16b_slo_improves_the_agop",
    says="from s_0 = 1 the AGOP resembles the target's EGOP more after SLO than after gradient descent (difference)",
    paper="significantly improve", where="Section 4.2", expect=at_least(0.3))
def better_agop(runs):
    return quality(runs, "agop", "slo", 1.0) - quality(runs, "agop", "gd", 1.0)


@large_init.claim("c16c_slo_makes_them_alike",
    says="from s_0 = 1 NFM and AGOP are more alike after SLO than after gradient descent (UC-NFA, difference)",
    paper="more similar to each other", where="Section 4.2", expect=above(0))
def more_alike(runs):
    return runs.final("nfa/0", optimizer="slo") - runs.final("nfa/0", optimizer="gd")


@large_init.claim("c17_slo_generalises",
    says="from s_0 = 1 the test loss is lower after SLO than after gradient descent (difference)",
    origin="ours", where="Section 4.2", expect=above(0))
def better_loss(runs):
    return runs.final("loss/test", optimizer="gd") - runs.final("loss/test", optimizer="slo")


@all_inits.claim("c18_slo_is_invariant",
    says="the NFM's correlation with the EGOP depends on s_0 under gradient descent and not under SLO (range)",
    paper="invariant", where="Appendix H", expect={"SLO": at_most(0.08), "gradient descent": at_least(0.3)})
def invariance(runs):
    correlations = {o: [quality(runs, "nfm", o, s) for s in RATES] for o in ("slo", "gd")}
    slo, gd = (max(values) - min(values) for values in correlations.values())
    return {"SLO": slo, "gradient descent": gd}


@all_inits.claim("c19_nfm_degrades_faster",
    says="gradient descent, from s_0 = 0.001 to 1: the NFM loses more of its correlation with the EGOP than the AGOP",
    paper="at a faster rate than the AGOP", where="Appendix H", expect=above(0))
def degradation(runs):
    fall = {m: quality(runs, m, "gd", 0.001) - quality(runs, m, "gd", 1.0) for m in ("nfm", "agop")}
    return fall["nfm"] - fall["agop"]


@ratio.draw(rows=2, cols=3, size=(10, 5.6))
def ratios(runs, axes):
    named = {"nfa": "UC-NFA", "cnfa": "C-NFA", "centered_ratio": "unnormalised C-NFA / UC-NFA"}
    for row, (optimizer, said) in zip(axes, {"gd": "gradient descent", "slo": "SLO"}.items(), strict=True):
        for axis, (metric, name) in zip(row, named.items(), strict=True):
            curves(axis, runs.where(optimizer=optimizer), f"{metric}/0", across="init_scale")
            axis.set(title=f"{name}, {said}", xlabel="step", ylim=(0, 1.05))
    axes[1, 0].legend(loc="lower right")


def maps(runs, axes, scales):
    first = runs.where(seed=runs.values("seed")[0])
    pairs = [(optimizer, matrix) for optimizer in ("gd", "slo") for matrix in ("nfm", "agop")]
    for row, (optimizer, matrix) in zip(axes, pairs, strict=True):
        for axis, s in zip(row, scales, strict=True):
            features = first.arrays("features", optimizer=optimizer, init_scale=s)[0]
            title = f"{matrix.upper()}, {'SLO' if optimizer == 'slo' else 'GD'}, $s_0$ = {s:g}"
            heatmap(axis, features[matrix], title, note=f"ρ with EGOP {quality(runs, matrix, optimizer, s):.2f}")


@large_init.draw(rows=1, cols=5, size=(11, 2.9))
def large_maps(runs, axes):
    features = runs.arrays("features", optimizer="gd")[0]
    heatmap(axes[0, 0], features["egop"], "EGOP of the target")
    maps(runs, axes[0, 1:].reshape(4, 1), [1.0])


@all_inits.draw(rows=4, cols=4, size=(9, 10))
def all_maps(runs, axes):
    maps(runs, axes, list(RATES))
