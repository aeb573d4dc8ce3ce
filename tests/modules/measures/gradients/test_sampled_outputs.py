"""K from a sample of a network's outputs: unbiased, exact where all are taken, with an honest standard error."""

import pytest
import torch
from strangers import Stranger, draw
from torch import nn

from featurelab.modules import measures


class Tokens(nn.Module):
    """Positions that see those before them, and as many outputs at each as there are words."""

    def __init__(self, length=4, words=12):
        super().__init__()
        torch.manual_seed(0)
        self.hidden, self.head = nn.Linear(5, 6), nn.Linear(6, words)
        self.double()

    def forward(self, x, attention_mask=None):
        h = torch.tanh(self.hidden(x))
        seen = h if attention_mask is None else h * attention_mask[..., None]
        return self.head(seen.cumsum(1) * torch.tanh(seen))


X = draw(5, 4, 5)
LAYERS = ["hidden", "head"]


def sampled(n_outputs, seeds, **options):
    return [measures.tangent_covariance(Tokens(), X, n_outputs=n_outputs, seed=seed, **options) for seed in seeds]


@pytest.mark.parametrize("n_outputs", [2, 12])
def test_the_mean_over_seeds_is_the_exact_K(n_outputs):
    seeds = range(50)
    start = Tokens()
    with torch.no_grad():
        start.hidden.weight.mul_(0.5)
    exact = measures.tangent_covariance(Tokens(), X, reference=start)
    found = sampled(n_outputs, seeds, reference=start)
    for layer in LAYERS:
        for which in ("K", "Kbar"):
            values = torch.stack([getattr(each[layer], which) for each in found])
            error = values.std(0) / len(seeds) ** 0.5
            off = (values.mean(0) - getattr(exact[layer], which)).abs()
            assert (off <= 4.5 * error + 1e-12).all()


def test_all_outputs_give_the_exact_K_and_no_error():
    exact = measures.tangent_covariance(Tokens(), X)
    for n_outputs in (48, 1000):
        (found,) = sampled(n_outputs, [3])
        for layer in LAYERS:
            torch.testing.assert_close(found[layer].K, exact[layer].K)
            assert measures.sampling_error(found[layer]) == pytest.approx(0.0, abs=1e-12)
            assert measures.standard_errors(found[layer], score) == {"nfa": pytest.approx(0.0, abs=1e-12)}


def score(layer):
    return {"nfa": measures.nfa(layer.W, layer.K).item()}


@pytest.mark.parametrize("n_outputs", [12, 32])
def test_standard_errors_are_about_the_actual_spread(n_outputs):
    found = sampled(n_outputs, range(50))
    exact = measures.tangent_covariance(Tokens(), X)
    for layer in LAYERS:
        spread = torch.tensor([score(each[layer])["nfa"] for each in found]).std().item()
        stated = torch.tensor([measures.standard_errors(each[layer], score)["nfa"] for each in found])
        assert 0.5 < stated.square().mean().sqrt().item() / spread < 2
        away = torch.stack([each[layer].K - exact[layer].K for each in found]).square().sum((1, 2)).mean().sqrt()
        told = torch.tensor([measures.sampling_error(each[layer]) for each in found]).square().mean().sqrt()
        assert 0.7 < (told * exact[layer].K.norm() / away).item() < 1.4


def test_the_sample_is_that_of_the_seed_whatever_the_chunks():
    (one,), (same,), (other,) = (sampled(7, [seed], chunk=chunk) for seed, chunk in ((1, None), (1, 2), (2, None)))
    for layer in LAYERS:
        torch.testing.assert_close(one[layer].K, same[layer].K)
        for a, b in zip(one[layer].without, same[layer].without, strict=True):
            torch.testing.assert_close(a.K, b.K)
        assert not torch.allclose(one[layer].K, other[layer].K)


def test_outputs_at_padding_are_not_drawn():
    mask = torch.ones(5, 4, dtype=torch.long)
    mask[:, 2:] = 0
    named = {"x": X, "attention_mask": mask}
    exact = measures.tangent_covariance(Tokens(), named)
    found = measures.tangent_covariance(Tokens(), named, n_outputs=24)  # as many as two positions have
    for layer in LAYERS:
        torch.testing.assert_close(found[layer].K, exact[layer].K)
        assert measures.sampling_error(found[layer]) == pytest.approx(0.0, abs=1e-12)


def test_convolutions_and_any_module_can_be_sampled():
    x = draw(3, 2, 12, 10)
    exact = measures.tangent_covariance(Stranger(), x)
    found = measures.tangent_covariance(Stranger(), x, n_outputs=3)
    for name, layer in exact.items():
        torch.testing.assert_close(found[name].K, layer.K)


def test_fewer_than_two_outputs_are_refused():
    with pytest.raises(ValueError, match="n_outputs must be at least 2, got 1"):
        sampled(1, [0])


def test_half_precision_is_summed_up_in_float32():
    net = Tokens().bfloat16()
    for layer in measures.tangent_covariance(net, X.bfloat16()).values():
        assert layer.K.dtype == layer.W.dtype == torch.float32
