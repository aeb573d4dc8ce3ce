"""Figures 4 and N.1-N.17. Unseen classes rank alike by similarity to the training set, Alignment and Elasticity.

A randomly initialised backbone h (d outputs), a nonlinear layer F = sigma(W'h) of N units and two heads learn to tell
two classes of one dataset apart (targets y and -y, 48 images a class, full batches, Adam). After each epoch five unseen
classes of that dataset and five of another are scored by

    |beta'mu|,  beta = h(X)'y / (n sqrt N),  mu = E h(x),
    Alignment E F(x)'F(x')  over independent x, x',        Elasticity E |F(x) - F_0(x)|^2

and Kendall's W says how far the three rankings agree: 1 if they are the same, 1/3 on average if they have nothing to do
with one another. Classes are drawn anew for every seed.

Features are measured in evaluation mode: with the batch statistics of one class at a time, batch normalisation would
subtract that class's own mean. A second beta from permuted labels says how much of the agreement comes from what was
learned, and how much from an unseen class merely having long or short feature vectors.
"""

from typing import Any, Literal

from featurelab.pipelines import (
    CATEGORIES,
    Config,
    Cost,
    Experiment,
    Field,
    above,
    at_least,
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

Named = Literal["digits", "fields", "cars196", "cub200"]
PAIRS: dict[str, tuple[str, str]] = {
    "digits": ("digits", "fields"),
    "fields": ("digits", "fields"),
    "cars196": ("cars196", "cub200"),
    "cub200": ("cars196", "cub200"),
}
SCORES = {"similarity": r"$|\beta^\top\mu|$", "alignment": "Alignment", "elasticity": "Elasticity"}


class RankingConfig(Config):
    train_set: Named = Field("digits", description="dataset of the two training classes; its partner is measured too")
    n_train: int = Field(96, ge=4, multiple_of=2, description="training images, half of each class; a step sees all")
    unseen: int = Field(5, ge=3, description="unseen classes of each dataset, n_train / 2 images of each")
    trunk: Literal["conv", "resnet18"] = Field("conv", description="backbone, drawn at random")
    size: int = Field(224, ge=32, description="side of the images of CARS196 and CUB200 in pixels")
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
    name="alignment_elasticity/ranking",
    figure="Fig. 4, N.1-N.17",
    title="Rankings of unseen classes by similarity, Alignment and Elasticity",
    caption="Top: Kendall's W, means over seeds with their range, and the heads' training accuracy. Below, the scores"
    " of the first seed: a colour a class, grey the whole evaluation set.",
    laptop=LAPTOP,
    paper=LAPTOP.but(train_set="cars196", trunk="resnet18", dim=2048, width=2048),
    grid={"train_set": ["digits", "fields"], "seed": [0, 1, 2, 3]},
    paper_grid={"train_set": ["cars196", "cub200"], "seed": [0, 1, 2, 3]},
    sweep_axes={
        "lr": loguniform(1e-4, 1e-2),
        "width": choice(128, 256, 512, 1024),
        "weight_decay": loguniform(1e-6, 1e-2),
    },
    metric="loss/train",
    minutes=0.2,
    needs=("cars196", "cub200"),
    stand_in="scikit-learn's 8x8 digits and a synthetic mixture of random fields in place of CARS196 and CUB200, a"
    " small convolutional backbone in place of ResNet-18: same statistic, other numbers",
)


@figure.trial
def run(config, recorder):
    task = two_classes(config)
    trunk: Any
    if config.trunk == "conv":
        channels = task.train[0].shape[1]
        trunk = nets.TrunkHead(
            nets.conv_trunk(channels, batch_norm=config.batch_norm, seed=config.streams.init, dtype=config.dtype),
            nets.drawn(lambda: torch.nn.Linear(64, config.dim), seed=config.streams.init, dtype=config.dtype),
        )
    else:
        trunk = nets.resnet18(config.dim, stem="imagenet", seed=config.streams.init, dtype=config.dtype)
    net = nets.TrunkFeature(
        trunk, config.dim, config.width, activation=config.activation, train_heads=config.train_heads,
        seed=config.streams.init, dtype=config.dtype,
    )  # fmt: skip
    learner = learners.Supervised(
        net, loss="half_mse", optimizer=learners.adam(config.lr, weight_decay=config.weight_decay)
    )
    watching = probes.UnseenClassProbe(
        task.train, task.evaluation, permutations=config.permutations, seed=config.streams.order
    )
    fit(learner, task, config, recorder, epochs=config.epochs,
        probes=[probes.LossProbe({"train": task.train}), watching])  # fmt: skip
    for name, classes in task.classes.items():
        scores = [
            [[values[f"{score}/{name}/{k}"] for k in range(len(classes))] for score in SCORES]
            for step, values in watching.history
            if in_the_middle(step, config.epochs)
        ]
        _, p = measures.concordance_test(np.array(scores), seed=config.streams.order)
        recorder.log({f"kendalls_w_p/{name}": p}, step=config.epochs)
    recorder.array("classes", train=np.array(task.train_classes), **{k: np.array(v) for k, v in task.classes.items()})


