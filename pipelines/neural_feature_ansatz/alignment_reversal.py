"""Figure 3. Free probability predicts the C-NFA of a quadratic network as training begins, on data made to reverse it.

The network is f(x) = a'(W x)^2 with a ~ N(0, 1) and W ~ N(0, 1/k). At the start of gradient flow the centred NFA is

    rho(M R M, M R B R M),   R = W' diag(a^2) W,   M = X' diag(y) X,   B = X'X,

and if R is free of the data, it depends on R only through the normalised traces r_m of its powers. The data mix two
groups of samples in proportion gamma ("balance"); the fewer of the first, the lower the alignment.

The recipe inverts singular values that are zero in exact arithmetic when gamma < 1/2. What comes out depends on the
floor under them (`s_floor`) and on double precision: with a pseudo-inverse the alignment is near 1 at every balance.
The moments r come from the average over networks that the paper takes, from their limit, or from the measured network
itself, which leaves freeness as the only assumption.
"""

from typing import Literal

from featurelab.pipelines import (
    CATEGORIES, Config, Cost, Experiment, Field, Recorder, at_least, at_most, choice, data, evaluate, learners,
    loguniform, nets, points, stats, theory, torch,
)


class ReversalConfig(Config):
    precision: Literal["64-true"] = Field("64-true", description="the inverted singular values need double precision")
    dim: int = Field(256, ge=4, description="input coordinates, and as many samples")
    width: int = Field(256, ge=1, description="hidden units")
    balance: float = Field(0.5, gt=0, le=1, description="share of samples in the first group")
    s_floor: float = Field(1e-11, gt=0, description="least singular value that is inverted")
    networks: int = Field(30, ge=1, description="networks over which the moments of R are averaged")
    network_seed: int = Field(0, ge=0, lt=2**31, description="the measured network; the same for every data seed")


GAMMAS = [1 / 64, 1 / 8, 0.25, 0.4, 0.45, 0.5, 0.6, 1.0]
LAPTOP = ReversalConfig(dim=256, width=256)

figure = Experiment(
    name="neural_feature_ansatz/alignment_reversal", trains=False, figures=("Fig. 3",),
    title="Predicted and observed derivative alignment on the alignment-reversing data",
    caption="Mean and range over data seeds. The drop at small balance comes from inverted null directions and the "
    "label offset, so it depends on the floor under the singular values.", laptop=LAPTOP,
    paper=LAPTOP.but(dim=1024, width=1024), grid={"balance": GAMMAS, "seed": range(6)},
    paper_grid={"balance": GAMMAS, "seed": list(range(10))},
    sweep_axes={"balance": choice(*GAMMAS), "width": choice(64, 128, 256, 512), "s_floor": loguniform(1e-11, 1e-1)},
    metric="derivative_correlation/observed", mode="max", minutes=0.4,
    small={"dim": 64, "width": 16, "networks": 2},
)


@figure.trial
def run(config: ReversalConfig, recorder: Recorder) -> None:
    task = data.AlignmentReversing(config.dim, config.balance, s_floor=config.s_floor, seed=config.streams.data)
    net, *others = (nets.quadratic_net(config.dim, config.width, seed=config.network_seed + i)
        for i in range(config.networks + 1))
    moments = {
        "seeds": torch.stack([theory.neural_feature_ansatz.r_moments(kernel(other)) for other in others]).mean(0),
        "theory": theory.neural_feature_ansatz.limit_r_moments(config.dim / config.width),
    }

    def compare(net, x, y):
        R = kernel(net)
        values = {"observed": theory.neural_feature_ansatz.quadratic_correlation(x, y[:, 0], R).item()}
        for source, r in {**moments, "own": theory.neural_feature_ansatz.r_moments(R)}.items():
            values[f"predicted_{source}"] = theory.neural_feature_ansatz.free_probability_prediction(
                x, y[:, 0], r.tolist()
            ).item()
        return {f"derivative_correlation/{name}": value for name, value in values.items()}

    evaluate(learners.Measurement(net, compare), task, config, recorder)


