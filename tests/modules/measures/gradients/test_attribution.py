import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from featurelab.modules import measures

seeds = st.integers(0, 2**31)


def draw(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def features(seed, d):
    y = torch.arange(30) % 3
    return 2 * draw(3, d, seed=seed)[y] + draw(30, d, seed=seed + 1), y


def nc1(x, y):
    return measures.nc1(measures.class_moments(x, y)).item()


@given(seeds, st.integers(1, 8), st.integers(2, 8))
@settings(max_examples=30)
def test_nc1_at_the_right_singular_structure_is_that_of_every_form_it_takes(seed, k_out, k_in):
    W, (x, y) = draw(k_out, k_in, seed=seed + 2), features(seed, k_in)
    found = measures.svd_attribution(W, x, y)
    _, S, Vh = torch.linalg.svd(W, full_matrices=False)
    square_root = measures.psd_power(W.T @ W, 0.5)
    assert found["right"] == pytest.approx(nc1((x @ Vh.T) * S, y), rel=1e-9)
    assert found["right"] == pytest.approx(nc1(x @ square_root, y), rel=1e-6)
    assert found["input"] == pytest.approx(nc1(x, y))
    assert found["output"] == pytest.approx(nc1(torch.relu(x @ W.T), y))


def test_an_orthogonal_layer_changes_nothing_and_a_projection_on_the_means_much():
    x, y = features(0, 4)
    O = measures.haar_orthogonal(4, torch.Generator().manual_seed(0))  # noqa: E741
    found = measures.svd_attribution(O, x, y, activation=lambda h: h)
    assert measures.attribution_drops(found) == pytest.approx({"right": 0, "activation": 0, "total": 0}, abs=1e-12)
    means = measures.class_moments(x, y).means
    drops = measures.attribution_drops(measures.svd_attribution(means - means.mean(0), x, y))
    assert drops["right"] > 0.2
    assert drops["total"] == pytest.approx(drops["right"] + drops["activation"])


def test_a_bias_moves_the_activation_and_nothing_before_it():
    W, (x, y), b = draw(5, 4), features(1, 4), 3 * draw(5, seed=7)
    plain, biased = measures.svd_attribution(W, x, y), measures.svd_attribution(W, x, y, bias=b)
    assert biased["right"] == plain["right"]
    assert biased["output"] == pytest.approx(nc1(torch.relu(x @ W.T + b), y)) != plain["output"]


def test_drops_at_complete_collapse_are_infinite():
    drops = measures.attribution_drops({"input": 1.0, "right": math.e, "output": 0.0})
    assert drops == {"right": -1.0, "activation": math.inf, "total": math.inf}


def test_shapes_that_do_not_match_are_refused():
    with pytest.raises(ValueError, match=r"\(5, 4\) do not act on inputs \(30, 3\)"):
        measures.svd_attribution(draw(5, 4), *features(0, 3))


@given(seeds, st.integers(1, 8), st.integers(2, 8))
@settings(max_examples=20)
def test_nc1_after_the_agop_is_that_of_the_whole_matrix(seed, k_out, k_in):
    W, (x, y) = draw(k_out, k_in, seed=seed + 2), features(seed, k_in)
    half = draw(k_out, k_out, seed=seed + 3)
    found = measures.agop_attribution(
        measures.agop_root(W, half @ half.T), x, y, generator=torch.Generator().manual_seed(seed)
    )
    root = measures.psd_power(W.T @ half @ half.T @ W, 0.5)
    assert found["agop"] == pytest.approx(nc1(x @ root, y), rel=1e-5)


def test_an_agop_of_the_class_means_contracts_and_turned_at_random_does_not():
    x, y = features(0, 40)
    means = torch.stack([x[y == c].mean(0) for c in range(3)])
    turned = measures.agop_attribution(
        measures.agop_root(means, torch.eye(3)), x, y, draws=8, generator=torch.Generator().manual_seed(0)
    )
    assert turned["agop"] < 0.5 * nc1(x, y) < turned["rotated"]
