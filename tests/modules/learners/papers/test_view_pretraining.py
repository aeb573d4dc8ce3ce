"""Contrastive pre-training against loops, recursions and gradients written out."""

import math

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from torch import nn

from featurelab.modules import data, learners, nets
from featurelab.modules.learners.papers import view_losses

N, WIDTH = 6, 4


def small(seed=0, **parts):
    return nets.Siamese(nets.perceptron((64, 8, WIDTH), seed=seed, dtype="float64"), **parts)


def head(sizes, seed, **options):
    return nets.projector(sizes, seed=seed, dtype="float64", **options)


def trained(learner, steps=3, size=N, views=None):
    task = data.union(
        [data.small_pictures("shapes", 18, 0, seed=0, dtype="float64")],
        batch_size=size,
        augment=views or data.Views(data.SmallChanges()),
        order_seed=1,
    )
    trainer = pl.Trainer(
        max_steps=steps,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        accelerator="cpu",
        limit_val_batches=0,
    )
    trainer.fit(learner, datamodule=task)
    return task


def drawn(*shape):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(sum(shape)))


def cosine(a, b):
    return (a @ b / (a.norm() * b.norm())).item()


def test_nt_xent_is_that_of_a_loop_and_does_not_see_lengths():
    z1, z2 = drawn(N, WIDTH), drawn(N, WIDTH + 1)[:, 1:]
    views = [*z1, *z2]
    total = 0.0
    for i in range(2 * N):
        others = [math.exp(cosine(views[i], views[j]) / 0.2) for j in range(2 * N) if j != i]
        total -= math.log(math.exp(cosine(views[i], views[(i + N) % (2 * N)]) / 0.2) / sum(others))
    value = learners.nt_xent(z1, z2, 0.2)
    assert value.item() == pytest.approx(total / (2 * N))
    assert learners.nt_xent(3 * z1, z2, 0.2).item() == pytest.approx(value.item())


def test_the_loss_of_simcse_has_the_second_views_of_others_as_negatives():
    z1, z2 = drawn(N, WIDTH), drawn(N, WIDTH + 1)[:, 1:]
    total = 0.0
    for a in range(N):
        all_of_them = [math.exp(cosine(z1[a], z2[b]) / 0.2) for b in range(N)]
        total -= math.log(all_of_them[a] / sum(all_of_them))
    assert learners.pair_loss_in_batch(z1, z2, 0.2).item() == pytest.approx(total / N)
    net = small()
    learner = learners.SimCSE(net, temperature=0.2, optimizer=learners.gd(0.1))
    x = torch.rand(N, 64, dtype=torch.float64)
    expected = learners.pair_loss_in_batch(net(x), net(2 * x), 0.2)
    assert learner.compare(x, 2 * x).item() == pytest.approx(expected.item())


def test_losses_with_a_queue_are_those_of_a_loop():
    q, k, queue = drawn(N, WIDTH), drawn(N, WIDTH + 2)[:, 2:], view_losses.unit(drawn(9, WIDTH))
    moco = neighbour = 0.0
    for a in range(N):
        positive = math.exp(cosine(q[a], k[a]) / 0.3)
        moco -= math.log(positive / (positive + sum(math.exp(cosine(q[a], row) / 0.3) for row in queue)))
        nearest = max(queue, key=lambda row, a=a: cosine(q[a], row))
        scores = [math.exp(cosine(nearest, k[b]) / 0.3) for b in range(N)]
        neighbour -= math.log(scores[a] / sum(scores))
    assert learners.queue_loss(q, k, queue, 0.3).item() == pytest.approx(moco / N)
    assert learners.neighbour_loss(q, k, queue, 0.3).item() == pytest.approx(neighbour / N)


def test_a_queue_is_first_in_first_out():
    queue, kept = learners.Queue(5, 2, seed=0, dtype=torch.float64), []
    kept = list(queue.rows.clone())
    assert torch.allclose(queue.rows.norm(dim=1), torch.ones(5, dtype=torch.float64))
    for size in (2, 2, 3, 5, 7, 1):
        rows = drawn(size, 2)
        queue.push(rows)
        kept = [*kept, *rows][-5:]
        assert torch.equal(queue.oldest_first, torch.stack(kept))


