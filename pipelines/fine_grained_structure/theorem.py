"""Theorem 7.1. Gradient descent on two labels keeps the two Gaussian clusters of each label apart.

Four clusters have orthogonal means of length tau and noise of variance kappa^2 in d dimensions; clusters 1 and 2 have
the label +1, clusters 3 and 4 the label -1. The network f(x) = sum_r sigma(w_r . x), with sigma cubic near zero, is
trained on the unhinged loss. With c = 8 kappa sqrt(d) / tau, the theorem says that at the step t_0 of theorem A.15
distances between the clusters of a label exceed those inside a cluster by a factor of order c^-3.

No feasible size meets its conditions (sqrt(d) >= 2048 n), so we test the orders and the closed form of the growing
signal w_r . mu, not the constants. After t_0 we follow gradient descent on the inputs' inner products.
"""

import math
from typing import Any, Literal

from featurelab.pipelines import (
    CATEGORIES, Cost, Experiment, Field, Recorder, TrainedConfig, above, at_least, at_most, band, below, between,
    bound_level, choice, data, fit, learners, loguniform, measures, nets, np, probes, shades, theory, torch,
)

LATER = (1, 2, 4, 8, 16, 32, 64)  # times t_0


class TheoremConfig(TrainedConfig):
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



figure = Experiment(
    name="fine_grained_structure/theorem", figures=("Thm. 7.1", "Thm. A.15", "Cor. A.11"),
    title="Distances between the clusters of a label over distances inside a cluster",
    caption="Lines are means over seeds, bands their range. R is a ratio of mean distances, R_worst one of extremes.",
    laptop=TheoremConfig(), paper=TheoremConfig(),
    grid={"noise_to_signal": [2.0, 1.0, 0.5, 0.25, 0.125], "seed": range(6)},
    sweep_axes={"lr": loguniform(2e-3, 5e-2), "dim": choice(256, 1024, 4096), "width": choice(16, 32, 64),
        "weight_decay": loguniform(1e-5, 1e-2), "noise_to_signal": loguniform(0.1, 4.0)}, metric="separation/worst",
    mode="max", minutes=0.1,
    small={"noise_to_signal": [2.0, 0.25, 0.125], "dim": 256, "width": 8, "lr": 0.1, "measurements": 2},
)


