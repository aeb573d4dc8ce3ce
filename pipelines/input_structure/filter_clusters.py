"""Figures A.16, A.17 and Table A.7. Filters of a residual network: do they cluster, and do early gradients agree?

ResNet(m), a ResNet-18 with m filters in its first stage, learns CIFAR-10 airplane/automobile. We follow the filters of
the last 3x3 convolution of each stage: two clusters by k-means on unit weights, the mean cosine with the centre of each
and the cosine of the centres. The paper picks points of two clusters by hand, after training, and traces them back.

The loss gradients of each filter in the first 30 steps are averaged over chunks of ten. Table A.7 has the cosines of
these means, v_1 to v_3, with their mean and with one another, for one filter near the centre of a cluster. Here it is
the filter that moves most in training, and the median over filters.

The laptop preset has one stage of one block and scikit-learn's digits 0 and 1.
"""

from typing import Any, Literal

from featurelab.pipelines import (
    CATEGORIES, Cost, Experiment, Field, Recorder, above, at_least, at_most, band, bars, below, choice, fit, learners,
    legend_below, loguniform, measures, nets, np, null_level, paper_level, printed_table, probes,
)
from featurelab.pipelines.input_structure.picture_maps import SIZES, MapConfig, pictures

NAMES = {"1_mean": "v1, mean", "2_mean": "v2, mean", "3_mean": "v3, mean", "1_2": "v1, v2", "1_3": "v1, v3",
    "2_3": "v2, v3"}
CHUNKS: dict[Any, dict[str, Any]] = {row["width"]: row for row in printed_table(__file__, "table_a7.csv")}
CLUSTERS: list[dict[str, Any]] = printed_table(__file__, "figures_a16_a17.csv")
EARLY_STEPS = 30


class FilterConfig(MapConfig):
    dataset: Literal["digits", "cifar10"] = Field("digits", description="where the pictures are from")
    depths: tuple[int, ...] = Field((1,), description="residual blocks of each stage")
    width: int = Field(32, ge=3, description="filters m of the first stage; they double from stage to stage")
    init_std: float = Field(0.0, ge=0, description="not used: filters are drawn by He's law")
    lr: float = Field(0.01, gt=0, description="learning rate")
    momentum: float = Field(0.9, ge=0, lt=1, description="momentum of gradient descent")
    batch_size: int = Field(16, ge=1, description="pictures a step")
    steps: int = Field(200, ge=EARLY_STEPS, description="optimiser steps")
    measure_every: int = Field(10, ge=1, description="steps between measurements")


PRESET = FilterConfig()

figure = Experiment(
    name="input_structure/filter_clusters", figures=("Fig. A.16", "Fig. A.17", "Table A.7"),
    title="Filters of a residual network: clusters, and gradients of the first 30 steps",
    caption="Means over seeds, bands and bars their range. Thin dashes: the paper's ResNet(128); crosses: Table A.7.",
    laptop=PRESET, paper=PRESET.but(
        dataset="cifar10", depths=(2, 2, 2, 2), width=128, n_train=10_000, n_test=2000, lr=0.01, batch_size=128,
        steps=1580, measure_every=79,
    ), grid={"seed": range(6)}, paper_grid={"width": [128, 256], "seed": [0, 1, 2]},
    desktop=PRESET.but(dataset="cifar10", depths=(2, 2, 2, 2), width=16, n_train=3000, n_test=500,
        batch_size=128, steps=468, measure_every=26), desktop_minutes=11, desktop_grid={"seed": range(3)},
    reduced="16 filters in the first stage in place of 128 and 256, and 3,000 pictures in place of 10,000",
    sweep_axes={"lr": loguniform(1e-3, 0.1), "width": choice(16, 32, 64), "weight_decay": loguniform(1e-6, 1e-2),
        "momentum": choice(0.0, 0.9)}, metric="accuracy/test", mode="max", minutes=1, needs=("cifar10",),
    small={"n_train": 32, "width": 6, "steps": 30, "measure_every": 15},
    stand_in="one residual block on scikit-learn's 8x8 digits 0 and 1 replaces ResNet(128) and ResNet(256) on CIFAR-10 "
    "airplane/automobile",
)


@figure.trial
def run(config: FilterConfig, recorder: Recorder) -> None:
    c, task = config, pictures(config)
    widths = [c.width * 2**stage for stage in range(len(c.depths))]
    net = nets.resnet(1, depths=c.depths, widths=widths, channels=task.train[0].shape[1], seed=c.streams.init,
        dtype=c.dtype)
    # the last convolution of each stage has as many inputs as outputs
    names = [f"trunk.{stage + 1}.{depth - 1}.residual.3.weight" for stage, depth in enumerate(c.depths)]
    followed = {str(stage + 1): net.get_parameter(name) for stage, name in enumerate(names)}
    before = {block: weight.detach().flatten(1).cpu().clone() for block, weight in followed.items()}

    def follow(module, _):
        values: dict[str, float] = {}
        for block, weight in followed.items():
            clusters = measures.direction_clusters(weight.flatten(1), seed=c.streams.order)
            values |= {f"{name}/{block}": value for name, value in clusters.items()}
            moved = measures.direction_cosines(weight.detach().flatten(1).cpu(), before[block]).diagonal()
            values[f"turned/{block}"] = 1 - moved.mean().item()
        return values

    gradients = probes.EarlyGradients(followed, EARLY_STEPS)
    watching = [gradients, probes.LossProbe({"train": task.train, "test": task.test}, c.measure_every),
        probes.Measure(follow, c.measure_every)]
    learner = learners.Supervised(net, loss="logistic", optimizer=learners.sgd(c.lr, c.momentum, c.weight_decay))
    fit(learner, task, c, recorder, steps=c.steps, probes=watching)
    for block, weight in followed.items():
        cosines = measures.chunk_cosines(gradients.gradients[block])
        farthest = int((weight.detach().flatten(1).cpu() - before[block]).norm(dim=1).argmax())
        chosen = {f"chunk/{name}/{block}": value[farthest].item() for name, value in cosines.items()}
        middle = {f"chunk_median/{name}/{block}": value.median().item() for name, value in cosines.items()}
        recorder.log(chosen | middle, step=c.steps)


