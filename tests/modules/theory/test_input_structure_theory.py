"""Predicted cosines against samples, bounds against their own terms."""

import math

import pytest
import torch

from featurelab.modules import measures, theory


def test_the_paper_s_sizes():
    sizes = {"patterns": 100, "size": 5, "gamma": 0.25}
    assert theory.input_structure.predicted_cosine(50_000, **sizes) == pytest.approx(0.9992, abs=1e-4)
    assert theory.input_structure.predicted_cosine(20_000, **sizes) == pytest.approx(0.998, abs=1e-4)
    assert theory.input_structure.predicted_cosine(10_000, **sizes) == pytest.approx(0.996, abs=1e-4)


def test_the_prediction_is_the_cosine_of_a_signal_with_noise():
    noise = torch.randn(2000, 400, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    n, k, gamma = 500, 5, 0.25
    signal = torch.zeros(400, dtype=torch.float64)
    signal[:k] = gamma
    means = signal + noise / (2 * math.sqrt(n))  # in units of 1/sig
    cosines = measures.direction_cosines(means, signal[None])
    predicted = theory.input_structure.predicted_cosine(n, patterns=400, size=k, gamma=gamma)
    assert cosines.mean().item() == pytest.approx(predicted, abs=0.01)
    with pytest.raises(ValueError, match="positive"):
        theory.input_structure.predicted_cosine(n, patterns=400, size=k, gamma=0.0)


@pytest.mark.parametrize("dim", [100, 500])
def test_the_extreme_cosine_is_about_that_of_random_directions(dim):
    W = torch.randn(300, dim, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    largest = [measures.direction_alignment(W, axis)["max_cosine"] for axis in torch.eye(dim, dtype=torch.float64)[:50]]
    assert sum(largest) / 50 == pytest.approx(theory.input_structure.extreme_cosine(300, dim), rel=0.2)


def test_the_fixed_feature_bound_falls_with_features_and_norm_and_is_vacuous_at_the_paper_s_k():
    assert theory.input_structure.fixed_feature_bound(600, 1.0, size=5, unstructured=0.5) < 0
    assert theory.input_structure.fixed_feature_bound(600, 0.0, size=5, unstructured=0.5) == 0.5
    assert theory.input_structure.fixed_feature_bound(600, 2.0, size=15, unstructured=0.5) == pytest.approx(
        0.5 * (1 - 2 * math.sqrt(1200) / 2**15)
    )
    with pytest.raises(ValueError, match="odd"):
        theory.input_structure.fixed_feature_bound(1, 1.0, size=6, unstructured=0.5)


def test_queries_are_half_the_cube_root_of_the_number_of_parities():
    assert theory.input_structure.queries_needed(100, 5) == pytest.approx(0.5 * 75_287_520 ** (1 / 3))
