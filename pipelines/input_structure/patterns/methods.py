"""What the figures on patterns share: data with and without structure, and the methods that are compared on them.

The network has 2m truncated ReLUs and starts at g = 0. Two steps on all samples come first, with noise before the
activation: step 1 at the theorem's tiny rate, with a penalty that erases the neurons, and step 2 at rate 1, which
erases neurons and heads. Minibatches follow. At the theorem's rate the network is far from trained after the paper's
600 steps, so that we use Adam, for the network and for the fixed features alike: the linearised network (NTK) and heads
on random neurons (RF), both trained from 0 at the same initialisation.

The methods "one_step" and "two_steps" keep the neurons of that step and train heads.
"""

from collections.abc import Mapping
from typing import Any, Literal

from featurelab.pipelines import Cost, Field, TrainedConfig, data, fit, learners, measures, nets, probes, torch

FIXED = {"ntk": "NTK", "rf": "random features"}
RIDGE = 1e-3  # of the best classifier on standardised neurons
FIRST = (1, 2)  # steps after which neurons are looked at


class PatternConfig(TrainedConfig):
    control: Literal["none", "permuted_labels", "untrained", "same_moments"] = Field("none",  # type: ignore[assignment]
        description="what is destroyed; same_moments: Gaussian inputs with the moments of each class")
    problem: Literal["parity", "interval", "words"] = Field("parity", description="how patterns make the label")
    structured: bool = Field(True, description="whether each pattern that matters alone tells of the label")
    method: Literal["network", "ntk", "rf", "one_step", "two_steps"] = Field("network",
        description="what is trained; one_step and two_steps: heads alone after these steps")
    n_train: int = Field(20_000, ge=4, description="training samples")
    n_test: int = Field(5000, ge=4, description="test samples")
    dim: int = Field(128, ge=2, description="input coordinates d")
    patterns: int = Field(100, ge=1, description="hidden patterns D")
    size: int = Field(5, ge=1, description="patterns k that matter")
    unstructured: float = Field(0.5, ge=0, lt=1,
        description="parity: p_o, the share of samples whose patterns are fair bits")
    words: int = Field(50, ge=1, description="words: random words a class")
    negative_share: float | None = Field(None, gt=0, lt=1, description="share of y = -1; none: as drawn")
    kind: Literal["orthonormal", "unit", "identity"] = Field("orthonormal", description="the dictionary")
    noise: float = Field(0.0, ge=0, description="standard deviation of Gaussian noise in each input coordinate")
    width: int = Field(100, ge=1, description="neurons m before mirroring")
    smoothing: float = Field(1.0, ge=0, description="noise before the activation in steps 1 and 2, in units of 1/k^2")
    first_lr: float | None = Field(None, ge=0, description="rate of step 1; none: gamma^2 sig / (k m^3)")
    erase: float = Field(1.0, ge=0, le=1, description="share of the initial neurons that step 1 erases")
    as_decay: bool = Field(False, description="whether step 1 erases by weight decay, with its rounding errors")
    class_weights: bool = Field(False, description="whether steps 1 and 2 weight both classes equally")
    lr: float = Field(0.02, gt=0, description="Adam's learning rate from step 3 on")
    weight_decay: float = Field(0.0, ge=0, description="weight decay from step 3 on")
    batch_size: int = Field(500, ge=1, description="samples a step from step 3 on")
    steps: int = Field(600, ge=2, description="steps in all")
    measure_every: int = Field(50, ge=1, description="steps between measurements")
    classifiers: bool = Field(False, description="whether to fit the best classifiers on neurons after steps 0, 1, 2")


def interval(config: PatternConfig) -> tuple[int, int]:
    """t1 and t2: the upper third of the counts, 20 to 30 for k = 30."""
    return 2 * config.size // 3, config.size


def law_of(config: PatternConfig, structured: bool) -> "data.PatternLaw":
    c = config
    if c.problem == "parity":
        return data.ParityPatterns(c.patterns, c.size, c.unstructured if structured else 1.0)
    if c.problem == "interval":
        return data.IntervalPatterns(c.patterns, c.size, *interval(c), inside=2 / 3 if structured else 0.5)
    return data.CodebookPatterns(c.patterns, c.size, c.words, c.streams.data)


def build(config: PatternConfig) -> "data.DictionaryData":
    c = config
    task = data.DictionaryData(law_of(c, c.structured), c.n_train, c.n_test, c.dim, kind=c.kind, noise=c.noise,
        negative_share=c.negative_share, seed=c.streams.data, dtype=c.dtype, batch_size=c.batch_size,
        order_seed=c.streams.order)
    return data.same_moments(task, seed=c.streams.data) if c.control == "same_moments" else task


def initial(config: PatternConfig) -> "nets.TruncatedNet":
    """The network with the initial scales for data with structure, also where there is none."""
    c, law = config, law_of(config, True)
    head_std = law.scale() ** 2 / (law.gamma() * c.size**2)
    stds = {"weight_std": 1 / c.size, "bias_std": 1 / c.size**2, "head_std": head_std}
    return nets.mirrored_truncated(c.dim, c.width, **stds, seed=c.streams.init, dtype=c.dtype)