@figure.cost
def cost(config: FilterConfig):
    c, side = config, 8 if config.dataset == "digits" else 32
    parameters = work = 0.0
    for stage, depth in enumerate(c.depths):
        m = c.width * 2**stage
        weights = 9.0 * m * m * 2 * depth
        parameters += weights
        work += 2 * weights * (side / 2**stage) ** 2
    seen = c.batch_size * c.steps + 2.0 * c.n_test * (c.steps // c.measure_every + 2)
    activations = 4.0 * c.batch_size * c.width * side**2 * 6 * sum(c.depths)
    data = () if c.dataset == "digits" else (c.dataset,)
    return Cost(int(parameters), 3 * work * seen, 4.0 * c.n_train * SIZES[c.dataset] + activations, c.steps, data)


def change(runs, metric):
    """The final value of a metric less that before training."""
    return runs.final(metric) - runs.at(metric, 0)


@figure.claim("c17_filters_cluster", within=(-1, 1),
    paper="within .62 and .70, centres -.72, in the first block of ResNet(128)",
    says="filters of the first block form two clusters (rise of the mean cosine with their centres; final cosine of "
    "the centres)", expect={"rise within": above(0), "centres": below(-0.2)})
def cluster(runs):
    within = (change(runs, "within_1/1") + change(runs, "within_2/1")) / 2
    return {"rise within": within, "centres": runs.final("between/1")}


@figure.claim("c17b_centres_move_apart", origin="ours", within=(-2, 2),
    says="in the first block the centres of the two clusters of filters move apart (change of their cosine)",
    expect=at_most(-0.1))
def apart(runs):
    return change(runs, "between/1")


@figure.claim("c17c_early", paper="change from epoch 0 to 3 much more significant than from 3 to 20", within=(-1, 1),
    where="Fig. A.16", says="filters of the first block turn more in the first 15% of training than in the rest (mean "
    "1 - cos with the initial filters, first part less the rest)", expect=above(0))
def early(runs):
    turned = runs.curve("turned/1")
    first = turned[turned.index <= 0.15 * turned.index[-1]].iloc[-1]
    return float(first - (turned.iloc[-1] - first))


@figure.claim("c18_gradients_agree", where="Table A.7; bound set after the fact", paper="0.51 to 0.97", within=(-1, 1),
    says="in the first block, gradients of the filter that moves most agree over the first 30 steps (least of the six "
    "cosines of chunk means, at least 0.4)", expect=at_least(0.4))
@figure.claim("c18b_gradients_agree_at_all", where="Table A.7", origin="ours", within=(-1, 1),
    says="in the first block, gradients of the filter that moves most never oppose one another in the first 30 steps "
    "(least of the six cosines of chunk means)", expect=above(0))
def agree(runs):
    return min(runs.final(f"chunk/{name}/1") for name in NAMES)


@figure.claim("c18c_of_most_filters", where="Table A.7", origin="ours", within=(-1, 1),
    says="in the first block, gradients of most filters agree over the first 30 steps (least of the six medians over "
    "filters)", expect=above(0))
def agree_mostly(runs):
    return min(runs.final(f"chunk_median/{name}/1") for name in NAMES)


@figure.draw(cols=3, size=(12.5, 4.4))
def panels(runs, axes):
    left, middle, right = axes[0]
    blocks = [block for block in "1234" if runs.has(f"between/{block}")]
    lines = {"within_1": "larger cluster", "within_2": "smaller cluster", "between": "centres"}
    for block, dash in zip(blocks, ["-", "--", "-.", ":"], strict=False):
        for (metric, name), colour in zip(lines.items(), CATEGORIES, strict=False):
            label = name if block == blocks[0] else None
            band(left, runs.curves(f"{metric}/{block}"), color=colour, linestyle=dash, label=label)
        band(middle, runs.curves(f"turned/{block}"), color=CATEGORIES[3], linestyle=dash, label=f"block {block}")
    printed = {"green": "paper, a cluster", "red": "paper, the other", "centres": "paper, centres"}
    for (part, label), colour in zip(printed.items(), CATEGORIES, strict=False):
        paper_level(left, CLUSTERS[0][part], label, color=colour)
    left.set(title="two clusters of filters", xlabel="step", ylabel="cosine", ylim=(-1.02, 1.02))
    legend_below(left, 2)
    middle.set(title="turn of filters", xlabel="step", ylabel="mean of 1 - cos with step 0", ylim=(0, None))
    if len(blocks) > 1:
        middle.legend(handlelength=3)
    places = np.arange(len(NAMES))
    for offset, (kind, label) in enumerate({"chunk": "filter that moves most", "chunk_median": "median"}.items()):
        cosines = [runs.finals(f"{kind}/{name}/1") for name in NAMES]
        bars(right, cosines, places + 0.15 * offset, linestyle="", label=label)
    for (width, row), colour in zip(CHUNKS.items(), CATEGORIES[4:], strict=True):
        right.plot(places - 0.15, [row[name] for name in NAMES], "x", color=colour, label=f"ResNet({width}), paper")
    null_level(right, 0)
    right.set(title="gradients of the first 30 steps", ylabel="cosine", ylim=(-1.02, 1.02))
    right.set_xticks(places, list(NAMES.values()), rotation=30, fontsize=7)
    right.legend(loc="lower left")