def test_the_slow_copy_follows_by_its_recursion_and_keys_are_queued():
    net = small()
    learner = learners.MoCo(net, width=WIDTH, size=20, momentum=0.9, optimizer=learners.gd(0.5), seed=0)
    slow = [p.clone() for p in learner.slow.parameters()]
    seen, before = [], learner.before_step

    def follow():
        seen.append([p.detach().clone() for p in net.parameters()])
        before()

    learner.before_step = follow
    trained(learner)
    for fast in seen:
        slow = [0.9 * s + 0.1 * f for s, f in zip(slow, fast, strict=True)]
    assert all(torch.allclose(a, b) for a, b in zip(slow, learner.slow.parameters(), strict=True))
    assert not any(p.requires_grad for p in learner.slow.parameters())
    assert int(learner.queue.place) == 3 * N
    assert len(seen) == 3
    newest = learner.queue.oldest_first[-3 * N :]
    assert torch.allclose(newest.norm(dim=1), torch.ones(3 * N, dtype=torch.float64))


def test_keys_keep_their_samples_where_the_batch_is_shuffled():
    net = small()
    same = {"width": WIDTH, "size": 7, "optimizer": learners.gd(0.1), "seed": 0}
    whole, grouped = learners.MoCo(net, **same), learners.MoCo(net, groups=2, **same)
    x1, x2 = drawn(N, 64), drawn(N, 65)[:, 1:]
    assert grouped.compare(x1, x2).item() == pytest.approx(whole.compare(x1, x2).item())
    normed = nets.Siamese(nn.Sequential(nn.Linear(64, WIDTH), nn.BatchNorm1d(WIDTH)).double())
    shuffled = learners.MoCo(normed, groups=2, **same)
    shuffled.compare(x1, x2)
    order = shuffled._order(N)
    expected = torch.empty(N, WIDTH, dtype=torch.float64)
    for part in order.chunk(2):
        expected[part] = view_losses.unit(shuffled.slow(x2[part]))
    assert torch.allclose(shuffled._keys[0], expected)
    assert order.tolist() != list(range(N))


def test_the_gradient_of_simsiam_goes_through_the_predicted_side_alone():
    predictor = head((WIDTH, 3, WIDTH), 1)
    net = small(predictor=predictor)
    learner = learners.SimSiam(net, optimizer=learners.gd(0.1))
    x1, x2 = drawn(N, 64), drawn(N, 65)[:, 1:]
    weights = list(net.parameters())
    found = torch.autograd.grad(learner.compare(x1, x2), weights)
    with torch.no_grad():
        z1, z2 = net(x1), net(x2)

    def sided():
        """The same with targets as plain numbers."""
        p1, p2 = predictor(net(x1)), predictor(net(x2))
        return -(nn.functional.cosine_similarity(p1, z2) + nn.functional.cosine_similarity(p2, z1)).mean() / 2

    for a, b in zip(found, torch.autograd.grad(sided(), weights), strict=True):
        assert torch.allclose(a, b)
    both = -nn.functional.cosine_similarity(predictor(net(x1)), net(x2)).mean()
    assert not torch.allclose(found[0], torch.autograd.grad(both, weights)[0])
    step = 1e-6  # the predictor's own weights see the whole loss
    with torch.no_grad():
        weight = predictor[0].weight
        weight[0, 0] += step
        up = learner.compare(x1, x2)
        weight[0, 0] -= 2 * step
        down = learner.compare(x1, x2)
        weight[0, 0] += step
    own = torch.autograd.grad(learner.compare(x1, x2), weight)[0][0, 0]
    assert own.item() == pytest.approx(((up - down) / (2 * step)).item(), rel=1e-4)


def test_nearest_neighbours_come_from_earlier_batches():
    net = small(predictor=head((WIDTH, WIDTH), 1))
    learner = learners.NNCLR(net, width=WIDTH, size=12, optimizer=learners.gd(0.1), seed=0)
    start = learner.queue.rows.clone()
    x1, x2 = drawn(N, 64), drawn(N, 65)[:, 1:]
    value = learner.compare(x1, x2)
    z1, z2 = net(x1), net(x2)
    p1, p2 = net.predict(z1), net.predict(z2)
    one, two = learners.neighbour_loss(z1, p2, start), learners.neighbour_loss(z2, p1, start)
    assert value.item() == pytest.approx(((one + two) / 2).item())
    learner.after_step()
    assert torch.allclose(learner.queue.oldest_first[-N:], view_losses.unit(z1))


