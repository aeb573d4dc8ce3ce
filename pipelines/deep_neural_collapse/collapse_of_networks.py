"""Figures 2 and 7 to 12. Layers of trained networks collapse classes at the right factor of their weights.

A layer's weights are W = U S V'. Rotation by U cannot change NC1, so a layer can contract its classes only at S V' and
at the ReLU. Figures 2 and 7 to 9 follow NC1 of the input, after S V' and after the ReLU during training. Figures 10 to
12 follow the within-class and between-class shares of the variance in the last hidden layer, the ansatz (Pearson
correlation of W'W with the square root of the AGOP) in every hidden layer, and the loss.

The paper compares the ansatz with d^(-1/2), the typical inner product of two random directions. Two positive
semidefinite matrices correlate far above that, so we also measure the ansatz before training, and with randomly rotated
AGOPs, which keep only the spectrum.
"""

from typing import Any

from featurelab.pipelines import (
    CATEGORIES, Experiment, Missing, above, at_least, at_most, band, below, choice, loguniform, paper_level, shades,
    stats,
)
from featurelab.pipelines.deep_neural_collapse.networks import NetworkConfig, cost, run

LARGE = 1.5  # initial scale of the control, which hardly collapses
LEAST_ACCURACY, LEAST_DROP = 0.99, 1.0

PAPER = NetworkConfig(dataset="mnist", n_train=50_000, n_test=10_000, width=512, init_scale=0.2, lr=0.05,
    batch_size=128, epochs=500, measure_every=10)
# at the paper's initial scales these networks need about 1,600 epochs, a minute or more a seed, to fit their digits
CONV = NetworkConfig(n_train=600, width=64, init_scale=1.0, epochs=160, measure_every=10)
SEEDS = range(6)
OF_PAPER = ("mnist", "cifar10", "svhn")
# enough for each network to fit a few digits, without which most claims are untested
SMALL: dict[Any, Any] = {"n_train": 20, "width": 64, "lr": 0.1, "batch_size": 5, "epochs": 40, "measure_every": 40}
STAND_IN = "8x8 digits in place of MNIST, CIFAR-10 and SVHN (same code path, other numbers)"

mlp = Experiment(
    name="deep_neural_collapse/mlp", figures=("Fig. 2a", "Fig. 7", "Fig. 10"),
    title="Collapse and the ansatz in the layers of an MLP",
    caption="Each row is a network, trained for as many epochs as it takes to fit. Layers 1 to 5: NC1 of a layer's "
    "input, after S V', and of its output. Lines are means over seeds, bands their range. W'W, AGOP^(1/2): Pearson "
    "correlations, and those after random rotations.",
    laptop=NetworkConfig(), paper=PAPER,
    desktop=NetworkConfig(dataset="mnist", n_train=1000), desktop_minutes=3, desktop_grid={
        ("dataset", "init_scale", "epochs"): [("mnist", 0.5, 150), ("cifar10", 0.5, 300), ("mnist", LARGE, 100)],
        "seed": range(3)},
    reduced="1,000 images in place of 50,000, width 128 in place of 512, and initial scale 0.5, so that training "
    "leaves its plateau in 300 epochs; batches of 32 in place of 128; no SVHN",
    grid={("init_scale", "epochs"): [(0.5, 300), (0.3, 800), (LARGE, 200)], "seed": SEEDS},
    paper_grid={("dataset", "init_scale"): [("mnist", 0.2), ("cifar10", 0.3), ("svhn", 0.3), ("mnist", LARGE)],
        "seed": SEEDS},
    sweep_axes={"lr": loguniform(1e-2, 2e-1), "width": choice(64, 128, 256, 512), "init_scale": loguniform(0.2, 1.5),
        "weight_decay": loguniform(1e-6, 1e-2)}, minutes=2.4,
    small={("init_scale", "epochs"): [(1.0, 40), (LARGE, 40)], **SMALL}, needs=OF_PAPER,
    stand_in=STAND_IN,
)
resnet = mlp.variant(
    "resnet", figures=("Fig. 2b", "Fig. 8", "Fig. 11"),
    title="Collapse and the ansatz in the head of a residual network", laptop=CONV.but(trunk="batch_norm"),
    paper=PAPER.but(trunk="resnet18", epochs=300), grid={"seed": SEEDS},
    desktop=CONV.but(dataset="mnist", n_train=500, trunk="resnet18", width=128, epochs=100), desktop_minutes=11,
    desktop_grid={"dataset": ["mnist", "cifar10"], "seed": range(3)},
    reduced="500 images in place of 50,000, width 128 in place of 512, batches of 32 in place of 128, 100 epochs in "
    "place of 300, and initial scale 1",
    paper_grid={"dataset": OF_PAPER, "seed": SEEDS}, minutes=1.2, small=SMALL,
    stand_in="three convolutions with batch norm in place of ResNet-18, initial scale 1, and " + STAND_IN,
)
vgg = resnet.variant(
    "vgg", figures=("Fig. 9", "Fig. 12"), title="Collapse and the ansatz in the head of a VGG",
    laptop=CONV.but(trunk="plain", lr=0.02, momentum=0.9),
    paper=PAPER.but(trunk="vgg11", lr=0.01, momentum=0.9, epochs=600),
    desktop=CONV.but(dataset="mnist", n_train=1000, trunk="plain", width=128, lr=0.02, momentum=0.9), desktop_minutes=3,
    desktop_grid={("dataset", "epochs"): [("mnist", 160), ("cifar10", 300)], "seed": range(3)},
    reduced="three convolutions in place of VGG-11, 1,000 images in place of 50,000, width 128 in place of 512, "
    "batches of 32 in place of 128, learning rate 0.02 in place of 0.01, 160 and 300 epochs in place of 600, and "
    "initial scale 1",
    paper_grid={("dataset", "init_scale"): [("mnist", 0.2), ("cifar10", 0.3), ("svhn", 0.3)], "seed": SEEDS},
    small=SMALL | {"init_scale": 1.4, "momentum": 0.5, "epochs": 75, "measure_every": 75},
    stand_in="three convolutions in place of VGG-11, initial scale 1, and " + STAND_IN,
)
PRINTED = {mlp: "0.74 +- 0.13 (MNIST)", resnet: "0.74 +- 0.17 (CIFAR-10)", vgg: "curves, no number"}
PRINTED_FOR = {"none": "mnist", "resnet18": "cifar10", "batch_norm": "cifar10"}  # these numbers, by trunk
mlp.trial(run)
mlp.cost(cost)


