"""Permutation test of Kendall's W, p-values of correlations and their combination, against scipy and by hand."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from featurelab.modules import measures


@given(st.integers(0, 2**31), st.integers(2, 5), st.integers(2, 7), st.booleans())
@settings(max_examples=40)
def test_the_tested_w_is_kendalls_w(seed, raters, items, tied):
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, 3, (raters, items)).astype(float) if tied else rng.standard_normal((raters, items))
    if (np.ptp(scores, axis=1) == 0).any():
        return
    w, p = measures.concordance_test(scores, draws=5, seed=0)
    assert w == pytest.approx(measures.kendalls_w(torch.from_numpy(scores)).item(), abs=1e-12)
    assert 1 / 6 <= p <= 1


def test_the_p_value_tends_to_that_of_all_permutations():
    scores = np.array([[1.0, 2, 3, 4], [1, 3, 2, 4], [2, 1, 3, 4]])
    observed = measures.kendalls_w(torch.from_numpy(scores)).item()
    others = list(itertools.permutations(range(4)))
    exact = np.mean(
        [
            measures.kendalls_w(torch.from_numpy(np.stack([scores[0], scores[1][list(a)], scores[2][list(b)]]))).item()
            >= observed - 1e-12
            for a in others
            for b in others
        ]
    )
    w, p = measures.concordance_test(scores, draws=20_000, seed=1)
    assert w == pytest.approx(observed)
    assert p == pytest.approx(exact, abs=4 * (exact * (1 - exact) / 20_000) ** 0.5)


def test_occasions_are_permuted_together():
    """Ten copies of one occasion say no more than one: the p-value stays what it is."""
    rng = np.random.default_rng(0)
    one = rng.standard_normal((3, 5))
    w, p = measures.concordance_test(one, draws=2000, seed=3)
    many = measures.concordance_test(np.repeat(one[None], 10, axis=0), draws=2000, seed=3)
    assert many == (pytest.approx(w), p)


def test_p_values_of_unrelated_rankings_are_uniform_and_their_mean_w_is_one_third():
    rng = np.random.default_rng(5)
    found = [measures.concordance_test(rng.standard_normal((3, 5)), draws=200, seed=k) for k in range(300)]
    w, p = np.array(found).T
    assert w.mean() == pytest.approx(1 / 3, abs=0.04)
    assert stats.kstest(p, "uniform").pvalue > 1e-3


@pytest.mark.parametrize("scores", [np.ones((3, 4)), np.zeros((0, 3, 4)), np.arange(4.0)[None], np.arange(3.0)])
def test_what_has_no_ranking_is_refused(scores):
    with pytest.raises(ValueError, match=r"scores|W is undefined"):
        measures.concordance_test(scores, seed=0)


@given(st.integers(0, 2**31), st.integers(4, 60))
@settings(max_examples=40)
def test_pearson_p_is_scipys(seed, n):
    rng = np.random.default_rng(seed)
    a, b = rng.standard_normal((2, n))
    expected = stats.pearsonr(a, b)
    assert measures.pearson_p_value(expected.statistic, n) == pytest.approx(expected.pvalue, rel=1e-8)


def test_pearson_p_at_its_ends():
    assert measures.pearson_p_value(0.0, 10) == pytest.approx(1)
    assert measures.pearson_p_value(1.0, 10) == 0
    assert measures.pearson_p_value(0.3, 50) == measures.pearson_p_value(-0.3, 50)
    with pytest.raises(ValueError, match="at least 3"):
        measures.pearson_p_value(0.5, 2)


@given(st.lists(st.floats(1e-12, 1.0), min_size=1, max_size=8))
@settings(max_examples=60)
def test_fisher_combines_as_scipy_does(p):
    statistic, combined = measures.fisher_combine(p)
    expected = stats.combine_pvalues(p, method="fisher")
    assert statistic == pytest.approx(expected.statistic, abs=1e-9)
    assert combined == pytest.approx(expected.pvalue, rel=1e-9)


def test_fisher_of_one_p_value_is_that_p_value_and_zero_is_clipped():
    assert measures.fisher_combine([0.037])[1] == pytest.approx(0.037)
    assert np.isfinite(measures.fisher_combine([0.0, 0.5])[0])
    for bad in ([], [1.2], [-0.1]):
        with pytest.raises(ValueError, match="p-value"):
            measures.fisher_combine(bad)


def test_fishers_level_is_kept_by_independent_networks_and_lost_where_they_share_their_classes():
    level = {s: measures.shared_class_false_positives(60, 4, s, draws=4000, seed=0) for s in (0.0, 0.5, 1.0)}
    assert level[0.0] == pytest.approx(0.05, abs=0.012)
    assert level[0.0] <= level[0.5] + 0.01
    assert level[1.0] > 0.1
    # one network is one test, whatever it shares
    assert measures.shared_class_false_positives(60, 1, 1.0, draws=4000, seed=0) == pytest.approx(0.05, abs=0.012)
    # networks that share all are one test counted four times: -8 ln p against chi^2 of 8 degrees
    threshold = np.exp(-stats.chi2.isf(0.05, 8) / 8)
    assert level[1.0] == pytest.approx(threshold, abs=0.02)
    for bad in ({"shared": 1.1}, {"classes": 2}, {"networks": 0}):
        with pytest.raises(ValueError, match=r"shared|classes"):
            measures.shared_class_false_positives(**({"classes": 5, "networks": 2, "shared": 0.5, "seed": 0} | bad))


@given(st.integers(0, 2**31), st.integers(3, 12))
@settings(max_examples=30)
def test_spearman_is_scipys_along_the_last_dimension(seed, n):
    rng = np.random.default_rng(seed)
    a, b = rng.integers(0, 6, (2, 4, n)).astype(float)
    a[:, 0], b[:, 1] = -1, 9  # not all tied
    found = measures.spearman(torch.from_numpy(a), torch.from_numpy(b))
    expected = [stats.spearmanr(x, y).statistic for x, y in zip(a, b, strict=True)]
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-12)
    with pytest.raises(ValueError, match="at least 2"):
        measures.spearman(torch.zeros(1), torch.zeros(1))
