"""Theorem 7.1. Gradient descent on two labels keeps the two Gaussian clusters of each label apart.

Four clusters with orthogonal means of length tau and noise of variance kappa^2 in d dimensions; clusters 1 and 2 are
labelled +1, clusters 3 and 4 -1. The network f(x) = sum_r sigma(w_r . x), sigma cubic near zero, is trained on the
unhinged loss. With c = 8 kappa sqrt(d) / tau, the theorem says that distances between the clusters of a label exceed
those inside a cluster by a factor of order c^-3 at the step t_0 of theorem A.15.

No size that fits a computer meets its conditions (they ask for sqrt(d) >= 2048 n), so the orders and the closed form of
the growing signal w_r . mu are tested, and not the constants. After t_0 the same descent is followed in the space of
the inputs' inner products.
"""

import math
from typing import Literal

from featurelab.pipelines import (
    CATEGORIES,
    Config,
    Cost,
    Experiment,
    Field,
    above,
    at_least,
    at_most,
    below,
    between,
    choice,
    data,
    fit,
    learners,
    loguniform,
    measures,
    nets,
    np,
    probes,
    shades,
    torch,
)

SIGNS = (1.0, 1.0, -1.0, -1.0)
LATER = (1, 2, 4, 8, 16, 32, 64)


class TheoremConfig(Config):
    precision: Literal["64-true"] = Field("64-true", description="projections are 0.05 and features 1e-5")
    n_train: int = Field(16, ge=8, multiple_of=4, description="samples, a quarter in each cluster")
    dim: int = Field(1024, ge=4, description="input coordinates d")
    width: int = Field(32, ge=4, description="neurons m")
    noise: float = Field(1.0, gt=0, description="kappa, standard deviation of the noise in each coordinate")
    noise_to_signal: float = Field(0.125, gt=0, description="c = 8 kappa sqrt(d) / tau; gives the length tau of means")
    init_scale: float = Field(0.05, gt=0, description="omega tau: standard deviation of the initial signal w . mu")
    lr: float = Field(0.02, gt=0, description="learning rate in units of 1 / tau^2")
    weight_decay: float = Field(0.0, ge=0, description="weight decay, in units of tau^2; the theorem has none")
    measurements: int = Field(20, ge=1, description="measurements until t_0")


C = [2.0, 1.0, 0.5, 0.25, 0.125]
PRESET = TheoremConfig()

figure = Experiment(
    name="fine_grained_structure/theorem",
    figure="Thm. 7.1",
    title="Distances between clusters of one label over distances inside them",
    caption="Lines are means over seeds, bands their range. R is a ratio of means, R_worst of extremes.",
    laptop=PRESET,
    paper=PRESET,
    grid={"noise_to_signal": C, "seed": [0, 1, 2]},
    sweep_axes={
        "lr": loguniform(2e-3, 5e-2),
        "dim": choice(256, 1024, 4096),
        "width": choice(16, 32, 64),
        "weight_decay": loguniform(1e-5, 1e-2),
        "noise_to_signal": loguniform(0.1, 4.0),
    },
    metric="separation/worst",
    mode="max",
    minutes=0.1,
)


