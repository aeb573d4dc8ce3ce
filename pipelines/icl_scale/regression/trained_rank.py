"""Theorems 5.4.1 and 5.4.2, trained. Attention of rank 2 and 8 is trained on prompts, then tested under label noise.

Tokens have two strong directions, the evaluated task w = (1, 1, 0, ...) lies in them. W_K, W_Q and u are trained by
Adam on half the mean squared error of prompts without label noise, then tested on prompts of 16 examples with noise. By
the theorem d error / d noise is tr(V^2 D^2) / M, 2.50 times as large at rank 8 as at rank 2.
"""

from typing import Any

from featurelab.pipelines import (
    Cost, Experiment, Field, Recorder, TrainedConfig, above, at_most, bars, between, choice, curves, data,
    fit, learners, legend_below, loguniform, nets, probes, shades, theory, torch,
)

RANKS, NOISES = [2, 8], [0.0, 1.0, 4.0]


class RankConfig(TrainedConfig):
    spectrum: tuple[float, ...] = Field((2.0, 1.5, 0.2, 0.2, 0.15, 0.15, 0.1, 0.1), min_length=2,
        description="eigenvalues of the tokens' covariance")
    width: int = Field(2, ge=1, description="rank r of W_K and W_Q")
    length: int = Field(64, ge=1, description="examples N of a training prompt")
    shown: int = Field(16, ge=1, description="examples M of an evaluation prompt")
    n_train: int = Field(2_304_000, ge=1, description="training prompts")
    n_test: int = Field(4096, ge=1, description="test prompts of the training law")
    prompts: int = Field(100_000, ge=2, description="evaluation prompts at each noise")
    init_scale: float = Field(0.3, gt=0, description="standard deviation of initial entries")
    lr: float = Field(1e-2, gt=0, description="Adam's learning rate at the start; it follows a cosine to 0")
    weight_decay: float = Field(0.0, ge=0, description="weight decay")
    batch_size: int = Field(256, ge=1, description="prompts a step")
    steps: int = Field(9000, ge=1, description="optimiser steps; each prompt is seen once in the presets")
    measure_every: int = Field(900, ge=1, description="steps between measurements")


figure = Experiment(
    name="icl_scale/trained_rank", figures=("Thm. 5.4.1", "Thm. 5.4.2"), part="trained",
    title="Trained attention of rank 2 and 8",
    caption="Right: errors of trained networks (bars: seeds) and of the closed forms (lines) "
    "on prompts with label noise.", laptop=RankConfig(),
    paper=RankConfig(n_train=3_072_000, steps=12_000, prompts=1_000_000), grid={"width": RANKS, "seed": range(6)},
    sweep_axes={"lr": loguniform(1e-3, 1e-1), "width": choice(1, 2, 4, 8), "weight_decay": loguniform(1e-6, 1e-2),
        "n_train": choice(8192, 65_536, 2_304_000)}, metric="excess_ratio", minutes=1.5,
    small={"n_train": 256, "n_test": 16, "prompts": 50, "batch_size": 32, "steps": 6, "measure_every": 3},
)


def task(config: RankConfig) -> "torch.Tensor":
    """w in the two strongest directions."""
    return (torch.arange(len(config.spectrum)) < 2).double()


@figure.trial
def run(config: RankConfig, recorder: Recorder) -> None:
    values = torch.tensor(config.spectrum, dtype=torch.float64)
    covariance, Q = data.token_covariance(values, seed=config.streams.data)
    prompts = data.RegressionPrompts(config.n_train, config.n_test, covariance, config.length, seed=config.streams.data,
        dtype=config.dtype, batch_size=config.batch_size, order_seed=config.streams.order)
    net = nets.reduced_attention(len(values), config.width, init_scale=config.init_scale, seed=config.streams.init,
        dtype=config.dtype)
    adam = learners.adam(config.lr, config.weight_decay)
    optimizer = learners.scheduled_by_step(adam, learners.cosine_schedule(config.steps))
    learner = learners.Supervised(net, loss="half_mse", optimizer=optimizer)
    close = probes.Measure(closeness(config, covariance), config.measure_every, inputs=prompts.test[0][:1])
    watching = [probes.LossProbe({"test": prompts.test}, config.measure_every), close]
    fit(learner, prompts, config, recorder, steps=config.steps, probes=watching)
    P, w = net.product().detach().cpu().double(), Q @ task(config)
    values_by_noise: dict[str, float] = {}
    for noise in NOISES:
        z = data.prompt_means(w.expand(config.prompts, -1), covariance, config.shown,
            data.stream(config.streams.data, "evaluation"), noise=noise)
        errors = theory.icl_scale.query_averaged_errors(P, z, w.expand(config.prompts, -1), covariance)
        v = theory.icl_scale.inverse_factors(values, config.length, config.width)
        values_by_noise |= {f"error/{noise:g}": errors.mean().item(),
            f"closed/{noise:g}": theory.icl_scale.direction_errors(values, v, task(config), config.shown, noise)}
    slope = theory.icl_scale.noise_slope(v, values, config.shown)
    slopes = {"slope": (values_by_noise["error/4"] - values_by_noise["error/0"]) / 4, "slope/closed": slope}
    recorder.log(values_by_noise | slopes, step=config.steps)


