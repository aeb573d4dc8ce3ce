"""Section 7.2.2, Proposition 7.4. Representations of more tasks need more labels on each; those of one fail on others.

W is trained on mixtures of T tasks as in propositions 7.3 and 7.4. Then m labels y = u* . z + noise of one task train a
linear predictor on W x: least squares with |u| <= B, B the least norm that meets u* (an empirical risk minimiser of
the class of equation 7.8). Its excess risk is exact, |(W M)'u - u*|^2, averaged over many draws of the labels. Half of
|u*|^2 = 1 lies on shared features, half on private ones, r = 2s. The loss has a temperature, log(1 + exp(-t/5)), which
is convex and decreasing as well: without it the slope vanishes for r = 20.

The paper proves bounds and runs nothing here. Noise is ours: without it m >= r labels are fitted exactly whatever the
weights. All T see the same factors and labels.
"""

from typing import Literal

from featurelab.pipelines import (
    Cost, Experiment, Field, Recorder, at_least, at_most, band, bound_level, choice, data, evaluate, learners,
    legend_below, loguniform, measures, np, shades, theory, torch,
)
from featurelab.pipelines.contrastive_tradeoff import learned_weights
from featurelab.pipelines.contrastive_tradeoff.learned_weights import EPOCHS, MixtureConfig, pre_train

TASKS = [1, 2, 4, 8, 16]
OWN, OTHER = 0, 1  # the first task is in every mixture, the second in all but that of one task
ENERGY = {"shared": 0.5, "private": 0.5}  # of u*


class LabelConfig(MixtureConfig):
    control: Literal["none", "permuted_labels", "untrained"] = Field("none",  # type: ignore[assignment]
        description="what is destroyed")
    present: int = Field(2, ge=2, description="tasks that exist, at least; those beyond T are not in the mixture")
    shared: int = Field(10, ge=1, description="s: features that all tasks share")
    private: int = Field(10, ge=1, description="q = r - s: features of each task alone")
    temperature: float = Field(5.0, gt=0, description="l is applied to phi(x) . phi(x+) over it; the theory has any l")
    init_scale: float = Field(1e-5, gt=0, description="initial entries of W are N(0, init_scale / d)")
    lr: float = Field(3.0, gt=0, description="learning rate")
    batch_size: int = Field(2048, ge=2, description="pairs a step, drawn anew")
    steps: int = Field(600, ge=EPOCHS, description="steps; the rate falls linearly over the last 30%")
    sizes: tuple[int, ...] = Field((10, 15, 30, 100, 1000), min_length=1, description="numbers m of labels")
    noise: float = Field(0.5, ge=0, description="standard deviation of the labels' noise")
    n_train: int = Field(60_000, ge=1, description="labels in all: sets of the largest m")


PRESET = LabelConfig()

figure = Experiment(
    name="contrastive_tradeoff/label_efficiency", figures=("Sec. 7.2.2", "Prop. 7.4"), part="risk",
    title="Excess risk against the number of labels, on a task of the mixture and on another",
    caption="Means over seeds, bands their range.", laptop=PRESET, paper=PRESET.but(steps=1500, n_train=200_000),
    grid={"tasks": TASKS, "seed": range(6)},
    sweep_axes={"lr": loguniform(1.0, 20.0), "n_train": choice(10_000, 60_000), "weight_decay": loguniform(1e-6, 1e-2),
        "tasks": choice(*TASKS), "noise": choice(0.0, 0.2, 0.5, 1.0)}, metric="risk/own/100", minutes=2,
    small={"steps": 30, "batch_size": 32, "measure_every": 10, "shared": 2, "private": 2, "spurious": 2, "n_train": 200,
        "sizes": (10, 15, 30, 100)},
)


