"""Theorem 5.4.1. Pretraining over all prompts ends at the closed form: the r strongest directions, inverted.

    u U = Q diag(v) Q^T,   v_i = N / ((N + 1) lam_i + tr) for i <= r and 0 beyond,   Ltilde_r = -1/2 sum lam_i^2 / T_i.

W_K and W_Q are trained by L-BFGS on the expected loss in double precision. The tokens' covariance has a Haar basis and
eigenvalues sampled from [0.3, 3]. The main text prints the excess loss without its factor 1/2.
"""

from typing import Literal

from featurelab.pipelines import (
    CATEGORIES, Config, Cost, Experiment, Field, Recorder, at_least, at_most, bars, bound_level, choice, data, learners,
    legend_below, loguniform, nets, np, theory, torch,
)

RANKS = [1, 2, 4, 8]


class OptimumConfig(Config):
    precision: Literal["64-true"] = Field("64-true", description="optima are wanted to many digits")
    control: Literal["none", "untrained"] = Field("none", description="untrained: weights stay as they are drawn")
    dim: int = Field(8, ge=1, description="dimension of tokens")
    width: int = Field(8, ge=1, description="rank r of W_K and W_Q")
    length: int = Field(32, ge=1, description="examples N of a prompt")
    least: float = Field(0.3, gt=0, description="least eigenvalue of the tokens' covariance")
    greatest: float = Field(3.0, gt=0, description="greatest eigenvalue")
    init_scale: float = Field(0.3, gt=0, description="standard deviation of initial entries; at 0 there is a saddle")
    steps: int = Field(2000, ge=1, description="steps of L-BFGS, at most")


figure = Experiment(
    name="icl_scale/optimal_rank", trains=False, figures=("Thm. 5.4.1",),
    title="Optimal attention of rank r, trained on the expected loss",
    caption="Left: relative error of u U. Right: what training takes off the loss (dots) and the closed form (lines), "
    "a colour for each seed.", laptop=OptimumConfig(), paper=OptimumConfig(dim=32, length=256, steps=10_000),
    grid={"width": RANKS, "seed": range(6)},
    sweep_axes={"width": choice(1, 2, 4, 8), "length": choice(8, 32, 128), "init_scale": loguniform(0.03, 1.0)},
    metric="product_error", minutes=0.4, small={"steps": 30, "dim": 8},
)


@figure.trial
def run(config: OptimumConfig, recorder: Recorder) -> None:
    spread = data.stream(config.streams.data, "eigenvalues").uniform(config.least, config.greatest, config.dim)
    values = torch.from_numpy(np.sort(spread)[::-1].copy())
    covariance, _ = data.token_covariance(values, seed=config.streams.data)
    net = nets.reduced_attention(config.dim, config.width, init_scale=config.init_scale, seed=config.streams.init)
    best = theory.icl_scale.optimal_product(covariance, config.length, config.width)
    least = theory.icl_scale.least_loss(values, config.length, config.width)

    def loss():
        return theory.icl_scale.pretraining_loss(net.product(), covariance, config.length)

    recorder.log({"loss/gap": loss().item() - values.sum().item() / 2 - least}, step=0)
    reached = learners.minimise_lbfgs(loss, net.parameters(), config.steps) - values.sum().item() / 2
    product = net.product().detach()
    whole = theory.icl_scale.least_loss(values, config.length, config.dim)

    def excess_error(half):
        if config.width == config.dim:
            return 0.0
        return abs(theory.icl_scale.excess_loss(product, covariance, config.length, half=half).item()
            / (reached - whole) - 1)

    recorder.log(
        {"loss/reached": reached, "loss/closed": least, "loss/gap": reached - least,
            "product_error": ((product - best).norm() / best.norm()).item(),
            "excess/corrected": excess_error(half=True), "excess/printed": excess_error(half=False)},
        step=config.steps,
    )


@figure.cost
def cost(config: OptimumConfig) -> Cost:
    weights = 2 * config.width * config.dim
    return Cost(weights, 40.0 * config.steps * config.dim**3, 800.0 * weights, config.steps)


@figure.claim("c01_training_reaches_the_closed_form", paper="exact",
    says="At every rank, trained weights have the product u U and the loss of the closed form (greatest relative "
    "distance, greatest distance)", expect={"product": at_most(1e-5), "loss": at_most(1e-8)})
def reached(runs):
    return {"product": runs.finals("product_error").max(), "loss": np.abs(runs.finals("loss/gap")).max()}


@figure.claim("c01b_not_below_it", paper="minimum", kind="identity",
    says="No trained weights have a lower loss than the closed form (least gap)", expect=at_least(-1e-10))
def below_it(runs):
    return float(runs.finals("loss/gap").min())


@figure.claim("c01c_excess_printed", paper="no factor 1/2", where="proof sketch of Thm. 5.4.1", kind="identity",
    says="The loss of rank r above that of the full rank is the printed sum (greatest relative difference)",
    expect=at_most(1e-6))
def printed_excess(runs):
    return float(runs.finals("excess/printed").max())


@figure.claim("c01d_excess", origin="corrected", where="proof sketch of Thm. 5.4.1", kind="identity",
    says="The loss of rank r above that of the full rank is half the printed sum (greatest relative difference)",
    expect=at_most(1e-6))
def excess(runs):
    return float(runs.finals("excess/corrected").max())


@figure.draw(cols=2, size=(8.5, 3.4))
def panels(runs, axes):
    left, right = axes[0]
    bars(left, [np.maximum(runs.finals("product_error", width=r), 1e-17) for r in RANKS], RANKS, color=CATEGORIES[0])
    bound_level(left, 1e-5, "tolerance")
    legend_below(left)
    left.set(yscale="log", ylabel="relative error of u U", ylim=(1e-9, 1e-4))
    for seed, colour in zip(runs.values("seed"), CATEGORIES[1:], strict=False):
        some = runs.where(seed=seed)
        for part, look in {"reached": "o", "closed": "-"}.items():
            losses = [-some.final(f"loss/{part}", width=r) for r in RANKS]
            right.plot(RANKS, losses, look, color=colour, markersize=4)
    right.set(ylabel="loss below that of the zero model", ylim=(0, None))
    for axis in axes[0]:
        axis.set(xlabel="rank r", xscale="log")
        axis.set_xticks(RANKS, [str(r) for r in RANKS], minor=False)
        axis.minorticks_off()