def hidden(runs):
    """Return the names of the head's hidden layers."""
    return [str(layer) for layer in range(runs.trials.hidden.iloc[0])]


def each(runs):
    """Return the results of each network, one for every data set and initial scale."""
    pairs = dict.fromkeys(zip(runs.trials.dataset, runs.trials.init_scale, strict=True))
    return [runs.where(dataset=dataset, init_scale=scale) for dataset, scale in pairs]


def of_small_scale(runs):
    """Return the figure's own networks. Raises Missing where one does not fit its data or hardly collapses."""
    return [fitted(one, collapsed=True) for one in each(runs) if one.trials.init_scale.iloc[0] < LARGE]


def of_large_scale(runs):
    for one in each(runs):
        if one.trials.init_scale.iloc[0] >= LARGE:
            return fitted(one)
    raise Missing(f"no network of initial scale {LARGE}")


def fitted(one, *, collapsed=False):
    """Return the network's results. Raises Missing where it does not classify its training data."""
    accuracy = one.final("accuracy/train")
    if accuracy < LEAST_ACCURACY:
        raise Missing(f"training accuracy {accuracy:.3f} is below {LEAST_ACCURACY}")
    fall = sum(one.final(f"nc1_drop/{layer}") for layer in hidden(one))
    if collapsed and fall < LEAST_DROP:
        raise Missing(f"ln NC1 falls by {fall:.2f} over the layers, less than {LEAST_DROP}")
    return one


def mean(one, metric, step=None):
    """Return the mean of a metric over the hidden layers, at a step or at the end."""
    names = [f"{metric}/{layer}" for layer in hidden(one)]
    values = [one.final(name) if step is None else one.at(name, step) for name in names]
    return sum(values) / len(values)


def right_factor(runs):
    networks = of_small_scale(runs)
    shares = [sum_of(one, "nc1_drop_right") / sum_of(one, "nc1_drop") for one in networks]
    counts = [sum(one.final(f"nc1_drop_right/{n}") > one.final(f"nc1_drop_activation/{n}") for n in hidden(one))
        for one in networks]
    return {"share": min(shares), "layers": min(counts)}


def sum_of(one, metric):
    return sum(one.final(f"{metric}/{layer}") for layer in hidden(one))


for experiment in PRINTED:
    experiment.claim(
        "c15_right_factor_dominates",
        says="the right factor S V' makes at least half of the fall of ln NC1, and more of it than the ReLU in most "
        "layers (share, number of layers)",
        paper="decreases mostly between steps (1) and (2)", where=f"Section 5, {experiment.figure}",
        expect={"share": at_least(0.5), "layers": at_least(3)}, least={"layers": 0.75},
    )(right_factor)


@mlp.claim("c16_left_factor_leaves_nc1", also=[resnet, vgg],
    says="the left factor U does not change NC1: W x has the NC1 of S V' x (largest relative difference over layers)",
    paper="exact", where="Section 5", kind="identity", expect=at_most(1e-6))
