import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from featurelab.modules import measures

seeds = st.integers(0, 2**31)
GROUPS = [0, 1, 0, 1]


def draw(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def classes(seed, sizes, d=5):
    y = torch.from_numpy(np.random.default_rng(seed).permutation(np.repeat(np.arange(len(sizes)), sizes)))
    return 2 * draw(len(sizes), d, seed=seed)[y] + draw(len(y), d, seed=seed + 1), y


def distances(x, y):
    return measures.class_distances(measures.class_moments(x, y))


@given(seeds, st.lists(st.integers(1, 6), min_size=2, max_size=5))
@settings(max_examples=25)
def test_distances_in_closed_form_equal_the_double_loop(seed, sizes):
    x, y = classes(seed, sizes)
    C = len(sizes)
    slow = torch.zeros(C, C, dtype=torch.float64)
    for a, i in zip(x, y, strict=True):
        for b, j in zip(x, y, strict=True):
            slow[i, j] += (a - b).square().sum() / (sizes[i] * sizes[j])
    torch.testing.assert_close(distances(x, y), slow, rtol=1e-10, atol=1e-12)


def test_distances_survive_an_offset_that_swamps_them():
    x, y = classes(0, [4, 5, 6])
    torch.testing.assert_close(distances(x + 1e7, y), distances(x, y), rtol=1e-7, atol=0)


@given(seeds, st.integers(1, 9))
@settings(max_examples=20)
def test_the_mean_over_balanced_classes_is_twice_the_total_variance(seed, n):
    x, y = classes(seed, [n] * 4)
    total = x.var(0, correction=0).sum()
    assert distances(x, y).mean().item() == pytest.approx(2 * total.item())


@given(seeds)
@settings(max_examples=20)
def test_msdr_is_one_plus_the_distance_of_twin_means(seed):
    x, y = classes(seed, [5, 3, 8, 6])
    m = measures.class_moments(x, y)
    D = measures.class_distances(m)
    twins = [(m.means[0] - m.means[2]).square().sum(), (m.means[1] - m.means[3]).square().sum()]
    expected = 1 + (sum(twins) / 2 / D.diagonal().mean()).item()
    assert measures.msdr(D, GROUPS) == pytest.approx(expected)
    assert measures.msdr(D, torch.tensor(GROUPS)) >= 1
    only = 1 + (twins[1] / ((D[1, 1] + D[3, 3]) / 2)).item()
    assert measures.msdr(D, GROUPS, only=[1]) == pytest.approx(only)
    blocks = measures.distance_blocks(D, GROUPS)
    assert blocks["twin"] / blocks["same"] == pytest.approx(measures.msdr(D, GROUPS))


def test_blocks_are_means_over_pairs_of_classes():
    D = torch.arange(16.0).reshape(4, 4)
    blocks = measures.distance_blocks(D, GROUPS)
    assert blocks == {
        "same": (0 + 5 + 10 + 15) / 4,
        "twin": (2 + 8 + 7 + 13) / 4,
        "other": (1 + 3 + 4 + 6 + 9 + 11 + 12 + 14) / 8,
        "same_ratio": 1.0,
        "twin_ratio": 1.0,
    }


def test_complete_collapse_to_the_groups_has_same_and_twin_zero_and_collapse_to_classes_msdr_infinite():
    y = torch.arange(4).repeat(6)
    to_groups = distances(torch.eye(2)[torch.tensor(GROUPS)[y]], y)
    blocks = measures.distance_blocks(to_groups, GROUPS)
    assert (blocks["same_ratio"], blocks["twin_ratio"]) == (0, 0)
    assert blocks["other"] == pytest.approx(2)
    assert math.isnan(measures.msdr(to_groups, GROUPS))
    assert measures.msdr(distances(torch.eye(4)[y], y), GROUPS) == math.inf
    assert math.isnan(measures.distance_blocks(to_groups, [0, 1, 2, 3])["twin"])


def test_without_structure_in_the_groups_msdr_is_at_its_null_level():
    x = draw(400, 30) + 3 * draw(2, 30, seed=1)[torch.arange(400) % 2]
    y = torch.arange(400) % 4  # which half of its group a sample is in is arbitrary
    null = measures.msdr_null(x, y, [0, 1, 0, 1], draws=20)
    assert null == pytest.approx(1 + 1 / 99, abs=0.002)
    assert measures.msdr(distances(x, y), [0, 1, 0, 1]) == pytest.approx(null, abs=0.005)


def test_the_null_forgets_structure_in_the_groups_and_repeats_by_seed():
    x, y = classes(1, [50, 60, 70, 80])
    D = distances(x, y)
    null = measures.msdr_null(x, y, GROUPS, seed=3)
    assert measures.msdr(D, GROUPS) > 2
    assert null < 1.1
    assert measures.msdr_null(x, y, GROUPS, seed=3) == null != measures.msdr_null(x, y, GROUPS, seed=4)


def test_wrong_groups_are_refused():
    D = torch.eye(4)
    with pytest.raises(ValueError, match=r"\(4, 4\) do not belong to groups \(3,\)"):
        measures.msdr(D, [0, 1, 0])
    with pytest.raises(ValueError, match="no class is in group 7"):
        measures.msdr(D, GROUPS, only=[7])
    with pytest.raises(ValueError, match="draws must be at least 1"):
        measures.msdr_null(draw(4, 2), torch.arange(4), GROUPS, draws=0)
