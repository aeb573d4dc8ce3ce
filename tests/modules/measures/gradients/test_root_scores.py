import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from featurelab.modules.measures import (
    agop_root,
    agop_root_scores,
    haar_orthogonal,
    matrix_cosine,
    nfa_pearson,
    nfa_pearson_null,
    psd_power,
)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def gram(d, rank=None, seed=0):
    A = torch.randn(rank or d, d, generator=generator(seed), dtype=torch.float64)
    return A.T @ A


def layer(k_out, k_in, seed=0):
    """A weight matrix and a PSD matrix of its outputs."""
    W = torch.randn(k_out, k_in, generator=generator(seed), dtype=torch.float64)
    return W, gram(k_out, seed=seed + 1)


@settings(max_examples=25)
@given(d=st.integers(2, 12), seed=st.integers(0, 1000), power=st.sampled_from([0.5, 0.25, 1.0]))
def test_score_is_numpy_s_correlation_of_the_entries(d, seed, power):
    F, G = gram(d, seed=seed), gram(d, seed=seed + 1)
    root = psd_power(G, power).numpy()
    expected = np.corrcoef(F.numpy().ravel(), root.ravel())[0, 1]
    assert nfa_pearson(F, G, power=power).item() == pytest.approx(expected, abs=1e-10)
    off = ~np.eye(d, dtype=bool)
    if d > 2:  # with two the off-diagonal entries are one number, twice
        expected = np.corrcoef(F.numpy()[off], root[off])[0, 1]
        assert nfa_pearson(F, G, power=power, off_diagonal=True).item() == pytest.approx(expected, abs=1e-8)
    assert nfa_pearson(F, G, power=power, centering="cosine").item() == pytest.approx(
        matrix_cosine(F, psd_power(G, power)).item(), abs=1e-12
    )


def test_weights_whose_gram_matrix_is_the_root_score_one():
    G = gram(9)
    assert nfa_pearson(psd_power(G, 0.5), 3 * G).item() == pytest.approx(1, abs=1e-12)
    assert nfa_pearson(psd_power(G, 0.5), 3 * G, off_diagonal=True).item() == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("shape", [(6, 6), (5, 11), (11, 5)])
@pytest.mark.parametrize("centering", ["pearson", "cosine"])
def test_a_layer_s_scores_are_those_of_the_whole_matrices(shape, centering):
    W, K = layer(*shape)
    F, G = W.T @ W, W.T @ K @ W
    found = agop_root_scores(agop_root(W, K), centering=centering, generator=generator())
    assert found["nfa_pearson"] == pytest.approx(nfa_pearson(F, G, centering=centering).item(), abs=1e-6)
    expected = nfa_pearson(F, G, centering=centering, off_diagonal=True).item()
    assert found["nfa_offdiagonal"] == pytest.approx(expected, abs=1e-6)
    assert found["nfa_excess"] == pytest.approx(found["nfa_pearson"] - found["nfa_null"], abs=1e-12)


@pytest.mark.parametrize("shape", [(8, 8), (4, 12), (12, 8)])
def test_both_nulls_draw_from_one_law(shape):
    """A random frame for the row space, and a rotation of the whole matrix: equal means to 4 standard errors."""
    W, K = layer(*shape)
    draws = 400
    whole = nfa_pearson_null(W.T @ W, W.T @ K @ W, draws=draws, generator=generator(1))
    short = agop_root_scores(agop_root(W, K), draws=draws, generator=generator(2))["nfa_null"]
    assert abs(whole.mean().item() - short) < 4 * math.sqrt(2 / draws) * whole.std().item()


def test_rotating_the_agop_leaves_its_null_level_alone_and_takes_the_score_there():
    G, F = gram(30, seed=1), gram(30, seed=1)
    assert nfa_pearson(F, G).item() > 0.9
    Q = haar_orthogonal(30, generator(3))
    null = nfa_pearson_null(F, G, draws=100, generator=generator(4))
    assert (null.mean() - nfa_pearson_null(F, Q @ G @ Q.T, draws=100, generator=generator(5)).mean()).abs() < 0.02
    assert (nfa_pearson(F, Q @ G @ Q.T) - null.mean()).abs() < 4 * null.std()


def test_scores_depend_on_the_generator_only_through_the_null():
    W, K = layer(6, 6)
    a, b, c = (agop_root_scores(agop_root(W, K), generator=generator(seed)) for seed in (0, 0, 1))
    assert a == b
    assert a["nfa_null"] != c["nfa_null"]
    assert a["nfa_pearson"] == c["nfa_pearson"]


def test_other_centerings_and_shapes_are_refused():
    W, K = layer(3, 3)
    with pytest.raises(ValueError, match="centering must be"):
        nfa_pearson(K, K, centering="none")
    with pytest.raises(ValueError, match="centering must be"):
        agop_root_scores(agop_root(W, K), centering="none", generator=generator())
    for bad in (torch.ones(3, 4), torch.ones(4, 4), torch.ones(3)):
        with pytest.raises(ValueError, match="square matrices of one size"):
            nfa_pearson(K, bad)
        with pytest.raises(ValueError, match="square matrices of one size"):
            nfa_pearson_null(bad, K, generator=generator())
