"""Cosines of mean gradients over chunks of steps, against a slow loop."""

import itertools
import math

import pytest
import torch

from featurelab.modules import measures


def slowly(gradients, chunks):
    """One row, plain Python."""
    size = len(gradients) // chunks
    means = [
        [sum(g[i] for g in gradients[c * size : (c + 1) * size]) / size for i in range(len(gradients[0]))]
        for c in range(chunks)
    ]
    mean = [sum(column) / chunks for column in zip(*means, strict=True)]

    def cosine(u, v):
        dot, lengths = sum(a * b for a, b in zip(u, v, strict=True)), math.hypot(*u) * math.hypot(*v)
        return dot / lengths if lengths else 0.0

    found = {f"{i + 1}_mean": cosine(means[i], mean) for i in range(chunks)}
    pairs = itertools.combinations(range(chunks), 2)
    return found | {f"{i + 1}_{j + 1}": cosine(means[i], means[j]) for i, j in pairs}


@pytest.mark.parametrize(("steps", "chunks"), [(30, 3), (8, 2), (5, 5)])
def test_each_row_has_the_cosines_of_a_loop(steps, chunks):
    gradients = torch.randn(steps, 4, 7, generator=torch.Generator().manual_seed(0))
    found = measures.chunk_cosines(gradients, chunks)
    for row in range(4):
        expected = slowly(gradients[:, row].tolist(), chunks)
        assert {name: value[row].item() for name, value in found.items()} == pytest.approx(expected)


def test_a_gradient_that_stays_has_cosine_one_whatever_its_length():
    gradients = torch.arange(1.0, 7.0)[:, None] * torch.tensor([1.0, -2.0])
    assert all(value.item() == pytest.approx(1.0) for value in measures.chunk_cosines(gradients).values())


def test_no_gradient_has_no_direction():
    assert {value.item() for value in measures.chunk_cosines(torch.zeros(6, 3)).values()} == {0.0}


def test_independent_gradients_agree_with_their_mean_alone():
    gradients = torch.randn(30, 20_000, generator=torch.Generator().manual_seed(1))
    found = measures.chunk_cosines(gradients)
    assert found["1_mean"].item() == pytest.approx(3**-0.5, abs=0.02)
    assert found["1_2"].item() == pytest.approx(0.0, abs=0.03)


@pytest.mark.parametrize(("steps", "chunks"), [(31, 3), (0, 3), (30, 1)])
def test_steps_that_chunks_do_not_divide_are_refused(steps, chunks):
    with pytest.raises(ValueError, match="do not divide"):
        measures.chunk_cosines(torch.zeros(steps, 2), chunks)
