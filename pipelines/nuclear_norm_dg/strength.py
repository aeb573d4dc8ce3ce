"""Figure 6.5. With a stronger nuclear norm the rank of features falls, and accuracy out of domain rises, then falls.

The paper sweeps lambda on its five benchmarks and plots the accuracy out of domain and the stable rank of the features
there, printed as |F|_F^2 / |F|_2. This grows with the scale of the features, which any penalty on them lowers, so we
also measure the stable rank of the literature, |F|_F^2 / |F|_2^2. For comparison, the Frobenius norm replaces the
nuclear norm, and digits have no colour, so that no feature fails out of domain. Where one strength has to be chosen,
validation in domain chooses it.
"""

from featurelab.pipelines import (
    CATEGORIES, Experiment, Missing, above, at_least, at_most, band, choice, loguniform, measures, np, torch,
)
from featurelab.pipelines.nuclear_norm_dg.domains import CONTROLS, DomainConfig, cost, train

STRENGTHS = [0.0, 0.03, 0.1, 0.3, 1.0, 3.0]
LAPTOP = DomainConfig(penalty="nuclear")
CASES = {("nuclear", 1.0): "nuclear norm", ("frobenius", 1.0): "Frobenius norm", ("nuclear", 0.0): "nuclear, no colour"}

figure = Experiment(
    name="nuclear_norm_dg/strength", figures=("Fig. 6.5",), title="Rank of features and accuracy against λ",
    caption="Coloured digits in place of the five benchmarks. Means over seeds and their range.", laptop=LAPTOP,
    paper=LAPTOP.but(steps=5000), grid={("penalty", "colour"): list(CASES), "strength": STRENGTHS, "seed": [0, 1, 2]},
    sweep_axes={"strength": loguniform(1e-3, 10.0), "lr": loguniform(1e-4, 1e-2), "width": choice(32, 64, 128),
        "weight_decay": loguniform(1e-6, 1e-2)}, metric="final_accuracy/ood", mode="max", minutes=1.5,
    controls=CONTROLS[:2], small={"steps": 6, "start_step": 2, "measure_every": 3, "width": 8, "batch_size": 4},
)
figure.trial(train)
figure.cost(cost)


def column(runs, metric, penalty="nuclear", colour=1.0, strengths=STRENGTHS):
    some = runs.where(penalty=penalty, colour=colour)
    return np.array([some.final(metric, strength=s) for s in strengths])


def alive(runs, penalty="nuclear", colour=1.0):
    """Which strengths, 0 included, keep nine tenths of the accuracy in domain."""
    in_domain = column(runs, "final_accuracy/id", penalty, colour)
    return in_domain >= 0.9 * in_domain[0]


def gain(runs, penalty="nuclear", colour=1.0):
    """The gain of accuracy out of domain over strength 0 at the strength, 0 included, with the best validation."""
    ood, in_domain = (column(runs, f"final_accuracy/{part}", penalty, colour) for part in ("ood", "id"))
    return float(ood[in_domain.argmax()] - ood[0])


@figure.claim("c8_rises_then_falls", paper="curves, no number",
    says="accuracy out of domain is higher at a middle strength than at 0 and at the largest strength (differences)",
    expect={"rise": above(0), "fall": above(0)})
def rise_and_fall(runs):
    ood = column(runs, "final_accuracy/ood")
    return {"rise": float(ood[1:-1].max() - ood[0]), "fall": float(ood[1:-1].max() - ood[-1])}


@figure.claim("c8b_falls_while_the_task_is_learned", origin="ours",
    says="accuracy out of domain falls below its highest value while nine tenths of the accuracy in domain are kept "
    "(highest less that at the largest such strength)", expect=at_least(0.01))
def honest_fall(runs):
    ood = column(runs, "final_accuracy/ood")[alive(runs)]
    return float(ood.max() - ood[-1])


@figure.claim("c8e_rise_at_the_strength_chosen_in_domain", origin="ours",
    says="accuracy out of domain is higher at the strength with the best validation in domain than at 0 (difference)",
    expect=above(0))
def chosen_rise(runs):
    return gain(runs)


@figure.claim("c8c_gain_beyond_other_norms", origin="ours", controls=CONTROLS,
    says="the nuclear norm gains more accuracy out of domain than the Frobenius norm, and more than on digits without "
    "colour (differences of the gains, at the strengths with the best validation in domain)",
    expect={"over the Frobenius norm": above(0), "over no colour": above(0)})
def beyond(runs):
    ours = gain(runs)
    return {"over the Frobenius norm": ours - gain(runs, "frobenius"), "over no colour": ours - gain(runs, colour=0.0)}


def trend(runs, metric):
    learned = alive(runs)
    if learned.sum() < 3:
        raise Missing("the task is learned at fewer than three strengths")
    strengths = np.array(STRENGTHS)[learned]  # features that vanish have no rank
    return measures.spearman(torch.tensor(strengths), torch.tensor(column(runs, metric, strengths=strengths))).item()


@figure.claim("c8d_printed_rank_falls", paper="decreases", within=(-1, 1),
    says="|F|_F^2 / |F|_2, as printed, falls with the strength in at least three of four runs (Spearman correlation, "
    "where the task is learned)", about="share", least=0.75, expect=at_most(-0.95))
def printed_rank(runs):
    return trend(runs, "stable_rank_printed")


@figure.claim("c9_stable_rank_falls", origin="corrected", within=(-1, 1),
    says="the stable rank |F|_F^2 / |F|_2^2 falls with the strength (Spearman correlation, where the task is learned)",
    expect=at_most(-0.95))
def rank(runs):
    return trend(runs, "stable_rank")


@figure.draw(cols=3, size=(12, 3.7))
def panels(runs, axes):
    left, middle, right = axes[0]
    xs = [max(s, 0.01) for s in STRENGTHS]
    for ((penalty, colour), name), tint in zip(CASES.items(), CATEGORIES, strict=False):
        some = runs.where(penalty=penalty, colour=colour)
        table = [some.finals("final_accuracy/ood", strength=s) for s in STRENGTHS]
        band(left, table, xs, color=tint, marker="o", markersize=3.5, label=name)
    nuclear = runs.where(penalty="nuclear", colour=1.0)
    table = [nuclear.finals("final_accuracy/id", strength=s) for s in STRENGTHS]
    band(left, table, xs, color=CATEGORIES[5], linestyle=":", label="nuclear, in domain")
    for axis, metric, name in ((middle, "stable_rank_printed", "$|F|_F^2 / |F|_2$, as printed"),
            (right, "stable_rank", "$|F|_F^2 / |F|_2^2$")):
        values = column(runs, metric, strengths=np.array(STRENGTHS)[alive(runs)])
        axis.plot(np.array(xs)[alive(runs)], values, color=CATEGORIES[0], marker="o", markersize=3.5)
        axis.set(ylabel=name)
    for axis in axes[0]:
        axis.set(xscale="log", xlabel="strength λ (leftmost: 0)")
    left.set(ylabel="accuracy out of domain", ylim=(0, 1.02))
    left.legend()