def kernel(net):
    """R = W' diag(a^2) W of a quadratic network: (dim, dim)."""
    W, a = net.layers[0].weight.detach(), net.layers[1].weight.detach()[0]
    return (W.T * a.square()) @ W


@figure.cost
def cost(config: ReversalConfig):
    each = 2.0 * config.dim**2 * (config.width + 3 * config.dim)
    flops = (config.networks + 1) * each + 30.0 * config.dim**3
    return Cost(config.width * (config.dim + 1), flops, 8.0 * 14 * config.dim**2)


def compared(runs, source="seeds"):
    """The observed and the predicted alignment at each balance."""
    names = [f"derivative_correlation/{name}" for name in ("observed", f"predicted_{source}")]
    return [[runs.final(name, balance=g) for name in names] for g in GAMMAS]


@figure.claim("c11_prediction_matches",
    says="prediction and observation differ little at every balance (largest distance)", paper="closely match",
    expect={"r averaged over networks": at_most(0.06), "r of the network": at_most(0.02)})
def prediction(runs):
    named = {"r averaged over networks": "seeds", "r of the network": "own"}
    return {name: max(abs(o - p) for o, p in compared(runs, source)) for name, source in named.items()}


@figure.claim("c11b_prediction_beats_a_constant", origin="ours", expect=at_most(0.5),
    says="the prediction from the network's own r is nearer to what is observed than the best constant, over balances "
    "(largest distance, ratio)")
def beats_a_constant(runs):
    observed = [o for o, _ in compared(runs)]
    return max(abs(o - p) for o, p in compared(runs, "own")) / ((max(observed) - min(observed)) / 2)


@figure.claim("c11c_moments_matter", origin="ours", expect=at_most(0.5), says="the prediction from the network's own r "
    "is nearer than that from its limit at infinite width (largest distances, ratio)")
def moments_matter(runs):
    own, limit = (max(abs(o - p) for o, p in compared(runs, source)) for source in ("own", "theory"))
    return own / limit


@figure.claim("c12_alignment_falls_with_balance",
    says="the fewer samples in the first group, the lower the observed alignment", paper="curve, no number",
    expect={"high minus low balance": at_least(0.05), "Spearman": at_least(0.9)}, within=(-1, 1))
def falls(runs):
    observed = dict(zip(GAMMAS, (o for o, _ in compared(runs)), strict=True))
    low = [v for g, v in observed.items() if g <= 0.25]
    high = [v for g, v in observed.items() if g >= 0.6]
    rank = stats.spearmanr(GAMMAS, list(observed.values())).statistic
    return {"high minus low balance": sum(high) / len(high) - sum(low) / len(low), "Spearman": float(rank)}


@figure.draw(cols=2, size=(9, 3.6))
def panels(runs, axes):
    left, right = axes[0]
    named = {
        "observed": ("observed", "o", "-"),
        "predicted_seeds": ("predicted, r averaged over networks", "s", "--"),
        "predicted_theory": ("predicted, r in the limit", "^", ":"),
        "predicted_own": ("predicted, r of the network", "x", "-."),
    }
    for (source, (label, marker, line)), colour in zip(named.items(), CATEGORIES, strict=False):
        metric = f"derivative_correlation/{source}"
        points(left, runs, metric, "balance", label=label, marker=marker, linestyle=line, color=colour)
    left.set(xlabel="balance γ", ylabel="derivative correlation", title="against balance")
    both = [pair for _, one in runs.by_seed() for pair in compared(one)]
    ends = [min(map(min, both)) - 0.01, 1.005]
    right.plot(ends, ends, color="#444444", linewidth=1, linestyle="--", label="equal")
    right.plot([o for o, _ in both], [p for _, p in both], "o", markersize=4, alpha=0.7, color=CATEGORIES[0])
    right.set(xlabel="observed", ylabel="predicted, r averaged over networks", title="every data seed and balance")
    for axis in axes[0]:
        axis.legend(loc="lower right")
