"""Withheld updates: the whole schedule, every step logged, and weights that stay as they are."""

import pytest
import pytorch_lightning as pl
import torch

from featurelab.modules import data, learners, nets


def fit(learner, task, **options):
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "accelerator": "cpu"}
    trainer = pl.Trainer(**quiet, enable_model_summary=False, **options)
    trainer.fit(learner, datamodule=task)
    return trainer


@pytest.mark.parametrize(
    "optimizer",
    [
        learners.gd(0.1, weight_decay=0.1),
        learners.sgd(0.1, momentum=0.9, weight_decay=0.1),
        learners.adam(0.1, weight_decay=0.1),
        learners.adamw(0.1, weight_decay=0.1),
        learners.speed_limited(0.1, [1, 1, 1], eps=0.01),
    ],
)
def test_no_optimiser_moves_a_weight_and_every_step_is_counted(optimizer):
    task = data.ChainMonomials(20, 5, 5, 3, seed=0, dtype="float32")
    net = nets.mlp(5, 8, hidden=2, seed=0, dtype="float32")
    before = [weight.clone() for weight in net.parameters()]
    learner = learners.Supervised(net, optimizer=optimizer, steps_per_batch=3)
    with learners.withheld_updates():
        trainer = fit(learner, task, max_steps=7)
    assert all(torch.equal(a, b) for a, b in zip(before, net.parameters(), strict=True))
    assert trainer.global_step == 7
    assert len(learner.loss_history) == 7
    assert len(set(learner.loss_history.tolist())) == 1
    fit(learners.Supervised(net, optimizer=optimizer), task, max_steps=1)
    assert not torch.equal(before[0], next(iter(net.parameters()))), "once it is over"