def made(kind, net):
    options = {"optimizer": learners.gd(0.1)}
    return {
        "nt_xent": lambda: learners.NTXent(net, **options),
        "moco": lambda: learners.MoCo(net, width=WIDTH, size=16, seed=0, **options),
        "simsiam": lambda: learners.SimSiam(net, **options),
        "nnclr": lambda: learners.NNCLR(net, width=WIDTH, size=16, seed=0, **options),
    }[kind]()


@pytest.mark.parametrize("kind", ["nt_xent", "moco", "simsiam", "nnclr"])
def test_each_trains_and_leaves_weights_alone_where_updates_are_withheld(kind):
    net = small(predictor=head((WIDTH, WIDTH), 1))
    before = [p.detach().clone() for p in net.encoder.parameters()]
    with learners.withheld_updates():
        trained(made(kind, net))
    assert all(torch.equal(a, b) for a, b in zip(before, net.encoder.parameters(), strict=True))
    learner = made(kind, net)
    trained(learner)
    assert not torch.equal(before[0], next(net.encoder.parameters()))
    assert len(learner.loss_history) == 3


@pytest.mark.parametrize("kind", ["nt_xent", "moco", "simsiam", "nnclr"])
def test_each_refuses_several_workers(kind):
    learner = made(kind, small())
    learner._trainer = type("Two", (), {"world_size": 2, "precision_plugin": None})()
    with pytest.raises(ValueError, match="one worker, got 2"):
        learner.on_fit_start()


def test_fine_tuning_adds_the_contrast_of_its_views():
    net = small(projector=head((WIDTH, 5), 1))
    classifier = nn.Linear(WIDTH, 3).double()
    contrast = learners.NTXent(net, temperature=0.5, optimizer=learners.gd(0.1))
    x, y = drawn(N, 3, 64), torch.arange(N) % 3
    ce = nn.functional.cross_entropy
    for shown, rows in (("clean", [0]), ("views", [1, 2]), ("both", [0, 1, 2]), ("own", [0])):
        learner = learners.ContrastivelyRegularised(
            contrast, classifier, strength=0.3, shown=shown, optimizer=learners.gd(0.1)
        )
        plain = sum(ce(classifier(net.features(x[:, row])), y) for row in rows) / len(rows)
        expected = plain + 0.3 * learners.nt_xent(net(x[:, 1]), net(x[:, 2]), 0.5)
        assert learner.loss(learner.net, (x, y)).item() == pytest.approx(expected.item())
    four = drawn(N, 4, 64)
    plain = sum(ce(classifier(net.features(four[:, row])), y) for row in (0, 1)) / 2
    expected = plain + 0.3 * learners.nt_xent(net(four[:, 2]), net(four[:, 3]), 0.5)
    assert learner.loss(learner.net, (four, y)).item() == pytest.approx(expected.item()), "labels of all but the pair"
    assert {id(p) for p in learner.net.parameters()} == {id(p) for part in (net, classifier) for p in part.parameters()}
    learner._trainer = type("Two", (), {"world_size": 2, "precision_plugin": None})()
    with pytest.raises(ValueError, match="one worker"):
        learner.on_fit_start()
    for wrong in ({"strength": -1.0}, {"strength": 1.0, "shown": "none"}):
        with pytest.raises(ValueError, match="must"):
            learners.ContrastivelyRegularised(contrast, classifier, optimizer=learners.gd(0.1), **wrong)


@pytest.mark.parametrize("kind", ["nt_xent", "moco"])
def test_fine_tuning_trains_encoder_and_head(kind):
    net = small()
    contrast = made(kind, net)
    classifier = nn.Linear(WIDTH, 6).double()
    first = classifier.weight.detach().clone()
    learner = learners.ContrastivelyRegularised(contrast, classifier, strength=0.1, optimizer=learners.gd(0.1))
    task = data.small_pictures("shapes", 18, 0, seed=0, dtype="float64")
    task.batch_size, task.augment = N, data.Views(data.SmallChanges(), clean=True)
    trainer = pl.Trainer(
        max_steps=2,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        accelerator="cpu",
        enable_model_summary=False,
        limit_val_batches=0,
    )
    trainer.fit(learner, datamodule=task)
    assert not torch.equal(first, classifier.weight)
    assert kind != "moco" or int(contrast.queue.place) == 2 * N


def test_the_cosine_schedule_goes_from_one_to_nothing():
    schedule = learners.cosine_schedule(4)
    assert [schedule(e) for e in range(6)] == pytest.approx([1, (1 + 0.5**0.5) / 2, 0.5, (1 - 0.5**0.5) / 2, 0, 0])
    with pytest.raises(ValueError, match="epochs must be at least 1"):
        learners.cosine_schedule(0)


