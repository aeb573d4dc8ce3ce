"""Which tokens are kept, by scores made up for the purpose."""

import math

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given

from featurelab.modules.decoding import Choice, choose_tokens, pooled_scores

# multiples of 1/8, so that sums are exact and equal scores frequent
some = st.lists(st.integers(-40, 40).map(lambda value: value / 8), min_size=1, max_size=40)
pools = st.sampled_from(["avg", "max", "none"])
kernels = st.sampled_from([1, 3, 5, 9])


def slow_choice(scores, keep, pool, kernel, keep_last, keep_first):
    n, half = len(scores), kernel // 2
    found = []
    for j in range(n):
        around = [scores[i] for i in range(j - half, j + half + 1) if 0 <= i < n]
        finite = [value for value in around if value > -math.inf]
        if pool == "none" or scores[j] == -math.inf:
            found.append(scores[j])
        else:
            found.append(max(finite) if pool == "max" else math.fsum(finite) / kernel)
    forced = {*range(min(keep_first, n)), *range(max(0, n - keep_last), n)}
    ranked = sorted(range(n), key=lambda j: (j not in forced, -found[j], j))
    return sorted(ranked[: min(keep, n)])


@given(some, st.integers(1, 45), pools, kernels, st.integers(0, 3), st.integers(0, 3), st.sets(st.integers(0, 39)))
def test_the_choice_is_the_slow_one(scores, keep, pool, kernel, keep_last, keep_first, hidden):
    scores = [-math.inf if j in hidden else value for j, value in enumerate(scores)]
    keep = max(keep, keep_last + keep_first, 1)
    found = Choice(keep, pool, kernel, keep_last, keep_first)(torch.tensor(scores, dtype=torch.float64))
    assert found.tolist() == slow_choice(scores, keep, pool, kernel, keep_last, keep_first)
    assert len(found) == min(keep, len(scores))
    assert (found.diff() > 0).all()
    n = len(scores)
    assert {*range(min(keep_first, n)), *range(max(0, n - keep_last), n)} <= set(found.tolist())


@given(some, st.integers(1, 40), st.sampled_from(["max", "none"]), kernels, st.integers(-80, 80))
def test_a_constant_added_to_all_scores_changes_nothing_without_a_mean(scores, keep, pool, kernel, shift):
    scores = torch.tensor(scores, dtype=torch.float64)
    assert torch.equal(
        choose_tokens(scores, keep, pool=pool, kernel=kernel),
        choose_tokens(scores + shift / 8, keep, pool=pool, kernel=kernel),
    )


def test_a_constant_changes_the_mean_near_the_ends():
    """Which counts zeros there, as the listing does: negative scores at the ends rise above their like."""
    flat = torch.full((9,), -1.0)
    torch.testing.assert_close(pooled_scores(flat, "avg", 5), -torch.tensor([3, 4, 5, 5, 5, 5, 5, 4, 3]) / 5)
    assert choose_tokens(flat, 4, pool="avg").tolist() == [0, 1, 7, 8]
    assert choose_tokens(flat + 2, 4, pool="avg").tolist() == [2, 3, 4, 5]


def test_of_equal_scores_the_earlier_tokens_are_kept():
    for pool in ("max", "none"):
        assert choose_tokens(torch.zeros(1000), 7, pool=pool).tolist() == list(range(7))
    scores = torch.zeros(3, 50, 600).index_fill(2, torch.tensor([500]), 1.0)
    assert (choose_tokens(scores, 4) == torch.tensor([0, 1, 2, 500])).all()


def test_tokens_out_of_sight_are_kept_last_and_lend_nothing_to_neighbours():
    scores = torch.tensor([9.0, -torch.inf, -torch.inf, -5.0, -6.0])
    assert choose_tokens(scores, 3, pool="max", kernel=3).tolist() == [0, 3, 4]
    assert choose_tokens(scores, 4, pool="avg", kernel=3).tolist() == [0, 1, 3, 4]
    assert pooled_scores(scores, "avg", 3).tolist() == [
        3.0,
        -torch.inf,
        -torch.inf,
        *(torch.tensor([-11.0, -11.0]) / 3),
    ]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"keep": 0}, "keep must be at least 1"),
        ({"keep": 4, "kernel": 4}, "kernel must be odd"),
        ({"keep": 4, "kernel": -1}, "kernel must be odd"),
        ({"keep": 4, "pool": "mean"}, "pool must be"),
        ({"keep": 4, "keep_last": 3, "keep_first": 2}, "exceeds keep"),
        ({"keep": 4, "keep_last": -1}, "must not be negative"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(wrong, message):
    with pytest.raises(ValueError, match=message) as caught:
        choose_tokens(torch.zeros(9), **wrong)
    assert "\n" not in str(caught.value)
