"""Momentum and step schedules against bare loops, and after going on from a checkpoint."""

import pickle

import pytest
import pytorch_lightning as pl
import torch

from featurelab.modules.data import ChainMonomials, TensorData
from featurelab.modules.learners import Supervised, milestone_schedule, mse, sgd
from featurelab.modules.nets import mlp

DATA = ChainMonomials(48, 16, 8, 3, seed=0)


def trainer(epochs, **options):
    flags = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    return pl.Trainer(
        **({"accelerator": "cpu", "devices": 1, "enable_checkpointing": False} | flags | options), max_epochs=epochs
    )


def learner(**options):
    return Supervised(
        mlp(8, 12, 2, seed=0),
        optimizer=sgd(0.05, momentum=0.9, weight_decay=1e-2),
        schedule=milestone_schedule([2, 3]),
        **options,
    )


def batches():
    return TensorData(DATA.train, batch_size=16, order_seed=3)


def weights(module):
    return torch.cat([p.detach().flatten() for p in module.parameters()])


@pytest.mark.parametrize("steps_per_batch", [1, 3])
def test_momentum_weight_decay_and_schedule_equal_a_bare_loop(steps_per_batch):
    module = learner(steps_per_batch=steps_per_batch)
    trainer(5).fit(module, batches())
    net, loader = mlp(8, 12, 2, seed=0), batches().train_dataloader()
    velocity = [torch.zeros_like(p) for p in net.parameters()]
    for rate in (0.05, 0.05, 0.005, 0.0005, 0.0005):
        for batch in loader:
            for _ in range(steps_per_batch):
                gradients = torch.autograd.grad(mse(net, batch), list(net.parameters()))
                for p, g, v in zip(net.parameters(), gradients, velocity, strict=True):
                    v.mul_(0.9).add_(g + 1e-2 * p.detach())
                    p.data.sub_(rate * v)
    torch.testing.assert_close(weights(module.net), weights(net), rtol=1e-12, atol=1e-14)


def test_the_schedule_is_torch_s_step_schedule():
    module = learner()
    trainer(4).fit(module, batches())
    net, loader = mlp(8, 12, 2, seed=0), batches().train_dataloader()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-2)
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, [2, 3], gamma=0.1)
    for _ in range(4):
        for batch in loader:
            optimizer.zero_grad()
            mse(net, batch).backward()
            optimizer.step()
        scheduler.step()
    torch.testing.assert_close(weights(module.net), weights(net), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("stop", [1, 2, 3, 4])
def test_going_on_from_a_checkpoint_changes_nothing(tmp_path, stop):
    whole, first, rest = learner(), learner(), learner()
    trainer(5).fit(whole, batches())
    part = trainer(stop)
    part.fit(first, batches())
    part.save_checkpoint(tmp_path / "part.ckpt")
    trainer(5).fit(rest, batches(), ckpt_path=tmp_path / "part.ckpt", weights_only=False)
    assert torch.equal(weights(rest.net), weights(whole.net))
    assert torch.equal(rest.loss_history, whole.loss_history)


def test_schedules_and_optimisers_can_be_sent_to_workers():
    schedule = pickle.loads(pickle.dumps(milestone_schedule([117, 234], factor=0.2)))
    assert [schedule(epoch) for epoch in (0, 116, 117, 233, 234, 999)] == pytest.approx([1, 1, 0.2, 0.2, 0.04, 0.04])
    optimizer = pickle.loads(pickle.dumps(sgd(0.1, 0.9, 5e-4)))(mlp(2, 3, 1, seed=0))
    assert {key: optimizer.defaults[key] for key in ("lr", "momentum", "weight_decay")} == {
        "lr": 0.1,
        "momentum": 0.9,
        "weight_decay": 5e-4,
    }


def test_wrong_schedules_are_refused():
    with pytest.raises(ValueError, match="increase"):
        milestone_schedule([20, 10])
    with pytest.raises(ValueError, match="positive"):
        milestone_schedule([10], factor=0.0)
    assert milestone_schedule([])(7) == 1
