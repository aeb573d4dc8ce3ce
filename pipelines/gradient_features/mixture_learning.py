"""Theorems 3.12, 3.18 and B.42. Networks compared with fixed features on mixtures of Gaussians.

On the XOR of four clusters the first step turns neurons to the clusters, and the theory puts the network ahead of
kernels and random features, which need of the order of d^2 samples. The XOR is a sign of a quadratic form, so that the
quadratic kernel (x.z)^2 is the rival to beat. Clusters with orthogonal means are a linear
problem. Networks whose first step saw permuted labels, or that had none, show what the first step contributes.

For the XOR we also evaluate the bound of equation 3.13.
"""

import math

from featurelab.pipelines import (
    CATEGORIES, Experiment, Recorder, above, at_least, bars, below, bound_level, choice, curves, legend_below,
    loguniform, np, null_level,
)
from featurelab.pipelines.gradient_features.training import KERNELS, METHODS, FeatureConfig, cost, train

SEEDS = range(6)
PLACES = [(50, 1000), (50, 2000), (200, 1000)]  # d, n
EVERY = [*METHODS, "kernels"]
SWEEP = {
    "lr": loguniform(2e-3, 1e-1),
    "width": choice(40, 100, 200, 400),
    "weight_decay": loguniform(1e-6, 1e-2),
    "hidden_share": loguniform(1e-3, 1.0),
    "erase": choice(0.0, 0.5, 1.0),
    "n_train": choice(500, 1000, 2000, 4000),
}
SMALL = {"n_train": 60, "n_test": 40, "dim": 8, "width": 16, "batch_size": 20, "steps": 9, "measure_every": 4}
PRESET = FeatureConfig()
ORTHOGONAL = FeatureConfig(problem="orthogonal", dim=60, clusters=6)

xor = Experiment(
    name="gradient_features/train_xor", figures=("Thm. 3.4", "Thm. 3.12", "Thm. B.42"),
    title="Test accuracy of a network and of fixed features on the XOR of Gaussian clusters",
    caption="Means over seeds, bars their range; dotted: chance. Fixed features at their best ridge.",
    laptop=PRESET,
    paper=PRESET.but(dim=800, n_train=16_000, n_test=20_000, width=2000, steps=3000, kernel_samples=16_000),
    grid={("dim", "n_train"): PLACES, "method": EVERY, "seed": SEEDS},
    paper_grid={("dim", "n_train"): [(100, 4000), (200, 4000), (400, 4000), (800, 4000), (800, 16_000)],
        "method": EVERY, "seed": SEEDS}, sweep_axes=SWEEP, metric="accuracy/test", mode="max", minutes=1.2,
    small={key: value for key, value in SMALL.items() if key not in ("dim", "n_train")}
    | {("dim", "n_train"): [(8, 60), (8, 80), (12, 60)]},
)
orthogonal = xor.variant(
    "train_mixture", figures=("Thm. 3.18",), title="Test accuracy on clusters with orthogonal means", laptop=ORTHOGONAL,
    paper=ORTHOGONAL.but(dim=400, n_train=8000, n_test=20_000, width=2000, steps=3000, kernel_samples=8000),
    grid={"method": EVERY, "seed": SEEDS}, paper_grid=None, minutes=0.8, small=SMALL,
)
bound = xor.variant(
    "bound", figures=("Eq. 3.13",), title="The error bound of the main theorem against the measured error",
    caption="XOR of Gaussian clusters. Of the bound we draw the second term, with B_a1 = 1/√d, the least "
    "of lemma B.41, and γ = σ/√d.",
    grid={("dim", "n_train"): PLACES, "method": ["full"], "seed": SEEDS}, reads=xor, minutes=0.4,
    paper_grid={("dim", "n_train"): [(100, 4000), (200, 4000), (400, 4000), (800, 4000), (800, 16_000)],
        "method": ["full"], "seed": SEEDS},
)


@xor.trial
def run(config: FeatureConfig, recorder: Recorder) -> None:
    train(config, recorder)


xor.cost(cost)


def accuracy(runs, method, **where):
    return runs.final("accuracy/test", method=method, **where)


def fixed(runs, name, **where):
    return runs.final(f"accuracy/test/{name}", method="kernels", **where)


