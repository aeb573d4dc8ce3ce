"""The regulariser of teachers: its range, where it is least, and the training with it."""

import math

import numpy as np
import pytest
import pytorch_lightning as pl
import torch

from featurelab.modules import data, learners, nets

QUIET = {
    "logger": False,
    "enable_checkpointing": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
    "limit_val_batches": 0,
    "accelerator": "cpu",
}
SURE = 200 * torch.eye(4, dtype=torch.float64)


def logits(scale=1.0, rows=9):
    return scale * torch.randn(rows, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.mark.parametrize("scale", [0.0, 1.0, 5.0, 300.0])
def test_both_are_those_of_a_loop_and_in_their_range(scale):
    p = torch.softmax(logits(scale), 1).tolist()
    mean = [sum(row[j] for row in p) / len(p) for j in range(4)]
    imbalance = sum(q * math.log(q) for q in mean if q)
    entropy = -sum(value * math.log(value) for row in p for value in row if value) / len(p)
    found = learners.label_imbalance(logits(scale)).item(), learners.label_entropy(logits(scale)).item()
    assert found == pytest.approx((imbalance, entropy), abs=1e-12)
    assert -math.log(4) - 1e-12 <= found[0] <= 0 <= found[1] + 1e-12 <= math.log(4) + 1e-11


def test_least_where_labels_are_balanced_and_sure():
    assert learners.label_imbalance(SURE).item() == pytest.approx(-math.log(4))
    assert learners.label_entropy(SURE).item() == pytest.approx(0.0, abs=1e-12)
    assert learners.label_imbalance(SURE[:1].expand(5, 4)).item() == pytest.approx(0.0, abs=1e-12)
    assert learners.label_entropy(0 * SURE).item() == pytest.approx(math.log(4))


def test_gradients_are_those_of_finite_differences_and_finite_for_sure_labels():
    def total(z):
        return learners.label_imbalance(z) + 0.5 * learners.label_entropy(z)

    assert torch.autograd.gradcheck(total, (logits().requires_grad_(),))
    z = (5 * SURE).requires_grad_()
    assert torch.autograd.grad(total(z), z)[0].isfinite().all()


def test_descent_on_it_balances_and_sharpens():
    z = logits(0.5, rows=40).requires_grad_()
    for _ in range(300):
        value = learners.label_imbalance(z) + 0.5 * learners.label_entropy(z)
        z = (z - 10.0 * torch.autograd.grad(value, z)[0]).detach().requires_grad_()
    assert torch.softmax(z, 1).mean(0).amax().item() < 0.3
    assert learners.label_entropy(z).item() < 0.1


def problem():
    generator = torch.Generator().manual_seed(0)
    x, u = (torch.randn(n, 5, generator=generator, dtype=torch.float64) for n in (12, 20))
    return data.TensorData((x, torch.arange(12) % 3)), u, nets.perceptron((5, 4, 3), seed=0)


def test_training_is_that_of_a_bare_loop_with_the_regulariser_added():
    task, u, net = problem()
    learner = learners.BalancedTeacher(
        net, unlabelled=u, weight=0.7, sureness=0.5, seed=3, loss="cross_entropy", optimizer=learners.gd(0.1)
    )
    pl.Trainer(max_steps=4, max_epochs=-1, **QUIET).fit(learner, datamodule=task)
    (x, y), _, bare = task.train, *problem()[1:]
    for step in range(4):
        rows = np.random.default_rng([3, step, *b"unlabelled"]).integers(20, size=12)
        z = bare(u[torch.from_numpy(rows)])
        regulariser = learners.label_imbalance(z) + 0.5 * learners.label_entropy(z)
        loss = torch.nn.functional.cross_entropy(bare(x), y) + 0.7 * regulariser
        gradients = torch.autograd.grad(loss, list(bare.parameters()))
        with torch.no_grad():
            for weight, gradient in zip(bare.parameters(), gradients, strict=True):
                weight -= 0.1 * gradient
    assert all(torch.allclose(a, b, atol=1e-12) for a, b in zip(net.parameters(), bare.parameters(), strict=True))


def test_what_makes_no_sense_is_refused():
    _, u, net = problem()
    good = {"unlabelled": u, "weight": 1.0, "sureness": 0.5, "seed": 0, "optimizer": learners.gd(0.1)}
    for wrong, message in (
        ({"weight": -1.0}, "negative"),
        ({"sureness": -1.0}, "negative"),
        ({"unlabelled": u[:0]}, "unlabelled must"),
    ):
        with pytest.raises(ValueError, match=message):
            learners.BalancedTeacher(net, **good | wrong)
