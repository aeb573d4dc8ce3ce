"""Unions of public sets of real pictures."""

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from publicfiles import write_public

from featurelab.modules import data
from featurelab.pipelines.contrastive_tradeoff.pretrained import pretraining, real_pictures, unions
from featurelab.pipelines.engine.errors import RequestError
from featurelab.pipelines.engine.verdict.check import performed, recorded


@pytest.mark.parametrize(
    ("figure", "scale"),
    [
        (real_pictures.real, "paper"),
        (unions.figure, "desktop"),
        pytest.param(real_pictures.mnist, "desktop", marks=pytest.mark.heavy),
        pytest.param(real_pictures.mnist, "paper", marks=pytest.mark.heavy),
    ],
)
def test_real_pictures_are_trained_on_and_judged(figure, scale, tmp_path, monkeypatch):
    datasets = pytest.importorskip("datasets")
    monkeypatch.setenv("FEATURELAB_DATA", str(tmp_path))
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    for name in {name for config in figure.configs(scale) for name in figure.estimate(config).data}:
        write_public(tmp_path, name)
    small = {
        "edge": 8,
        "n_train": 20,
        "n_test": 20,
        "epochs": 1,
        "width": 4,
        "batch_size": 10,
        "labels": (10, 20),
        "draws": 1,
        "few": 10,
        "device": "cpu",
        "net": "small",
        "probe": "logistic",
        "tune": False,
        "adapt": False,
    }
    small |= {"queue": 20} if scale == "desktop" else {"method": "nt_xent"}
    configs = [config.but(**small) for config in figure.configs(scale) if config.seed == 0]
    found = performed(figure, configs)
    for claim in figure.claims:
        measured = claim.measure(found)
        assert isinstance(measured, float) or set(measured) == set(claim.expect)
    losses = recorded(found).query("metric == 'loss/pretraining'").value
    assert losses.nunique() > 6
    drawing = Figure()
    figure.drawing.draw(found, drawing.subplots(figure.drawing.rows, figure.drawing.cols, squeeze=False))
    assert all(axis.lines or axis.collections for axis in drawing.axes)


def test_folded_pictures_have_all_pixels_in_a_quarter_of_the_places():
    folded = unions.DESKTOP.but(edge=8, width=8)
    x = torch.rand(3, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    net = pretraining.encoder(folded).eval()
    assert net[0](x).shape == (3, 12, 4, 4)
    assert net[0](x).flatten(1).sort().values.equal(x.flatten(1).sort().values)
    assert net(x).shape == (3, 8, 1, 1) or net(x).shape == (3, 8)
    with pytest.raises(RequestError, match="multiple of fold"):
        unions.DESKTOP.but(edge=9)


def test_noise_of_few_pictures_has_their_moments():
    chance = np.random.default_rng(0)
    x = 5 + torch.from_numpy(chance.standard_normal((6, 1, 3, 3)))
    z = pretraining.mixed(x, chance.standard_normal((40_000, 6)))
    assert z.shape == (40_000, 1, 3, 3)
    torch.testing.assert_close(z.mean(0), x.mean(0), rtol=0, atol=0.03)
    true, found = (torch.cov(part.flatten(1).T, correction=0) for part in (x, z))
    torch.testing.assert_close(found, true, rtol=0, atol=0.05)


def test_pictures_of_public_sets_are_bytes_and_filled_up_in_turn(tmp_path, monkeypatch):
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    write_public(tmp_path, "gtsrb")
    write_public(tmp_path, "mnist")
    signs = data.public_pictures("gtsrb", 16, n_test=20, per_class=5, seed=0, root=tmp_path)
    assert signs.train[0].dtype == torch.uint8
    assert torch.bincount(signs.train[1]).tolist() == [5] * 43
    digits = data.public_pictures("mnist", 32, 30, 10, classes=4, seed=0, root=tmp_path)
    assert digits.train[0].shape == (30, 3, 32, 32)
    assert torch.equal(digits.train[0][:, 0], digits.train[0][:, 2])
    assert digits.train[1].max() == 3
    with pytest.raises(ValueError, match="gives only"):
        data.public_pictures("mnist", 32, 10_000, seed=0, root=tmp_path)