def closeness(config: RankConfig, covariance: Any) -> Any:
    """Measures how far weights are from the closed form of their rank, in loss and as a matrix."""
    values, _ = theory.icl_scale.descending_eigen(covariance)
    best = theory.icl_scale.optimal_product(covariance, config.length, config.width)
    least = theory.icl_scale.least_loss(values, config.length, config.width)

    def distances(module, x):
        P = module.net.product().detach().cpu().double()
        reached = theory.icl_scale.pretraining_loss(P, covariance, config.length).item() - values.sum().item() / 2
        return {"excess_ratio": (reached - least) / -least, "product_error": ((P - best).norm() / best.norm()).item()}

    return distances


@figure.cost
def cost(config: RankConfig) -> Cost:
    d, steps = len(config.spectrum), config.steps
    numbers = 8.0 * d * (8 * config.prompts + 2 * config.n_train)
    return Cost(2 * d * config.width, 12.0 * d * config.width * config.batch_size * steps, numbers, steps)


@figure.claim("c02_training_reaches_the_closed_form", paper="exact in expectation",
    says="Training on prompts reaches the closed form at both ranks (loss above it over its size, relative distance of "
    "u U; greatest)", expect={"loss": at_most(1e-3), "product": at_most(0.1)})
def reached(runs):
    names = {"loss": "excess_ratio", "product": "product_error"}
    return {part: max(runs.final(name, width=r) for r in RANKS) for part, name in names.items()}


@figure.claim("c07_larger_rank_is_more_sensitive", paper="larger models are easier to be distracted",
    says="From noise 0 to noise 4, the error rises more at rank 8 than at rank 2 (difference of rises)",
    expect=above(0))
def sensitivity(runs):
    return 4 * (runs.final("slope", width=8) - runs.final("slope", width=2))


@figure.claim("c07b_as_much_as_the_theorem_says", origin="ours",
    says="The slopes of the error in the noise at rank 8 and 2 have the theorem's ratio (over that of tr(V²D²), 2.50)",
    expect=between(0.95, 1.05))
def slopes(runs):
    large, small = (runs.final("slope", width=r) / runs.final("slope/closed", width=r) for r in (8, 2))
    return large / small


@figure.claim("c07c_errors_under_noise", origin="ours",
    says="Trained networks have the closed form's errors on noisy prompts (ratios, least and greatest)",
    expect={"least": between(0.95, 1.05), "greatest": between(0.95, 1.05)})
def errors(runs):
    ratios = [runs.final(f"error/{noise:g}", width=r) / runs.final(f"closed/{noise:g}", width=r)
        for noise in NOISES for r in RANKS]
    return {"least": min(ratios), "greatest": max(ratios)}


@figure.draw(cols=3, size=(11, 3.5))
def panels(runs, axes):
    left, middle, right = axes[0]
    curves(left, runs, "excess_ratio", across="width", label="rank {value}")
    left.set(yscale="log", xlabel="step", ylabel="excess loss / |closed form|")
    curves(middle, runs, "product_error", across="width", label="rank {value}")
    middle.set(yscale="log", xlabel="step", ylabel="relative error of u U")
    for rank, colour in zip(RANKS, shades(len(RANKS)), strict=True):
        closed = [runs.final(f"closed/{noise:g}", width=rank) for noise in NOISES]
        right.plot(NOISES, closed, color=colour, label=f"closed form, rank {rank}")
        bars(right, [runs.finals(f"error/{s:g}", width=rank) for s in NOISES], NOISES, color=colour, linestyle="none")
    right.set(xlabel="variance of label noise", ylabel="squared error", ylim=(0, None))
    legend_below(axes)
