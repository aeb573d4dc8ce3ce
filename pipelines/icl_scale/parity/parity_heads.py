"""Theorem 5.5.1. The constructed heads for in-context parities: which tasks they solve, with how many heads and norm.

A task is a pair (i, j) of d = 2^nu2 features, S1 the pairs of the first k = 2^nu1. Heads of nu bits say how many of
the low nu bits of i and j differ: with nu2 bits, the large model, that is at least 1 on every task; with nu1, the
small one, on S1 and on all of S2 but where the low bits coincide. All tasks are enumerated with infinite prompts.

The theorem calls the large model the solution of least norm, and its number of heads the least. Neither holds: heads
that are read as sets none of which contains another (an antichain) are right on every task with fewer heads and less
norm.
"""

from typing import Literal, NamedTuple

from featurelab.pipelines import (
    CATEGORIES, Config, Cost, Experiment, Field, Recorder, above, at_least, at_most, choice, data, legend_below, nets,
    np, null_level, theory, torch, uniform,
)


class Case(NamedTuple):
    few: int  # nu1
    bits: int  # nu2
    gamma: float


CASES = [Case(1, 2, 0.2), Case(1, 3, 0.2), Case(1, 3, 0.1), Case(2, 3, 0.2), Case(2, 4, 0.2), Case(2, 5, 0.2)]


class HeadsConfig(Config):
    precision: Literal["64-true"] = Field("64-true", description="identities hold to rounding")
    few: int = Field(1, ge=1, description="nu1: bits of the important features, k = 2^nu1")
    bits: int = Field(3, ge=1, le=8, description="nu2: bits of all features, d = 2^nu2, above nu1")
    gamma: float = Field(0.2, gt=0, lt=0.25, description="how much more often both features of a task are 1")


figure = Experiment(
    name="icl_scale/parity_heads", trains=False, figures=("Thm. 5.5.1",),
    title="The theorem's heads on every task of pairs",
    caption="Left: hinge on S2 of the small model, k of d features important. Right: an antichain's heads and norm "
    "over the theorem's.", laptop=HeadsConfig(), paper=HeadsConfig(), grid={Case._fields: CASES, "seed": range(6)},
    sweep_axes={"gamma": uniform(0.02, 0.24), "bits": choice(3, 4, 5)}, metric="hinge/small/S2", minutes=0.1,
    small={Case._fields: CASES},
)


@figure.trial
def run(config: HeadsConfig, recorder: Recorder) -> None:
    d, k, gamma = 2**config.bits, 2**config.few, config.gamma
    known = data.endless_parity_prompts(d, gamma)
    inside = theory.icl_scale.both_important(known.tasks, k)
    large = nets.binary_heads(d, config.bits, gamma)
    small, antichain = nets.small_of_large(large, config.few), nets.antichain_heads(d, gamma)
    values = {"hinge/formula": theory.icl_scale.small_model_hinge(d, k)}
    chance = data.stream(config.streams.data, "means")
    turned = torch.stack([torch.from_numpy(chance.standard_normal((50, d))), known.x[:50, 1].repeat(50, 1)[:50]], 1)
    opposite = turned * torch.tensor([-1.0, 1.0], dtype=torch.float64)[:, None]
    for name, net in {"large": large, "small": small, "antichain": antichain}.items():
        net.requires_grad_(False)
        margins = known.y * net(known.x)
        for part, chosen in {"S1": inside, "S2": ~inside}.items():
            values[f"hinge/{name}/{part}"] = theory.icl_scale.mean_hinge(margins, known.weights, chosen).item()
            values[f"accuracy/{name}/{part}"] = theory.icl_scale.tied_accuracy(margins[chosen, 0])
        values |= {f"margin/{name}": margins.min().item(), f"norm/{name}": net.squared_norms().item()}
        values[f"heads/{name}"] = net.heads.shape[1]
        values[f"even/{name}"] = (net(turned) - net(opposite)).abs().max().item()
        if name != "antichain":
            bits = config.bits if name == "large" else config.few
            far = theory.icl_scale.hamming_distances(known.tasks, bits)
            values[f"hamming/{name}"] = (margins[:, 0] - far).abs().max().item()
            formula = theory.icl_scale.binary_heads_norm(d, bits, gamma)
            values[f"norm_error/{name}"] = abs(values[f"norm/{name}"] / formula - 1)
    recorder.log(values, step=0)


@figure.cost
def cost(config: HeadsConfig) -> Cost:
    d = 2**config.bits
    return Cost(2 * (config.bits + 1) * d, 2e2 * d**3 * config.bits, 8.0 * 40 * d**3)


def greatest(runs, *metrics):
    return max(float(runs.finals(metric).max()) for metric in metrics)


@figure.claim("c08_margins_are_hamming_distances", origin="ours", kind="identity",
    says="The margin y g of the large and the small model is the number of low bits in which the two features differ "
    "(greatest distance)", expect=at_most(1e-12))
def hamming(runs):
    return greatest(runs, "hamming/large", "hamming/small")


