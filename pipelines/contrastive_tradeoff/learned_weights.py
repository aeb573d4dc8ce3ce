"""Propositions 7.3, 7.4 and F.8, Lemma F.3. The weights that a representation learns on mixtures of tasks.

T tasks share s features and have q = r - s each of their own, of variance 1; the other d - (s + Tq) features are
spurious, drawn anew in the positive. phi(x) = W x minimises E l(phi(x) . phi(x+)), the mean of a negative being 0,
under |W|_2 <= 1 and |W|_F^2 <= r: every step ends with the exact projection onto these (Section 7.2.2). The paper
trains nothing here; learning rate and steps are ours.

On an even mixture of T tasks the shared features have weight alpha = 1 and those of each task beta = 1/T; on one task
alone all of its features have weight 1. On an uneven mixture a task of greater weight w_t has a greater alpha_t: the
optimum of lemma F.3, over alpha and alpha_t, is compared with the trained W.

The proposition gives W up to a rotation, so the whole of (W M)'(W M) should be diagonal. It is among features that
occur together; of private features of *different* tasks the loss says nothing, and the trained W lets them overlap.
"""

from typing import Any, Literal

from featurelab.pipelines import (
    CATEGORIES, Config, Cost, Experiment, Field, Recorder, above, at_least, at_most, bars, bound_level, choice, curves,
    data, fit, learners, legend_below, loguniform, nets, np, probes, theory, torch,
)

EPOCHS = 30  # in which the learning rate falls; batches are drawn anew in each
TASKS = [1, 2, 4, 8]
SEVERAL = TASKS[1:]
UNEVEN = [(0.7, 0.1, 0.1, 0.1), (0.4, 0.3, 0.2, 0.1), (0.55, 0.15, 0.15, 0.15), (0.25, 0.25, 0.25, 0.25)]
SAMPLES = 40_000  # of chi-square laws, common to all weights that are tried


class MixtureConfig(Config):
    control: Literal["none", "untrained", "shuffled_pairs"] = Field("none",
        description="what is destroyed; shuffled_pairs: positives are those of other samples of the batch")
    precision: Literal["64-true", "32-true"] = Field("64-true", description="Lightning precision")
    tasks: int = Field(4, ge=1, description="T: tasks in an even mixture")
    weights: tuple[float, ...] = Field((), description="weights of the tasks; empty: even")
    shared: int = Field(4, ge=1, description="s: features that all tasks share")
    private: int = Field(4, ge=1, description="q = r - s: features of each task alone")
    spurious: int = Field(8, ge=0, description="features that are drawn anew in the positive")
    present: int = Field(1, ge=1, description="tasks that exist, at least; those beyond T are not in the mixture")
    kind: Literal["logistic", "exp", "linear"] = Field("logistic", description="l")
    temperature: float = Field(1.0, gt=0, description="l is applied to phi(x) . phi(x+) over it; the theory has any l")
    init_scale: float = Field(1e-2, gt=0, description="initial entries of W are N(0, init_scale / d)")
    width: int = Field(0, ge=0, description="rows k of W; 0: as many as there are invariant features")
    lr: float = Field(0.3, gt=0, description="learning rate, over a quarter of the rows of W")
    weight_decay: float = Field(0.0, ge=0, description="weight decay of W")
    batch_size: int = Field(1024, ge=2, description="pairs a step, drawn anew")
    steps: int = Field(600, ge=EPOCHS, description="steps; the rate falls linearly over the last 30%")
    measure_every: int = Field(50, ge=1, description="steps between measurements")


PRESET = MixtureConfig()

even = Experiment(
    name="contrastive_tradeoff/learned_weights", figures=("Prop. 7.3", "Prop. 7.4", "Prop. F.8"),
    title="Weights of shared and private features after contrastive learning on T tasks",
    caption="Lines are means over seeds, bands their range. Levels: 1 and 1/T, the optimum.", laptop=PRESET,
    paper=PRESET.but(steps=1500), grid={"tasks": TASKS, "seed": range(6)},
    sweep_axes={"lr": loguniform(0.03, 3.0), "width": choice(0, 4, 8, 16, 32), "weight_decay": loguniform(1e-5, 1e-1),
        "tasks": choice(1, 2, 4, 8), "kind": choice("logistic", "exp", "linear")}, minutes=0.6,
    small={"steps": 30, "batch_size": 32, "measure_every": 10, "shared": 2, "private": 2, "spurious": 2},
)
uneven = even.variant(
    "uneven_mixture", figures=("Lemma F.3",), title="Weights of private features on uneven mixtures",
    caption="Dots: trained W, means over seeds and their range; crosses: the optimum of lemma F.3.",
    grid={"weights": UNEVEN, "seed": range(6)},
    sweep_axes={"lr": loguniform(0.03, 3.0), "width": choice(0, 8, 16), "weight_decay": loguniform(1e-5, 1e-1),
        "weights": choice(*UNEVEN)}, minutes=0.6,
)


