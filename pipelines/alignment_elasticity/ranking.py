"""Figures 4 and N.1-N.17. Unseen classes rank alike by similarity to the training set, Alignment and Elasticity.

A randomly initialised backbone h (d outputs), a nonlinear layer F = sigma(W'h) of N units and two heads learn to tell
two classes of one dataset apart (targets y and -y, 48 images a class, full batches, Adam). After each epoch, five
unseen classes of that dataset and five of another are scored by

    |beta'mu|,  beta = h(X)'y / (n sqrt N),  mu = E h(x),
    Alignment E F(x)'F(x')  over independent x, x',        Elasticity E |F(x) - F_0(x)|^2

and Kendall's W says how far the three rankings agree: 1 for equal rankings, 1/3 on average for unrelated ones. Every
seed samples its classes at random.

Features are measured in evaluation mode: batch statistics of one class would subtract that class's own mean. Two
controls tell where the agreement comes from. A second beta, from permuted labels, shows how much is due to classes with
long or short feature vectors rather than to what was learned. The same network without weight updates shows how much is
due to the running averages of batch normalisation.

The desktop preset is the paper's, on CIFAR-100 and GTSRB (traffic signs) in place of CARS196 and CUB200.
"""

import copy
import itertools
from typing import Any, Literal

from featurelab.pipelines import (
    CATEGORIES, Cost, Experiment, Field, Recorder, TrainedConfig, above, at_least, band, choice, data, fit, learners,
    legend_beside, loguniform, measures, nets, np, null_level, paper_level, probes, shades, torch,
)
from featurelab.pipelines.alignment_elasticity.metric_learning import PAIRS, STAND_INS

Named = Literal["digits", "fields", "cifar100", "gtsrb", "cars196", "cub200"]
PAIR_NAMES = ("A to A", "A to B", "B to A", "B to B")
PAPER_LEVEL = (0.7, 0.5)
SCORES = {"similarity": r"$|\beta^\top\mu|$", "alignment": "Alignment", "elasticity": "Elasticity"}


class RankingConfig(TrainedConfig):
    train_set: Named = Field("digits", description="dataset of the two training classes; its partner is measured too")
    n_train: int = Field(96, ge=4, multiple_of=2, description="training images, half of each class; a step sees all")
    unseen: int = Field(5, ge=3, description="unseen classes of each dataset, n_train / 2 images of each")
    trunk: Literal["conv", "resnet18"] = Field("conv", description="backbone, drawn at random")
    size: int = Field(224, ge=32, description="side of public images in pixels")
    batch_norm: bool = Field(True, description="batch normalisation in the convolutional backbone")
    dim: int = Field(512, ge=1, description="outputs d of the backbone")
    width: int = Field(512, ge=1, description="units N of the nonlinear layer")
    activation: Literal["tanh", "relu"] = Field("tanh", description="sigma, which the paper does not name")
    train_heads: bool = Field(True, description="whether the heads a_1, a_2 are trained too")
    lr: float = Field(1e-3, gt=0, description="learning rate of Adam")
    weight_decay: float = Field(0.0, ge=0, description="weight decay of every layer")
    epochs: int = Field(20, ge=1, description="epochs of one full-batch step each")
    permutations: int = Field(20, ge=1, description="permutations of the training labels in the control")


LAPTOP = RankingConfig()

figure = Experiment(
    name="alignment_elasticity/ranking", figures=("Fig. 4", *(f"Fig. N.{n}" for n in range(1, 18))),
    title="Rankings of unseen classes by similarity, Alignment and Elasticity",
    caption="Top: Kendall's W, means over seeds and their range, and the heads' training accuracy. Below: the scores "
    "of the first seed, one colour a class, grey the whole evaluation set.", laptop=LAPTOP,
    paper=LAPTOP.but(train_set="cars196", trunk="resnet18", dim=2048, width=2048),
    desktop=LAPTOP.but(train_set="cifar100", trunk="resnet18", size=32, dim=2048, width=2048),
    desktop_grid={"train_set": ["cifar100", "gtsrb"], "seed": range(4)}, desktop_minutes=3,
    reduced="CIFAR-100 and GTSRB at 32 pixels in place of CARS196 and CUB200 at 224",
    grid={"train_set": ["digits", "fields"], "seed": range(6)},
    paper_grid={"train_set": ["cars196", "cub200"], "seed": [0, 1, 2, 3]},
    sweep_axes={"lr": loguniform(1e-4, 1e-2), "width": choice(128, 256, 512, 1024),
        "weight_decay": loguniform(1e-6, 1e-2)}, metric="loss/train", minutes=0.3,
    small={"epochs": 4, "dim": 16, "width": 24, "n_train": 24, "unseen": 3, "permutations": 2},
    needs=("cars196", "cub200"),
    stand_in="scikit-learn's 8x8 digits and a synthetic mixture of random fields replace CARS196 and CUB200, a small "
    "convolutional backbone replaces ResNet-18: the same statistic, other numbers",
)


