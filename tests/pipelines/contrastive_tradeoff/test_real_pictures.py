"""Unions of public sets of real pictures."""

import pytest
import torch
from matplotlib.figure import Figure
from publicfiles import write_public

from featurelab.modules import data
from featurelab.pipelines.contrastive_tradeoff.pretrained import real_pictures
from featurelab.pipelines.engine.verdict.check import performed, recorded


@pytest.mark.parametrize("figure", [real_pictures.real, pytest.param(real_pictures.mnist, marks=pytest.mark.heavy)])
def test_real_pictures_are_trained_on_and_judged(figure, tmp_path, monkeypatch):
    datasets = pytest.importorskip("datasets")
    monkeypatch.setenv("FEATURELAB_DATA", str(tmp_path))
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    for name in figure.needs:
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
        "method": "nt_xent",
        "probe": "logistic",
        "tune": False,
    }
    configs = [config.but(**small) for config in figure.configs("paper") if config.seed == 0]
    found = performed(figure, configs)
    for claim in figure.claims:
        assert set(claim.measure(found)) == set(claim.expect)
    losses = recorded(found).query("metric == 'loss/pretraining'").value
    assert losses.nunique() > 6
    drawing = Figure()
    figure.drawing.draw(found, drawing.subplots(figure.drawing.rows, figure.drawing.cols, squeeze=False))
    assert all(axis.lines for axis in drawing.axes)


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
