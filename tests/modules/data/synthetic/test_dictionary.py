"""Laws of patterns against their samples and enumerations, and the inputs that a dictionary makes of them."""

import itertools
import math

import numpy as np
import pytest
import torch

from featurelab.modules import data

N = 200_000
LAWS = [
    data.ParityPatterns(9, 5),
    data.ParityPatterns(8, 3, 0.2),
    data.ParityPatterns(6, 1, 0.6),
    data.ParityPatterns(9, 5, 1.0),
    data.IntervalPatterns(9, 6, 4, 6),
    data.IntervalPatterns(7, 4, 1, 2, inside=0.3, outside=0.4),
    data.CodebookPatterns(12, 8, 5, seed=1),
]
each = pytest.mark.parametrize("law", LAWS, ids=lambda law: f"{type(law).__name__}-{law.size}")


@each
def test_moments_in_closed_form_are_those_of_samples(law):
    phi, y = law.draw(N, np.random.default_rng(0))
    error = 5 / math.sqrt(N)
    assert set(np.unique(y)) == {-1.0, 1.0}
    assert (y > 0).mean() == pytest.approx(law.positive, abs=error)
    for row, label in zip(law.class_means, (-1, 1), strict=True):
        assert np.abs(phi[y == label].mean(0) - row).max() < error / min(law.positive, 1 - law.positive)
    assert np.abs(phi.mean(0) - law.mean()).max() < error
    signal = (y[:, None] * phi).mean(0) - y.mean() * phi.mean(0)
    assert np.abs(signal - law.signal()).max() < 2 * error
    assert law.scale() ** 2 == pytest.approx(phi.var(0).sum(), rel=0.02)
    assert law.gamma() == pytest.approx(np.sqrt((law.signal()[: law.size] ** 2).mean()))


@each
def test_only_the_first_patterns_tell_of_the_label(law):
    assert law.class_means[0, law.size :] == pytest.approx(law.class_means[1, law.size :])
    assert law.signal()[law.size :] == pytest.approx(0)


@pytest.mark.parametrize("inside", [0.5, 2 / 3])
def test_the_interval_s_moments_are_sums_over_all_patterns(inside):
    law = data.IntervalPatterns(7, 5, 2, 4, inside=inside)
    total = positive = ones = 0.0
    for phi in itertools.product((0, 1), repeat=5):
        p = math.prod(inside if bit else 1 - inside for bit in phi)
        total += p
        if 2 <= sum(phi) <= 4:
            positive += p
            ones += p * phi[0]
    assert total == pytest.approx(1)
    assert law.positive == pytest.approx(positive)
    assert law.class_means[1, 0] == pytest.approx(ones / positive)


def test_the_paper_s_numbers():
    parity, interval = data.ParityPatterns(100, 5), data.IntervalPatterns(100, 30, 20, 30)
    assert parity.gamma() == pytest.approx(0.25)
    assert parity.scale() == pytest.approx(5)
    assert data.ParityPatterns(100, 5, 1.0).gamma() == 0
    assert interval.gamma() == pytest.approx(0.0685, abs=5e-4)
    assert interval.positive == pytest.approx(0.585, abs=1e-3)
    assert data.IntervalPatterns(100, 30, 20, 30, inside=0.5).positive == pytest.approx(0.049, abs=1e-3)


def test_the_best_threshold_on_the_parity_s_count_is_right_on_844_of_1000():
    phi, y = data.ParityPatterns(5, 5).draw(N, np.random.default_rng(1))
    counts = phi.sum(1)
    best = max(max(right, 1 - right) for cut in range(6) for right in [(y == np.where(counts > cut, 1, -1)).mean()])
    assert best == pytest.approx(1 - 0.5 + 0.5 * 22 / 32, abs=0.005)


def test_the_words_of_both_labels_differ_and_are_kept():
    law = data.CodebookPatterns(4, 3, 4, seed=0)
    low, high = law.code
    assert not {tuple(word) for word in low} & {tuple(word) for word in high}
    phi, y = law.draw(500, np.random.default_rng(0))
    for word, label in zip(phi[:, :3], y, strict=True):
        assert tuple(word) in {tuple(one.astype(bool)) for one in law.code[int(label > 0)]}


