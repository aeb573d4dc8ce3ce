"""K from random combinations of a network's outputs: unbiased, reproducible, with an honest standard error."""

import pytest
import torch
from strangers import Stranger, draw
from test_sampled_outputs import LAYERS, Tokens, X, score

from featurelab.modules import measures


def drawn(draws, seeds, words=12, **options):
    return [measures.tangent_covariance(Tokens(words=words), X, draws=draws, seed=seed, **options) for seed in seeds]


@pytest.mark.parametrize("words", [4, 40], ids=["outputs", "rows of the head"])
def test_the_mean_over_seeds_is_the_exact_K(words):
    seeds = range(50)
    start = Tokens(words=words)
    with torch.no_grad():
        start.hidden.weight.mul_(0.5)
    exact = measures.tangent_covariance(Tokens(words=words), X, reference=start)
    found = drawn(3, seeds, words, reference=start)
    for layer in LAYERS:
        for which in ("K", "Kbar"):
            values = torch.stack([getattr(each[layer], which) for each in found])
            error = values.std(0) / len(seeds) ** 0.5
            off = (values.mean(0) - getattr(exact[layer], which)).abs()
            assert (off <= 4.5 * error + 1e-12).all()


def test_as_many_draws_as_outputs_give_the_exact_K():
    exact = measures.tangent_covariance(Tokens(), X)
    (found,) = drawn(48, [3])
    for layer in LAYERS:
        torch.testing.assert_close(found[layer].K, exact[layer].K)


@pytest.mark.parametrize("draws", [8, 25])
def test_standard_errors_are_about_the_actual_spread(draws):
    found, exact = drawn(draws, range(50), 40), measures.tangent_covariance(Tokens(words=40), X)
    spread = torch.tensor([score(each["hidden"])["nfa"] for each in found]).std().item()
    stated = torch.tensor([measures.standard_errors(each["hidden"], score)["nfa"] for each in found])
    assert 0.5 < stated.square().mean().sqrt().item() / spread < 2
    away = torch.stack([each["hidden"].K - exact["hidden"].K for each in found]).square().sum((1, 2)).mean().sqrt()
    told = torch.tensor([measures.sampling_error(each["hidden"]) for each in found]).square().mean().sqrt()
    assert 0.7 < (told * exact["hidden"].K.norm() / away).item() < 1.4


def test_the_head_of_a_language_model_has_no_error():
    (found,) = drawn(5, [0], 40)
    assert measures.sampling_error(found["head"]) == pytest.approx(0.0, abs=1e-12)
    torch.testing.assert_close(found["head"].K, 4 * torch.eye(40, dtype=X.dtype))


def test_the_draws_are_those_of_the_seed_whatever_the_chunks():
    (one,), (same,), (other,) = (drawn(7, [seed], chunk=chunk) for seed, chunk in ((1, None), (1, 2), (2, None)))
    for layer in LAYERS[:1]:
        torch.testing.assert_close(one[layer].K, same[layer].K)
        for a, b in zip(one[layer].without, same[layer].without, strict=True):
            torch.testing.assert_close(a.K, b.K)
        assert not torch.allclose(one[layer].K, other[layer].K)
    (again,) = drawn(7, [1])
    assert torch.equal(one["hidden"].K, again["hidden"].K)


def test_outputs_at_padding_are_not_drawn():
    mask = torch.ones(5, 4, dtype=torch.long)
    mask[:, 2:] = 0
    short, whole = (
        measures.tangent_covariance(Tokens(words=40), named, draws=200)["head"].K
        for named in ({"x": X[:, :2]}, {"x": X, "attention_mask": mask})
    )
    torch.testing.assert_close(short, whole)


def test_convolutions_and_any_module_can_be_drawn():
    x = draw(3, 2, 12, 10)
    exact = measures.tangent_covariance(Stranger(), x)
    found = [measures.tangent_covariance(Stranger(), x, draws=2, seed=seed) for seed in range(60)]
    for name, layer in exact.items():
        mean = torch.stack([each[name].K for each in found]).mean(0)
        assert (mean - layer.K).norm() < 0.3 * layer.K.norm()


def test_wrong_numbers_are_refused():
    with pytest.raises(ValueError, match="draws must be at least 2, got 1"):
        drawn(1, [0])
    with pytest.raises(ValueError, match="give n_outputs or draws, got n_outputs=3 and draws=4"):
        measures.tangent_covariance(Tokens(), X, n_outputs=3, draws=4)
