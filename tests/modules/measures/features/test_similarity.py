import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from featurelab.modules import measures

seeds = st.integers(0, 2**31)


def draw(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def slow_cka(X, Y):
    """Of Gram matrices, with the centring matrix written out."""
    H = torch.eye(len(X)).double() - 1 / len(X)
    K, L = H @ X @ X.T @ H, H @ Y @ Y.T @ H
    return (K * L).sum() / (K.square().sum() * L.square().sum()).sqrt()


@given(seeds, st.integers(2, 12), st.integers(1, 8), st.integers(1, 8))
@settings(max_examples=40)
def test_cka_is_that_of_the_gram_matrices_whichever_way_it_is_computed(seed, n, d1, d2):
    X, Y = draw(n, d1, seed=seed) + 3, draw(n, d2, seed=seed + 1)
    expected = pytest.approx(slow_cka(X, Y).item(), rel=1e-9, abs=1e-12)
    assert measures.linear_cka(X, Y).item() == expected
    assert measures.CrossMoments().update(X, Y).cka().item() == expected


@given(seeds, st.lists(st.integers(0, 30), max_size=5))
@settings(max_examples=30)
def test_cka_does_not_depend_on_the_batches(seed, cuts):
    X, Y = draw(30, 4, seed=seed) + 1e4, draw(30, 3, seed=seed + 1) - 1e5
    moments = measures.CrossMoments()
    for a, b in zip(X.tensor_split(sorted(cuts)), Y.tensor_split(sorted(cuts)), strict=True):
        moments.update(a, b)
    assert moments.cka().item() == pytest.approx(measures.linear_cka(X, Y).item(), rel=1e-8)


@given(seeds, st.floats(1e-6, 1e6), st.sampled_from([20, 3]))
@settings(max_examples=20)
def test_cka_ignores_rotation_scale_and_translation_and_is_one_of_itself(seed, scale, n):
    X, Y = draw(n, 5, seed=seed), draw(n, 4, seed=seed + 1)
    O = measures.haar_orthogonal(5, torch.Generator().manual_seed(seed))  # noqa: E741
    moved = scale * (X @ O + draw(5, seed=seed))
    assert measures.linear_cka(moved, Y).item() == pytest.approx(measures.linear_cka(X, Y).item(), rel=1e-8)
    assert measures.linear_cka(X, moved).item() == pytest.approx(1)
    assert 0 <= measures.linear_cka(X, Y) <= 1


def test_images_are_flattened_and_constants_have_no_similarity():
    X, Y = draw(30, 2, 3), draw(30, 4, seed=1)
    assert measures.linear_cka(X, Y) == measures.linear_cka(X.flatten(1), Y)
    assert measures.linear_cka(torch.ones(30, 2), Y).isnan()


def test_unequal_lengths_and_no_samples_are_refused():
    with pytest.raises(ValueError, match="got 3 and 4 rows"):
        measures.linear_cka(draw(3, 2), draw(4, 2))
    with pytest.raises(ValueError, match="got 3 and 4 rows"):
        measures.CrossMoments().update(draw(3, 2), draw(4, 2))
    with pytest.raises(ValueError, match="no samples"):
        measures.CrossMoments().cka()
