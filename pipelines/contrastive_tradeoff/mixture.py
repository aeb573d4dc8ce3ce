"""What the figures that train on linear mixtures of tasks share: pairs, a matrix W, projected gradient descent.

T tasks share s features and have q = r - s each of their own, of variance 1; d - (s + Tq) others are spurious, drawn
anew in the positive. phi(x) = W x minimises E l(phi(x) . phi(x+)), the mean of a negative being 0, under |W|_2 <= 1 and
|W|_F^2 <= r: every step ends with the exact projection onto these (Section 7.2.2). The paper trains nothing here; rate
and steps are ours.
"""

from typing import Any, Literal

from featurelab.pipelines import Config, Cost, Field, data, fit, learners, nets, probes, theory, torch

EPOCHS = 30  # in which the learning rate falls; batches are drawn anew in each


class MixtureConfig(Config):
    control: Literal["none", "untrained", "shuffled_pairs"] = Field(
        "none", description="what is destroyed; shuffled_pairs: positives are those of other samples of the batch"
    )
    precision: Literal["64-true", "32-true"] = Field("64-true", description="Lightning precision")
    tasks: int = Field(4, ge=1, description="T: tasks in an even mixture")
    weights: tuple[float, ...] = Field((), description="weights of the tasks; empty: even")
    shared: int = Field(4, ge=1, description="s: features that all tasks share")
    private: int = Field(4, ge=1, description="q = r - s: features of each task alone")
    spurious: int = Field(8, ge=0, description="features that the positive has apart")
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


def shares(config: MixtureConfig) -> list[float]:
    """The weight of each task, those that are not in the mixture included."""
    known = list(config.weights) or [1 / config.tasks] * config.tasks
    return known + [0.0] * max(0, config.present - len(known))


def mixture(config: MixtureConfig, weights: list[float], steps: int) -> "data.LinearMixture":
    return data.LinearMixture(
        weights, config.shared, config.private, config.spurious, batch_size=config.batch_size,
        batches=-(-steps // EPOCHS), shuffled_pairs=config.control == "shuffled_pairs",
        order_seed=config.streams.order, seed=config.streams.data, dtype=config.dtype,
    )


def pre_train(config: MixtureConfig, recorder: Any, rate: float | None = None) -> "tuple[data.LinearMixture, Any]":
    """Train W on the mixture, and follow the weights of its features; gives the mixture and W as a network.

    `rate` is the learning rate where it is not the config's over a quarter of the rows.
    """
    task = mixture(config, shares(config), config.steps)
    rows = config.width or config.shared + task.tasks * config.private
    net = nets.mlp(
        task.factors, 1, 0, outputs=rows, init_scale=config.init_scale, seed=config.streams.init, dtype=config.dtype
    )
    (weight,) = net.parameters()

    def inside(W: Any) -> Any:
        return learners.project_spectral_frobenius(W, (config.shared + config.private) ** 0.5)

    with torch.no_grad():
        weight.copy_(inside(weight))
    optimizer = learners.projected_optimizer(learners.gd(rate or config.lr * rows / 4, config.weight_decay), inside)
    train(config, recorder, task, net, optimizer, config.steps)
    return task, net


def train(config: Any, recorder: Any, task: Any, net: Any, optimizer: Any, steps: int) -> None:
    """Minimise the contrastive loss on fresh pairs, and follow the weights of features and the loss on fixed ones."""
    loss = learners.mean_negative_loss(config.kind, temperature=config.temperature)
    learner = learners.Supervised(net, loss=loss, optimizer=optimizer, schedule=learners.linear_decay_at_end(EPOCHS))
    columns = task.dictionary.T.to(task.train[0])

    def watched(module: Any, x: Any) -> dict[str, float]:
        with torch.no_grad():
            return weights_of(module.net(columns.to(x)), config, task.tasks)

    watching = [
        probes.Measure(watched, every=config.measure_every, inputs=task.train),
        probes.LossProbe({"test": task.train}, config.measure_every, loss=loss),
    ]
    fit(learner, task, config, recorder, steps=steps, probes=watching)


def weights_of(F: Any, config: Any, tasks: int) -> dict[str, float]:
    """The weights of a representation whose outputs for single factors are the rows of F, by name."""
    found = theory.contrastive_tradeoff.feature_weights(F, config.shared, config.private, tasks)
    named = {name: getattr(found, name).item() for name in ("shared", "spurious", "within", "across", "spread")}
    own = {f"private/{t}": weight for t, weight in enumerate(found.private.tolist())}
    return {f"weight/{name}": value for name, value in (named | own).items()}


def cost(config: MixtureConfig) -> Cost:
    factors = config.shared + len(shares(config)) * config.private + config.spurious
    rows = config.width or factors - config.spurious
    step = 12.0 * config.batch_size * factors * (rows + factors) + 20.0 * rows**2 * factors
    return Cost(rows * factors, step * config.steps, 64.0 * config.batch_size * factors, config.steps)
