"""Supervised training against a bare loop, on one worker and on two."""

import pickle

import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.strategies import DDPStrategy

from featurelab.modules.data import ChainMonomials, Digits, TensorData
from featurelab.modules.learners import AdaptiveSpeeds, Diverged, Supervised, adam, gd, mse, speed_limited
from featurelab.modules.nets import mlp
from featurelab.modules.probes import AnsatzProbe

DATA = ChainMonomials(48, 16, 8, 3, seed=0)


def trainer(**options):
    flags = {
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    return pl.Trainer(**({"accelerator": "cpu", "devices": 1} | flags | options))


def learner(optimizer=None, **options):
    return Supervised(mlp(8, 12, 2, seed=0), optimizer=optimizer or gd(0.05), **options)


def bare_loop(steps, lr=0.05):
    net, losses = mlp(8, 12, 2, seed=0), []
    for _ in range(steps):
        value = mse(net, DATA.train)
        losses.append(value.item())
        for weight, gradient in zip(net.parameters(), torch.autograd.grad(value, list(net.parameters())), strict=True):
            weight.data.sub_(gradient, alpha=lr)
    return net, losses


def same(a, b):
    return all(torch.equal(p, q) for p, q in zip(a.parameters(), b.parameters(), strict=True))


@pytest.mark.parametrize("steps_per_batch", [1, 7, 50])
def test_any_cut_into_batches_is_gradient_descent_bit_for_bit(steps_per_batch):
    module, fit = learner(steps_per_batch=steps_per_batch), trainer(max_steps=23)
    fit.fit(module, DATA)
    net, losses = bare_loop(23)
    assert same(module.net, net)
    assert module.loss_history.tolist() == losses
    assert fit.global_step == 23
    assert module.catapult_ratio == pytest.approx(max(losses) / losses[0])


class Listening(pl.Callback):
    """Notes the steps before which it is called; if it logs through the trainer, steps are taken in Lightning's way."""

    def __init__(self, logs_by_itself):
        self.logs_by_itself, self.steps, self.optimizers = logs_by_itself, [], set()

    def on_before_optimizer_step(self, trainer, module, optimizer):
        self.steps.append(trainer.global_step)
        self.optimizers.add(type(optimizer))
        assert all(p.grad is not None for p in module.net.parameters())
        if not self.logs_by_itself:
            module.log("largest_gradient", max(p.grad.abs().max() for p in module.net.parameters()))


@pytest.mark.parametrize("logs_by_itself", [True, False])
def test_callbacks_are_called_before_each_step_and_training_is_the_same(logs_by_itself):
    listening = Listening(logs_by_itself)
    module, fit = learner(steps_per_batch=7), trainer(max_steps=23, callbacks=[listening])
    fit.fit(module, DATA)
    net, losses = bare_loop(23)
    assert same(module.net, net)
    assert module.loss_history.tolist() == losses
    assert listening.steps == list(range(23))
    assert listening.optimizers == {torch.optim.SGD}
    assert fit.global_step == 23
    assert ("largest_gradient" in fit.callback_metrics) is not logs_by_itself


def test_minibatches_take_their_steps_in_the_order_of_the_data_module():
    data = TensorData(DATA.train, batch_size=16, order_seed=3)
    module, fit = learner(steps_per_batch=2), trainer(max_epochs=2)
    fit.fit(module, data)
    net, loader = mlp(8, 12, 2, seed=0), TensorData(DATA.train, batch_size=16, order_seed=3).train_dataloader()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    for batch in [batch for _ in range(2) for batch in loader]:
        for _ in range(2):
            optimizer.zero_grad()
            mse(net, batch).backward()
            optimizer.step()
    assert same(module.net, net)
    assert fit.global_step == 12


def test_divergence_stops_at_its_step():
    # no ReLU: it may die on the way up, and its loss is finite again
    linear = mlp(8, 12, 2, activation="identity", seed=0)
    module = Supervised(linear, optimizer=gd(1e6), steps_per_batch=20)
    with pytest.raises(Diverged) as caught:
        trainer(max_steps=40).fit(module, DATA)
    history = module.loss_history
    assert caught.value.step < 20
    assert history[: caught.value.step].isfinite().all()
    assert not history[caught.value.step].isfinite()
    assert pickle.loads(pickle.dumps(caught.value)).step == caught.value.step


def test_an_unstable_first_phase_shows_in_the_catapult_ratio():
    module = learner(optimizer=gd(2.0))
    trainer(max_steps=12).fit(module, DATA)
    calm = learner(optimizer=gd(0.01))
    trainer(max_steps=12).fit(calm, DATA)
    assert module.catapult_ratio > 100
    assert module.loss_history[-1] < 2 * module.loss_history[0]  # the last loss alone would not show it
    assert calm.catapult_ratio == 1.0


def test_a_resumed_fit_equals_one_in_one_piece(tmp_path):
    whole, first, second = (learner(adam(1e-2), steps_per_batch=5) for _ in range(3))
    trainer(max_steps=20).fit(whole, DATA)
    half = trainer(max_steps=10)
    half.fit(first, DATA)
    half.save_checkpoint(tmp_path / "half.ckpt")
    trainer(max_steps=20).fit(second, DATA, ckpt_path=tmp_path / "half.ckpt", weights_only=False)
    assert same(whole.net, second.net)
    assert torch.equal(whole.loss_history, second.loss_history)


def test_validation_and_test_report_loss_and_accuracy():
    data = Digits(400, seed=0)
    net = mlp(64, 32, 1, outputs=10, seed=0)
    module, fit = Supervised(net, optimizer=adam(1e-2), steps_per_batch=40), trainer(max_steps=40)
    fit.fit(module, data)
    x, y = data.test
    expected = (net(x).argmax(1) == y.argmax(1)).double().mean().item()
    assert fit.callback_metrics["accuracy/val"].item() == pytest.approx(expected)
    assert expected > 0.7
    (report,) = fit.test(module, data, verbose=False)
    assert report == pytest.approx({"loss/test": mse(net, data.test).item(), "accuracy/test": expected})
    regression = trainer(max_steps=1)
    regression.fit(learner(), DATA)
    assert "accuracy/val" not in regression.callback_metrics
    assert "loss/val" in regression.callback_metrics


def test_parameters_the_loss_does_not_use_stay_as_they_are():
    class Spare(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.spare = mlp(8, 4, 1, seed=0), torch.nn.Linear(2, 2)

        def forward(self, x):
            return self.used(x)

    net = Spare()
    before = net.spare.weight.detach().clone()
    trainer(max_steps=2).fit(Supervised(net, optimizer=gd(0.1)), DATA)
    assert torch.equal(net.spare.weight, before)


def test_wrong_requests_are_refused():
    with pytest.raises(ValueError, match="did you mean 'mse'"):
        learner(loss="msee")
    with pytest.raises(ValueError, match="at least 1, got 0"):
        learner(steps_per_batch=0)


def test_two_workers_equal_one_with_the_same_global_batches():
    # normalised steps and a choice of speeds: neither would survive gradients or kernels of a share of the batch
    def fit(**options):
        module = learner(speed_limited(0.05, [1.0] * 3, 0.01), steps_per_batch=3)
        data = TensorData(DATA.train, DATA.test, batch_size=16, order_seed=1)
        callbacks = [AdaptiveSpeeds(high=3.0), AnsatzProbe(every=2)]
        trainer(max_steps=17, callbacks=callbacks, **options).fit(module, data)
        return module.net

    # forked, since a new process would import everything again
    alone, shared = fit(), fit(devices=2, strategy=DDPStrategy(start_method="fork", process_group_backend="gloo"))
    for a, b, initial in zip(alone.parameters(), shared.parameters(), mlp(8, 12, 2, seed=0).parameters(), strict=True):
        assert torch.allclose(a, b, rtol=0, atol=1e-12)
        assert (b - initial).abs().max() > 1e-2