def left_factor(runs):
    return max(one.final(f"nc1_left_error/{layer}") for one in each(runs) for layer in hidden(one))


def trained(runs):
    return min(mean(one, "nfa_pearson") for one in of_small_scale(runs))


for experiment, number in PRINTED.items():
    experiment.claim("c17_ansatz_is_high",
        says="after training, W'W correlates highly with the square root of the AGOP (mean over hidden layers)",
        paper=number, where=f"Section 5, {experiment.figure}", within=(-1, 1), expect=at_least(0.6))(trained)


@mlp.claim("c17_untrained_ansatz_is_high_too", also=[resnet, vgg],
    says="before training, W'W already correlates with the square root of the AGOP at 0.6 or more, so that a high "
    "score proves little (mean over hidden layers, least over networks)", origin="ours", within=(-1, 1),
    expect=at_least(0.6))
def untrained(runs):
    return min(mean(one, "nfa_pearson", step=0) for one in each(runs))


@mlp.claim("c22_agop_contracts_classes", also=[resnet, vgg],
    says="after training, the root of a hidden layer's AGOP lowers NC1 of the layer's input, and by more than the root "
    "rotated at random (largest ratios over layers)", paper="the AGOP can decrease within-class variability",
    where="Abstract, Section 5", expect={"of the input": below(1), "of the turned": below(1)})
def agop_contracts(runs):
    cases = [(one, layer) for one in of_small_scale(runs) for layer in hidden(runs)]
    return {
        "of the input": max(one.final(f"nc1_agop/{layer}") / one.final(f"nc1/{layer}") for one, layer in cases),
        "of the turned": max(
            one.final(f"nc1_agop/{layer}") / one.final(f"nc1_agop_rotated/{layer}") for one, layer in cases
        ),
    }


@mlp.claim("c18_classes_collapse", also=[resnet, vgg],
    says="training lowers NC1 of the last hidden layer to at most a tenth, and NC1 of the trained network falls with "
    "the layers (final over initial, Spearman)", paper="curves, no number",
    expect={"end over start": at_most(0.1), "order of layers": at_most(-0.8)}, least={"order of layers": 0.75})
def collapse(runs):
    networks, layers = of_small_scale(runs), range(len(hidden(runs)) + 1)
    profiles = [[one.final(f"nc1/{layer}") for layer in layers] for one in networks]
    return {"end over start": max(over_start(one, f"nc1/{layers[-1]}") for one in networks),
        "order of layers": max(stats.spearmanr(layers, profile).statistic for profile in profiles)}


def over_start(one, metric):
    return one.final(metric) / one.at(metric, 0)


@mlp.claim("c20_means_spread_in_the_last_layer", also=[resnet, vgg],
    says="the class means of the last hidden layer are nearer to a simplex than those of the layer before (difference "
    "of NC2)", paper="strong DNC2 progression only in the very last layer", where="Section 5", expect=below(0))
def last_layer(runs):
    top = len(hidden(runs))
    return max(one.final(f"nc2_cosines/{top}") - one.final(f"nc2_cosines/{top - 1}") for one in of_small_scale(runs))


@mlp.claim("c20b_means_spread_beyond_all_layers_before", also=[resnet, vgg],
    says="the class means of the last hidden layer are nearer to a simplex than those of every layer before and of the "
    "input (difference to their smallest NC2)", paper="strong DNC2 progression only in the very last layer",
    where="Section 5", expect=below(0))
def beyond_all(runs):
    top = len(hidden(runs))
    return max(one.final(f"nc2_cosines/{top}") - min(one.final(f"nc2_cosines/{layer}") for layer in range(top))
        for one in of_small_scale(runs))


@mlp.claim("c20_last_layer_progresses", also=[resnet, vgg],
    says="training moves the class means of the last hidden layer nearer to a simplex (NC2, final over initial)",
    paper="strong DNC2 progression only in the very last layer", where="Section 5", expect=below(1))
def progress(runs):
    return max(over_start(one, f"nc2_cosines/{len(hidden(runs))}") for one in of_small_scale(runs))


@mlp.claim("c19_small_scale_collapses_more", says="NC1 of the last hidden layer is below a fifth of its value at "
    "initial scale 1.5, where both networks fit their data (ratio)", origin="ours", expect=below(0.2))
def small_scale(runs):
    small, large = of_small_scale(runs), of_large_scale(runs)
    same = [one for one in small if one.trials.dataset.iloc[0] == large.trials.dataset.iloc[0]]
    if not same:
        raise Missing("no network of small initial scale on the same data")
    top = len(hidden(runs))
    return max(one.final(f"nc1/{top}") for one in same) / large.final(f"nc1/{top}")