@figure.trial
def run(config, recorder):
    tau = 8 * config.noise * config.dim**0.5 / config.noise_to_signal
    omega, lr = config.init_scale / tau, config.lr / tau**2
    decay = config.weight_decay * tau**2
    means = data.orthogonal_means(4, config.dim, tau, seed=config.streams.data)
    signs = torch.tensor(SIGNS, dtype=torch.float64)
    task = data.GaussianClusters(means, signs, config.n_train, noise=config.noise, seed=config.streams.data)
    net = nets.cubic(config.dim, config.width, omega=omega, seed=config.streams.init)
    start = net.layer.weight.detach().clone()
    steps = round(measures.horizon(c=config.noise_to_signal, lr=lr, tau=tau, omega=omega, width=config.width))
    every = max(1, steps // config.measurements)

    def separation(module, x):
        return named(measures.separation_ratio(module.net.features(x), task.clusters, task.groups))

    learner = learners.Supervised(
        net, loss=learners.unhinged, optimizer=learners.gd(lr, weight_decay=decay), steps_per_batch=every
    )
    fit(
        learner,
        task,
        config,
        recorder,
        steps=steps,
        probes=[probes.Measure(separation, every=every, inputs=task.train[0])],
    )

    x, y = task.train
    followed = torch.cat([x, means])
    later = follow(config, followed @ x.T, followed @ start.T, y, lr, decay, steps, task)
    trained = followed @ net.cpu().layer.weight.detach().T
    recorder.log(
        signal_errors(trained[-4:], means @ start.T, signs, steps, lr, tau, config.init_scale)
        | {
            "gram_error": ((later["at_t0"] - trained).norm() / trained.norm()).item(),
            "separation_bound": measures.separation_bound(c=config.noise_to_signal, dim=config.dim, n=config.n_train),
        },
        step=steps,
    )
    recorder.array("later", multiples=np.array([0, *LATER]), mean=later["mean"], worst=later["worst"])


def named(ratios):
    return {f"separation/{name}": value for name, value in ratios.items()}


def follow(config, gram, projections, y, lr, decay, t0, task):
    """Separation at 0, 1, 2, 4, ... times t_0, from the descent in the space of inner products."""
    kept, mean, worst = {0, *(t0 * k for k in LATER)}, [], []
    activation = nets.CubicNearZero()
    for step, Z in learners.cubic_descent(gram, projections, y, lr=lr, weight_decay=decay, steps=t0 * max(LATER)):
        if step == t0:
            at_t0 = Z
        if step in kept:
            ratios = measures.separation_ratio(activation(Z[: len(y)]), task.clusters, task.groups)
            mean.append(ratios["mean"])
            worst.append(ratios["worst"])
    return {"at_t0": at_t0, "mean": np.array(mean), "worst": np.array(worst)}


def signal_errors(final, start, signs, steps, lr, tau, scale):
    """Relative errors of the closed form of the signal, over projections that begin well on their label's side."""
    forward = signs[:, None] * start
    predicted = measures.cubic_signal(forward, steps, lr=lr, tau=tau)
    chosen = forward > 0.3 * scale
    errors = ((signs[:, None] * final - predicted).abs() / predicted)[chosen]
    return {"signal_error/largest": errors.max().item(), "signal_error/mean": errors.mean().item()}


@figure.cost
def cost(config):
    weights = config.dim * config.width
    # t_0 but for its first factor, which is below 1
    steps = 0.5 / (1 / 8 + config.noise_to_signal) / (config.lr * config.init_scale * math.log(4 * config.width) ** 0.5)
    gram = 2.0 * config.n_train * (config.n_train + 4) * config.width * max(LATER)
    return Cost(
        weights,
        steps * (6.0 * weights * config.n_train + gram),
        8.0 * (config.dim * (config.n_train + 4) + 4 * weights),
        int(steps * (1 + max(LATER) / 10)) + 1,
    )


def at_c(runs, metric):
    return {c: runs.final(metric, noise_to_signal=c) for c in sorted(runs.values("noise_to_signal"))}


def slope(runs, metric):
    """Least-squares slope of log R(t_0) against log 1/c."""
    found = at_c(runs, metric)
    return float(np.polyfit(-np.log(list(found)), np.log(list(found.values())), 1)[0])


@figure.claim(
    "c18_clusters_stay_apart",
    says="for c <= 1/4 clusters of a label are far apart at t_0 (smallest R and R_worst)",
    paper="ratio much larger than 1",
    expect={"R": at_least(10), "R_worst": at_least(5)},
)
def apart(runs):
    small = [c for c in runs.values("noise_to_signal") if c <= 0.25]
    names = {"R": "separation/mean", "R_worst": "separation/worst"}
    return {name: min(at_c(runs, metric)[c] for c in small) for name, metric in names.items()}


@figure.claim(
    "c19_decreases_with_c",
    says="R(t_0) falls as the noise-to-signal ratio c grows (rank correlation)",
    paper="order min(c^-3, c^-9 n^4.5 d^-1.5)",
    where="Thm. A.15",
    expect=at_most(-0.999),
)
def falls(runs):
    found = at_c(runs, "separation/mean")
    return measures.spearman(torch.tensor(list(found)), torch.tensor(list(found.values()))).item()


@figure.claim(
    "c20_signal_closed_form",
    says="zeta(t_0) = 1/(1/zeta(0) - eta tau^2 t_0 / 8) where zeta(0) > 0.3 omega tau (largest relative error)",
    paper="exact up to c in 1/8 +- c",
    where="Lemma A.13",
    expect=at_most(0.03),
)
def closed_form(runs):
    return max(at_c(runs, "signal_error/largest").values())


@figure.claim(
    "c21_order_of_the_ratio",
    says="R grows with 1/c as fast as the lower bound, c^-3 (log-log slope of R and R_worst at t_0)",
    paper=3,
    where="Thm. A.15",
    expect={"R": at_least(2.5), "R_worst": at_least(2.5)},
    fails="distances inside a cluster go with zeta^2 |phi|, not with the cube of |phi|, as its proof has it",
)
@figure.claim(
    "c21b_order_is_one",
    says="R grows like 1/c, as zeta^3 over zeta^2 |phi| does (log-log slope of R and R_worst at t_0)",
    origin="corrected",
    where="Thm. A.15",
    expect={"R": between(0.8, 1.2), "R_worst": between(0.8, 1.2)},
)
def order(runs):
    return {"R": slope(runs, "separation/mean"), "R_worst": slope(runs, "separation/worst")}


@figure.claim(
    "c21c_lower_bound",
    says="R_worst(t_0) exceeds the lower bound of the theorem, with its L and L' taken as 1 (smallest ratio, c <= 1/4)",
    paper="R_worst >= bound",
    where="Thm. A.15",
    expect=at_least(1),
    fails="the bound goes with c^-3 and the ratio with 1/c; the theorem's own conditions cannot be met at this size",
)
def bound(runs):
    worst, bounds = at_c(runs, "separation/worst"), at_c(runs, "separation_bound")
    return min(worst[c] / bounds[c] for c in worst if c <= 0.25)


def later(runs, part="mean", c=0.125):
    (kept,) = runs.arrays("later", noise_to_signal=c)
    return dict(zip(kept["multiples"].tolist(), kept[part].tolist(), strict=True))


@figure.claim(
    "c18b_preserved_not_made",
    says="R is as large before training: R(t_0)/R(0) at c = 1/8",
    origin="ours",
    expect=between(0.5, 2.0),
)
def preserved(runs):
    return later(runs)[1] / later(runs)[0]


@figure.claim(
    "c18c_rises_then_falls",
    says="at c = 1/8 R goes on rising after t_0, and falls when all signals have their label's sign (ratios)",
    origin="ours",
    expect={"R(16 t_0) over R(t_0)": above(5), "R(64 t_0) over R(16 t_0)": below(1)},
)
def long_run(runs):
    R = later(runs)
    return {"R(16 t_0) over R(t_0)": R[16] / R[1], "R(64 t_0) over R(16 t_0)": R[64] / R[16]}


@figure.claim(
    "c20b_inner_products_say_all",
    says="descent on inner products alone gives the projections of the trained weights at t_0 (largest relative error)",
    origin="ours",
    expect=at_most(1e-9),
)
def gram_dynamics(runs):
    return max(at_c(runs, "gram_error").values())


@figure.draw(cols=3, size=(12, 4.2))
def panels(runs, axes):
    left, middle, right = axes[0]
    cs = sorted(runs.values("noise_to_signal"))
    for (metric, name), colour in zip([("mean", "R"), ("worst", "$R_{worst}$")], CATEGORIES, strict=False):
        tables = [runs.curves(f"separation/{metric}", noise_to_signal=c).ffill().iloc[-1] for c in cs]
        left.plot(cs, [t.mean() for t in tables], color=colour, marker="o", markersize=3.5, label=name)
        left.fill_between(
            cs, [t.min() for t in tables], [t.max() for t in tables], color=colour, alpha=0.18, linewidth=0
        )
    first = runs.final("separation/mean", noise_to_signal=cs[0])
    for power, line in ((1, ":"), (3, "--")):
        left.plot(
            cs,
            [first * (cs[0] / c) ** power for c in cs],
            line,
            color="#444444",
            linewidth=1,
            label=f"$c^{{-{power}}}$",
        )
    low = runs.final("separation/worst", noise_to_signal=cs[-1])
    left.set(xscale="log", yscale="log", xlabel="noise to signal, c", ylabel="ratio at $t_0$", ylim=(low / 3, None))
    left.legend(loc="upper left", bbox_to_anchor=(0.0, -0.18), ncols=4)
    for c, colour in zip(cs, shades(len(cs)), strict=True):
        kept = runs.arrays("later", noise_to_signal=c)
        ratios = np.array([part["mean"] / part["mean"][0] for part in kept])
        middle.plot([0.5, *LATER], ratios.mean(0), color=colour, marker="o", markersize=3, label=f"c = {c:g}")
        middle.fill_between([0.5, *LATER], ratios.min(0), ratios.max(0), color=colour, alpha=0.08, linewidth=0)
    middle.axvline(1, color="#444444", linestyle="--", linewidth=1)
    middle.set(xscale="log", yscale="log", xlabel="$t / t_0$ (leftmost: before training)", ylabel="R(t) / R(0)")
    middle.legend(loc="upper left", bbox_to_anchor=(-0.05, -0.18), ncols=3)
    for metric, colour in zip(("largest", "mean"), CATEGORIES, strict=False):
        errors = [runs.final(f"signal_error/{metric}", noise_to_signal=c) for c in cs]
        right.plot(cs, errors, color=colour, marker="o", markersize=3.5, label=metric)
    right.axhline(0.03, color="#444444", linestyle="--", linewidth=1, label="tolerance")
    right.set(xscale="log", yscale="log", xlabel="noise to signal, c", ylabel="relative error of ζ($t_0$)")
    right.legend(loc="upper left", bbox_to_anchor=(0.0, -0.18), ncols=3)
    for axis, ticks in ((left, cs), (middle, LATER), (right, cs)):
        axis.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axis.minorticks_off()