@figure.claim("c08b_who_is_right_where", paper="0, 0, 0, above 0", kind="identity",
    says="The large model is right on S1 and S2, the small one on S1 only (hinge: greatest of the large model, of the "
    "small one on S1; least of the small one on S2)",
    expect={"large": at_most(1e-12), "small, S1": at_most(1e-12), "small, S2": above(0)})
def who_is_right(runs):
    return {"large": greatest(runs, "hinge/large/S1", "hinge/large/S2"), "small, S1": greatest(runs, "hinge/small/S1"),
        "small, S2": float(runs.finals("hinge/small/S2").min())}


@figure.claim("c08c_the_small_model_sees_most_of_s2", origin="ours", kind="identity",
    says="The small model is wrong on S2 only where low bits coincide: its hinge is d(d/k-1)/(d(d-1)-k(k-1)) and it is "
    "mostly right (greatest distance; least accuracy, ties as guesses)",
    expect={"formula": at_most(1e-12), "accuracy": at_least(0.75)})
def sees_most(runs):
    far = np.abs(runs.finals("hinge/small/S2") - runs.finals("hinge/formula")).max()
    return {"formula": far, "accuracy": runs.finals("accuracy/small/S2").min()}


@figure.claim("c08d_norm_and_heads", origin="ours", kind="identity",
    says="The squared norm of the heads is the closed form (greatest relative error)", expect=at_most(1e-12))
def norms(runs):
    return greatest(runs, "norm_error/large", "norm_error/small")


@figure.claim("c08e_even_in_the_labels", origin="ours", kind="identity",
    says="Flipping all labels of a prompt changes no output (greatest change)", expect=at_most(1e-12))
def even(runs):
    return greatest(runs, "even/large", "even/small")


def over_theorem(runs, what):
    """The antichain over the theorem's large model, by case, where all of its margins are 1."""
    cases = dict.fromkeys((bits, gamma) for _, bits, gamma in CASES if bits >= 3)
    return [runs.final(f"{what}/antichain", bits=b, gamma=g) / runs.final(f"{what}/large", bits=b, gamma=g)
        for b, g in cases]


@figure.claim("c09e_least_heads_printed", where="Thm. 5.5.1, minimality", paper="2(nu2 + 1) heads", kind="identity",
    says="For d of 8 and more, no model that is right on every task has fewer heads than the theorem's (least ratio)",
    expect=at_least(1))
def least_heads(runs):
    return min(over_theorem(runs, "heads"))


@figure.claim("c09f_least_norm_printed", where="Thm. 5.5.1, minimality", paper="optimal", kind="identity",
    says="For d of 8 and more, no model that is right on every task has less norm than the theorem's (least ratio of "
    "sums of squares)", expect=at_least(1))
def least_norm(runs):
    return min(over_theorem(runs, "norm"))


@figure.claim("c09g_antichains_are_right_with_less", origin="corrected", where="Thm. 5.5.1, minimality",
    kind="identity", says="For d of 8 and more, an antichain has margins of 1 on every task with fewer heads and less "
    "norm than the theorem's model (least margin, greatest ratios)",
    expect={"margin": at_least(1 - 1e-12), "heads": at_most(0.95), "norm": at_most(0.8)})
def antichain(runs):
    least = float(runs.finals("margin/antichain").min())
    return {"margin": least, "heads": max(over_theorem(runs, "heads")), "norm": max(over_theorem(runs, "norm"))}


@figure.draw(cols=2, size=(9.5, 3.5))
def panels(runs, axes):
    left, right = axes[0]
    cases = [case for case in CASES if case.gamma == 0.2]
    spots = np.arange(len(cases))
    hinge = [runs.final("hinge/small/S2", **case._asdict()) for case in cases]
    left.bar(spots, hinge, 0.5, color=CATEGORIES[0], label="small model, enumerated")
    formula = [theory.icl_scale.small_model_hinge(2**b, 2**a) for a, b, _ in cases]
    left.plot(spots, formula, "_", markersize=22, markeredgewidth=2, color=CATEGORIES[1], label="formula")
    left.set_xticks(spots, [f"{2**a} of {2**b}" for a, b, _ in cases])
    left.set(xlabel="important features", ylabel="hinge loss on S2", ylim=(0, 0.6))
    legend_below(left)
    sizes = sorted({b for _, b, _ in cases})
    for what, marker, colour in (("heads", "o", CATEGORIES[0]), ("norm", "s", CATEGORIES[1])):
        rows = [runs.final(f"{what}/antichain", bits=b, gamma=0.2) / runs.final(f"{what}/large", bits=b, gamma=0.2)
            for b in sizes]
        right.plot([2**b for b in sizes], rows, marker=marker, color=colour, label=what)
    null_level(right, 1, "theorem")
    right.set(xscale="log", xlabel="features d", ylabel="antichain over theorem", ylim=(0, 1.1))
    right.set_xticks([2**b for b in sizes], [str(2**b) for b in sizes])
    right.minorticks_off()
    legend_below(right)