def farthest(runs):
    """Return the dimension and sample size of the hardest point of the grid."""
    return {"dim": max(runs.values("dim")), "n_train": min(runs.values("n_train"))}


@xor.claim("c16_network_beats_fixed_features",
    says="at the largest d and the fewest samples, the network learns the XOR and beats random features, the "
    "linearised network and a Gaussian kernel, each at its best ridge (test accuracy, margins)",
    paper="net learns, fixed features need Ω(d²)", where="Theorem B.42, section 3.4.1; bounds set after the fact",
    within=(-1, 1),
    expect={"network": at_least(0.85), "over random features": at_least(0.2), "over linearised": at_least(0.2),
        "over Gaussian kernel": at_least(0.05)})
def beats(runs):
    return margins(runs, "full")


@xor.claim("c16b_so_does_one_step",
    says="at the largest d and the fewest samples, a network whose neurons are frozen after the first step learns the "
    "XOR and beats random features, the linearised network and a Gaussian kernel, each at its best ridge (test "
    "accuracy, margins)",
    paper="net learns, fixed features need Ω(d²)", where="Theorem 3.4; bounds set after the fact", within=(-1, 1),
    expect={"network": at_least(0.85), "over random features": at_least(0.2), "over linearised": at_least(0.2),
        "over Gaussian kernel": at_least(0.05)})
def one_step_beats(runs):
    return margins(runs, "frozen")


def margins(runs, method):
    hardest = farthest(runs)
    reached = accuracy(runs, method, **hardest)
    return {
        "network": reached,
        "over random features": reached - fixed(runs, "random_features", **hardest),
        "over linearised": reached - fixed(runs, "ntk", **hardest),
        "over Gaussian kernel": reached - fixed(runs, "rbf", **hardest),
    }


@xor.claim("c16c_margin_over_the_best", says="at the largest d and the fewest samples, the network beats the best of "
    "all fixed features, the quadratic kernel among them (margin in test accuracy)", paper="beyond the kernel regime",
    where="Section 3.4.1", within=(-1, 1), expect=at_least(0.05))
def over_the_best(runs):
    return accuracy(runs, "full", **farthest(runs)) - accuracy(runs, "kernels", **farthest(runs))


@xor.claim("c16d_it_is_the_first_step", says="at the largest d and the fewest samples, the network beats one whose "
    "first step saw permuted labels, and one without a first step (margins in test accuracy)", origin="ours",
    where="Theorem B.42", within=(-1, 1), expect={"permuted": at_least(0.15), "without": at_least(0.15)})
def first_step(runs):
    reached = accuracy(runs, "full", **farthest(runs))
    others = {"permuted": "permuted_first", "without": "no_first_step"}
    return {name: reached - accuracy(runs, method, **farthest(runs)) for name, method in others.items()}


@xor.claim("c17_the_gap_grows_with_the_dimension",
    says="the network's margin over the best of all fixed features is larger at the largest d than at the smallest, "
    "both with the fewest samples (difference)", paper="d^1.5 against d²", where="Section 3.4.1",
    within=(-2, 2), expect=at_least(0.03))
def gap_grows(runs):
    few = min(runs.values("n_train"))
    return gap(runs, max(runs.values("dim")), few) - gap(runs, min(runs.values("dim")), few)


@xor.claim("c17b_the_gap_at_other_sizes",
    says="the network's margin over the best of all fixed features is larger at the largest d with the fewest samples "
    "than at the smallest d with the most (difference)", origin="ours", where="Section 3.4.1", within=(-2, 2),
    expect=above(0))
def gap_elsewhere(runs):
    low, high = min(runs.values("dim")), max(runs.values("dim"))
    return gap(runs, high, min(runs.values("n_train"))) - gap(runs, low, max(runs.where(dim=low).values("n_train")))


def gap(runs, dim, n):
    return accuracy(runs, "full", dim=dim, n_train=n) - accuracy(runs, "kernels", dim=dim, n_train=n)


@orthogonal.claim("c18b_network_learns", says="the network learns six clusters with orthogonal means (test accuracy)",
    paper="error ≤ √2 r/d^(0.4τ - 0.8) + ε", where="Theorem 3.18", expect=at_least(0.85), within=(0, 1))
def learns(runs):
    return accuracy(runs, "full")