@figure.trial
def run(config: LabelConfig, recorder: Recorder) -> None:
    task, net = pre_train(config, recorder, config.lr)
    s, q = config.shared, config.private
    target = torch.tensor([ENERGY["shared"] / s] * s + [ENERGY["private"] / q] * q, dtype=torch.float64).sqrt()
    largest = max(config.sizes)
    sets = max(1, config.n_train // largest)
    for name, number in (("own", OWN), ("other", OTHER)):
        seed = config.streams.data
        samples = task.task_samples(sets * largest, number, target, noise=config.noise, seed=seed)
        labelled = data.TensorData(samples, dtype=config.dtype, name=f"linear_task_{name}")
        places = [*task.own(number), *range(task.factors - task.spurious, task.factors)]
        goal = torch.cat([target, torch.zeros(task.spurious, dtype=torch.float64)])

        def risks(net, x, y, name=name, places=places, goal=goal):
            F = net(task.dictionary.T[places].to(x))  # the representations of the factors that vary here
            return {f"risk/{name}/{m}": risk(net(x), y, F, goal.to(x), m, largest) for m in config.sizes}

        evaluate(learners.Measurement(net, risks), labelled, config, recorder)


def risk(phi, y, F, goal, m, largest):
    """The mean excess risk of the best predictors in the ball on the first m labels of each set."""
    own = int((goal != 0).sum())
    basis = torch.linalg.qr(F.T).Q  # outside of the span of the factors a predictor is only longer
    features, labels = (part.unflatten(0, (-1, largest))[:, :m] for part in (phi @ basis, y))
    radius = theory.contrastive_tradeoff.predictor_norm(F[:own], goal[:own])
    predictors = theory.contrastive_tradeoff.least_squares_in_ball(features, labels, float(radius))
    return theory.contrastive_tradeoff.excess_risk(predictors, F @ basis, goal).mean()


@figure.cost
def cost(config: LabelConfig) -> Cost:
    trained, r = learned_weights.cost(config), config.shared + config.private + config.spurious
    labels = 4.0 * config.n_train * r * (trained.parameters / r + 10 * r)
    factors = config.shared + max(config.tasks, config.present) * config.private + config.spurious
    return Cost(trained.parameters, trained.flops + labels, 24.0 * config.n_train * factors, config.steps)


def sizes(runs):
    """The numbers m of labels, rising."""
    return list(runs.values("sizes")[0])


def own_risks(runs, m):
    """Risks on a task of every mixture, by T."""
    return np.array([runs.final(f"risk/own/{m}", tasks=t) for t in TASKS])


def risks_with_most_labels(runs):
    return own_risks(runs, max(sizes(runs)))


@figure.claim("c11_more_tasks_need_more_labels", paper="error worse by O(√T)", within=(-1, 1), expect=at_least(1),
    says="In at least three of four runs, with at most 30 labels of a task of the mixture, the risk on this task rises "
    "with T (Spearman over T, least over m)", about="share", least=0.75)
def rises(runs):
    order = torch.tensor(TASKS, dtype=torch.float64)
    return min(measures.spearman(order, torch.tensor(own_risks(runs, m))).item() for m in sizes(runs) if m <= 30)


@figure.claim("c11b_and_the_task_is_learned", origin="ours",
    says="In at least three of four runs, risk rises with T for at most 30 labels, and with the most labels the task "
    "is learned at every T (Spearman, least over m; greatest risk)",
    expect={"rise": at_least(1), "risk": at_most(0.01)}, about="share", least=0.75)
def rises_and_is_learned(runs):
    return {"rise": rises(runs), "risk": small_risk(runs)}


@figure.claim("c12_many_labels_make_up", paper="error diminishes with m",
    says="With the most labels, risks at all T agree (greatest over least, less 1)", expect=at_most(0.05))
def agree(runs):
    return float(risks_with_most_labels(runs).max() / risks_with_most_labels(runs).min() - 1)


@figure.claim("c12b_at_a_small_risk", origin="ours",
    says="With the most labels, risks at all T are small (greatest over T)", expect=at_most(0.01))
def small_risk(runs):
    return float(risks_with_most_labels(runs).max())


@figure.claim("c13_floor_on_other_tasks", paper="≥ min E l(u . z_S, y) with infinitely many labels", where="Prop. 7.4",
    says="With the most labels of another task, the representation of one task misses its private features and that of "
    "two tasks does not (risk over the private share of the label; risk)",
    expect={"specific": at_least(0.95), "universal": at_most(0.02)})
def floor(runs):
    m = max(sizes(runs))
    specific = runs.final(f"risk/other/{m}", tasks=1) / ENERGY["private"]
    return {"specific": specific, "universal": runs.final(f"risk/other/{m}", tasks=2)}


@figure.draw(cols=2, size=(10, 4.1))
def panels(runs, axes):
    titles = {"own": "task of every mixture", "other": "task of the mixtures of T ≥ 2"}
    for axis, (name, title) in zip(axes[0], titles.items(), strict=True):
        for tasks, color in zip(TASKS, shades(len(TASKS)), strict=True):
            rows = [runs.finals(f"risk/{name}/{m}", tasks=tasks) for m in sizes(runs)]
            band(axis, rows, sizes(runs), color=color, marker="o", markersize=3.5, label=f"T = {tasks}")
        axis.set(xscale="log", yscale="log", xlabel="labels m", ylabel="excess risk", title=title)
    bound_level(axes[0, 1], ENERGY["private"], "private share of the label")
    legend_below(axes, 6)
