"""Propositions 7.3 and 7.4, lemma F.3. What weights a representation learns on mixtures of tasks.

On an even mixture of T tasks the shared features shall have weight alpha = 1 and those of each task beta = 1/T; on one
task alone all of its features have weight 1. On an uneven mixture a task of greater weight w_t has a greater alpha_t:
the optimum of lemma F.3, over alpha and alpha_t, stands beside the trained W.

The proposition gives W up to a rotation, so the whole of (W M)'(W M) should be diagonal. It is among features that
occur together; of private features of *different* tasks the loss says nothing, and the trained W lets them overlap.
"""

from featurelab.pipelines import (
    CATEGORIES,
    Experiment,
    Recorder,
    above,
    at_least,
    at_most,
    bars,
    choice,
    curves,
    data,
    loguniform,
    np,
    theory,
    torch,
)
from featurelab.pipelines.contrastive_tradeoff.mixture import MixtureConfig, cost, pre_train

TASKS = [1, 2, 4, 8]
SEVERAL = TASKS[1:]
UNEVEN = [(0.7, 0.1, 0.1, 0.1), (0.4, 0.3, 0.2, 0.1), (0.55, 0.15, 0.15, 0.15), (0.25, 0.25, 0.25, 0.25)]
SAMPLES = 40_000  # of chi-square laws, common to all weights that are tried
PRESET = MixtureConfig()
SMALL = {"steps": 30, "batch_size": 32, "measure_every": 10, "shared": 2, "private": 2, "spurious": 2}

even = Experiment(
    name="contrastive_tradeoff/learned_weights", figures=("Prop. 7.3", "Prop. 7.4"),
    title="Weights of shared and private features after contrastive learning on T tasks",
    caption="Lines are means over seeds, bands their range. Dashed: 1 and 1/T.", laptop=PRESET,
    paper=PRESET.but(steps=1500), grid={"tasks": TASKS, "seed": [0, 1, 2]},
    sweep_axes={"lr": loguniform(0.03, 3.0), "width": choice(0, 4, 8, 16, 32), "weight_decay": loguniform(1e-5, 1e-1),
        "tasks": choice(1, 2, 4, 8), "kind": choice("logistic", "exp", "linear")}, metric="loss/test", minutes=0.3,
    small=SMALL,
)
uneven = even.variant(
    "uneven_mixture", figures=("Lemma F.3",), title="Weights of private features on uneven mixtures",
    caption="Dots: trained W, means over seeds and their range; crosses: the optimum of lemma F.3.", laptop=PRESET,
    paper=PRESET.but(steps=1500), grid={"weights": UNEVEN, "seed": [0, 1, 2]},
    sweep_axes={"lr": loguniform(0.03, 3.0), "width": choice(0, 8, 16), "weight_decay": loguniform(1e-5, 1e-1),
        "weights": choice(*UNEVEN)}, minutes=0.3,
)


@even.trial
def run(config: MixtureConfig, recorder: Recorder) -> None:
    pre_train(config, recorder)


@uneven.trial
def run_uneven(config: MixtureConfig, recorder: Recorder) -> None:
    pre_train(config, recorder)
    chance = data.stream(config.streams.init, "chi-square")
    s, q, weights = config.shared, config.private, config.weights
    Z = torch.from_numpy(chance.chisquare(s, SAMPLES))
    Zt = torch.from_numpy(chance.chisquare(q, (len(weights), SAMPLES)))
    alpha, own = theory.contrastive_tradeoff.uneven_optimum(weights, Z, Zt, shared=s, private=q, kind=config.kind)
    found = {"optimum/shared": alpha} | {f"optimum/private/{t}": a for t, a in enumerate(own.tolist())}
    recorder.log(found, step=config.steps)


even.cost(cost)


def mean_private(runs, tasks):
    return sum(runs.final(f"weight/private/{t}", tasks=tasks) for t in range(tasks)) / tasks


def greatest(runs, name, tasks=SEVERAL):
    return max(runs.final(f"weight/{name}", tasks=t) for t in tasks)


@even.claim("c05_one_task", where="Prop. 7.4", paper="all features of the task, weight 1; spurious ones 0",
    says="trained on one task: least of alpha and beta, greatest spurious weight",
    expect={"features": at_least(0.99), "spurious": at_most(0.01)})
def one_task(runs):
    one = runs.where(tasks=1)
    least = min(one.final("weight/shared"), one.final("weight/private/0"))
    return {"features": least, "spurious": one.final("weight/spurious")}


@even.claim("c06_several_tasks", where="Prop. 7.3, F.8", paper="α = 1, β = 1/T, spurious 0",
    says="trained on T = 2, 4, 8 tasks: |alpha - 1|, |mean beta - 1/T|, spurious weight (greatest over T)",
    expect={"α": at_most(0.01), "β": at_most(0.01), "spurious": at_most(0.01)})