def test_laws_that_are_none_are_refused():
    for wrong, word in (
        (lambda: data.ParityPatterns(5, 4), "odd"),
        (lambda: data.ParityPatterns(5, 7), "size"),
        (lambda: data.ParityPatterns(5, 3, 0.8), "unstructured"),
        (lambda: data.IntervalPatterns(5, 3, 2, 1), "least <= most"),
        (lambda: data.IntervalPatterns(5, 3, 1, 2, inside=1.0), "probabilities"),
    ):
        with pytest.raises(ValueError, match=word):
            wrong()


@pytest.mark.parametrize("kind", ["orthonormal", "unit", "identity"])
def test_dictionaries_have_unit_columns(kind):
    M = data.dictionary_matrix(30 if kind != "identity" else 12, 12, kind, seed=0)
    assert torch.allclose(M.norm(dim=0), torch.ones(12, dtype=torch.float64))
    products = (M.T @ M - torch.eye(12)).abs().max().item()
    assert (products > 0.1) == (kind == "unit")
    with pytest.raises(ValueError, match=r"no \w+ dictionary"):
        data.dictionary_matrix(11, 12, kind, seed=0)


def test_training_inputs_are_normalised_and_test_inputs_by_the_same_numbers():
    law = data.ParityPatterns(10, 3)
    task = data.DictionaryData(law, 500, 400, 16, seed=3)
    x, _ = task.train
    assert x.mean(0).abs().max() < 1e-12
    assert x.square().sum(1).mean().item() == pytest.approx(1)
    phi = (task.test[0] * task.scale + task.centre) @ task.dictionary
    assert torch.allclose(phi, phi.round(), atol=1e-9)
    assert set(phi.round().unique().tolist()) <= {0.0, 1.0}
    counted = torch.from_numpy(law.label(phi.round().numpy() > 0.5))
    assert torch.equal(counted, task.test[1][:, 0])
    assert task.relevant.norm().item() == pytest.approx(3**0.5)


def test_the_law_s_mean_product_is_the_mean_over_samples_and_points_along_the_relevant_sum():
    task = data.DictionaryData(data.ParityPatterns(10, 3), 100_000, 0, 16, seed=0, negative_share=0.7)
    x, y = task.train
    assert torch.allclose((y * x).mean(0), task.mean_product, atol=5e-3)
    cosine = torch.nn.functional.cosine_similarity(task.mean_product, task.relevant, dim=0)
    assert cosine.item() == pytest.approx(1)


@pytest.mark.parametrize("share", [0.5, 0.9])
def test_shares_are_exact_and_sizes_kept(share):
    law = data.IntervalPatterns(9, 6, 4, 6)
    task = data.DictionaryData(law, 1000, 200, 9, kind="identity", negative_share=share, seed=1)
    assert [(len(y), (y < 0).double().mean().item()) for _, y in (task.train, task.test)] == [
        (1000, share),
        (200, share),
    ]
    means = [((task.train[0] * task.scale + task.centre)[task.train[1][:, 0] == label]).mean(0) for label in (-1, 1)]
    assert np.abs(torch.stack(means).numpy() - law.class_means).max() < 0.2


def test_noise_is_added_to_every_coordinate_and_the_data_do_not_change_with_it():
    law = data.ParityPatterns(6, 3)
    clean, noisy = (data.DictionaryData(law, 4000, 0, 8, noise=noise, seed=1) for noise in (0.0, 0.3))
    difference = noisy.train[0] * noisy.scale + noisy.centre - clean.train[0] * clean.scale - clean.centre
    assert difference.std().item() == pytest.approx(0.3, rel=0.05)
    assert torch.equal(clean.train[1], noisy.train[1])
    for wrong in ({"noise": -1.0}, {"negative_share": 1.0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            data.DictionaryData(law, 10, 0, 8, seed=0, **wrong)
