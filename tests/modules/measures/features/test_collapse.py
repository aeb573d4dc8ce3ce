import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from strangers import Stranger

from featurelab.modules import measures
from featurelab.modules.measures import ClassMoments
from featurelab.modules.measures.gradients import layer_inputs

seeds = st.integers(0, 2**31)


def draw(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def classes(seed=0, K=4, d=6, sizes=None, spread=1.0):
    """Features about random class means, of unequal classes unless sizes are given, in random order."""
    random = np.random.default_rng(seed)
    sizes = random.integers(1, 9, K) if sizes is None else np.array(sizes)
    K = len(sizes)
    y = torch.from_numpy(random.permutation(np.repeat(np.arange(K), sizes)))
    return 2 * draw(K, d, seed=seed)[y] + spread * draw(len(y), d, seed=seed + 1), y


def rotation(d, seed=0):
    return measures.haar_orthogonal(d, torch.Generator().manual_seed(seed))


def slow_covariances(x, y, balanced):
    """(Sigma_W, Sigma_B) by loops: of arXiv:2402.13728, or where classes weigh equally within, of 2306.17105."""
    K = int(y.max()) + 1
    means = torch.stack([x[y == c].mean(0) for c in range(K)])
    centre = x.mean(0) if balanced else means.mean(0)
    within, between = torch.zeros(2, x.shape[1], x.shape[1], dtype=torch.float64)
    for a, c in zip(x, y, strict=True):
        weight = 1 / (K * int((y == c).sum())) if balanced else 1 / len(y)
        within += weight * torch.outer(a - means[c], a - means[c])
    for mean in means:
        between += torch.outer(mean - centre, mean - centre) / K
    return within, between


@given(seeds, st.integers(2, 6), st.integers(1, 8))
@settings(max_examples=30)
def test_nc1_is_the_ratio_of_the_traces_of_the_covariances(seed, K, d):
    x, y = classes(seed, K, d)
    within, between = slow_covariances(x, y, balanced=False)
    m = measures.class_moments(x, y)
    assert [t.item() for t in measures.scatter_traces(m)] == pytest.approx(
        [within.trace().item(), between.trace().item()]
    )
    assert measures.nc1(m).item() == pytest.approx((within.trace() / between.trace()).item())


@given(seeds, st.integers(2, 6), st.integers(2, 12))
@settings(max_examples=30)
def test_nc1_pinv_needs_no_pseudo_inverse_of_a_d_by_d_matrix(seed, K, d):
    x, y = classes(seed, K, d)
    within, between = slow_covariances(x, y, balanced=True)
    expected = (within @ torch.linalg.pinv(between, rtol=1e-6, hermitian=True)).trace() / K
    assert measures.nc1_pinv(x, y).item() == pytest.approx(expected.item(), rel=1e-8)


@given(seeds, st.floats(1e-3, 1e3))
@settings(max_examples=20)
def test_collapse_ignores_rotation_scale_and_translation(seed, scale):
    x, y = classes(seed, sizes=[3, 5, 1, 7])
    moved = scale * (x @ rotation(6, seed)) + 10 * draw(6, seed=seed)
    m, n = measures.class_moments(x, y), measures.class_moments(moved, y)
    for measure in (measures.nc1, measures.nc2, measures.nc2_cosines):
        assert measure(n).item() == pytest.approx(measure(m).item(), rel=1e-7)
    assert measures.nc1_pinv(moved, y).item() == pytest.approx(measures.nc1_pinv(x, y).item(), rel=1e-7)


def test_variance_outside_the_span_of_the_means_counts_in_nc1_and_not_in_nc1_pinv():
    means = torch.tensor([[1.0, 0, 0], [-1.0, 0, 0]])
    x = torch.cat([mean + torch.tensor([[0, 0, s], [0, 0, -s]]) for mean in means for s in [3.0]])
    y = torch.tensor([0, 0, 1, 1])
    assert measures.nc1_pinv(x, y) == 0
    assert measures.nc1(measures.class_moments(x, y)).item() == 9


def test_one_hot_features_are_a_simplex_and_collapsed():
    y = torch.arange(5).repeat(3)
    m = measures.class_moments(torch.eye(5)[y], y)
    assert measures.nc1(m) == 0
    assert measures.nc1_pinv(torch.eye(5)[y], y) == 0
    for measure in (measures.nc2, measures.nc2_cosines):
        assert measure(m).item() == pytest.approx(0, abs=1e-15)
    assert measures.nc3(torch.eye(5), m).item() == pytest.approx(0, abs=1e-15)
    assert measures.nc3(-torch.eye(5), m).item() == pytest.approx(2)


def test_nc2_of_known_figures():
    line = torch.tensor([1.0, 1, 1, 1, -4])[:, None]
    m = measures.class_moments(line, torch.arange(5))
    # cosines +1 and -1 against the simplex: 12 entries are off by 5/4, 8 by 3/4
    assert measures.nc2_cosines(m).item() == pytest.approx((12 * (5 / 4) ** 2 + 8 * (3 / 4) ** 2) / 25)
    Z = measures.class_moments(draw(2, 7), torch.arange(2))
    assert measures.nc2(Z).item() == pytest.approx(0, abs=1e-14)  # two classes are always a simplex
    one = torch.zeros(4, 3).double()
    one[0, 0] = 1  # orthonormal frame of rank 1 after centring by the mean of the samples
    M = one - one.mean(0)
    G = M @ M.T
    simplex = (torch.eye(4).double() - 1 / 4) / math.sqrt(3)
    expected = torch.linalg.matrix_norm(G / torch.linalg.matrix_norm(G) - simplex).item()
    assert measures.nc2(measures.class_moments(one, torch.arange(4))).item() == pytest.approx(expected)


def test_the_centre_is_of_samples_in_nc2_and_of_classes_in_nc2_cosines():
    x, y = classes(3, sizes=[1, 2, 20])
    means = torch.stack([x[y == c].mean(0) for c in range(3)])
    M, U = means - x.mean(0), torch.nn.functional.normalize(means - means.mean(0))
    simplex = torch.eye(3).double() - 1 / 3
    m = measures.class_moments(x, y)
    G = M @ M.T
    expected = torch.linalg.matrix_norm(G / torch.linalg.matrix_norm(G) - simplex / math.sqrt(2))
    assert measures.nc2(m).item() == pytest.approx(expected.item())
    assert measures.nc2_cosines(m).item() == pytest.approx((U @ U.T - 1.5 * simplex).square().mean().item())
    WM = draw(3, 6) @ M.T
    expected = torch.linalg.matrix_norm(WM / torch.linalg.matrix_norm(WM) - simplex / math.sqrt(2))
    assert measures.nc3(draw(3, 6), m).item() == pytest.approx(expected.item())


def test_nc4_counts_disagreement_with_the_nearest_mean():
    x, y = classes(5, K=3, sizes=[30, 20, 10], spread=3.0)
    x += 1e6  # a common offset, far larger than the distances
    m = measures.class_moments(x, y)
    nearest = torch.stack([(x - mean).square().sum(1) for mean in m.means], 1).argmin(1)
    outputs = draw(60, 3, seed=9)
    assert measures.nc4(outputs, x, m) == (outputs.argmax(1) != nearest).double().mean()
    assert measures.nc4(torch.eye(3)[nearest], x, m) == 0


@given(seeds, st.lists(st.integers(0, 40), max_size=5), st.floats(-1e6, 1e6))
@settings(max_examples=40)
def test_moments_do_not_depend_on_the_batches(seed, cuts, offset):
    x, y = classes(seed, sizes=[10, 1, 20, 9], spread=1e-3)
    x = x + offset
    whole = measures.class_moments(x, y)
    batches = list(
        zip(
            x.tensor_split(sorted(cuts)),
            y.tensor_split(sorted(cuts)),
            strict=True,
        )
    )
    streamed, halves = ClassMoments.empty(), [ClassMoments.empty(4), ClassMoments.empty(4)]
    for index, (a, b) in enumerate(batches):
        streamed.update(a, b)
        halves[index % 2].update(a, b)
    for m in (streamed, halves[0].merge(halves[1])):
        torch.testing.assert_close(m.counts, whole.counts)
        torch.testing.assert_close(m.means, whole.means, rtol=1e-14, atol=1e-14 * (1 + abs(offset)))
        torch.testing.assert_close(m.scatter, whole.scatter, rtol=1e-4, atol=1e-18 * (1 + offset**2))
    assert measures.nc1_pinv(batches).item() == pytest.approx(measures.nc1_pinv(x, y).item(), rel=1e-6)


def test_a_collapse_far_below_the_size_of_the_features_is_measured_to_many_digits():
    y = torch.arange(4000) % 2
    noise = 1e-6 * draw(4000, 3)
    x = 1000 * draw(2, 3, seed=1)[y] + noise
    m = ClassMoments.empty()
    for a, b in zip(x.split(64), y.split(64), strict=True):
        m.update(a, b)
    exact = torch.stack([noise[y == c].var(0, correction=0).sum() for c in (0, 1)])
    torch.testing.assert_close(m.scatter, exact, rtol=1e-6, atol=0)
    naive = x[y == 0].square().sum(1).mean() - x[y == 0].mean(0).square().sum()
    assert abs(naive - exact[0]) > 0.1 * exact[0]  # what the mean square less the squared mean would have given


def test_exact_collapse_is_exactly_zero_in_any_batches_and_single_precision():
    y = torch.arange(300) % 3
    x = torch.rand(3, 5, generator=torch.Generator().manual_seed(0))[y] + 0.1
    for size in (300, 7, 1):
        m = ClassMoments.empty()
        for a, b in zip(x.split(size), y.split(size), strict=True):
            m.update(a, b)
        assert measures.nc1(m) == 0


def test_a_class_of_one_sample_has_no_scatter_and_an_empty_class_is_named():
    x = draw(5, 2)
    m = measures.class_moments(x, torch.tensor([0, 0, 1, 0, 0]))
    assert m.scatter[1] == 0
    torch.testing.assert_close(m.means[1], x[2])
    with pytest.raises(ValueError, match="no samples of class 1, 3 "):
        measures.class_moments(x, torch.tensor([0, 0, 2, 0, 0]), classes=4)
    some = ClassMoments.empty(4).update(x, torch.tensor([0, 0, 2, 0, 0]))
    for measure in (
        measures.nc1,
        measures.nc2,
        measures.nc2_cosines,
        measures.scatter_traces,
        measures.class_distances,
    ):
        with pytest.raises(ValueError, match="no samples of class 1, 3 "):
            measure(some)
    m, present = some.occurring()
    assert present.tolist() == [0, 2]
    assert measures.nc1(m) == measures.nc1(measures.class_moments(x, torch.tensor([0, 0, 1, 0, 0])))


def test_coinciding_means_give_infinity_and_not_nan():
    x, y = torch.tensor([[1.0], [-1.0], [1.0], [-1.0]]), torch.tensor([0, 0, 1, 1])
    assert measures.nc1(measures.class_moments(x, y)) == math.inf
    assert measures.nc1_pinv(x, y) == math.inf
    assert measures.nc1(measures.class_moments(torch.ones(4, 2), y)) == math.inf
    assert measures.nc2(measures.class_moments(x, y)).isnan()


def test_nc1_pinv_takes_moments_that_are_known_and_does_not_compute_them_again(monkeypatch):
    import featurelab.modules.measures.features.collapse as collapse

    x, y = classes(4, sizes=[5, 9, 2])
    expected, m = measures.nc1_pinv(x, y), measures.class_moments(x, y)
    monkeypatch.setattr(collapse, "_moments", None)
    assert measures.nc1_pinv(x, y, moments=m) == expected
    assert measures.nc1_pinv([(x[:7], y[:7]), (x[7:], y[7:])], moments=m).item() == pytest.approx(expected.item())
    with pytest.raises(ValueError, match="the second pass saw 15 samples, the first 16"):
        measures.nc1_pinv(x[1:], y[1:], moments=m)


@given(seeds, st.sampled_from([torch.float32, torch.float64]), st.integers(1, 400))
@settings(max_examples=30)
def test_how_much_goes_through_the_cache_at_a_time_changes_no_bit(seed, dtype, block):
    import featurelab.modules.measures.features.collapse as collapse

    x, y = classes(seed, sizes=[30, 1, 20, 9])
    x = x.to(dtype)
    whole = measures.class_moments(x, y)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(collapse, "BLOCK", block)
        cut = measures.class_moments(x, y)
    assert torch.equal(cut.means, whole.means)
    assert torch.equal(cut.scatter, whole.scatter)


def test_wrong_samples_are_refused():
    x, y = classes()
    with pytest.raises(ValueError, match="labels do not belong"):
        measures.class_moments(x, y[1:])
    with pytest.raises(ValueError, match="label 3 is outside the 2 classes"):
        ClassMoments.empty(2).update(x, y)
    with pytest.raises(ValueError, match="3 features cannot join samples of 6"):
        measures.class_moments(x, y).merge(measures.class_moments(x[:, :3], y))
    with pytest.raises(ValueError, match="no samples"):
        measures.class_moments(x[:0], y[:0])
    with pytest.raises(ValueError, match="classes must be at least 1"):
        ClassMoments.empty(0)
    once = iter([(x, y)])
    with pytest.raises(ValueError, match="the second pass saw 0 samples"):
        measures.nc1_pinv(once)
    with pytest.raises(ValueError, match="labels are missing"):
        measures.nc1_pinv(x)
    with pytest.raises(ValueError, match="at least 2 classes"):
        measures.nc2(measures.class_moments(x, torch.zeros(len(x), dtype=torch.long)))
    with pytest.raises(ValueError, match="do not match class means"):
        measures.nc3(torch.ones(4, 5), measures.class_moments(x, y))
    with pytest.raises(ValueError, match="outputs must be"):
        measures.nc4(torch.ones(len(x), 5), x, measures.class_moments(x, y))


def test_features_of_any_network_and_shape_are_measured():
    images, y = draw(12, 2, 8, 8), torch.arange(12) % 3
    features = layer_inputs(Stranger(), images, layers=["block.0", "head"])
    for x in features.values():
        m = measures.class_moments(x, y)
        assert m.means.shape == (3, x[0].numel())
        assert 0 < measures.nc1(m) < math.inf
        within, between = slow_covariances(x.flatten(1), y, balanced=False)
        assert measures.nc1(m).item() == pytest.approx((within.trace() / between.trace()).item())


def test_large_features_are_taken_in_pieces(monkeypatch):
    import featurelab.modules.measures.features.collapse as collapse

    x, y = classes(2, sizes=[5, 6, 7])
    expected, score = measures.class_moments(x, y), measures.nc1_pinv(x, y)
    monkeypatch.setattr(collapse, "CHUNK", 13)
    monkeypatch.setattr(collapse, "BLOCK", 7)
    m = measures.class_moments(x, y)
    torch.testing.assert_close(m.means, expected.means, rtol=1e-13, atol=1e-13)
    torch.testing.assert_close(m.scatter, expected.scatter, rtol=1e-12, atol=0)
    assert measures.nc1_pinv(x, y).item() == pytest.approx(score.item())
    assert measures.nc4(torch.eye(3)[y], x, m) == measures.nc4(torch.eye(3)[y], x, expected)