def shares(config: MixtureConfig) -> list[float]:
    """The weight of each task, those that are not in the mixture included."""
    weights = list(config.weights) or [1 / config.tasks] * config.tasks
    return weights + [0.0] * max(0, config.present - len(weights))


def mixture(config: MixtureConfig, weights: list[float]) -> "data.LinearMixture":
    return data.LinearMixture(weights, config.shared, config.private, config.spurious, batch_size=config.batch_size,
        batches=-(-config.steps // EPOCHS), shuffled_pairs=config.control == "shuffled_pairs",
        order_seed=config.streams.order, seed=config.streams.data, dtype=config.dtype)


def pre_train(config: MixtureConfig, recorder: Any, rate: float | None = None) -> "tuple[data.LinearMixture, Any]":
    """Train W on the mixture, and follow the weights of its features; gives the mixture and W as a network.

    `rate` is the learning rate where it is not the config's over a quarter of the rows.
    """
    task = mixture(config, shares(config))
    rows = config.width or config.shared + task.tasks * config.private
    net = nets.mlp(task.factors, 1, 0, outputs=rows, init_scale=config.init_scale, seed=config.streams.init,
        dtype=config.dtype)
    (weight,) = net.parameters()

    def inside(W: Any) -> Any:
        return learners.project_spectral_frobenius(W, (config.shared + config.private) ** 0.5)

    with torch.no_grad():
        weight.copy_(inside(weight))
    optimizer = learners.projected_optimizer(learners.gd(rate or config.lr * rows / 4, config.weight_decay), inside)
    train(config, recorder, task, net, optimizer)
    return task, net


def train(config: MixtureConfig, recorder: Any, task: Any, net: Any, optimizer: Any) -> None:
    """Minimise the contrastive loss on fresh pairs, and follow the weights of features and the loss on fixed ones."""
    loss = learners.mean_negative_loss(config.kind, temperature=config.temperature)
    learner = learners.Supervised(net, loss=loss, optimizer=optimizer, schedule=learners.linear_decay_at_end(EPOCHS))
    columns = task.dictionary.T.to(task.train[0])

    def weights(module: Any, x: Any) -> dict[str, float]:
        with torch.no_grad():
            F = module.net(columns.to(x))  # outputs for single factors
            measured = theory.contrastive_tradeoff.feature_weights(F, config.shared, config.private, task.tasks)
        named = {name: getattr(measured, name).item() for name in ("shared", "spurious", "within", "across", "spread")}
        named |= {f"private/{t}": weight for t, weight in enumerate(measured.private.tolist())}
        return {f"weight/{name}": value for name, value in named.items()}

    fit(
        learner,
        task,
        config,
        recorder,
        steps=config.steps,
        probes=[probes.Measure(weights, every=config.measure_every, inputs=task.train),
            probes.LossProbe({"test": task.train}, config.measure_every, loss=loss)],
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
    optimum = {"optimum/shared": alpha} | {f"optimum/private/{t}": a for t, a in enumerate(own.tolist())}
    recorder.log(optimum, step=config.steps)


@even.cost
def cost(config: MixtureConfig) -> Cost:
    factors = config.shared + len(shares(config)) * config.private + config.spurious
    rows = config.width or factors - config.spurious
    step = 12.0 * config.batch_size * factors * (rows + factors) + 20.0 * rows**2 * factors
    return Cost(rows * factors, step * config.steps, 64.0 * config.batch_size * factors, config.steps)


def greatest(runs, name):
    return max(runs.final(f"weight/{name}", tasks=t) for t in SEVERAL)


@even.claim("c05_one_task", where="Prop. 7.4", paper="all features of the task, weight 1; spurious ones 0",
    says="Trained on one task, W has all of the task's features and no spurious one (least of alpha and beta, greatest "
    "spurious weight)", expect={"features": at_least(0.99), "spurious": at_most(0.01)})
def one_task(runs):
    one = runs.where(tasks=1)
    least = min(one.final("weight/shared"), one.final("weight/private/0"))
    return {"features": least, "spurious": one.final("weight/spurious")}


@even.claim("c06_several_tasks", where="Prop. 7.3, F.8", paper="α = 1, β = 1/T, spurious 0",
    says="Trained on T = 2, 4, 8 tasks, W has alpha = 1, beta = 1/T on average and no spurious feature (|alpha - 1|, "
    "|mean beta - 1/T|, spurious weight; greatest over T)",
    expect={"α": at_most(0.01), "β": at_most(0.01), "spurious": at_most(0.01)})
def several_tasks(runs):
    def mean_beta(tasks):
        return sum(runs.final(f"weight/private/{t}", tasks=tasks) for t in range(tasks)) / tasks

    return {"α": max(abs(runs.final("weight/shared", tasks=t) - 1) for t in SEVERAL),
        "β": max(abs(mean_beta(t) - 1 / t) for t in SEVERAL), "spurious": greatest(runs, "spurious")}


@even.claim("c06b_each_weight", origin="ours", where="Prop. 7.3", says="On T = 2, 4, 8 tasks, each feature's own "
    "weight is near the mean, 1 or 1/T (greatest distance over features and T)", expect=at_most(0.05))
def each_weight(runs):
    off = [abs(runs.final(f"weight/private/{k}", tasks=t) - 1 / t) for t in SEVERAL for k in range(t)]
    return max(*off, greatest(runs, "spread"))


@even.claim("c06c_diagonal_printed", where="Prop. 7.3", paper="φ* ∘ g(z) = Q diag(√α, √β) z",
    says="All features are orthogonal in the representation (greatest entry of (W M)'(W M) off the diagonal, over T)",
    expect=at_most(0.01))
def diagonal(runs):
    return max(greatest(runs, "within"), greatest(runs, "across"))


@even.claim("c06d_diagonal_within_tasks", origin="corrected", where="Prop. 7.3",
    says="Features that occur together are orthogonal in the representation (greatest entry of (W M)'(W M) off the "
    "diagonal within a task's block, over T)", expect=at_most(0.1))
def within_tasks(runs):
    return greatest(runs, "within")


def by_task(runs, weights, name):
    """The weights of private features, in the order of the tasks."""
    return np.array([runs.final(f"{name}/private/{t}", weights=weights) for t in range(len(weights))])


def steps_and_ties(runs, name):
    """The least rise of alpha_t from one task to another of greater weight, and the greatest distance where equal."""
    rises, ties = [], []
    for weights in UNEVEN:
        alpha, w = by_task(runs, weights, name), np.array(weights)
        apart = alpha[:, None] - alpha
        rises += apart[w[:, None] > w].tolist()
        ties += np.abs(apart[w[:, None] == w]).tolist()
    return {"rise": min(rises), "ties": max(ties)}


BOUNDS = {"rise": above(0), "ties": at_most(0.02)}


@uneven.claim("c08_greater_weight_is_kept_more", origin="ours", kind="identity",
    says="At the optimum of lemma F.3, alpha_t is greater for a task of greater weight, and equal for tasks of equal "
    "weight (least rise, greatest distance)", expect=BOUNDS)
def optimum_ordered(runs):
    return steps_and_ties(runs, "optimum")


@uneven.claim("c08b_so_does_training", origin="ours",
    says="In the trained W, alpha_t is greater for a task of greater weight, and equal for tasks of equal weight "
    "(least rise, greatest distance)", expect=BOUNDS)
def training_ordered(runs):
    return steps_and_ties(runs, "weight")


@uneven.claim("c08c_training_finds_the_optimum", origin="ours", says="The trained W has the weights of the optimum of "
    "lemma F.3 (greatest distance over features, tasks and mixtures)", expect=at_most(0.03))
def finds(runs):
    off = [np.abs(by_task(runs, w, "weight") - by_task(runs, w, "optimum")).max() for w in UNEVEN]
    off += [abs(runs.final("weight/shared", weights=w) - runs.final("optimum/shared", weights=w)) for w in UNEVEN]
    return float(max(off))


@even.draw(cols=3, size=(11.5, 3.8))
def panels(runs, axes):
    labels = {"shared": "weight α of shared features", "private/0": "weight β of task 1's features",
        "across": "greatest overlap"}
    for axis, (name, label) in zip(axes[0], labels.items(), strict=True):
        curves(axis, runs, f"weight/{name}", across="tasks", label="T = {value}")
        axis.set(xlabel="step", ylabel=label, ylim=(-0.03, 1.05))
    bound_level(axes[0, 0], 1, "optimum")
    for tasks in TASKS:
        bound_level(axes[0, 1], 1 / tasks)
    axes[0, 2].set(title="of private features of different tasks", ylim=(-0.02, 0.5))
    legend_below(axes, 5)


@uneven.draw(size=(8, 4.2))
def tasks_drawn(runs, axes):
    axis, places = axes[0, 0], np.arange(len(UNEVEN[0]))
    for place, (weights, color) in enumerate(zip(UNEVEN, CATEGORIES, strict=False)):
        rows = [runs.finals(f"weight/private/{t}", weights=weights) for t in places]
        label = "w = " + ", ".join(f"{w:g}" for w in weights)
        bars(axis, rows, places + 5 * place, color=color, linestyle="none", label=label)
        axis.plot(places + 5 * place, by_task(runs, weights, "optimum"), "kx", markersize=7)
    axis.plot([], [], "kx", label="optimum, lemma F.3")
    axis.set_xticks([p + 5 * k for k in range(len(UNEVEN)) for p in places], [*map(str, places + 1)] * len(UNEVEN))
    axis.set(xlabel="task", ylabel="weight of private features", ylim=(0, 1.05))
    legend_below(axis, 3)
