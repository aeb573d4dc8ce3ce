import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import friedmanchisquare, spearmanr

from featurelab.modules import measures
from featurelab.modules.measures import ClassMoments

seeds = st.integers(0, 2**31)


def draw(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def whole_numbers(*shape, top, seed=0):
    return torch.randint(top, shape, generator=torch.Generator().manual_seed(seed))


@given(seeds, st.integers(2, 12), st.integers(1, 6))
@settings(max_examples=30)
def test_alignment_is_the_mean_inner_product_of_distinct_pairs(seed, m, d):
    F = draw(m, d, seed=seed) + 1
    pairs = [F[i] @ F[j] for i in range(m) for j in range(m) if i != j]
    assert measures.alignment(F).item() == pytest.approx(sum(pairs).item() / len(pairs), abs=1e-12)


def test_alignment_of_equal_rows_is_their_square_and_of_unlike_signs_negative():
    assert measures.alignment(torch.ones(5, 7)) == 7
    assert measures.alignment(torch.tensor([[2.0], [-2.0]])) == -4


def test_alignment_by_class_from_streamed_moments_is_that_of_each_class():
    F, y = draw(40, 3) + 2, torch.arange(40) % 3
    m = ClassMoments.empty(3)
    for a, b in zip(F.split(7), y.split(7), strict=True):
        m.update(a, b)
    expected = torch.stack([measures.alignment(F[y == c]) for c in range(3)])
    torch.testing.assert_close(measures.alignment_by_class(m), expected, rtol=1e-12, atol=0)
    with pytest.raises(ValueError, match="class 1 has 1"):
        measures.alignment_by_class(ClassMoments.empty().update(F[:3], torch.tensor([0, 0, 1])))


def test_elasticity_is_the_mean_squared_change():
    F, F0, y = draw(9, 2, 4), draw(9, 2, 4, seed=1), torch.arange(9) % 2
    change = (F - F0).flatten(1).square().sum(1)
    assert measures.elasticity(F, F0).item() == pytest.approx(change.mean().item())
    assert measures.elasticity(F, F) == 0
    by_class = measures.elasticity_by_class(F, F0, y, classes=3)
    torch.testing.assert_close(by_class[:2], torch.stack([change[y == c].mean() for c in (0, 1)]))
    assert by_class[2].isnan()
    with pytest.raises(ValueError, match="equal shapes"):
        measures.elasticity(F, F0[:, 0])


def slow_found(x, y, k, similarity):
    x = x.double()
    if similarity == "cosine":
        x = x / x.norm(dim=1, keepdim=True)
    found = []
    for i, row in enumerate(x):
        others = sorted((j for j in range(len(x)) if j != i), key=lambda j: (-(row @ x[j]).item(), j))
        found.append(any(y[j] == y[i] for j in others[:k]))
    return torch.tensor(found, dtype=torch.float64)


@given(seeds, st.integers(2, 15), st.integers(1, 4), st.sampled_from(["cosine", "inner"]))
@settings(max_examples=40)
def test_recall_sorts_no_neighbours_and_finds_them_all_the_same(seed, n, k, similarity):
    x, y = draw(n, 3, seed=seed), whole_numbers(n, top=3, seed=seed)
    slow = slow_found(x, y, k, similarity)
    assert measures.recall_at_k(x, y, k, similarity) == slow.mean()
    by_class = measures.recall_by_class(x, y, k, similarity, classes=3)
    for c in range(3):
        if (y == c).any():
            assert by_class[c].item() == pytest.approx(slow[y == c].mean().item())
        else:
            assert by_class[c].isnan()


@given(seeds, st.integers(2, 12), st.integers(1, 4))
@settings(max_examples=40)
def test_of_equally_similar_neighbours_the_first_is_nearest(seed, n, k):
    x, y = whole_numbers(n, 2, top=2, seed=seed).double(), whole_numbers(n, top=2, seed=seed + 1)
    assert measures.recall_at_k(x, y, k, "inner") == slow_found(x, y, k, "inner").mean()


def test_recall_of_known_figures():
    x, y = torch.tensor([[1.0, 0], [2, 0.1], [0, 1], [0.1, 3]]), torch.tensor([0, 0, 1, 1])
    assert measures.recall_at_k(x, y) == 1
    assert measures.recall_at_k(x, torch.tensor([0, 1, 0, 1])) == 0
    assert measures.recall_at_k(x, torch.arange(4), k=3) == 0  # nobody has a companion
    assert measures.recall_at_k(x, torch.eye(2)[y]) == 1


def test_recall_in_blocks_of_rows_is_that_of_the_whole(monkeypatch):
    import featurelab.modules.measures.features.alignment_scores as scores

    x, y = draw(50, 3), whole_numbers(50, top=4)
    whole = measures.recall_at_k(x, y, 2)
    monkeypatch.setattr(scores, "CHUNK", 120)
    assert measures.recall_at_k(x, y, 2) == whole


@given(seeds, st.integers(2, 8))
@settings(max_examples=30)
def test_kendalls_w_of_two_raters_is_half_of_one_plus_spearman(seed, n):
    scores = draw(2, n, seed=seed)
    rho = spearmanr(scores[0], scores[1]).statistic
    assert measures.kendalls_w(scores).item() == pytest.approx((1 + rho) / 2, abs=1e-12)


@given(seeds, st.integers(3, 6), st.integers(3, 8))
@settings(max_examples=30)
def test_kendalls_w_with_ties_is_friedmans_statistic_over_its_largest_value(seed, m, n):
    scores = whole_numbers(m, n, top=4, seed=seed)
    if (scores == scores[:, :1]).all(1).any():
        return  # Friedman's statistic is undefined where a rater ties all
    expected = friedmanchisquare(*scores.T.numpy()).statistic / (m * (n - 1))
    assert measures.kendalls_w(scores).item() == pytest.approx(expected, abs=1e-10)


def test_kendalls_w_of_agreement_is_one_of_chance_one_over_the_raters_and_of_ties_undefined():
    order = draw(6)
    agreeing = torch.stack([order, order.exp(), 3 * order - 1])
    assert measures.kendalls_w(agreeing).item() == pytest.approx(1)
    chance = torch.stack([measures.kendalls_w(draw(3, 6, seed=seed)) for seed in range(600)])
    assert chance.mean().item() == pytest.approx(1 / 3, abs=0.03)
    assert measures.kendalls_w(torch.ones(3, 4)).isnan()


def test_wrong_requests_are_refused():
    x, y = draw(4, 2), torch.arange(4)
    for function, complaint in [
        (lambda: measures.alignment(x[:1]), "needs two samples"),
        (lambda: measures.recall_at_k(x, y, k=0), "k must be at least 1"),
        (lambda: measures.recall_at_k(x, y, similarity="dot"), "'cosine' or 'inner'"),
        (lambda: measures.recall_at_k(x[:1], y[:1]), "at least two samples"),
        (lambda: measures.kendalls_w(torch.ones(1, 4)), "at least two of each"),
        (lambda: measures.kendalls_w(torch.tensor([[1, math.nan], [1, 2]])), "must not contain nan"),
    ]:
        with pytest.raises(ValueError, match=complaint):
            function()