def several_tasks(runs):
    return {
        "α": max(abs(runs.final("weight/shared", tasks=t) - 1) for t in SEVERAL),
        "β": max(abs(mean_private(runs, t) - 1 / t) for t in SEVERAL),
        "spurious": greatest(runs, "spurious"),
    }


@even.claim("c06b_each_weight", origin="ours", where="Prop. 7.3",
    says="every feature's own weight is near its mean, 1 or 1/T (greatest distance over features and T)",
    expect=at_most(0.05))
def each_weight(runs):
    off = [abs(runs.final(f"weight/private/{k}", tasks=t) - 1 / t) for t in SEVERAL for k in range(t)]
    return max(*off, greatest(runs, "spread"))


@even.claim("c06c_diagonal_printed", where="Prop. 7.3", paper="φ* ∘ g(z) = Q diag(√α, √β) z",
    says="all features are orthogonal in the representation: greatest entry of (W M)'(W M) off the diagonal, over T",
    expect=at_most(0.01))
def diagonal(runs):
    return max(greatest(runs, "within"), greatest(runs, "across"))


@even.claim("c06d_diagonal_within_tasks", origin="corrected", where="Prop. 7.3",
    says="features that occur together are orthogonal: greatest entry off the diagonal within a task's block, over T",
    expect=at_most(0.1))
def within_tasks(runs):
    return greatest(runs, "within")


def ordered(runs, weights, name):
    """The weights of private features of the tasks, in the order of the tasks."""
    return np.array([runs.final(f"{name}/private/{t}", weights=weights) for t in range(len(weights))])


def steps_and_ties(runs, name):
    """The least rise of alpha_t from one task to another of greater weight, and the greatest distance where equal."""
    rises, ties = [], []
    for weights in UNEVEN:
        found, w = ordered(runs, weights, name), np.array(weights)
        more, same = w[:, None] > w, w[:, None] == w
        apart = found[:, None] - found
        rises += apart[more].tolist()
        ties += np.abs(apart[same]).tolist()
    return {"rise": min(rises), "ties": max(ties)}


BOUNDS = {"rise": above(0), "ties": at_most(0.02)}


@uneven.claim("c08_greater_weight_is_kept_more", paper="larger w_t, larger α_t", controls=(), kind="identity",
    says="at the optimum of lemma F.3 a task of greater weight has a greater alpha_t, equal ones the same (least rise, "
    "greatest distance)", expect=BOUNDS)
def optimum_ordered(runs):
    return steps_and_ties(runs, "optimum")


@uneven.claim("c08b_so_does_training", paper="φ*(x) = W* x with A = diag(√α, √α_t)",
    says="and so it is in the trained W", expect=BOUNDS)
def training_ordered(runs):
    return steps_and_ties(runs, "weight")


@uneven.claim("c08c_training_finds_the_optimum", origin="ours",
    says="trained weights are those of the optimum (greatest distance over features, tasks and mixtures)",
    expect=at_most(0.03))
def finds(runs):
    off = [np.abs(ordered(runs, w, "weight") - ordered(runs, w, "optimum")).max() for w in UNEVEN]
    off += [abs(runs.final("weight/shared", weights=w) - runs.final("optimum/shared", weights=w)) for w in UNEVEN]
    return float(max(off))


@even.draw(cols=3, size=(11.5, 3.6))
def panels(runs, axes):
    for axis, name, label in zip(
        axes[0], ("shared", "private/0", "across"),
        ("weight α of shared features", "weight β of task 1's features", "greatest overlap"), strict=True,
    ):
        curves(axis, runs, f"weight/{name}", across="tasks", label="T = {value}")
        axis.set(xlabel="step", ylabel=label, ylim=(-0.03, 1.05))
    axes[0, 0].axhline(1, color="#444444", linestyle="--", linewidth=1)
    for tasks in TASKS:
        axes[0, 1].axhline(1 / tasks, color="#444444", linestyle="--", linewidth=1)
    axes[0, 2].set(title="of private features of different tasks", ylim=(-0.02, 0.5))
    axes[0, 0].legend(loc="lower right")


@uneven.draw(size=(8, 3.8))
def by_task(runs, axes):
    axis, places = axes[0, 0], np.arange(len(UNEVEN[0]))
    for place, (weights, colour) in enumerate(zip(UNEVEN, CATEGORIES, strict=False)):
        rows = [runs.finals(f"weight/private/{t}", weights=weights) for t in places]
        label = "w = " + ", ".join(f"{w:g}" for w in weights)
        xs = places + 5 * place
        bars(axis, rows, xs, color=colour, linestyle="none", label=label)
        axis.plot(xs, ordered(runs, weights, "optimum"), "x", color="#444444", markersize=7)
    axis.plot([], [], "x", color="#444444", label="optimum, lemma F.3")
    axis.set_xticks([p + 5 * k for k in range(len(UNEVEN)) for p in places], [*map(str, places + 1)] * len(UNEVEN))
    axis.set(xlabel="task", ylabel="weight of private features", ylim=(0, 1.15))
    axis.legend(loc="upper right", ncols=2)
