"""Penalties on the features of a batch, mixed batches, and averages of weights along training."""

from collections import deque

import numpy as np
import pytest
import pytorch_lightning as pl
import torch

from featurelab.modules import data, learners, measures, nets

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
    return data.TensorData((x, torch.arange(12) % 3)), nets.perceptron((5, 4, 3), seed=0)


def fitted(steps=5, callbacks=(), **options):
    task, net = problem()
    given = {
        "head": net.head,
        "penalty": measures.nuclear_norm,
        "strength": 0.5,
        "optimizer": learners.gd(0.1),
    } | options
    learner = learners.FeaturePenalised(net, loss="cross_entropy", steps_per_batch=2, **given)
    pl.Trainer(max_steps=steps, callbacks=list(callbacks), **QUIET).fit(learner, datamodule=task)
    return net, learner


@pytest.mark.parametrize(("scaling", "divisor"), [("per_sample", 12), ("per_root", 12**0.5), ("sum", 1)])
def test_training_is_that_of_a_bare_loop_with_the_penalty_added(scaling, divisor):
    net, learner = fitted(scaling=scaling, start_step=2)
    (x, y), bare = problem()[0].train, problem()[1]
    for step in range(5):
        features = bare.features(x)
        loss = torch.nn.functional.cross_entropy(bare.head(features), y)
        if step >= 2:
            loss = loss + 0.5 * torch.linalg.svdvals(features).sum() / divisor
        gradients = torch.autograd.grad(loss, list(bare.parameters()))
        with torch.no_grad():
            for weight, gradient in zip(bare.parameters(), gradients, strict=True):
                weight -= 0.1 * gradient
    for ours, theirs in zip(net.parameters(), bare.parameters(), strict=True):
        assert torch.allclose(ours, theirs, atol=1e-12)
    assert len(list(learner.parameters())) == len(list(net.parameters()))


def test_a_penalty_beside_is_added_at_once_with_factor_one():
    def both(F):
        return 0.5 * measures.nuclear_norm(F) + learners.frobenius_norm(F)

    together, _ = fitted(beside=learners.frobenius_norm)
    summed, _ = fitted(penalty=both, strength=1.0)
    late, _ = fitted(beside=learners.frobenius_norm, start_step=99)
    alone, _ = fitted(penalty=learners.frobenius_norm, strength=1.0)
    for one, other in ((together, summed), (late, alone)):
        for ours, theirs in zip(one.parameters(), other.parameters(), strict=True):
            assert torch.allclose(ours, theirs, atol=1e-12)


def test_what_is_logged_in_testing_is_the_loss_alone():
    task, net = problem()
    learner = learners.FeaturePenalised(
        net,
        head=net.head,
        penalty=measures.nuclear_norm,
        strength=9.0,
        loss="cross_entropy",
        optimizer=learners.gd(0.1),
    )
    task.test = task.train
    (found,) = pl.Trainer(**QUIET).test(learner, datamodule=task, verbose=False)
    assert found["loss/test"] == pytest.approx(learners.cross_entropy(net, task.train).item())


@pytest.mark.parametrize(
    ("strength", "change", "refused"),
    [(0.1, None, "penalty"), (0.0, learners.mixup(0.2, 3, seed=0), "change"), (0.0, None, None)],
)
def test_what_needs_a_whole_batch_refuses_several_workers(strength, change, refused):
    _, net = problem()
    learner = learners.FeaturePenalised(
        net,
        head=net.head,
        penalty=measures.nuclear_norm,
        strength=strength,
        change=change,
        loss="cross_entropy",
        optimizer=learners.gd(0.1),
    )
    learner._trainer = type("Two", (), {"world_size": 2, "precision_plugin": None})()
    if refused is None:
        learner.on_fit_start()
        return
    with pytest.raises(ValueError, match=f"{refused} .*of a whole batch needs one worker, got 2"):
        learner.on_fit_start()


def test_wrong_options_are_refused():
    _, net = problem()
    given = {"head": net.head, "penalty": measures.nuclear_norm, "optimizer": learners.gd(0.1)}
    with pytest.raises(ValueError, match="strength"):
        learners.FeaturePenalised(net, strength=-1.0, **given)
    with pytest.raises(ValueError, match="scaling"):
        learners.FeaturePenalised(net, strength=1.0, scaling="per_batch", **given)
    with pytest.raises(ValueError, match="alpha"):
        learners.mixup(0.0, 3, 0)
    with pytest.raises(ValueError, match="at least two domains"):
        learners.domain_covariances(1)
    with pytest.raises(ValueError, match="does not divide"):
        learners.domain_covariances(2)(torch.ones(3, 2))


