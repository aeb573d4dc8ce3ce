"""Selected tokens and needles, counted by going through every pair."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from featurelab.modules.measures import needle_distance, needle_share, position_spread, share_near_needle


def draws(n, k, length, seed=0):
    torch.manual_seed(seed)
    chosen = torch.stack([torch.randperm(length)[:k] for _ in range(n)])
    return chosen, torch.randint(0, length - 2, (n,))


def test_shares_and_distances_are_those_of_a_loop():
    chosen, begins = draws(60, 7, 40)
    share, distance = needle_share(chosen, begins, 3), needle_distance(chosen, begins, 3)
    near = share_near_needle(chosen, begins, 3, 2)
    for row in range(60):
        kept, needle = chosen[row].tolist(), [int(begins[row]) + i for i in range(3)]
        assert share[row].item() == pytest.approx(len(set(kept) & set(needle)) / 3)
        away = [min(abs(token - each) for each in needle) for token in kept]
        assert distance[row].item() == min(away)
        assert near[row].item() == pytest.approx(sum(each <= 2 for each in away) / 7)
    assert ((distance == 0) == (share > 0)).all()
    assert torch.equal(near, share_near_needle(chosen.flip(1), begins, 3, 2))


def test_spread_is_the_mean_over_pairs_and_one_on_average():
    chosen, _ = draws(50, 6, 80, seed=1)
    found = position_spread(chosen, 80)
    for row in range(50):
        pairs = [abs(a - b) for a, b in itertools.combinations(chosen[row].tolist(), 2)]
        assert found[row].item() == pytest.approx(3 * sum(pairs) / len(pairs) / 81)
    everything = position_spread(torch.arange(80)[None], 80)
    assert everything.item() == pytest.approx(1.0)  # the law that it is divided by
    with pytest.raises(ValueError, match="at least 2 tokens, got 1"):
        position_spread(chosen[:, :1], 80)


@settings(max_examples=30)
@given(st.integers(2, 12), st.integers(0, 50))
def test_tokens_in_a_row_have_the_least_spread(k, begin):
    row = torch.arange(begin, begin + k)[None]
    assert position_spread(row, 100).item() == pytest.approx((k + 1) / 101)