def two_classes(config):
    pair = PAIRS[config.train_set]
    options = {"per_class": config.n_train // 2, "unseen": config.unseen, "seed": config.streams.data}
    if "digits" in pair:
        fields = data.random_fields(10, 2 * config.n_train, seed=config.streams.data)
        pools = {"digits": data.digit_pictures(), "fields": fields}
        return data.TwoClasses(pools, config.train_set, **options, dtype=config.dtype)
    train, evaluation = {}, {}
    for name in pair:
        seen, unseen = data.metric_split(data.source(name).classes)
        if name == config.train_set:
            two = data.random_classes(config.streams.data, seen, 2, f"train classes of {name}")
            train[name] = data.public_pool(name, two, config.n_train // 2, size=config.size)
        five = data.random_classes(config.streams.data, unseen, config.unseen, f"unseen classes of {name}")
        evaluation[name] = data.public_pool(name, five, config.n_train // 2, size=config.size)
    return data.TwoClasses(train, config.train_set, evaluation_pools=evaluation, **options, dtype=config.dtype)


@figure.cost
def cost(config):
    images = config.n_train * (1 + 2 * config.unseen / 2)  # trained on, and measured after every epoch
    if config.trunk == "resnet18":
        parameters, multiplications, activations = 11_200_000, 1.82e9, 2.5e6
    else:
        parameters, multiplications, activations = 23_500, 4.2e5, 3.3e3
    parameters += (512 if config.trunk == "resnet18" else 64) * config.dim + config.dim * config.width
    parameters += 2 * config.width
    each = 2.0 * (multiplications + config.dim * config.width)
    flops = config.epochs * each * (3 * config.n_train + images)
    memory = 4.0 * (4 * parameters + images * (activations + 3 * config.size**2 * (config.trunk == "resnet18")))
    public = PAIRS[config.train_set] if config.train_set in ("cars196", "cub200") else ()
    return Cost(parameters, flops, memory, config.epochs, public)


def in_the_middle(epoch, epochs):
    """Mid training: epochs 6 to 15 of 20."""
    return max(1, 3 * epochs // 10) <= epoch <= -(-3 * epochs // 4)


def middle(runs, metric, **where):
    """The mean over the middle of training."""
    curve = runs.curve(metric, **where)
    return float(curve[[in_the_middle(epoch, curve.index.max()) for epoch in curve.index]].mean())


def each_pair(runs, value):
    """value(trained on, measured on) by name, for the two training sets and two evaluation sets of this scale."""
    first, second = PAIRS[runs.values("train_set")[0]]
    named = {"A": first, "B": second}
    return {f"{a} to {b}": value(named[a], named[b]) for a in named for b in named}


PAIR_NAMES = ("A to A", "A to B", "B to A", "B to B")


@figure.claim(
    "c24_rankings_agree",
    says="Kendall's W in mid training is at least 0.7 trained on A and 0.5 trained on B, on either evaluation set"
    " (A: CARS196 or digits, B: CUB200 or random fields)",
    paper="W >= 0.7 (CARS196), >= 0.5 (CUB200)",
    where="Fig. 4, Section 5",
    expect={"A to A": at_least(0.7), "A to B": at_least(0.7), "B to A": at_least(0.5), "B to B": at_least(0.5)},
)
def agreement(runs):
    return each_pair(runs, lambda a, b: middle(runs, f"kendalls_w/{b}", train_set=a))


@figure.claim(
    "c24_more_than_chance",
    says="the agreement in mid training is more than chance: mean over four seeds of -2 ln p of the permutation test"
    " (Fisher's method gives p < 0.05 from 3.88 on)",
    origin="ours",
    expect=dict.fromkeys(PAIR_NAMES, at_least(3.88)),
    seeds=4,
)
def significance(runs):
    return each_pair(runs, lambda a, b: -2 * np.log(runs.final(f"kendalls_w_p/{b}", train_set=a)))


@figure.claim(
    "c24_permuted_labels_agree_too",
    says="most of W is not due to the labels: with beta from permuted labels it is still above the null mean 1/3",
    origin="ours",
    expect=dict.fromkeys(PAIR_NAMES, above(1 / 3)),
)
def agreement_without_labels(runs):
    return each_pair(runs, lambda a, b: middle(runs, f"kendalls_w_permuted/{b}", train_set=a))


@figure.claim(
    "c25_true_labels_agree_more",
    says="the rank correlation of similarity and Alignment, averaged over epochs, is higher with the true beta than"
    " with one from permuted labels (differences)",
    origin="ours",
    expect=dict.fromkeys(PAIR_NAMES, above(0)),
)
def gain_over_permuted(runs):
    def gain(trained, measured):
        true, permuted = (
            runs.curve(f"{name}/{measured}", train_set=trained) for name in ("spearman", "spearman_permuted")
        )
        return float((true - permuted).loc[1:].mean())

    return each_pair(runs, gain)


@figure.claim(
    "c26_both_heads_learn",
    says="both heads classify the training set by the last epoch (the lower accuracy of the two)",
    paper="curves, no number",
    where="Fig. N.1",
    expect={"A": at_least(0.98), "B": at_least(0.98)},
)
def heads(runs):
    names = PAIRS[runs.values("train_set")[0]]
    return {
        part: min(runs.final(f"accuracy/head_{head}", train_set=name) for head in (1, 2))
        for part, name in zip("AB", names, strict=True)
    }


@figure.claim(
    "fig_n_scores_move_together",
    says="the three scores rise and fall together: share of classes and pairs of scores whose curves over epochs"
    " have a positive rank correlation",
    paper="in most cases",
    where="Appendix N",
    expect=dict.fromkeys(PAIR_NAMES, above(0.5)),
)
def together(runs):
    def share(trained, measured):
        positive = []
        for k in range(runs.values("unseen")[0]):
            curves = [runs.curve(f"{score}/{measured}/{k}", train_set=trained).loc[1:] for score in SCORES]
            ranks = [curve.rank() for curve in curves]
            positive += [ranks[i].corr(ranks[j]) > 0 for i, j in ((0, 1), (0, 2), (1, 2))]
        return float(np.mean(positive))

    return each_pair(runs, share)


PAPER_LEVEL = (0.7, 0.5)


@figure.draw(rows=4, cols=4, size=(15, 10.5))
def panels(runs, axes):
    sets = PAIRS[runs.values("train_set")[0]]
    trained = [name for name in sets if name in runs.values("train_set")]
    for column, name in enumerate(trained):
        agreement_panel(axes[0, column], runs, name, sets, PAPER_LEVEL[sets.index(name)])
        accuracy_panel(axes[0, 2 + column], runs, name)
    outside = {"loc": "center left", "bbox_to_anchor": (1, 0.5)}
    axes[0, 3].legend(*axes[0, 0].get_legend_handles_labels(), title="left: Kendall's W", **outside)
    first = runs.where(seed=min(runs.values("seed")))
    pairs = [(a, b) for a in trained for b in sets]
    for column, (a, b) in enumerate(pairs):
        for row, (score, name) in enumerate(SCORES.items(), start=1):
            raw_panel(axes[row, column], first, score, a, b)
            axes[row, column].set(ylabel=name if column == 0 else None, xlabel="epoch" if row == 3 else None)
        axes[1, column].set_title(f"trained on {a}, unseen {b}")
    axes[1, 3].legend(**outside)


def agreement_panel(axis, runs, trained, sets, level):
    for name, colour in zip(sets, CATEGORIES, strict=False):
        for metric, style in (("kendalls_w", "-"), ("kendalls_w_permuted", ":")):
            table = runs.curves(f"{metric}/{name}", train_set=trained)
            label = f"on {name}" + (", permuted labels" if style == ":" else "")
            axis.plot(table.index, table.mean(axis=1), color=colour, linestyle=style, label=label)
            if style == "-":
                axis.fill_between(
                    table.index, table.min(axis=1), table.max(axis=1), color=colour, alpha=0.15, linewidth=0
                )
    axis.axhline(level, color="#444444", linestyle="--", linewidth=1, label="paper: at least")
    axis.axhline(1 / 3, color="#999999", linestyle="-.", linewidth=1, label="unrelated rankings")
    axis.set(title=f"trained on {trained}", ylim=(0, 1.02), xlabel="epoch", ylabel="Kendall's W")


def accuracy_panel(axis, runs, trained):
    for head, colour in zip((1, 2), CATEGORIES, strict=False):
        table = runs.curves(f"accuracy/head_{head}", train_set=trained)
        axis.plot(table.index, table, color=colour, linewidth=1, alpha=0.7)
        axis.plot([], [], color=colour, label=f"head {head}")
    axis.set(title=f"heads, trained on {trained}", ylim=(0, 1.02), xlabel="epoch", ylabel="training accuracy")
    if trained == PAIRS[trained][0]:
        axis.legend(loc="lower right")


def raw_panel(axis, runs, score, trained, measured):
    count = runs.values("unseen")[0]
    for k, colour in enumerate(shades(count)):
        curve = runs.curve(f"{score}/{measured}/{k}", train_set=trained)
        axis.plot(curve.index, curve, color=colour, label=f"class {k + 1}")
    curve = runs.curve(f"{score}/{measured}/all", train_set=trained)
    axis.plot(curve.index, curve, color="#999999", linewidth=2.4, label="all")