def first_steps(config: PatternConfig) -> "list[learners.FirstStep]":
    c, law = config, law_of(config, True)
    rate = law.gamma() ** 2 * law.scale() / (c.size * c.width**3) if c.first_lr is None else c.first_lr
    erased = {"hidden.weight": 1.0, "head.weight": 1.0}
    one = learners.FirstStep(rate, {"hidden.weight": c.erase}, c.as_decay)
    return [one] if c.method == "one_step" else [one, learners.FirstStep(1.0, erased)]


def direction(config: PatternConfig, task: "data.DictionaryData") -> "torch.Tensor":
    """The direction that neurons should find: s*, or E[y x] of the law for words, whose patterns matter unequally."""
    return task.mean_product if config.problem == "words" else task.relevant


def network(config: PatternConfig, task: "data.DictionaryData") -> "learners.FirstStepsThen":
    c, noise = config, config.smoothing / config.size**2
    hinge = learners.balanced_hinge if c.class_weights else learners.hinge

    def smoothed(net: Any, batch: Any) -> "torch.Tensor":
        return hinge(lambda x: net(x, noise), batch)

    shares = {"hidden": 1.0 if c.method == "network" else 0.0, "head": 1.0}
    return learners.FirstStepsThen(initial(c), loss="hinge",
        optimizer=learners.adam_by_layer(c.lr, shares, c.weight_decay), first_steps=first_steps(c),
        first_batch=task.train, first_loss=smoothed)


def fixed(config: PatternConfig) -> "learners.Supervised":
    """The linearised network, or heads on random neurons."""
    net: Any = initial(config)
    if config.method == "ntk":
        net = nets.Linearised(net)
    else:
        net.hidden.requires_grad_(False)
        torch.nn.init.zeros_(net.head.weight)
    return learners.Supervised(net, loss="hinge", optimizer=learners.adam(config.lr, config.weight_decay))


def classifier(task: "data.DictionaryData") -> Any:
    """Return a measure: the accuracy of the best logistic classifier on the neurons' outputs."""
    (x, y), (z, t) = task.train, task.test

    @torch.no_grad()
    def accuracy(module: Any, _: Any) -> Mapping[str, float]:
        trained, tested = (module.net.features(inputs.to(module.device)).cpu() for inputs in (x, z))
        classes = torch.from_numpy(measures.linear_probe(trained, (y[:, 0] > 0).long(), tested, ridge=RIDGE))
        outputs = 2.0 * classes - 1
        right = (outputs == t[:, 0]).double().mean().item()
        return {"accuracy": right, "balanced": learners.balanced_accuracy(outputs, t).item()}

    return accuracy


def mapper(config: PatternConfig, goal: "torch.Tensor", map_arrays: dict[str, Any]) -> Any:
    """Return a measure of the clusters of neurons, which puts maps of the neurons and of +-goal into `map_arrays`."""

    def mapped(module: Any, _: Any) -> Mapping[str, float]:
        W, step = module.net.hidden.weight.detach()[: config.width].cpu(), module.trainer.global_step
        plane = measures.weight_map(W, torch.stack([goal, -goal]), seed=config.streams.init)
        map_arrays[f"points_{step}"], map_arrays[f"marks_{step}"] = plane.points.numpy(), plane.marks.numpy()
        return measures.direction_clusters(W, config.streams.init)

    return mapped


def train(config: PatternConfig, recorder: Any, maps: bool = False) -> None:
    """Train one method; record losses, accuracies and the cosines of neurons with the direction that matters.

    With `maps`, also record clusters and maps of the neurons before the first steps, after each, and at the end.
    """
    task = build(config)
    learner = fixed(config) if config.method in FIXED else network(config, task)
    goal, labels = direction(config, task), task.labelled[1]

    def weights(module: Any, x: Any) -> Mapping[str, float]:
        W = module.net.hidden.weight.detach()
        values = measures.direction_alignment(W, goal.to(x.device))
        if config.kind == "orthonormal":
            values["in_span"] = measures.subspace_energy(W.double(), task.dictionary.T.to(x.device)).mean().item()
        return values

    parts = {"train": task.train, "test": task.test}
    watching: list[Any] = [probes.LossProbe(parts, config.measure_every, balanced=True)]
    if config.method != "ntk":
        watching.append(probes.Measure(weights, config.measure_every, at=FIRST, prefix="cosine/"))
    if config.classifiers and config.method not in FIXED:
        watching.append(probes.Measure(classifier(task), config.steps, at=[1], prefix="classifier/"))
    sampled = {"majority": labels, "majority/test": task.test[1]}
    larger = {name: max(float((y > 0).double().mean()), float((y < 0).double().mean())) for name, y in sampled.items()}
    recorder.log(larger, step=0)
    map_arrays: dict[str, Any] = {}
    if maps:
        watching.append(probes.Measure(mapper(config, goal, map_arrays), config.steps, at=FIRST, prefix="clusters/"))
    fit(learner, task, config, recorder, steps=config.steps, probes=watching)
    if maps:
        recorder.array("map", **map_arrays)


def cost(config: PatternConfig) -> Cost:
    c = config
    weights = 2 * c.width * (c.dim + 2)
    measured = c.steps // c.measure_every + 2
    passes = (2 if c.method == "ntk" else 1) * (3.0 * c.batch_size * c.steps + measured * (c.n_train + c.n_test))
    memory = 8.0 * (c.n_train + c.n_test) * (c.dim + 8 * c.width)
    return Cost(weights, 2 * weights * (passes + 6.0 * c.n_train), memory, c.steps)
