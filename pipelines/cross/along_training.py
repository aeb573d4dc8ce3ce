"""Networks 1 to 4. Alignment, collapse and classes never seen along training, on a network of each of four papers.

The four papers measure different things on different networks: alignment of weights with tangent features (NFA, C-NFA),
contraction of the classes trained on (NC1, NC2), alignment and elasticity of classes never trained on. Each ties its
own to feature learning. The question here is whether these change together on one run, and which comes first.

- Network 1, neural feature ansatz: four hidden ReLU layers, one-hot digits, full-batch gradient descent.
- Network 2, alignment and elasticity: two layers with a fixed readout, two sub-Gaussian classes; many small steps.
- Network 3, deep neural collapse: five hidden ReLU layers from a small initialisation, +-1 digits, small batches.
- Network 4, fine-grained structure: two hidden ReLU layers with biases, cross-entropy on merged classes of digits.

Networks 1, 3 and 4 do not train on the digits 8 and 9; for network 2 the unseen classes are Gaussians at 0.3 and 0.9 of
the mean of the first class. The features are the input of the last layer, the weights those right before it. Each run
is followed from its first step, often enough to show its fast phase.
"""

from functools import partial
from typing import Any, Literal

from featurelab.pipelines import (
    CATEGORIES, Experiment, Field, Missing, Recorder, TrainedConfig, above, at_least, band, below, choice, data, fit,
    learners, legend_below, loguniform, measures, mlp_cost, nets, np, null_level, probes, torch,
)

# the weights right before the features, and the layer that has these as its input
PLACES = {"ansatz": ("3", "4"), "two_layer": ("hidden", "head"), "collapse": ("4", "5"), "coarse": ("layers.1", "head")}
SEEN, COARSE = 8, 4


class CrossConfig(TrainedConfig):
    network: Literal["ansatz", "two_layer", "collapse", "coarse"] = Field("ansatz",
        description="whose network, data, loss and optimiser")
    n_train: int = Field(600, ge=32, description="training samples; digits: of the eight classes trained on")
    dim: int = Field(64, ge=2, description="input coordinates; digits have 64")
    width: int = Field(64, ge=8, description="units of the hidden layers")
    init_scale: float = Field(1.0, gt=0, description="ansatz: variance multiplier; collapse: gain; coarse: factor")
    lr: float = Field(0.2, gt=0, description="learning rate")
    momentum: float = Field(0.0, ge=0, lt=1, description="momentum of stochastic gradient descent")
    weight_decay: float = Field(0.0, ge=0, description="weight decay of all trained weights")
    batch_size: int | None = Field(None, ge=2, description="samples a step; none: all of them")
    steps: int = Field(600, ge=1, description="optimiser steps")
    measurements: int = Field(30, ge=1, description="how often everything is measured")
    unseen_digits: tuple[int, int] = Field((8, 9), description="digits that are not trained on")
    unseen_shares: tuple[float, float] = Field((0.3, 0.9),
        description="two_layer: where on the ray of the first class's mean the unseen means lie")
    noise: float = Field(0.0, ge=0, description="standard deviation of what is added to each pixel of digits")


TITLE = "Alignment, collapse and unseen classes along training, network of"

ansatz = Experiment(
    name="cross/ansatz_network", figures=("Network 1",), title=f"{TITLE} the neural feature ansatz",
    caption="Means over seeds and their range. With two classes NC2 is 0 by definition.", laptop=CrossConfig(),
    paper=CrossConfig(n_train=1000, width=256, steps=3000), grid={"seed": [0, 1, 2, 3, 4, 5]},
    sweep_axes={"lr": loguniform(1e-3, 10.0), "width": choice(32, 64, 128), "weight_decay": loguniform(1e-6, 1e-2)},
    metric="loss/train", minutes=0.2,
    small={"steps": 9, "measurements": 9, "n_train": 64, "width": 16, "dim": 64},
)
two_layer = ansatz.variant(
    "two_layer_network", figures=("Network 2",), title=f"{TITLE} alignment and elasticity", network="two_layer",
    steps=90, laptop=CrossConfig(n_train=256, dim=256, width=256, lr=4.0),
    paper=CrossConfig(n_train=2048, dim=2048, width=2048, lr=11.3),
)
collapse = ansatz.variant(
    "collapse_network", figures=("Network 3",), title=f"{TITLE} deep neural collapse", network="collapse",
    init_scale=0.5, lr=0.05, steps=5700, measurements=25, laptop=CrossConfig(width=128, batch_size=32),
    paper=CrossConfig(n_train=1000, width=512, batch_size=100),
)
coarse = ansatz.variant(
    "coarse_network", figures=("Network 4",), title=f"{TITLE} fine-grained structure", network="coarse", lr=0.1,
    momentum=0.9, weight_decay=5e-4, batch_size=120, measurements=50, laptop=CrossConfig(width=128, steps=250),
    paper=CrossConfig(n_train=1000, width=512, steps=1000),
)