def test_covariances_of_domains_are_compared_as_a_loop_does():
    F = torch.randn(12, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    parts = F.split(4)
    total = [
        ((a.T.cov() - b.T.cov()) ** 2).mean() + ((a.mean(0) - b.mean(0)) ** 2).mean()
        for place, a in enumerate(parts)
        for b in parts[place + 1 :]
    ]
    expected = 12 * torch.stack(total).mean()
    assert learners.domain_covariances(3)(F).item() == pytest.approx(expected.item())


def test_a_mixed_batch_depends_on_the_step_alone_and_keeps_sums():
    x, y = torch.randn(8, 3, dtype=torch.float64), torch.arange(8) % 4
    change = learners.mixup(0.2, 4, seed=1)
    mixed, labels = change((x, y), 7)
    again, _ = change((x, y), 7)
    assert torch.equal(mixed, again)
    assert not torch.equal(mixed, change((x, y), 8)[0])
    assert torch.allclose(mixed.mean(0), x.mean(0))
    assert torch.allclose(labels.sum(1), torch.ones(8, dtype=torch.float64))
    assert torch.allclose(labels.mean(0), torch.full((4,), 0.25, dtype=torch.float64))


def test_domains_are_mixed_in_a_circle_with_a_weight_for_each_pair():
    x, y = torch.randn(12, 2, dtype=torch.float64), torch.arange(12) % 4
    change, seen = learners.mixup(0.5, 4, seed=3, domains=3), set()
    for step in range(20):
        mixed, labels = change((x, y), step)
        parts, domains, shares, partners = mixed.split(4), x.split(4), [], []
        for domain, part in enumerate(parts):
            ways = {other: (part - domains[domain]) / (domains[other] - domains[domain]) for other in range(3)}
            (partner,) = [other for other, way in ways.items() if other != domain and way.std() < 1e-6]
            partners.append(partner)
            shares.append(1 - ways[partner].mean().item())
            one_hot = torch.eye(4, dtype=torch.float64)
            expected = shares[-1] * one_hot[y[4 * domain : 4 * domain + 4]]
            expected = expected + (1 - shares[-1]) * one_hot[y[4 * partner : 4 * partner + 4]]
            assert torch.allclose(labels[4 * domain : 4 * domain + 4], expected)
        assert sorted(partners) == [0, 1, 2], "each domain is mixed into one other"
        assert len({round(share, 6) for share in shares}) == 3, "each pair has a weight of its own"
        seen.add(tuple(partners))
    assert seen == {(1, 2, 0), (2, 0, 1)}
    with pytest.raises(ValueError, match="does not divide"):
        change((x[:10], y[:10]), 0)
    with pytest.raises(ValueError, match="at least two domains"):
        learners.mixup(0.5, 4, 0, domains=1)


def test_mixed_batches_are_what_is_trained_on():
    plain, _ = fitted(strength=0.0)
    mixed, _ = fitted(strength=0.0, change=learners.mixup(0.2, 3, 0))
    assert not torch.equal(plain.head.weight, mixed.head.weight)


def test_a_valley_begins_where_no_loss_after_is_lower_and_ends_where_all_after_are_higher():
    losses = [3.0, 2.0, 1.0, 1.1, 1.2, 1.0, 5.0, 5.0, 5.0]
    assert learners.loss_valley(losses, patience_start=3, patience_end=3) == range(2, 6)
    assert learners.loss_valley(losses[:7], patience_start=3, patience_end=3) == range(2, 7)
    assert learners.loss_valley([3.0, 2.0, 1.0]) == range(2, 3)
    with pytest.raises(ValueError, match="at least one loss"):
        learners.loss_valley([])


def queued_segments(losses, converge, tolerance, ratio):
    """What enters the average, by two queues that are filled one evaluation after the other."""
    recent, held, entered, threshold, dead = deque(maxlen=converge), deque(maxlen=tolerance), [], None, False
    for place, loss in enumerate(losses):
        if dead:
            break
        recent.append((place, loss))
        held.append((place, loss))
        if threshold is None:
            if len(recent) == converge and recent[0][1] == min(value for _, value in recent):
                first, threshold = recent[0][0], ratio * sum(value for _, value in recent) / converge
                waiting = list(held)[: tolerance - converge + 1]
                while any(value > threshold for _, value in waiting):
                    waiting.pop(0)
                entered = [number for number, _ in waiting[1:]]
        elif held[0][0] >= first:
            dead = min(value for _, value in held) > threshold
            entered += [] if dead else [held[0][0]]
    if threshold is None:
        return [len(losses) - 1]
    if not dead:
        held.popleft()
        while held and min(value for _, value in held) <= threshold:
            entered.append(held.popleft()[0])
    return entered or [first]


def test_segments_of_the_program_are_those_of_its_queues():
    rng = np.random.default_rng(0)
    differ = 0
    for trial in range(300):
        falling = 2 * np.exp(-np.arange(30) / rng.uniform(2, 8)) + np.maximum(0, np.arange(30) - 15) * rng.uniform(
            0, 0.1
        )
        losses = (falling + rng.normal(0, 0.1, 30) + 0.5).tolist()[: rng.integers(1, 31)]
        converge, tolerance = (3, 6) if trial % 3 else (2, 4)
        rule = {"patience_start": converge, "patience_end": tolerance}
        found = learners.domainbed_segments(losses, ratio=1.3, **rule)
        assert found == queued_segments(losses, converge, tolerance, 1.3)
        differ += found != list(learners.loss_valley(losses, ratio=1.3, **rule))
    assert differ > 100, "the program is not the algorithm"


def test_the_segment_of_convergence_enters_twice_and_the_first_that_qualifies_is_left_out():
    losses = [2.0, 1.0, 1.0, 0.9, 1.0, 1.0, 1.0, 1.0, 1.0, 9.0, 9.0, 9.0, 9.0, 9.0, 9.0, 9.0]
    # the threshold is 1.26: of the four oldest of six, 0 is above it, 1 is left out, 2 and 3 enter
    assert learners.domainbed_segments(losses) == [2, 3, *range(3, 9)]
    assert learners.loss_valley(losses) == range(3, 9)
    assert learners.domainbed_segments([3.0, 2.0, 1.0]) == [2], "no convergence: the last"
    with pytest.raises(ValueError, match="at least one loss"):
        learners.domainbed_segments([])


class Kept(pl.Callback):
    """The weights after every step."""

    def __init__(self):
        self.weights, self.losses = [], []

    def on_train_batch_end(self, trainer, pl_module, *_):
        self.weights.append(pl_module.net.head.weight.detach().clone())
        with torch.no_grad():
            self.losses.append(learners.cross_entropy(pl_module.net, trainer.datamodule.train).item())


def test_training_ends_with_the_average_of_the_weights_in_the_valley():
    task, net = problem()
    kept, average = Kept(), learners.DenseAverage(task.train, every=2, patience_start=1, patience_end=9)
    learner = learners.Supervised(net, loss="cross_entropy", optimizer=learners.gd(0.1))
    pl.Trainer(max_steps=6, callbacks=[kept, average], **QUIET).fit(learner, datamodule=task)
    assert len(average.losses) == 3
    assert np.argmin(average.losses) == 2, "the loss falls all the way, so that all segments are the valley"
    assert average.losses == pytest.approx(kept.losses[1::2]), "of the weights themselves, at the end of a segment"
    assert learners.loss_valley(average.losses, patience_start=1, patience_end=9) == range(3)
    assert torch.allclose(net.head.weight, torch.stack(kept.weights).mean(0))


def test_averaging_leaves_training_as_it_is():
    plain, seen = Kept(), Kept()
    fitted(callbacks=[plain])
    task, _ = problem()
    fitted(callbacks=[seen, learners.DenseAverage(task.train, every=1)])
    assert all(torch.equal(a, b) for a, b in zip(plain.weights, seen.weights, strict=True))


def test_a_resumed_average_goes_on_from_its_segments():
    task, _ = problem()
    first = learners.DenseAverage(task.train, every=2)
    first.losses, first._count = [1.0], 1
    second = learners.DenseAverage(task.train, every=2)
    second.load_state_dict(first.state_dict())
    assert (second.losses, second._count) == ([1.0], 1)
    with pytest.raises(ValueError, match="every"):
        learners.DenseAverage(task.train, every=0)


def test_the_logistic_loss_is_the_cross_entropy_of_two_classes():
    y = torch.tensor([[1.0], [-1.0], [1.0]], dtype=torch.float64)
    f = torch.tensor([[0.3], [2.0], [-4.0]], dtype=torch.float64)
    both = torch.cat([torch.zeros(3, 1), f], 1)
    expected = torch.nn.functional.cross_entropy(both, (y[:, 0] > 0).long())
    assert learners.logistic(lambda _: f, (f, y)).item() == pytest.approx(expected.item())
    with pytest.raises(ValueError, match="labels"):
        learners.logistic(lambda _: f, (f, y[:, 0]))


def test_scaled_features_sum_to_the_output_and_only_their_weights_are_trained():
    net = nets.ScaledInputs(4, 0.5)
    x = torch.randn(3, 4, dtype=torch.float64)
    assert torch.allclose(net(x)[:, 0], 0.5 * x.sum(1))
    assert [p.requires_grad for p in net.parameters()] == [True, False]
    with pytest.raises(ValueError, match="dim"):
        nets.ScaledInputs(0)