@figure.trial
def run(config: RankingConfig, recorder: Recorder) -> None:
    task = two_classes(config)
    trunk: Any
    drawn: dict[str, Any] = {"seed": config.streams.init, "dtype": config.dtype}
    if config.trunk == "conv":
        trunk = nets.TrunkHead(nets.conv_trunk(task.train[0].shape[1], batch_norm=config.batch_norm, **drawn),
            nets.initialised(lambda: torch.nn.Linear(64, config.dim), **drawn))
    else:
        trunk = nets.resnet18(config.dim, stem="imagenet", **drawn)
    net = nets.TrunkFeature(trunk, config.dim, config.width, activation=config.activation,
        train_heads=config.train_heads, **drawn)
    optimizer = learners.adam(config.lr, weight_decay=config.weight_decay)
    learner = learners.Supervised(net, loss="half_mse", optimizer=optimizer)
    loss = probes.LossProbe({"train": task.train})
    order = config.streams.order
    watching = probes.UnseenClassProbe(task.train, task.evaluation, permutations=config.permutations, seed=order)
    still = probes.Measure(without_updates(config, task), every=config.epochs, inputs=task.train, name="untrained")
    fit(learner, task, config, recorder, epochs=config.epochs, probes=[loss, watching, still])
    for name, classes in task.classes.items():
        scores = [[[values[f"{score}/{name}/{k}"] for k in range(len(classes))] for score in SCORES]
            for step, values in watching.history if in_the_middle(step, config.epochs)]
        _, p = measures.concordance_test(np.array(scores), seed=order)
        recorder.log({f"kendalls_w_p/{name}": p}, step=config.epochs)
    recorder.array("classes", train=np.array(task.train_classes), **{k: np.array(v) for k, v in task.classes.items()})


def without_updates(config: RankingConfig, task):
    """Return a measure, taken before training: Kendall's W in mid training of this network without weight updates.

    It is empty where features then stay as they are, as without batch normalisation.
    """

    def agreement(module, x):
        if module.trainer.global_step:
            return {}
        net, (_, y) = copy.deepcopy(module.net), task.train
        evaluation = {name: (z.to(x.device), labels.to(x.device)) for name, (z, labels) in task.evaluation.items()}
        watching = probes.UnseenClassProbe(task.train, evaluation, permutations=1, seed=config.streams.order)
        by_epoch = [watching.values(net.eval(), x, y.to(x.device))]
        for _ in range(config.epochs):
            with torch.no_grad():
                net.train()(x)
            by_epoch.append(watching.values(net.eval(), x, y.to(x.device)))
        chosen = [values for epoch, values in enumerate(by_epoch) if in_the_middle(epoch, config.epochs)]
        names = [name for name in evaluation if all(f"kendalls_w/{name}" in values for values in chosen)]
        return {f"kendalls_w_untrained/{n}": float(np.mean([v[f"kendalls_w/{n}"] for v in chosen])) for n in names}

    return agreement


