"""Full-batch training of a two-layer network through `fit`, next to a bare loop and to a stock Lightning module.

All sides take the same 500 steps in float64 on one thread, with the set-up of their trainer and without a store. Of
`fit`, one Lightning batch holds 1, 10 or 50 steps of the optimiser, as `steps_per_batch` of the learner says.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from functools import partial

import pytorch_lightning as pl
import torch

from benchmarks._rows import Row, Size, alternate, compare
from featurelab.modules import data, learners, nets
from featurelab.pipelines.engine.experiment.config import Config
from featurelab.pipelines.engine.trial.fitting.fit import fit
from featurelab.tracking.outbox.null import NullRecorder

LR = 0.01


def rows(size: Size) -> list[Row]:
    """A row for each number of steps a batch and each peer."""
    torch.set_num_threads(1)
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore")
    steps, repeats = (500, 5) if size == "full" else (20, 1)
    task = data.ChainMonomials(128, 200, 32, 5, seed=0)
    rows = []
    for each in (1, 10, 50):
        calls: dict[str, Callable[[], object]] = {
            "featurelab": partial(ours, task, steps, each),
            "bare loop": partial(bare, task, steps),
            "stock Lightning": partial(stock, task, steps),
        }
        ends = {name: call() for name, call in calls.items()}
        if not all(torch.allclose(end, ends["bare loop"], rtol=1e-9) for end in ends.values()):  # type: ignore[arg-type]
            raise SystemExit(f"the sides end with different losses: {ends}")
        what = f"full-batch training, two layers, width 64, n = 128, {steps} steps, {each} a batch, float64, 1 thread"
        rows += compare(f"steps_per_batch={each}", what, alternate(calls, repeats, warm=False))
    return rows


def network() -> nets.MLP:
    return nets.mlp(32, 64, 2, seed=0)


def ours(task: data.ChainMonomials, steps: int, each: int) -> torch.Tensor:
    learner = learners.Supervised(network(), optimizer=learners.gd(LR), steps_per_batch=each)
    fit(learner, task, Config(threads=1), NullRecorder(), steps=steps)
    return learner.loss_history[-1]


def bare(task: data.ChainMonomials, steps: int) -> torch.Tensor:
    net, (x, y) = network(), task.train
    optimizer, loss = torch.optim.SGD(net.parameters(), lr=LR), learners.loss("mse")
    for _ in range(steps):
        optimizer.zero_grad()
        value = loss(net, (x, y))
        value.backward()
        optimizer.step()
    return value.detach()


class Stock(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net, self.loss, self.last = network(), learners.loss("mse"), torch.tensor(0.0)

    def training_step(self, batch: tuple[torch.Tensor, torch.Tensor], index: int) -> torch.Tensor:
        value: torch.Tensor = self.loss(self.net, batch)
        self.last = value.detach()
        return value

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.net.parameters(), lr=LR)


def stock(task: data.ChainMonomials, steps: int) -> torch.Tensor:
    module = Stock()
    trainer = pl.Trainer(
        max_steps=steps,
        accelerator="cpu",
        precision="64-true",
        logger=False,
        limit_val_batches=0,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(module, datamodule=task)
    return module.last
