"""Figure 14. Speed limits on street-view house numbers: a larger centred share, better features.

A network with four hidden layers and large initialisation is trained on 4,000 SVHN images by full-batch gradient
descent, and by Speed Limited Optimization with a fast first layer. (a) first-layer UC-NFA, C-NFA and their ratio;
(b, c) diagonals of NFM and AGOP as images.

The laptop preset trains on scikit-learn's 8x8 digits. There the printed speed C_0 = 2.5 gains little, so a run with
C_0 = 25, which the paper does not have, stands beside it. The loss is the mean over the ten outputs, which the paper
does not say; summed over them, the C-NFA under SLO came out above that of gradient descent by 0.007, with a 95%
interval from -0.058 to 0.071.
"""

from functools import partial
from typing import Literal

from featurelab.pipelines import (
    CATEGORIES, Experiment, Field, Recorder, above, band, fit, heatmap, learners, loguniform, probes,
)
from featurelab.pipelines.neural_feature_ansatz import images
from featurelab.pipelines.neural_feature_ansatz.chain import optimizer


class NumbersConfig(images.ImageConfig):
    optimizer: Literal["gd", "slo"] = Field("gd", description="gradient descent or speed-limited")
    speeds: tuple[float, ...] = Field((2.5, 0.4, 0.4, 0.4, 0.4), description="slo: learning speed C of each layer")
    eps: float = Field(0.2, gt=0, description="slo: gradients are divided by eps + their norm")
    n_test: int = Field(1000, ge=1, description="test images")


LAPTOP = NumbersConfig(dataset="digits", n_train=500, width=64, hidden=4, init_scale=1.0, lr=0.2, epochs=600,
    measure_every=50)
DESCENT = ("gd", 0.2, (2.5, 0.4, 0.4, 0.4, 0.4))
PRINTED = ("slo", 0.3, (2.5, 0.4, 0.4, 0.4, 0.4))
FASTER = ("slo", 0.3, (25.0, 0.4, 0.4, 0.4, 0.4))
RUNS = {DESCENT: "GD", PRINTED: "SLO, $C_0$ = 2.5", FASTER: "SLO, $C_0$ = 25 (ours)"}

figure = Experiment(
    name="neural_feature_ansatz/street_numbers", figures=("Fig. 14",),
    title="Speed Limited Optimization on images of numbers",
    caption="First layer. Curves are means over seeds, bands their range; images are of one seed.", laptop=LAPTOP,
    paper=LAPTOP.but(dataset="svhn", n_train=4000, n_test=4000, width=256, epochs=3000),
    desktop=LAPTOP.but(dataset="cifar10", n_train=1000, n_test=1000, width=128), desktop_minutes=4,
    desktop_grid={("optimizer", "lr", "speeds"): list(RUNS), "seed": [0, 1, 2]},
    reduced="1,000 images of CIFAR-10 in place of 4,000 of SVHN, width 128 in place of 256, 600 epochs in place of "
    "3,000", grid={("optimizer", "lr", "speeds"): list(RUNS), "seed": range(6)},
    sweep_axes=images.SWEEP_AXES | {"lr": loguniform(3e-2, 1.0)}, minutes=0.8,
    controls=("permuted_labels", "untrained"), small={"n_train": 40, "width": 16, "epochs": 10, "measure_every": 5},
    needs=("svhn",), stand_in="scikit-learn's 8x8 digits in place of SVHN: same code path and ordering, other numbers",
)


@figure.trial
def run(config: NumbersConfig, recorder: Recorder) -> None:
    task = images.pictures(config, "all", n_test=config.n_test)
    net = images.network(config, task, config.init_scale)
    # images of numbers have ten outputs: the loss is the mean over them too, as torch.nn.MSELoss takes it
    loss = partial(learners.mse, factor=1 / task.train[1].shape[1])
    every = config.measure_every
    learner = learners.Supervised(net, loss=loss, optimizer=optimizer(config), steps_per_batch=every)
    watching = [probes.LossProbe({"train": task.train, "test": task.test}, every=every),
        probes.AnsatzProbe(every=every, inputs=task.train[0], quantities=["nfa", "cnfa", "centered_ratio"])]
    fit(learner, task, config, recorder, steps=config.epochs, probes=watching)
    similarity = images.record_diagonals(recorder, images.first_layer(net, task), task)
    recorder.log({"diagonal_pearson/agop": similarity}, step=config.epochs)


@figure.cost
def cost(config: NumbersConfig):
    return images.image_cost(config, outputs=10, steps=config.epochs)


def of(runs, run):
    return runs.where(optimizer=run[0], speeds=run[2])


def gain(runs, metric, run=PRINTED):
    """How far the final value under SLO exceeds that under gradient descent."""
    return of(runs, run).final(metric) - runs.final(metric, optimizer="gd")


@figure.claim("c34_slo_raises_alignment",
    says="SLO raises the centred share, the UC-NFA and the diagonals' correlation (gains over gradient descent)",
    paper="curves, no number", where="Fig. 14",
    expect={"ratio": above(0), "UC-NFA": above(0), "diagonal Pearson": above(0)})
def raises(runs):
    metrics = {"ratio": "centered_ratio/0", "UC-NFA": "nfa/0", "diagonal Pearson": "diagonal_pearson/agop"}
    return {name: gain(runs, metric) for name, metric in metrics.items()}


@figure.claim("c34b_slo_raises_c_nfa", says="SLO raises the C-NFA (gain over gradient descent)",
    paper="curve, no number", where="Fig. 14a", expect=above(0))
def raises_centred(runs):
    return gain(runs, "cnfa/0")


@figure.claim("c34c_faster_first_layer",
    says="with a first layer ten times faster than printed SLO raises the UC-NFA further (gain over C_0 = 2.5)",
    origin="ours", expect=above(0))
def faster(runs):
    return gain(runs, "nfa/0", FASTER) - gain(runs, "nfa/0", PRINTED)


@figure.draw(rows=2, cols=6, size=(14, 5.6))
def panels(runs, axes):
    grid = axes[0, 0].get_gridspec()
    for axis in axes.flat:
        axis.remove()
    figure = grid.figure
    present = {run: of(runs, run) for run in RUNS if len(of(runs, run).trials)}
    named = {"nfa": "UC-NFA", "cnfa": "C-NFA", "centered_ratio": "unnormalised C-NFA / UC-NFA"}
    for column, (metric, name) in enumerate(named.items()):
        axis = figure.add_subplot(grid[0, 2 * column : 2 * column + 2])
        for (run, chosen), colour in zip(present.items(), CATEGORIES, strict=False):
            band(axis, chosen.curves(f"{metric}/0"), color=colour, label=RUNS[run])
        axis.set(title=name, xlabel="epoch", ylim=(0, 1.02))
        if column == 0:
            axis.legend(loc="lower right")
    for column, (run, chosen) in enumerate(present.items()):
        diagonal, note = chosen.arrays("diagonals")[0], f"Pearson {chosen.final('diagonal_pearson/agop'):.2f}"
        heatmap(figure.add_subplot(grid[1, 2 * column]), diagonal["nfm"], f"diag NFM\n{RUNS[run]}")
        heatmap(figure.add_subplot(grid[1, 2 * column + 1]), diagonal["agop"], f"diag AGOP\n{RUNS[run]}", note)
