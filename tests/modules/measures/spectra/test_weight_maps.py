"""Weight maps against loops, enumeration of all clusterings, and maps that are known."""

import itertools
import math

import pytest
import torch

from featurelab.modules import measures


def weights(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def angle(v, w):
    product = sum(a * b for a, b in zip(v.tolist(), w.tolist(), strict=True))
    return product / math.hypot(*v.tolist()) / math.hypot(*w.tolist())


def test_alignment_with_a_direction_is_that_of_a_loop():
    W, v = weights(11, 3), weights(3, seed=1)
    cosines = [angle(w, v) for w in W]
    found = measures.direction_alignment(W, v)
    assert found["max_cosine"] == pytest.approx(max(cosines))
    assert found["mean_abs_cosine"] == pytest.approx(sum(map(abs, cosines)) / 11)
    assert found["aligned_share"] == sum(abs(c) > 0.9 for c in cosines) / 11


def test_alignment_knows_no_scale_and_a_mirrored_network_s_maximum_is_that_of_its_sign():
    W, v = weights(6, 4), weights(4, seed=1)
    scaled = measures.direction_alignment(W * torch.arange(1, 7)[:, None], 3 * v)
    assert scaled == pytest.approx(measures.direction_alignment(W, v))
    all_along = measures.direction_alignment(torch.stack([v, -2 * v, 0 * v]), v)
    assert all_along == pytest.approx({"max_cosine": 1, "mean_abs_cosine": 2 / 3, "aligned_share": 2 / 3})
    assert measures.direction_alignment(-v[None], v)["max_cosine"] == pytest.approx(-1)


def clusterings(units):
    """The clustering of least squared distance among all, by enumeration."""
    best = None
    for labels in itertools.product((0, 1), repeat=len(units)):
        if 0 < sum(labels) < len(labels):
            chosen = torch.tensor(labels, dtype=torch.bool)
            parts = [units[chosen], units[~chosen]]
            spread = sum((p - p.mean(0)).square().sum().item() for p in parts)
            if best is None or spread < best[0]:
                best = spread, sorted(parts, key=len, reverse=True)
    return best[1]


def test_two_clusters_are_the_best_of_all_clusterings():
    W = torch.cat([weights(5, 3) * 0.3 + torch.tensor([2.0, 0, 0]), weights(4, 3, seed=1) * 0.3 - 1.0])
    units = W / W.norm(dim=1, keepdim=True)
    first, second = clusterings(units)
    found = measures.direction_clusters(W, seed=0)
    for name, part in (("within_1", first), ("within_2", second)):
        assert found[name] == pytest.approx(sum(angle(u, part.mean(0)) for u in part) / len(part))
        assert found[name] == pytest.approx(part.mean(0).norm().item())
    assert found["between"] == pytest.approx(angle(first.mean(0), second.mean(0)))
    assert measures.direction_clusters(W * torch.arange(1, 10)[:, None], seed=0) == pytest.approx(found)


def test_weights_on_two_opposite_rays_are_two_perfect_clusters():
    v = weights(5)
    found = measures.direction_clusters(torch.stack([v, 2 * v, -v, 0 * v]), seed=3)
    assert found == pytest.approx({"within_1": 1, "within_2": 1, "between": -1})
    with pytest.raises(ValueError, match="two different directions"):
        measures.direction_clusters(torch.stack([v, 0 * v]), seed=0)


def test_a_map_keeps_distances_that_a_plane_can_hold():
    """The chords 1 - cos of three directions are the sides of a triangle."""
    W, marks = weights(2, 6), weights(1, 6, seed=1)
    found = measures.weight_map(W, marks)
    both = torch.cat([W, marks])
    placed = torch.cat([found.points, found.marks])
    sides = [1 - angle(both[i], both[j]) for i, j in ((0, 1), (0, 2), (1, 2))]
    assert 2 * max(sides) <= sum(sides), "a triangle"
    for (i, j), side in zip(((0, 1), (0, 2), (1, 2)), sides, strict=True):
        assert (placed[i] - placed[j]).norm().item() == pytest.approx(side, abs=5e-3)


def test_a_map_puts_aligned_weights_at_the_marks_and_leaves_zeros_out():
    v = weights(7)
    W = torch.stack([v, 0 * v, -v, 3 * v])
    found = measures.weight_map(W, torch.stack([v, -v]))
    assert found.rows.tolist() == [0, 2, 3]
    assert torch.allclose(found.points[[0, 2]], found.marks[0].expand(2, 2), atol=1e-2)
    assert (found.marks[0] - found.marks[1]).norm().item() == pytest.approx(2, abs=1e-2)
    assert torch.equal(found.points, measures.weight_map(W, torch.stack([v, -v])).points)
    with pytest.raises(ValueError, match="at least three"):
        measures.weight_map(W[:2], v[None])


def test_of_many_neurons_some_are_drawn():
    W, marks = weights(40, 3), weights(2, 3, seed=1)
    found = measures.weight_map(W, marks, most=10, seed=4)
    assert len(set(found.rows.tolist())) == len(found.points) == 10
    assert torch.equal(found.points, measures.weight_map(W[found.rows], marks).points)
    assert not torch.equal(found.rows, measures.weight_map(W, marks, most=10, seed=5).rows)


@pytest.mark.parametrize("count", [2, 3, 4])
def test_separate_bundles_of_directions_are_counted(count):
    bundles = [torch.eye(6)[i] + 0.05 * weights(8, 6, seed=i) for i in range(count)]
    assert measures.cluster_count(3 * torch.cat(bundles).double(), seed=0) == count


def test_two_directions_are_too_few_to_count_clusters():
    with pytest.raises(ValueError, match="three different directions"):
        measures.cluster_count(torch.stack([torch.eye(3)[0], torch.eye(3)[1], 2 * torch.eye(3)[1]]), seed=0)
