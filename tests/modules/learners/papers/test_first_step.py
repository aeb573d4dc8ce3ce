"""The first step that erases, and the training that follows it."""

import pytest
import pytorch_lightning as pl
import torch

from featurelab.modules import data, learners, nets, theory


def task(n=40):
    return data.UniformParity(n, 20, 6, 2, seed=0)


def net(seed=0):
    W, a = nets.random_neurons(6, 4, seed=seed)
    return nets.symmetric_thresholded(W, a, torch.full((4,), 0.3, dtype=torch.float64))


def fit(module, datamodule, steps):
    trainer = pl.Trainer(
        max_steps=steps,
        accelerator="cpu",
        precision="64-true",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        limit_val_batches=0,
    )
    trainer.fit(module, datamodule=datamodule)
    return trainer


def test_after_the_step_neurons_are_multiples_of_their_simplified_gradients():
    parity = task()
    start, moved = net(), net()
    learners.take_first_step(moved, parity.train, learners.hinge, lr=0.7)
    G = theory.gradient_features.simplified_gradient(*parity.train, start.hidden.weight.detach(), start.thresholds)
    assert torch.allclose(moved.hidden.weight, 0.7 * start.head.weight.T * G, atol=1e-14)
    assert torch.equal(moved.thresholds, start.thresholds)
    m = len(G) // 2
    assert torch.allclose(moved.hidden.weight[:m], -moved.hidden.weight[m:], atol=1e-14)


def test_what_is_not_erased_stays():
    parity = task()
    start, whole, part = net(), net(), net()
    learners.take_first_step(whole, parity.train, learners.hinge, lr=0.7)
    learners.take_first_step(part, parity.train, learners.hinge, lr=0.7, erase=0.25)
    assert torch.allclose(part.hidden.weight - whole.hidden.weight, 0.75 * start.hidden.weight, atol=1e-14)


@pytest.mark.parametrize("per_batch", [1, 4])
def test_the_fit_is_the_step_and_then_the_optimiser_by_hand(per_batch):
    parity, trained, slow = task(), net(), net()
    optimizer = learners.adam_by_layer(0.05, {"hidden": 0.1, "head": 1.0})
    module = learners.FirstStepThen(trained, loss="hinge", optimizer=optimizer, first_lr=0.7, steps_per_batch=per_batch)
    assert fit(module, parity, 6).global_step == 6
    learners.take_first_step(slow, parity.train, learners.hinge, lr=0.7)
    adam = torch.optim.Adam([{"params": slow.hidden.weight, "lr": 0.005}, {"params": slow.head.weight, "lr": 0.05}])
    for _ in range(5):
        adam.zero_grad()
        learners.hinge(slow, parity.train).backward()
        adam.step()
    assert torch.allclose(trained.hidden.weight, slow.hidden.weight, atol=1e-12)
    assert torch.allclose(trained.head.weight, slow.head.weight, atol=1e-12)
    assert len(module.loss_history) == 6


def test_the_first_step_alone_can_see_another_batch():
    parity, trained, slow = task(), net(), net()
    other = (parity.train[0], parity.train[1].flip(0))
    optimizer = learners.adam_by_layer(0.05, {"hidden": 0.0, "head": 1.0})
    module = learners.FirstStepThen(trained, loss="hinge", optimizer=optimizer, first_lr=0.7, first_batch=other)
    fit(module, parity, 3)
    learners.take_first_step(slow, other, learners.hinge, lr=0.7)
    assert torch.equal(trained.hidden.weight, slow.hidden.weight)
    assert not torch.equal(trained.head.weight, slow.head.weight)


def test_withheld_and_absent_first_steps_move_nothing():
    start, trained = net(), net()
    optimizer = learners.adam_by_layer(0.05, {"hidden": 1.0, "head": 1.0})
    with learners.withheld_updates():
        fit(learners.FirstStepThen(trained, loss="hinge", optimizer=optimizer, first_lr=0.7), task(), 4)
    assert torch.equal(trained.hidden.weight, start.hidden.weight)
    module = learners.FirstStepThen(trained, loss="hinge", optimizer=learners.gd(0.0), first_lr=None)
    fit(module, task(), 2)
    assert torch.equal(trained.hidden.weight, start.hidden.weight)


def test_wrong_rates_are_refused():
    for wrong in ({"first_lr": -1.0}, {"first_lr": 1.0, "erase": 1.5}):
        with pytest.raises(ValueError, match=next(reversed(wrong))):
            learners.FirstStepThen(net(), loss="hinge", optimizer=learners.gd(0.1), **wrong)
    with pytest.raises(ValueError, match="hidden, head"):
        learners.adam_by_layer(0.1, {"hidden": 1.0})(net())


def test_hinge_and_logistic_are_their_means_over_samples():
    f, y = torch.tensor([[2.0], [0.5], [-1.0]]), torch.tensor([[1.0], [1.0], [1.0]])
    assert learners.hinge(lambda _: f, (f, y)).item() == pytest.approx((0 + 0.5 + 2) / 3)
    logistic = sum(torch.log(1 + torch.exp(-v)).item() for v in f.flatten()) / 3
    assert learners.logistic(lambda _: f, (f, y)).item() == pytest.approx(logistic)
    with pytest.raises(ValueError, match="labels"):
        learners.hinge(lambda _: f, (f, y.flatten()))


def test_several_first_steps_erase_what_they_name_and_then_the_optimiser_goes_on():
    parity, trained, slow = task(), net(), net()
    steps = [learners.FirstStep(0.3, {"hidden.weight": 1.0}), learners.FirstStep(1.0, {"head.weight": 0.5})]
    module = learners.FirstStepsThen(
        trained, loss="hinge", optimizer=learners.gd(0.1), first_steps=steps, first_loss=learners.logistic
    )
    assert fit(module, parity, 3).global_step == 3
    for rate, shares in ((0.3, (1.0, 0.0)), (1.0, (0.0, 0.5))):
        weights = [slow.hidden.weight, slow.head.weight]
        gradients = torch.autograd.grad(learners.logistic(slow, parity.train), weights)
        with torch.no_grad():
            for weight, gradient, share in zip(weights, gradients, shares, strict=True):
                weight.copy_((1 - share) * weight - rate * gradient)
    learners.hinge(slow, parity.train).backward()
    for name in ("hidden", "head"):
        weight = getattr(slow, name).weight
        assert torch.allclose(getattr(trained, name).weight, weight - 0.1 * weight.grad, atol=1e-12)
    assert len(module.loss_history) == 3


def test_erasing_as_decay_is_the_same_but_for_rounding():
    parity, exact, decayed = task(), net(), net()
    learners.take_first_step(exact, parity.train, learners.hinge, lr=0.3)
    learners.take_first_step(decayed, parity.train, learners.hinge, lr=0.3, as_decay=True)
    assert torch.allclose(exact.hidden.weight, decayed.hidden.weight, atol=1e-14)
    small, lost = net().float(), net().float()
    batch = tuple(part.float() for part in parity.train)
    learners.take_first_step(small, batch, learners.hinge, lr=1e-8)
    learners.take_first_step(lost, batch, learners.hinge, lr=1e-8, as_decay=True)
    assert (small.hidden.weight - lost.hidden.weight).norm() > 0.5 * small.hidden.weight.norm()


def test_a_step_that_erases_what_is_not_there_is_refused():
    with pytest.raises(
        ValueError, match=r"head.bias: not a trainable parameter; choose among hidden.weight, head.weight"
    ):
        learners.take_first_step(net(), task().train, learners.hinge, lr=0.1, erase={"head.bias": 1.0})
