"""Theorem 5.4.2. The error of rank-r attention on prompts with noisy labels has a closed form.

    E (f - <w, x_q>)^2 = (1/M) |s|^2_(V^2 D^3) + (1/M) (|w|^2_D + noise) tr(V^2 D^2)
                         + |xi|^2_D + sum_(i <= r) s_i^2 lam_i (lam_i v_i - 1)^2,      |a|^2_A = a^T A a,

w = Q (s + xi), s in the r strongest directions of Lambda = Q D Q^T. Q is Haar distributed; prompts are random, queries
are averaged over. Two wrong forms are the controls, which the prompts must detect: D^2 for D^3, as one line of the
proof of theorem 5.4.3 prints it, and the lengths N of pretraining and M of evaluation exchanged.
"""

from typing import Literal

from featurelab.pipelines import (
    CATEGORIES, Experiment, Field, Recorder, above, at_most, below, choice, data, legend_below, loguniform, np, theory,
    torch,
)
from featurelab.pipelines.icl_scale.regression.prompts import PromptConfig, cost, mean_and_error, spectrum

RANKS, NOISES, LENGTHS = [4, 16], [0.0, 1.0, 4.0], [(512, 16), (512, 64), (32, 16)]
WRONG = ("lower_power", "swapped_lengths")


class NoiseConfig(PromptConfig):
    precision: Literal["64-true"] = Field("64-true", description="closed forms are compared to four digits")
    control: Literal["none", "lower_power", "swapped_lengths"] = Field("none",
        description="which wrong form stands for the theorem: D^2 for D^3, or N and M exchanged")
    width: int = Field(4, ge=0, description="rank r")
    task: Literal["fixed", "averaged"] = Field("fixed", description="w fixed, or drawn N(0, I) for each prompt")


figure = Experiment(
    name="icl_scale/label_noise", trains=False, figures=("Thm. 5.4.2",),
    title="Error of rank-r attention under label noise",
    caption="Dots: random prompts. Lines: the closed form. Dotted: its wrong forms. N examples in pretraining, M in "
    "evaluation.", laptop=NoiseConfig(), paper=NoiseConfig(prompts=1_000_000),
    grid={"width": RANKS, "noise": NOISES, ("length", "shown"): LENGTHS, "task": ["fixed", "averaged"],
        "seed": range(6)},
    sweep_axes={"width": choice(1, 2, 4, 8, 16), "noise": loguniform(0.1, 10.0), "shown": choice(8, 16, 64, 256),
        "weak": loguniform(0.01, 1.0)}, metric="error/drawn", minutes=0.8, small={"prompts": 200},
)
figure.cost(cost)


def forms(values, squares, config: NoiseConfig):
    """The theorem's value and its wrong forms."""

    def value(trained, shown, power):
        v = theory.icl_scale.inverse_factors(values, trained, config.width)
        return theory.icl_scale.direction_errors(values, v, squares, shown, config.noise, power)

    return {"none": value(config.length, config.shown, 3), "lower_power": value(config.length, config.shown, 2),
        "swapped_lengths": value(config.shown, config.length, 3)}


@figure.trial
def run(config: NoiseConfig, recorder: Recorder) -> None:
    values = spectrum(config)
    covariance, Q = data.token_covariance(values, seed=config.streams.init)
    if config.task == "fixed":
        squares = torch.linspace(2.0, 0.0, config.dim).double()  # some of the task in every direction
        w = (squares.sqrt() @ Q.T).expand(config.prompts, -1)
    else:
        squares = torch.ones(config.dim).double()
        w = data.task_vectors(config.prompts, config.dim, data.stream(config.streams.data, "tasks"))
    chance = data.stream(config.streams.data, "prompts")
    z = data.prompt_means(w, covariance, config.shown, chance, noise=config.noise)
    # the closed form's own basis: eigenvalues are equal within groups, and any basis of these would do
    product = Q * theory.icl_scale.inverse_factors(values, config.length, config.width) @ Q.T
    mean, error = mean_and_error(theory.icl_scale.query_averaged_errors(product, z, w, covariance))
    known = forms(values, squares, config)
    off = {name: abs((mean.item() - value) / error.item()) for name, value in known.items()}
    recorder.log(
        {"error/drawn": mean.item(), "error/closed": known["none"], "z": off[config.control],
            **{f"error/{name}": known[name] for name in WRONG}, **{f"z/{name}": off[name] for name in WRONG}},
        step=0,
    )


@figure.claim("c04_the_error_is_the_closed_form", paper="equality",
    says="The mean error over random prompts is the theorem's value for every rank, noise, length and law of w "
    "(greatest distance in standard errors)", expect=below(4))
def equality(runs):
    return float(runs.finals("z").max())


@figure.claim("c04b_wrong_forms_are_found_out", origin="ours", controls=(),
    says="Random prompts reject the theorem with D^2 for D^3, and with the lengths exchanged (greatest distance in "
    "standard errors)", expect={name.replace("_", " "): above(4) for name in WRONG})
def wrong_forms(runs):
    return {name.replace("_", " "): float(runs.finals(f"z/{name}").max()) for name in WRONG}


@figure.claim("c04c_errata_of_the_proof", where="proof of Thm. 5.4.3", paper="D^2 in one line, D^3 in the theorem",
    says="The line of the proof of theorem 5.4.3 with D^2 gives the error of theorem 5.4.2 (greatest relative "
    "difference)", kind="identity", expect=at_most(1e-9))
def printed_line(runs):
    known, other = runs.finals("error/closed"), runs.finals("error/lower_power")
    return float(np.abs(other / known - 1).max())


@figure.draw(cols=3, size=(11, 3.6))
def panels(runs, axes):
    for axis, (N, M) in zip(axes[0], LENGTHS, strict=True):
        for rank, colour in zip(RANKS, CATEGORIES, strict=False):
            some = runs.where(width=rank, length=N, shown=M, task="fixed")
            drawn, closed, lower = ([some.final(f"error/{name}", noise=noise) for noise in NOISES]
                for name in ("drawn", "closed", "lower_power"))
            axis.plot(NOISES, closed, color=colour, label=f"rank {rank}, theorem")
            axis.plot(NOISES, drawn, "o", color=colour, markersize=4)
            axis.plot(NOISES, lower, color=colour, linestyle=":", linewidth=1.2, label=f"rank {rank}, $D^2$ for $D^3$")
        axis.set(title=f"N = {N}, M = {M}", xlabel="variance of label noise", ylim=(0, None))
    axes[0, 0].set(ylabel="squared error of a fixed task")
    legend_below(axes)
