"""Figure 1. The alignment of weights and tangent features is no accident of their spectra.

A two-hidden-layer ReLU network learns the chain monomial y = sum_i x_i x_(i+1) of rank 5. At the end of training the
first layer's NFM F = W'W resembles the AGOP G = W'KW. Replace K by a matrix Q with the same eigenvalues and random
eigenvectors, and much of the resemblance is gone, although the weights are the same.
"""

from featurelab.pipelines import Recorder, at_least, between, heatmap, measures, torch
from featurelab.pipelines.neural_feature_ansatz.chain import ChainConfig, keep_features, train
from featurelab.pipelines.neural_feature_ansatz.init_scale import isotropic

PRESET = ChainConfig(n_train=384, dim=32, width=128, init_scale=0.01, lr=0.05, steps=800, measure_every=20)

figure = isotropic.variant(
    "random_kernel", figures=("Fig. 1",), title="NFM, AGOP and the AGOP with a random tangent covariance",
    caption="First layer after training. Q has the eigenvalues of K and Haar-random eigenvectors; its score is the "
    "mean of ten draws.", laptop=PRESET, paper=PRESET.but(measure_every=5), grid={"seed": range(6)}, minutes=0.4,
)


@figure.trial
def run(config: ChainConfig, recorder: Recorder) -> None:
    net, task = train(config, recorder, ["nfa"])
    keep_features(config, recorder, net, task)
    first = measures.tangent_covariance(net, task.train[0], layers=["0"])["0"]
    chance = torch.Generator().manual_seed(config.streams.order)
    controls = measures.random_kernel_control(first.W, first.K, draws=10, generator=chance)
    scores = {
        "nfa_random_kernel/0": controls.mean().item(),
        "nfa_random_kernel_sd/0": controls.std().item(),
        "ptk_dispersion/0": measures.eigenvalue_dispersion(first.K).item(),
    }
    recorder.log(scores, step=config.steps)
    Q = measures.random_isospectral(first.K, chance)
    recorder.array("control", agop=(first.W.T @ Q @ first.W).numpy())


@figure.claim("c1_nfm_tracks_agop", says="the first layer's NFM and AGOP are nearly proportional after training",
    paper=0.93, within=(-1, 1), expect=between(0.86, 0.97))
def nfm_tracks_agop(runs):
    return runs.final("nfa/0")


@figure.claim("c2_random_kernel_does_not", says="with a random K of the same spectrum the correlation falls",
    paper=0.53, within=(-1, 1), expect=between(0.43, 0.63))
def random_kernel(runs):
    return runs.final("nfa_random_kernel/0")


@figure.claim("c3_gap_to_random_kernel", says="the correlation exceeds that with a random K of the same spectrum",
    paper=0.40, expect=at_least(0.25))
def gap(runs):
    return runs.final("nfa/0") - runs.final("nfa_random_kernel/0")


@figure.claim("c4_kernel_far_from_identity",
    says="K is far from the identity: its eigenvalues' standard deviation is several times their mean", paper=5.9,
    where="Section 2.2", expect=between(4.9, 6.9))
def dispersion(runs):
    return runs.final("ptk_dispersion/0")


@figure.claim("c5_features_show_the_target", says="NFM and AGOP resemble the target's expected gradient outer product",
    paper="heat maps, no number", within=(-1, 1), expect={"NFM": at_least(0.75), "AGOP": at_least(0.8)})
def target(runs):
    return {"NFM": runs.final("feature_quality/nfm"), "AGOP": runs.final("feature_quality/agop")}


@figure.draw(cols=4, size=(10, 3.1))
def panels(runs, axes):
    first = runs.where(seed=runs.values("seed")[0])
    (features,), (control,) = first.arrays("features"), first.arrays("control")
    score, chance = runs.final("nfa/0"), runs.final("nfa_random_kernel/0")
    heatmap(axes[0, 0], features["egop"], "EGOP of the target")
    heatmap(axes[0, 1], features["nfm"], "NFM  $F = W^TW$", note="the weights alone")
    heatmap(axes[0, 2], features["agop"], "AGOP  $G = W^TKW$", note=f"ρ(F, G) = {score:.2f}, paper 0.93")
    heatmap(axes[0, 3], control["agop"], "random K:  $W^TQW$", note=f"ρ(F, $W^TQW$) = {chance:.2f}, paper 0.53")
