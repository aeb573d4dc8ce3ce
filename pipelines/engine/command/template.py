"""Weight decay lowers the rank of the first layer.

Say here what the figure shows, in which paper, with its formulas; the first line stands in listings.
"""

# One import for all that an experiment is written in; libraries among it are loaded when they are first used.
from featurelab.pipelines import (
    Config,
    Experiment,
    Field,
    above,
    choice,
    curves,
    data,
    fit,
    learners,
    loguniform,
    mlp_cost,
    nets,
    probes,
)


# What a trial may vary. `seed`, `threads`, `device` and `precision` are there already.
class RankConfig(Config):
    dim: int = Field(16, ge=5, description="input coordinates")
    n_train: int = Field(128, ge=1, description="training samples")
    width: int = Field(64, ge=1, description="units of each hidden layer")
    lr: float = Field(0.05, gt=0, description="learning rate")
    weight_decay: float = Field(0.0, ge=0, description="weight decay of every layer")
    steps: int = Field(300, ge=1, description="optimiser steps")


# The figure is a sweep. `laptop` and `paper` are two presets of the same settings; `grid` makes the figure, seeds
# included; `sweep_axes` are what one would search; `small` is a size at which the whole grid runs in seconds.
figure = Experiment(
    name="template/weight_decay",
    figure="Fig. 1",
    title="Effective rank of the first layer against weight decay",
    caption="Lines are means over seeds, bands their range.",
    laptop=RankConfig(),
    paper=RankConfig(width=1024, steps=3000),
    grid={"weight_decay": [0.0, 0.1], "seed": [0, 1, 2]},
    sweep_axes={"lr": loguniform(1e-3, 1e-1), "width": choice(64, 256), "weight_decay": loguniform(1e-4, 1e-1)},
    minutes=0.2,
    small={"width": 16, "n_train": 32, "steps": 60},
)


# One run. It knows neither Ray nor MLflow: a recorder takes what is measured. Data and initial weights have random
# streams of their own, so that one can be changed without the other.
@figure.trial
def train(config, recorder):
    task = data.ChainMonomials(config.n_train, 500, config.dim, 4, seed=config.streams.data, dtype=config.dtype)
    net = nets.mlp(config.dim, config.width, hidden=2, seed=config.streams.init, dtype=config.dtype)
    optimizer = learners.gd(config.lr, weight_decay=config.weight_decay)
    learner = learners.Supervised(net, optimizer=optimizer, steps_per_batch=20)
    watching = [
        probes.LossProbe({"train": task.train, "test": task.test}, every=20),
        probes.SpectrumProbe(every=20, layers=["0"], inputs=task.train[0]),
    ]
    fit(learner, task, config, recorder, steps=config.steps, probes=watching)


# What a trial needs, before it runs: `run --dry-run` and `list` show it.
@figure.cost
def cost(config):
    sizes = {"dim": config.dim, "width": config.width, "hidden": 2, "outputs": 1, "n_train": config.n_train}
    return mlp_cost(**sizes, steps=config.steps, measures=config.steps // 20)


# A sentence, and what to measure for it on the trials of one seed. `expect` says with which values it holds, `paper`
# the published number; a sentence known not to hold says `fails="why"`. The verdict is on the mean over seeds.
@figure.claim("rank_falls", says="with weight decay the final effective rank is lower", expect=above(0), origin="ours")
def rank_falls(runs):
    return runs.final("effective_rank/0", weight_decay=0.0) - runs.final("effective_rank/0", weight_decay=0.1)


# The figure, from what is stored: `axes` is an array of rows and columns.
@figure.draw(cols=2, size=(8, 3.4))
def panels(runs, axes):
    rank, loss = axes[0]
    curves(rank, runs, "effective_rank/0", across="weight_decay")
    rank.set(xlabel="step", ylabel="effective rank, layer 1")
    rank.legend()
    curves(loss, runs, "loss/test", across="weight_decay")
    loss.set(xlabel="step", ylabel="test loss", yscale="log")
