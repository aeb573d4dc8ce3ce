"""Gradients kept in the first steps are those of a bare loop, and keeping them changes nothing."""

import pytest
import pytorch_lightning as pl
import torch

from featurelab.modules import data, learners, nets, probes

QUIET = {
    "logger": False,
    "enable_checkpointing": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
    "limit_val_batches": 0,
    "accelerator": "cpu",
}


def problem():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(12, 5, generator=generator, dtype=torch.float64)
    return data.TensorData((x, torch.arange(12) % 3), batch_size=4, order_seed=1), nets.perceptron((5, 4, 3), seed=0)


def trained(steps, kept):
    task, net = problem()
    keeper = probes.EarlyGradients({"hidden": net.layers[0].weight, "head": net.head.weight}, kept) if kept else None
    learner = learners.Supervised(net, loss="cross_entropy", optimizer=learners.gd(0.1))
    pl.Trainer(max_steps=steps, max_epochs=-1, callbacks=[keeper] * bool(kept), **QUIET).fit(learner, datamodule=task)
    return net, keeper


def test_they_are_those_of_a_bare_loop():
    net, keeper = trained(7, 5)
    task, bare = problem()
    batches, expected = task.train_dataloader(), []
    for x, y in [batch for _ in range(3) for batch in batches][:7]:
        loss = torch.nn.functional.cross_entropy(bare(x), y)
        gradients = torch.autograd.grad(loss, list(bare.parameters()))
        expected.append(gradients[0])
        with torch.no_grad():
            for weight, gradient in zip(bare.parameters(), gradients, strict=True):
                weight -= 0.1 * gradient
    assert torch.allclose(keeper.gradients["hidden"], torch.stack(expected[:5]), atol=1e-12)
    assert keeper.gradients["head"].shape == (5, 3, 4)
    assert torch.allclose(net.layers[0].weight, bare.layers[0].weight, atol=1e-12)


def test_training_is_the_same_without_them():
    ours, theirs = trained(7, 5)[0], trained(7, 0)[0]
    assert all(torch.equal(a, b) for a, b in zip(ours.parameters(), theirs.parameters(), strict=True))


def test_they_are_kept_where_updates_are_withheld():
    with learners.withheld_updates():
        net, keeper = trained(3, 3)
    assert torch.equal(net.head.weight, problem()[1].head.weight)
    assert keeper.gradients["hidden"].norm() > 0


def test_a_checkpoint_keeps_them():
    keeper = trained(3, 2)[1]
    fresh = probes.EarlyGradients(keeper.weights, 2)
    fresh.load_state_dict(keeper.state_dict())
    assert torch.equal(fresh.gradients["head"], keeper.gradients["head"])


def test_what_cannot_be_kept_is_refused():
    weight = torch.zeros(2, 2)
    with pytest.raises(ValueError, match="do not: first"):
        probes.EarlyGradients({"first": weight})
    with pytest.raises(ValueError, match="at least 1"):
        probes.EarlyGradients({"first": weight.requires_grad_()}, 0)
