"""Pairs of pictures: four clusters with the means of an XOR, each picture once."""

import pytest
import torch
from publicfiles import write_public

from featurelab.modules import data

datasets = pytest.importorskip("datasets")


@pytest.fixture(scope="module", autouse=True)
def digits(tmp_path_factory):
    root = tmp_path_factory.mktemp("digits")
    write_public(root, "mnist")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(datasets.config, "HF_DATASETS_CACHE", str(root / "cache"))
        patch.setenv("FEATURELAB_DATA", str(root))
        yield


@pytest.fixture(scope="module")
def pairs(digits):
    return data.PicturePairs("mnist", 8, 4, seed=0)


def test_the_label_says_whether_both_pictures_are_of_one_class(pairs):
    x, y = pairs.train
    assert x.shape == (8, 2 * 28**2)
    assert y[:4, 0].tolist() == [1, 1, -1, -1]
    shown = data.PublicImages("mnist", 16, seed=0, classes=(0, 1), balanced=True)
    pictures = shown.train[0]
    # differences of two pictures are those of the published ones, up to the scale
    halves = x.reshape(16, -1)
    distances = torch.cdist(halves, halves) / torch.cdist(halves, halves).max()
    expected = torch.cdist(pictures, pictures) / torch.cdist(pictures, pictures).max()
    assert torch.allclose(distances.flatten().sort().values, expected.flatten().sort().values, atol=1e-6)


def test_clusters_have_the_means_of_an_xor_and_unit_variance(pairs):
    x, _ = pairs.train
    for cluster, opposite in ((0, 1), (2, 3)):
        torch.testing.assert_close(pairs.means[cluster], -pairs.means[opposite])
    assert abs(pairs.means[0] @ pairs.means[2]) < 1e-9 * pairs.means[0].square().sum()
    left = x[:, : 28**2]
    halves, bits = torch.cat([left, x[:, 28**2 :]]), torch.tensor([0, 1, 0, 1] * 2 + [0, 1, 1, 0] * 2)
    m = pairs.means[0, : 28**2]
    for label, mean in ((0, m), (1, -m)):
        torch.testing.assert_close(halves[bits == label].mean(0), mean)
    variances = [halves[bits == label].var(0, correction=0).mean() for label in (0, 1)]
    assert sum(variances).item() / 2 == pytest.approx(1)


def test_pairs_depend_on_the_seed_and_refuse_other_sizes(pairs):
    again, other = (data.PicturePairs("mnist", 8, 4, seed=seed) for seed in (0, 1))
    assert again.digest() == pairs.digest() != other.digest()
    assert torch.equal(pairs.clusters, torch.arange(8) % 4)
    with pytest.raises(ValueError, match="multiples of 4"):
        data.PicturePairs("mnist", 6, 4, seed=0)
    with pytest.raises(ValueError, match="two classes"):
        data.PicturePairs("mnist", 8, 4, classes=(0, 1, 2), seed=0)