def two_classes(config: RankingConfig):
    pair = PAIRS[config.train_set]
    options: dict[str, Any] = {"per_class": config.n_train // 2, "unseen": config.unseen, "seed": config.streams.data,
        "dtype": config.dtype}
    if "digits" in pair:
        fields = data.random_fields(10, 2 * config.n_train, seed=config.streams.data)
        pools = {"digits": data.digit_pictures(), "fields": fields}
        return data.TwoClasses(pools, config.train_set, **options)
    train: dict[str, Any] = {}
    evaluation: dict[str, Any] = {}
    for name in pair:
        seen, unseen = data.metric_split(data.dataset_source(name).classes)
        if name == config.train_set:
            two = data.random_classes(config.streams.data, seen, 2, f"train classes of {name}")
            train[name] = data.public_pool(name, two, config.n_train // 2, size=config.size)
        five = data.random_classes(config.streams.data, unseen, config.unseen, f"unseen classes of {name}")
        evaluation[name] = data.public_pool(name, five, config.n_train // 2, size=config.size)
    return data.TwoClasses(train, config.train_set, evaluation_pools=evaluation, **options)


@figure.cost
def cost(config: RankingConfig):
    images = config.n_train * (1 + 2 * config.unseen / 2)  # trained on, and measured after every epoch
    if config.trunk == "resnet18":
        places = (config.size / 224) ** 2
        parameters, outputs, multiplications = 11_200_000, 512, 1.82e9 * places
        activations = 2.5e6 * places + 3 * config.size**2
    else:
        parameters, outputs, multiplications, activations = 23_500, 64, 4.2e5, 3.3e3
    parameters += outputs * config.dim + config.dim * config.width + 2 * config.width
    flops = config.epochs * 2.0 * (multiplications + config.dim * config.width) * (3 * config.n_train + images)
    memory = 4.0 * (4 * parameters + images * activations)
    public = () if config.train_set in STAND_INS else PAIRS[config.train_set]
    return Cost(parameters, flops, memory, config.epochs, public)


def in_the_middle(epoch, epochs):
    """Whether an epoch is in mid training: 6 to 15 of 20."""
    return max(1, 3 * epochs // 10) <= epoch <= -(-3 * epochs // 4)


def middle(runs, metric):
    """The mean over the middle of training."""
    curve = runs.curve(metric)
    return float(curve[[in_the_middle(epoch, curve.index.max()) for epoch in curve.index]].mean())


def each_pair(runs, value):
    """value(runs trained on one dataset, name of the evaluation set) for both training and both evaluation sets."""
    sets = PAIRS[runs.values("train_set")[0]]
    pairs = zip(PAIR_NAMES, itertools.product(sets, repeat=2), strict=True)
    return {name: value(runs.where(train_set=trained), measured) for name, (trained, measured) in pairs}


@figure.claim("c24_rankings_agree", where="Fig. 4, Section 5", within=(0, 1),
    says="three rankings of unseen classes agree: Kendall's W in mid training is at least 0.7 trained on A and 0.5 on "
    "B (A: CARS196, CIFAR-100 or digits, B: CUB200, GTSRB or random fields)",
    paper="W >= 0.7 (CARS196), >= 0.5 (CUB200)",
    expect=dict(zip(PAIR_NAMES, map(at_least, (0.7, 0.7, 0.5, 0.5)), strict=True)))
def agreement(runs):
    return each_pair(runs, lambda some, name: middle(some, f"kendalls_w/{name}"))


@figure.claim("c24_training_raises_agreement", origin="ours",
    says="training raises the agreement of rankings (Kendall's W in mid training less that without weight updates)",
    expect=dict.fromkeys(PAIR_NAMES, above(0)))
def gain_over_untrained(runs):
    def gain(some, name):
        return middle(some, f"kendalls_w/{name}") - some.final(f"kendalls_w_untrained/{name}")

    return each_pair(runs, gain)


@figure.claim("c24_more_than_chance", origin="ours", seeds=4,
    says="the rankings agree more than by chance in mid training: Fisher's method gives p < 0.05 for permutation tests "
    "(mean over four seeds of -2 ln p is at least 3.88)", expect=dict.fromkeys(PAIR_NAMES, at_least(3.88)))
def significance(runs):
    return each_pair(runs, lambda some, name: -2 * np.log(some.final(f"kendalls_w_p/{name}")))


@figure.claim("c24_permuted_labels_agree_too", origin="ours", within=(0, 1),
    says="Kendall's W is above 1/3, its mean for unrelated rankings, also where similarity is that to a beta from "
    "permuted labels: Alignment and Elasticity agree with each other", expect=dict.fromkeys(PAIR_NAMES, above(1 / 3)))
def agreement_without_labels(runs):
    return each_pair(runs, lambda some, name: middle(some, f"kendalls_w_permuted/{name}"))


@figure.claim("c25_true_labels_agree_more", origin="ours",
    says="similarity goes with Alignment more with the true beta than with one from permuted labels (difference of "
    "rank correlations, mean over epochs)", expect=dict.fromkeys(PAIR_NAMES, above(0)))
def gain_over_permuted(runs):
    def gain(some, name):
        return (some.curve(f"spearman/{name}") - some.curve(f"spearman_permuted/{name}")).loc[1:].mean()

    return each_pair(runs, gain)


@figure.claim("c26_both_heads_learn", says="both heads classify the training set by the last epoch in at least three "
    "of four runs (lower training accuracy of the two)", origin="ours", where="Fig. N.1", about="share",
    least=0.75, within=(0, 1), expect={"A": at_least(0.98), "B": at_least(0.98)})
def heads(runs):
    def lower(name):
        return min(runs.final(f"accuracy/head_{head}", train_set=name) for head in (1, 2))

    return {part: lower(name) for part, name in zip("AB", PAIRS[runs.values("train_set")[0]], strict=True)}


@figure.claim("fig_n_scores_move_together", paper="in most cases", where="Appendix N", within=(0, 1),
    says="similarity, Alignment and Elasticity of a class rise and fall together over epochs (share of classes and "
    "pairs of scores with positive rank correlation)", expect=dict.fromkeys(PAIR_NAMES, above(0.5)))
def together(runs):
    def share(some, name):
        positive = []
        for k in range(runs.values("unseen")[0]):
            ranks = [some.curve(f"{score}/{name}/{k}").loc[1:].rank() for score in SCORES]
            positive += [first.corr(second) > 0 for first, second in itertools.combinations(ranks, 2)]
        return np.mean(positive)

    return each_pair(runs, share)


@figure.claim("fig_n_each_class_by_itself", says="a class's score follows its own other scores more than other "
    "classes' scores (difference of rank correlations of curves over epochs, mean over pairs of scores)", origin="ours",
    where="Appendix N", expect=dict.fromkeys(PAIR_NAMES, above(0)))
def each_by_itself(runs):
    def excess(some, name):
        classes = range(some.values("unseen")[0])
        ranks = {s: [some.curve(f"{s}/{name}/{k}").loc[1:].rank() for k in classes] for s in SCORES}
        pairs = list(itertools.combinations(SCORES, 2))
        correlations = np.array([[[a.corr(b) for b in ranks[second]] for a in ranks[first]] for first, second in pairs])
        own = np.eye(len(classes), dtype=bool)
        return correlations[:, own].mean() - correlations[:, ~own].mean()

    return each_pair(runs, excess)


@figure.draw(rows=4, cols=4, size=(15, 10.5))
def panels(runs, axes):
    sets = PAIRS[runs.values("train_set")[0]]
    trained = [name for name in sets if name in runs.values("train_set")]
    for agreement, accuracy, name in zip(axes[0, :2], axes[0, 2:], trained, strict=False):
        some = runs.where(train_set=name)
        for other, colour in zip(sets, CATEGORIES, strict=False):
            band(agreement, some.curves(f"kendalls_w/{other}"), color=colour, label=f"on {other}")
            permuted = some.curve(f"kendalls_w_permuted/{other}")
            agreement.plot(permuted, color=colour, linestyle=":", label=f"on {other}, permuted labels")
        paper_level(agreement, PAPER_LEVEL[sets.index(name)], "paper: at least")
        null_level(agreement, 1 / 3, "unrelated rankings")
        agreement.set(title=f"trained on {name}", ylim=(0, 1.02), xlabel="epoch", ylabel="Kendall's W")
        for head, colour in zip((1, 2), CATEGORIES, strict=False):
            accuracy.plot(some.curves(f"accuracy/head_{head}"), color=colour, linewidth=1, alpha=0.7)
            accuracy.plot([], [], color=colour, label=f"head {head}")
        accuracy.set(title=f"heads, trained on {name}", ylim=(0, 1.02), xlabel="epoch", ylabel="training accuracy")
    axes[0, 2].legend(loc="lower right")
    legend_beside(axes[0, 3], handles=axes[0, 0].get_legend_handles_labels()[0], title="left: Kendall's W")
    first = runs.where(seed=min(runs.values("seed")))
    for column, (name, other) in enumerate(itertools.product(trained, sets)):
        some = first.where(train_set=name)
        for axis, (score, title) in zip(axes[1:, column], SCORES.items(), strict=True):
            for k, colour in enumerate(shades(runs.values("unseen")[0])):
                axis.plot(some.curve(f"{score}/{other}/{k}"), color=colour, label=f"class {k + 1}")
            axis.plot(some.curve(f"{score}/{other}/all"), color=CATEGORIES[5], linewidth=2.4, label="all")
            axis.set(ylabel=None if column else title)
        axes[1, column].set_title(f"trained on {name}, unseen {other}")
        axes[3, column].set_xlabel("epoch")
    legend_beside(axes[1, 3])