@ansatz.trial
def run(config: CrossConfig, recorder: Recorder) -> None:
    task, unseen = datasets(config)
    every = max(1, config.steps // config.measurements)
    loss = "cross_entropy" if config.network == "coarse" else partial(learners.mse, factor=1 / task.train[1].shape[-1])
    sgd = learners.sgd(config.lr, momentum=config.momentum, weight_decay=config.weight_decay)
    pace = every if config.batch_size is None else 1
    learner = learners.Supervised(network(config), loss=loss, optimizer=sgd, steps_per_batch=pace)
    watching = [probes.LossProbe({"train": task.train}, every=every),
        probes.AnsatzProbe(every=every, inputs=task.train[0], quantities=["nfa", "cnfa"]),
        probes.CollapseProbe(every=every, inputs=task.train, quantities=["nc1", "nc2"]),
        probes.AlignmentProbe(every=every, inputs=unseen)]
    fit(learner, task, config, recorder, steps=config.steps, probes=watching)


def datasets(config: CrossConfig):
    """Return the training data, and samples (x, labels 0 and 1) of two classes that are not trained on."""
    seed = config.streams.data
    if config.network == "two_layer":
        both = data.SubGaussianClasses(config.n_train, config.dim, "sphere", seed=seed, dtype=config.dtype)
        parts = [
            data.unseen_class(
                data.gaussian_samples(200, config.dim, seed, f"unseen {share}"), both.axis, share * both.length
            )
            for share in config.unseen_shares
        ]
        return both, (torch.cat(parts).to(both.train[0]), torch.arange(2).repeat_interleave(200))
    digits = data.Digits(1797, split="stratified", targets="labels", pixels="overall", flatten=False, seed=seed,
        dtype=config.dtype)
    x, y = digits.train[0].flatten(1), digits.train[1]
    x = x + config.noise * data.gaussian_samples(len(x), x.shape[1], seed, "noise").to(x)
    unseen = torch.tensor(config.unseen_digits)
    new = torch.isin(y, unseen)
    chosen = (~new).nonzero().flatten()[: config.n_train]
    label = y[chosen] - (y[chosen, None] > unseen).sum(1)  # 0..7 without gaps
    one_hot = torch.nn.functional.one_hot(label, SEEN).to(x)
    targets = {"ansatz": one_hot, "collapse": 2 * one_hot - 1, "coarse": label % COARSE}[config.network]
    task = data.TensorData((x[chosen], targets), name="digits_seen", batch_size=config.batch_size,
        order_seed=config.streams.order, dtype=config.dtype)
    return task, (x[new], (y[new] == unseen[1]).long())


def network(config: CrossConfig):
    dim, width, gain = config.dim, config.width, config.init_scale
    same: dict[str, Any] = {"seed": config.streams.init, "dtype": config.dtype}
    if config.network == "ansatz":
        return nets.mlp(dim, width, 4, outputs=SEEN, init_scale=gain, **same)
    if config.network == "two_layer":
        return nets.two_layer(dim, width, heads=2, **same)
    if config.network == "collapse":
        return nets.xavier_mlp(dim, width, 5, outputs=SEEN, gain=gain, **same)
    return nets.perceptron((dim, 2 * width, width, COARSE), init_scale=gain, **same)


@ansatz.cost
def cost(config: CrossConfig):
    hidden = {"ansatz": 4, "two_layer": 1, "collapse": 5, "coarse": 2}[config.network]
    return mlp_cost(dim=config.dim, width=config.width, hidden=hidden, outputs=8, n_train=config.n_train,
        steps=config.steps, batch_size=config.batch_size, measures=config.measurements, bytes_a_number=4)


def paths(runs, *names):
    """The curves that claims compare along training; each rises where its paper sees features being learned."""
    layer, head = PLACES[runs.values("network")[0]]
    nc1 = runs.curve(f"nc1/{head}")
    if (nc1 <= 0).any():
        raise Missing("NC1 is 0, so that its logarithm is not finite")
    curves = {"UC-NFA": runs.curve(f"nfa/{layer}"), "C-NFA": runs.curve(f"cnfa/{layer}"), "collapse": -np.log(nc1),
        "elasticity": (runs.curve("elasticity/0") + runs.curve("elasticity/1")) / 2,
        "recall": runs.curve("recall_at_1/all")}
    return [curves[name] for name in names]


def together(one, other):
    """Spearman's correlation along training, over the steps at which both were measured."""
    steps = one.index.intersection(other.index)
    return measures.spearman(torch.tensor(one[steps].to_numpy()), torch.tensor(other[steps].to_numpy())).item()


def halfway(path):
    """The share of training after which a curve has first covered half of the way from its first value to its last.

    Between two records the curve is taken to be straight. A curve that stays where it is, as without training, gives 0.
    """
    way = (path - path.iloc[0]) / (path.iloc[-1] - path.iloc[0])
    after = int((way >= 0.5).to_numpy().argmax())
    around = way.iloc[max(after - 1, 0) : after + 1]
    return float(np.interp(0.5, around, around.index) / path.index[-1])


@ansatz.draw(cols=4, size=(13, 3.9))
def panels(runs, axes):
    layer, head = PLACES[runs.values("network")[0]]
    moves = {f"{what}, {which}": f"{what}/{k}" for what in ("alignment", "elasticity") for k, which in enumerate("AB")}
    columns = [("weights and tangent features", "correlation", {"UC-NFA": f"nfa/{layer}", "C-NFA": f"cnfa/{layer}"}),
        ("collapse of classes trained on", "NC1, NC2", {"NC1": f"nc1/{head}", "NC2": f"nc2/{head}"}),
        ("unseen classes A and B move", "inner products / width", moves),
        ("unseen classes told apart", "share", {"Recall@1": "recall_at_1/all"})]
    for axis, (title, ylabel, metrics) in zip(axes[0], columns, strict=True):
        for (label, metric), colour in zip(metrics.items(), CATEGORIES, strict=False):
            table = runs.curves(metric) / (runs.values("width")[0] if "width" in ylabel else 1)
            band(axis, table, color=colour, label=label, linestyle="--" if label.startswith("elasticity") else "-")
        axis.set(title=title, xlabel="step", ylabel=ylabel)
    axes[0, 1].set_yscale("log")
    axes[0, 0].set_ylim(0, 1.02)
    axes[0, 3].set_ylim(0.45, 1.02)
    null_level(axes[0, 3], 0.5, "chance")
    for axis in axes[0]:
        legend_below(axis, 2)


OTHERS = [two_layer, collapse, coarse]


@ansatz.claim("x1_c_nfa_goes_with_collapse", origin="ours", also=OTHERS,
    says="along training the C-NFA of the last hidden weights and -ln NC1 of the features rise together (Spearman)",
    within=(-1, 1), expect=at_least(0.5))
def c_nfa_and_collapse(runs):
    return together(*paths(runs, "C-NFA", "collapse"))


@ansatz.claim("x2_nfa_goes_with_collapse", origin="ours", also=OTHERS,
    says="along training the UC-NFA of the last hidden weights and -ln NC1 of the features rise together (Spearman)",
    within=(-1, 1), expect=at_least(0.5))
def nfa_and_collapse(runs):
    return together(*paths(runs, "UC-NFA", "collapse"))


@ansatz.claim("x3_unseen_classes_move_with_collapse", origin="ours", also=OTHERS,
    says="along training the elasticity of unseen classes and -ln NC1 of classes trained on rise together (Spearman)",
    within=(-1, 1), expect=at_least(0.5))
def elasticity_and_collapse(runs):
    return together(*paths(runs, "elasticity", "collapse"))


@ansatz.claim("x4_alignment_comes_first", origin="ours", also=OTHERS, says="the UC-NFA is halfway to its final value "
    "before -ln NC1 is halfway to its own (difference in shares of training)", expect=below(0))
def alignment_first(runs):
    alignment, collapse = paths(runs, "UC-NFA", "collapse")
    return halfway(alignment) - halfway(collapse)


@ansatz.claim("x5_unseen_classes_told_apart", origin="ours", also=OTHERS,
    says="training tells two unseen classes better apart (Recall@1 at the end less that before training)",
    expect=above(0))
def recall_of_unseen(runs):
    (recall,) = paths(runs, "recall")
    return float(recall.iloc[-1] - recall.iloc[0])