def test_projections_have_biases_and_normalisation_where_they_should():
    net = head((5, 7, 7, 3), 0, batch_norm=True, last_norm=True)
    kinds = [type(part).__name__ for part in net]
    assert kinds == ["Linear", "BatchNorm1d", "ReLU"] * 2 + ["Linear", "BatchNorm1d"]
    assert net[0].bias is None
    assert not net[-1].affine
    plain = head((5, 3), 0)
    assert [type(part).__name__ for part in plain] == ["Linear"]
    assert plain[0].bias is not None
    x = torch.from_numpy(np.random.default_rng(0).standard_normal((40, 5)))
    assert torch.allclose(net(x).mean(0), torch.zeros(3, dtype=torch.float64), atol=1e-6)
    with pytest.raises(ValueError, match="inputs and outputs"):
        head((5,), 0)


def test_a_schedule_multiplies_the_rate_of_an_optimiser_with_a_warm_up():
    net = small()
    rates = []
    learner = learners.NTXent(net, optimizer=learners.adamw(0.1, warmup=2), schedule=learners.cosine_schedule(2))
    after = learner.after_step
    learner.after_step = lambda: (rates.append(learner.optimizers().param_groups[0]["lr"]), after())
    trained(learner, steps=4, size=9)
    assert rates == pytest.approx([0.05, 0.1, 0.05, 0.05])


def test_moco_with_both_directions_adds_their_losses_and_queues_both_keys():
    net = small()
    same = {"width": WIDTH, "size": 30, "temperature": 0.1, "optimizer": learners.gd(0.1), "seed": 0}
    one, both = learners.MoCo(net, **same), learners.MoCo(net, symmetric=True, **same)
    x1, x2 = drawn(N, 64), drawn(N, 65)[:, 1:]
    total = 0.0
    for asked, keyed in ((x1, x2), (x2, x1)):
        q, k = net(asked), both.slow(keyed)
        for a in range(N):
            positive = math.exp(cosine(q[a], k[a]) / 0.1)
            others = sum(math.exp(cosine(q[a], row) / 0.1) for row in both.queue.rows)
            total -= math.log(positive / (positive + others)) / N
    assert both.compare(x1, x2).item() == pytest.approx(total)
    assert one.compare(x1, x2).item() + one.compare(x2, x1).item() == pytest.approx(total)
    both.after_step()
    expected = torch.cat([view_losses.unit(both.slow(x2)), view_losses.unit(both.slow(x1))])
    assert torch.allclose(both.queue.oldest_first[-2 * N :], expected)


def test_symmetric_nnclr_has_all_other_neighbours_and_predictions_as_negatives():
    net = small(predictor=head((WIDTH, 3, WIDTH), 1)).eval()
    learner = learners.NNCLR(
        net, width=WIDTH, size=9, temperature=0.5, symmetric=True, optimizer=learners.gd(0.1), seed=0
    )
    x1, x2 = drawn(N, 64), drawn(N, 65)[:, 1:]
    z, p = [net(x1), net(x2)], [net.predict(net(x1)), net.predict(net(x2))]
    total = 0.0
    for here, there in ((0, 1), (1, 0)):
        nearest = [max(learner.queue.rows, key=lambda row, a=a: cosine(z[here][a], row)) for a in range(N)]
        shown = [*nearest, *p[there]]
        for i in range(2 * N):
            others = [math.exp(cosine(shown[i], shown[j]) / 0.5) for j in range(2 * N) if j != i]
            partner = math.exp(cosine(shown[i], shown[(i + N) % (2 * N)]) / 0.5)
            total -= math.log(partner / sum(others)) / (4 * N)
    assert learner.compare(x1, x2).item() == pytest.approx(total)
    one_sided = learners.NNCLR(net, width=WIDTH, size=9, temperature=0.5, optimizer=learners.gd(0.1), seed=0)
    assert one_sided.compare(x1, x2).item() < total


def test_a_cosine_begins_after_its_warm_up():
    rate = learners.cosine_schedule(30, warmup=10)
    assert [rate(t) for t in range(10)] == pytest.approx([(t + 1) / 10 for t in range(10)])
    assert [rate(t) for t in (10, 20, 30)] == pytest.approx([1, 0.5, 0])
    with pytest.raises(ValueError, match="warmup must lie between 0 and epochs - 1 = 4"):
        learners.cosine_schedule(5, warmup=5)
