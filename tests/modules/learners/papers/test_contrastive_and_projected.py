"""Contrastive losses against loops, projections against other points of their sets, training against a bare loop."""

import numpy as np
import pytest
import pytorch_lightning as pl
import torch

from featurelab.modules import data, learners, nets, theory

QUIET = {
    "logger": False,
    "enable_checkpointing": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
    "limit_val_batches": 0,
    "accelerator": "cpu",
}


def matrix(rows, columns, seed=0, scale=1.0):
    return scale * torch.from_numpy(np.random.default_rng(seed).standard_normal((rows, columns)))


def pairs():
    return matrix(6, 5), matrix(6, 5, 1)


@pytest.mark.parametrize("kind", ["logistic", "exp", "linear"])
def test_losses_of_pairs_are_those_of_a_loop(kind):
    net, (x, y) = nets.mlp(5, 4, 1, outputs=3, seed=0), pairs()
    f, g = net(x), net(y)
    expected = torch.stack([f[a] @ (g[a] - f[(a + 1) % 6]) for a in range(6)])
    found = learners.one_negative_loss(kind)(net, (x, y))
    assert found.item() == pytest.approx(theory.contrastive_tradeoff.pair_loss(expected, kind).mean().item())
    mean = f.mean(0).detach()
    expected = torch.stack([f[a] @ (g[a] - mean) for a in range(6)])
    found = learners.mean_negative_loss(kind, mean)(net, (x, y))
    assert found.item() == pytest.approx(theory.contrastive_tradeoff.pair_loss(expected, kind).mean().item())
    cooler = learners.mean_negative_loss(kind, mean, temperature=0.5)(net, (x, y))
    assert cooler.item() == pytest.approx(theory.contrastive_tradeoff.pair_loss(2 * expected, kind).mean().item())
    assert learners.mean_negative_loss(kind)(net, (x, y)) == learners.mean_negative_loss(kind, 0 * mean)(net, (x, y))
    with pytest.raises(ValueError, match="negative"):
        learners.one_negative_loss(kind)(net, (x[:1], y[:1]))


def test_the_enumerated_loss_is_met_by_samples_of_pairs():
    net = nets.SphericalTable(6, 3, 1.5, seed=0)
    p, q = (torch.tensor(law, dtype=torch.float64) for law in ([0.2, 0.5, 0.3], [0.4, 0.6]))
    found = learners.enumerated_loss(p, q)(net, (torch.arange(6), torch.arange(6))).item()
    chance = np.random.default_rng(0)
    r, s = chance.choice(3, (2, 200_000), p=p.numpy())
    u, v, w = chance.choice(2, (3, 200_000), p=q.numpy())
    H = net(torch.arange(6)).detach()
    sampled = theory.contrastive_tradeoff.pair_loss((H[2 * r + u] * (H[2 * r + v] - H[2 * s + w])).sum(1)).mean().item()
    assert found == pytest.approx(sampled, abs=0.01)


@pytest.mark.parametrize("scale", [0.1, 0.5, 1.0, 4.0])
@pytest.mark.parametrize("project", [learners.project_spectral_frobenius, learners.project_spectral_near])
def test_a_projection_is_the_nearest_of_the_set(project, scale):
    W, centre = matrix(4, 6, scale=scale), matrix(4, 6, 9, 0.1)
    bound = 1.3 if project is learners.project_spectral_frobenius else (centre, 0.6)
    arguments = (bound,) if isinstance(bound, float) else bound
    found = project(W, *arguments)

    def inside(V, slack=1e-9):
        second = V if isinstance(bound, float) else V - centre
        most = bound if isinstance(bound, float) else 0.6
        return torch.linalg.matrix_norm(V, 2) <= 1 + slack and second.norm() <= most + slack

    assert inside(found)
    assert torch.allclose(project(found, *arguments), found, atol=1e-8)
    if inside(W):
        assert torch.allclose(found, W)
    # the angle at the projection between W and any other point of the set is obtuse
    for seed in range(300):
        other = project(matrix(4, 6, seed + 50, 10 ** np.random.default_rng(seed).uniform(-2, 1)), *arguments)
        near = found + 1e-3 * (other - found)
        for point in (other, near):
            assert ((W - found) * (point - found)).sum() <= 1e-8


def test_the_frobenius_scale_is_that_of_a_bisection():
    W, most = matrix(5, 7, 3, 1.5), 2.0
    values = torch.linalg.svdvals(W)
    low, high = 0.0, 100.0
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if (values / (1 + middle)).clamp(max=1).norm() > most else (low, middle)
    found = torch.linalg.svdvals(learners.project_spectral_frobenius(W, most))
    assert torch.allclose(found, (values / (1 + high)).clamp(max=1))


def test_clipping_and_rescaling_is_no_projection():
    W = matrix(5, 7, 3, 1.5)
    U, s, Vh = torch.linalg.svd(W, full_matrices=False)
    clipped = s.clamp(max=1)
    plain = (U * clipped * 1.8 / clipped.norm()) @ Vh
    assert (plain - W).norm() > (learners.project_spectral_frobenius(W, 1.8) - W).norm() + 1e-3


def test_bounds_that_cannot_be_met_are_refused():
    W = matrix(3, 3)
    with pytest.raises(ValueError, match="frobenius must be positive"):
        learners.project_spectral_frobenius(W, 0.0)
    with pytest.raises(ValueError, match="in the spectral ball"):
        learners.project_spectral_near(W, 5 * torch.eye(3, dtype=torch.float64), 1.0)


def fitted(steps=4, withheld=False):
    task = data.LinearMixture([1, 1], 2, 1, 1, batch_size=8, batches=3, seed=0)
    net = nets.mlp(5, 1, 0, outputs=4, seed=1)
    optimizer = learners.projected_optimizer(learners.gd(0.5), lambda W: learners.project_spectral_frobenius(W, 1.0))
    learner = learners.Supervised(net, loss=learners.mean_negative_loss(), optimizer=optimizer)
    if withheld:
        with learners.withheld_updates():
            pl.Trainer(max_steps=steps, **QUIET).fit(learner, datamodule=task)
    else:
        pl.Trainer(max_steps=steps, **QUIET).fit(learner, datamodule=task)
    return task, net.layers[0].weight.detach()


def test_projected_training_is_that_of_a_bare_loop():
    task, found = fitted()
    W = nets.mlp(5, 1, 0, outputs=4, seed=1).layers[0].weight.detach().clone()
    loader = task.train_dataloader()
    loader.set_epoch(0)
    batches = [*loader, *loader][:4]
    for x, y in batches:
        W.requires_grad_(True)
        loss = torch.nn.functional.softplus(-((x @ W.T) * (y @ W.T)).sum(1)).mean()
        (slope,) = torch.autograd.grad(loss, W)
        W = learners.project_spectral_frobenius((W - 0.5 * slope).detach(), 1.0)
    assert torch.allclose(found, W, atol=1e-12)


def test_without_updates_nothing_is_put_back():
    assert torch.equal(fitted(withheld=True)[1], nets.mlp(5, 1, 0, outputs=4, seed=1).layers[0].weight.detach())


def test_a_table_has_vectors_of_one_length_and_its_own_draw():
    net = nets.SphericalTable(5, 3, 0.7, seed=2)
    assert torch.allclose(net(torch.arange(5)).norm(dim=1), torch.full((5,), 0.7, dtype=torch.float64))
    assert torch.equal(net.weight, nets.SphericalTable(5, 3, 9.0, seed=2).weight)
    with pytest.raises(ValueError, match="norm positive"):
        nets.SphericalTable(5, 3, 0.0, seed=2)