@figure.trial
def run(config: TheoremConfig, recorder: Recorder) -> None:
    c, seed = config.noise_to_signal, config.streams.data
    tau = 8 * config.noise * config.dim**0.5 / c
    omega, lr, decay = config.init_scale / tau, config.lr / tau**2, config.weight_decay * tau**2
    means = data.orthogonal_means(4, config.dim, tau, seed=seed)
    signs = torch.tensor([1.0, 1.0, -1.0, -1.0], dtype=torch.float64)
    task = data.GaussianClusters(means, signs, config.n_train, noise=config.noise, seed=seed)
    net = nets.cubic_net(config.dim, config.width, omega=omega, seed=config.streams.init)
    start = net.layer.weight.detach().clone()
    steps = round(theory.fine_grained_structure.separation_time(c=c, lr=lr, tau=tau, omega=omega, width=config.width))
    every = max(1, steps // config.measurements)
    gd = learners.gd(lr, weight_decay=decay)
    learner = learners.Supervised(net, loss=learners.unhinged_loss, optimizer=gd, steps_per_batch=every)

    def separation(module, x):
        ratios = theory.fine_grained_structure.separation_ratio(module.net.features(x), task.clusters, task.groups)
        return {f"separation/{name}": value for name, value in ratios.items()}

    x, y = task.train
    fit(learner, task, config, recorder, steps=steps, probes=[probes.Measure(separation, every=every, inputs=x)])
    followed = torch.cat([x, means])
    at_t0, later = follow(followed @ x.T, followed @ start.T, y, lr, decay, steps, task)
    trained = followed @ net.cpu().layer.weight.detach().T
    errors = signal_errors(trained[-4:], means @ start.T, signs, steps, lr, tau, config.init_scale)
    errors["gram_error"] = ((at_t0 - trained).norm() / trained.norm()).item()
    errors["separation_bound"] = theory.fine_grained_structure.separation_bound(c=c, dim=config.dim, n=config.n_train)
    recorder.log(errors, step=steps)
    recorder.array("later", multiples=np.array([0, *LATER]), **later)


def follow(gram, projections, y, lr, decay, t0, task):
    """Return the projections at t_0, and the separation at multiples of t_0, from descent on inner products."""
    measured_at, ratios = {0, *(t0 * k for k in LATER)}, []
    activation = nets.CubicNearZero()
    for step, Z in learners.cubic_descent(gram, projections, y, lr=lr, weight_decay=decay, steps=t0 * max(LATER)):
        if step == t0:
            at_t0 = Z
        if step in measured_at:
            ratios.append(theory.fine_grained_structure.separation_ratio(activation(Z[: len(y)]), task.clusters,
                task.groups))
    return at_t0, {part: np.array([ratio[part] for ratio in ratios]) for part in ("mean", "worst")}


def signal_errors(final, start, signs, steps, lr, tau, scale):
    """Return relative errors of the closed form of the signal, over projections that begin on their label's side."""
    forward = signs[:, None] * start
    predicted = theory.fine_grained_structure.cubic_signal(forward, steps, lr=lr, tau=tau)
    chosen = forward > 0.3 * scale
    reached = signs[:, None] * final
    errors = ((reached - predicted).abs() / predicted)[chosen]
    moved = (reached - forward).abs()[chosen]
    return {
        "signal_error/largest": errors.max().item(),
        "signal_error/mean": errors.mean().item(),
        "signal_error/of_change": ((reached - predicted).abs()[chosen].mean() / moved.mean()).item(),
    }


@figure.cost
def cost(config: TheoremConfig):
    weights = config.dim * config.width
    # t_0 but for its first factor, which is below 1
    steps = 0.5 / (1 / 8 + config.noise_to_signal) / (config.lr * config.init_scale * math.log(4 * config.width) ** 0.5)
    gram = 2.0 * config.n_train * (config.n_train + 4) * config.width * max(LATER)
    flops = steps * (6.0 * weights * config.n_train + gram)
    numbers = config.dim * (config.n_train + 4) + 4 * weights
    return Cost(weights, flops, 8.0 * numbers, int(steps * (1 + max(LATER) / 10)) + 1)


def at_c(runs, metric):
    return {c: runs.final(metric, noise_to_signal=c) for c in sorted(runs.values("noise_to_signal"))}


def slope(runs, metric):
    """Least-squares slope of log R(t_0) against log 1/c."""
    values = at_c(runs, metric)
    return float(np.polyfit(-np.log(list(values)), np.log(list(values.values())), 1)[0])


@figure.claim("c18_clusters_stay_apart", paper="ratio much larger than 1",
    says="for c <= 1/4, the clusters of a label are far apart at t_0 (smallest R and R_worst)",
    expect={"R": at_least(10), "R_worst": at_least(5)})
def apart(runs):
    small = [c for c in runs.values("noise_to_signal") if c <= 0.25]
    names = {"R": "separation/mean", "R_worst": "separation/worst"}
    return {name: min(at_c(runs, metric)[c] for c in small) for name, metric in names.items()}


@figure.claim("c19_decreases_with_c", where="Thm. A.15", paper="order min(c^-3, c^-9 n^4.5 d^-1.5)",
    says="the separation R(t_0) falls as the noise-to-signal ratio c grows in at least three of four runs (rank "
    "correlation)", within=(-1, 1), about="share", least=0.75, expect=at_most(-0.999))
def falls(runs):
    ratios = at_c(runs, "separation/mean")
    return measures.spearman(torch.tensor(list(ratios)), torch.tensor(list(ratios.values()))).item()


@figure.claim("c20_signal_closed_form", where="Cor. A.11", paper="exact up to c in 1/8 +- c",
    says="the signal follows zeta(t_0) = 1/(1/zeta(0) - eta tau^2 t_0 / 8) where zeta(0) > 0.3 omega tau (largest "
    "relative error)", expect=at_most(0.03))
def closed_form(runs):
    return max(at_c(runs, "signal_error/largest").values())


@figure.claim("c20c_closed_form_of_the_change", where="Cor. A.11", origin="ours",
    says="the closed form predicts how far the signal zeta moves by t_0, also at large c where it moves little (mean "
    "error over mean change, largest over c)", expect=at_most(0.5))
def closed_form_of_change(runs):
    return max(at_c(runs, "signal_error/of_change").values())


@figure.claim("c21_order_of_the_ratio", where="Thm. A.15", paper="a lower bound of order c^-3", origin="ours",
    says="the separation grows with 1/c as fast as its lower bound, c^-3 (log-log slope of R and R_worst at t_0)",
    expect={"R": at_least(2.5), "R_worst": at_least(2.5)})
@figure.claim("c21b_order_is_one", where="Thm. A.15", origin="corrected",
    says="the separation grows like 1/c, as zeta^3 over zeta^2 |phi| does (log-log slope of R and R_worst at t_0)",
    expect={"R": between(0.8, 1.2), "R_worst": between(0.8, 1.2)})
def order(runs):
    return {"R": slope(runs, "separation/mean"), "R_worst": slope(runs, "separation/worst")}


@figure.claim("c21c_lower_bound", where="Thm. A.15", paper="R_worst >= bound",
    says="R_worst(t_0) exceeds the theorem's lower bound with L and L' taken as 1 (smallest ratio over c <= 1/4)",
    expect=at_least(1))
def bound(runs):
    worst, bounds = at_c(runs, "separation/worst"), at_c(runs, "separation_bound")
    return min(worst[c] / bounds[c] for c in worst if c <= 0.25)


def later(runs):
    """Return R by multiples of t_0, at c = 1/8."""
    (history,) = runs.arrays("later", noise_to_signal=0.125)
    return by_time(history)


def by_time(history):
    return dict(zip(history["multiples"].tolist(), history["mean"].tolist(), strict=True))


@figure.claim("c18b_preserved_not_made", origin="ours",
    says="the separation is about as large before training as at t_0 (R(t_0)/R(0) at c = 1/8)",
    expect=between(0.5, 2.0))
def preserved(runs):
    return later(runs)[1] / later(runs)[0]


@figure.claim("c18d_training_separates", origin="ours", says="training to t_0 moves the clusters of a label further "
    "apart than random initialisation does (R(t_0)/R(0) at c = 1/8)", expect=at_least(1.1))
def separates(runs):
    return later(runs)[1] / later(runs)[0]


@figure.claim("c21d_order_in_training", origin="ours",
    says="the separation grows like 1/c at random initialisation, and faster later in training (log-log slope of R at "
    "0 and at 4 t_0)", expect={"at 0": between(0.8, 1.2), "at 4 t_0": above(1.2)})
def order_in_training(runs):
    cs = sorted(runs.values("noise_to_signal"))
    ratios = [by_time(runs.arrays("later", noise_to_signal=c)[0]) for c in cs]
    slopes = {k: np.polyfit(-np.log(cs), np.log([R[k] for R in ratios]), 1)[0] for k in (0, 4)}
    return {"at 0": float(slopes[0]), "at 4 t_0": float(slopes[4])}


@figure.claim("c18c_rises_then_falls", origin="ours",
    says="at c = 1/8, the separation R rises after t_0, and falls later (ratios)",
    expect={"R(16 t_0) over R(t_0)": above(5), "R(64 t_0) over R(16 t_0)": below(1)})
def long_run(runs):
    R = later(runs)
    return {"R(16 t_0) over R(t_0)": R[16] / R[1], "R(64 t_0) over R(16 t_0)": R[64] / R[16]}


@figure.claim("c20b_inner_products_say_all", origin="ours", says="gradient descent on inner products alone gives the "
    "projections of the trained weights at t_0 (largest relative error)", kind="identity", expect=at_most(1e-9))
def gram_dynamics(runs):
    return max(at_c(runs, "gram_error").values())


@figure.draw(cols=3, size=(12, 4.2))
def panels(runs, axes):
    left, middle, right = axes[0]
    cs = sorted(runs.values("noise_to_signal"))
    dots: dict[str, Any] = {"marker": "o", "markersize": 3.5}
    for metric, name, colour in zip(("mean", "worst"), ("R", "$R_{worst}$"), CATEGORIES, strict=False):
        table = [runs.finals(f"separation/{metric}", noise_to_signal=c) for c in cs]
        band(left, table, cs, color=colour, label=name, **dots)
    first = runs.final("separation/mean", noise_to_signal=cs[0])
    for power, line in ((1, ":"), (3, "--")):
        values = [first * (cs[0] / c) ** power for c in cs]
        left.plot(cs, values, line, color="#444444", linewidth=1, label=f"$c^{{-{power}}}$")
    low = runs.final("separation/worst", noise_to_signal=cs[-1])
    for c, colour in zip(cs, shades(len(cs)), strict=True):
        ratios = np.array([history["mean"] / history["mean"][0] for history in runs.arrays("later", noise_to_signal=c)])
        band(middle, ratios.T, [0.5, *LATER], color=colour, shade=0.08, label=f"c = {c:g}", **dots)
    bound_level(middle, 1, vertical=True)
    for metric, colour in zip(("largest", "mean"), CATEGORIES, strict=False):
        right.plot(cs, list(at_c(runs, f"signal_error/{metric}").values()), color=colour, label=metric, **dots)
    bound_level(right, 0.03, "tolerance")
    for axis, ticks, columns in ((left, cs, 4), (middle, LATER, 3), (right, cs, 3)):
        axis.set(xscale="log", yscale="log", xlabel="noise to signal, c")
        axis.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axis.minorticks_off()
        axis.legend(loc="upper left", bbox_to_anchor=(0.0, -0.18), ncols=columns)
    left.set(ylabel="ratio at $t_0$", ylim=(low / 3, None))
    right.set(ylabel="relative error of ζ($t_0$)")
    middle.set(xlabel="$t / t_0$ (leftmost: before training)", ylabel="R(t) / R(0)")