@mlp.claim("c21_excess_over_rotations_grows", says="the excess of the ansatz over its rotation null grows in training, "
    "and ends above that at initial scale 1.5 (differences of means over hidden layers)", origin="ours",
    expect={"over the start": at_least(0.15), "over the large scale": above(0)})
def excess(runs):
    small, large = of_small_scale(runs), of_large_scale(runs)
    return {"over the start": min(mean(one, "nfa_excess") - mean(one, "nfa_excess", step=0) for one in small),
        "over the large scale": min(mean(one, "nfa_excess") for one in small) - mean(large, "nfa_excess")}


@mlp.claim("c21b_the_score_itself_grows",
    says="the correlation of W'W with the square root of the AGOP itself grows in training, as its excess over "
    "rotations should (rise of the mean over hidden layers)", origin="ours", expect=at_least(0.15))
def score_growth(runs):
    return min(mean(one, "nfa_pearson") - mean(one, "nfa_pearson", step=0) for one in of_small_scale(runs))


@mlp.draw(size=(16, 4))
def panels(runs, axes):
    figure = axes[0, 0].figure
    axes[0, 0].remove()
    networks = each(runs)
    figure.set_size_inches(16, 1.6 + 2.2 * len(networks))
    rows = figure.subplots(len(networks), 8, squeeze=False)
    for one, row in zip(networks, rows, strict=True):
        triples(one, row[:5])
        shares(one, row[5])
        ansatz(one, row[6])
        line(row[7], one, "loss/train", color=CATEGORIES[5])
        row[7].set(yscale="log")
        first = one.trials.iloc[0]
        row[0].set_ylabel(f"{first.dataset}, initial scale {first.init_scale:g}\ntr Σ$_W$ / tr Σ$_B$")
        for axis in row:
            axis.tick_params(which="both", labelsize=7)
    named = ["last hidden layer", "W'W, AGOP$^{1/2}$, by layer", "train loss"]
    for axis, title in zip(rows[0], [f"NC1, layer {layer + 1}" for layer in range(5)] + named, strict=True):
        axis.set_title(title)
    for axis in rows[-1]:
        axis.set_xlabel("epoch")
    place = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.28)}
    rows[-1, 5].legend(**place)
    lines = {label: line for row in rows for line, label in zip(*row[6].get_legend_handles_labels(), strict=True)}
    levels = {label: lines.pop(label) for label in ("rotated", "paper") if label in lines}
    rows[-1, 6].legend(lines.values(), lines, **place, ncols=5, columnspacing=0.6, handlelength=0.7, handletextpad=0.3)
    figure.legend(levels.values(), levels, loc="lower left", bbox_to_anchor=(0.75, -0.02), ncols=2)
    figure.legend(*rows[0, 0].get_legend_handles_labels(), loc="lower left", bbox_to_anchor=(0.16, 0.01), ncols=3)


def triples(one, row):
    """Draw NC1 of the input, after S V' and after the ReLU of each of five layers, on one scale."""
    for axis in row[1:]:
        axis.sharey(row[0])
        axis.tick_params(which="both", labelleft=False)
    for layer, axis in zip(hidden(one)[:5], row, strict=False):
        line(axis, one, f"nc1/{layer}", color=CATEGORIES[0], label="input Φ")
        line(axis, one, f"nc1_right/{layer}", color=CATEGORIES[2], label="right factor, S V'Φ")
        line(axis, one, f"nc1/{int(layer) + 1}", color=CATEGORIES[1], label="output, ReLU(U S V'Φ)")
        axis.set(yscale="log")


def shares(one, axis):
    top = len(hidden(one))
    line(axis, one, f"within_share/{top}", color=CATEGORIES[0], label="tr Σ$_W$ / tr Σ$_T$")
    line(axis, one, f"between_share/{top}", color=CATEGORIES[1], label="tr Σ$_B$ / tr Σ$_T$")
    axis.set(ylim=(-0.02, 1.02))


def ansatz(one, axis):
    names = hidden(one)
    for layer, colour in zip(names, shades(len(names)), strict=True):
        line(axis, one, f"nfa_pearson/{layer}", color=colour, label=f"{int(layer) + 1}")
        line(axis, one, f"nfa_null/{layer}", color=colour, linestyle="--", shade=0, label="rotated")
    first = one.trials.iloc[0]
    if first.trunk in PRINTED_FOR and first.dataset in ("digits", PRINTED_FOR[first.trunk]):
        paper_level(axis, 0.74)
    axis.set(ylim=(0, 1.02))


def line(axis, one, metric, **look):
    """Draw mean and range over seeds against epochs."""
    first, table = one.trials.iloc[0], one.curves(metric)
    band(axis, table, table.index / -(-first.n_train // first.batch_size), **look)