@orthogonal.claim("c18c_no_advantage_where_the_problem_is_linear",
    says="on clusters with orthogonal means, a linear problem, the network has no advantage over the best fixed "
    "features (margin in test accuracy)", origin="ours", where="Theorem 3.18", expect=below(0.02), within=(-1, 1))
def no_advantage(runs):
    return accuracy(runs, "full") - accuracy(runs, "kernels")


def second_term(dim, snr, r=4):
    """Return r B_a1 B_x1 sqrt(2 gamma), with the constants of lemma B.41 for its largest tilde tau, d/(std^2 log d).

    B_a1 is then 1/sqrt(d), and the term falls with d for a fixed std of the noise, as in B.394.
    """
    std = math.sqrt(dim) / snr
    return r * (1 + std) * math.sqrt(2 * std / math.sqrt(dim))


def errors(runs):
    """Return dimension, sample size, measured error and bound at every point."""
    points = []
    for dim, n in dict.fromkeys(zip(runs.trials.dim, runs.trials.n_train, strict=True)):
        points.append((dim, n, 1 - accuracy(runs, "full", dim=dim, n_train=n), second_term(dim, *runs.values("snr"))))
    return points


@bound.claim("c23b_the_bound_says_something",
    says="the bound falls below 1/2 where the error does (smallest bound over d whose error is below 1/2)",
    paper="a guarantee for large d", origin="ours", kind="identity", expect=below(0.5))
def informative(runs):
    return min((limit for _, _, error, limit in errors(runs) if error < 0.5), default=math.inf)


@xor.draw(cols=3, size=(13, 4))
def panels(runs, axes):
    for axis, (dim, n) in zip(axes[0], dict.fromkeys(zip(runs.trials.dim, runs.trials.n_train, strict=True)),
            strict=False):
        methods(axis, runs.where(dim=dim, n_train=n))
        after = runs.at("cosine/median", 0, method="full", dim=dim, n_train=n)
        axis.set(title=f"d = {dim}, n = {n}\nmedian of max |cos(G, D)|: {after:.2f}")
    for axis in axes[0, 1:]:
        axis.set_yticklabels([])


@orthogonal.draw(cols=2, size=(10.5, 3.8))
def mixture_panels(runs, axes):
    methods(axes[0, 0], runs)
    trained = runs.where(method="full")
    for part, style in (("train", "--"), ("test", "-")):
        curves(axes[0, 1], trained, f"accuracy/{part}", across="method", label=f"network, {part}", linestyle=style)
    axes[0, 1].set(xlabel="step", ylabel="accuracy", ylim=(0.45, 1.02))
    legend_below(axes[0, 1], 2)


def methods(axis, runs, networks=METHODS):
    """Draw test accuracies of networks and of fixed features, one below the other."""
    shown = [(name, runs.finals("accuracy/test", method=method)) for method, name in networks.items()]
    shown += [(name, runs.finals(f"accuracy/test/{kernel}", method="kernels")) for kernel, name in KERNELS.items()]
    for place, (_, values) in enumerate(shown):
        ends = [[values.mean() - values.min()], [values.max() - values.mean()]]
        colour = CATEGORIES[0 if place < len(networks) else 1]
        axis.errorbar(values.mean(), place, xerr=ends, fmt="o", color=colour, markersize=6, capsize=3)
    null_level(axis, 0.5, vertical=True)
    axis.set_yticks(range(len(shown)), [name for name, _ in shown])
    axis.set(xlim=(0.45, 1.02), xlabel="test accuracy")
    axis.invert_yaxis()
    axis.grid(axis="y", visible=False)


@bound.draw(size=(7, 3.6))
def bounds(runs, axes):
    axis = axes[0, 0]
    points = errors(runs)
    places = np.arange(len(points))
    table = [1 - runs.finals("accuracy/test", dim=dim, n_train=n) for dim, n, _, _ in points]
    bars(axis, table, places, color=CATEGORIES[0], label="measured error", linestyle="")
    axis.plot(places, [limit for *_, limit in points], "s", color=CATEGORIES[1], label="bound")
    bound_level(axis, 1.0, "vacuous above")
    axis.set_xticks(places, [f"d = {dim}\nn = {n}" for dim, n, *_ in points])
    axis.set(yscale="log", ylabel="error, bound", xlim=(-0.5, len(points) - 0.5), ylim=(1e-2, 60))
    legend_below(axis, 3)
