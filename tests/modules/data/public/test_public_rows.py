"""Rows of public pictures: which, their pictures, and what stands for those that stand there again."""

import numpy as np
import pytest
import torch
from publicfiles import write_public

from featurelab.modules.data import IMAGENET_BIRDS, Warps, load_split, public_pictures, public_rows

datasets = pytest.importorskip("datasets")


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    return tmp_path


def test_pictures_of_rows_are_those_of_the_table(root):
    write_public(root, "mnist")
    train, test = public_rows("mnist", 30, 7, seed=0, root=root)
    assert (len(train.rows), len(test.labels)) == (30, 7)
    chunks = list(train.pictures(at_once=8))
    assert [len(chunk) for chunk in chunks] == [8, 8, 8, 6]
    table = load_split("mnist", "train", root=root)
    pictures = [picture for chunk in chunks for picture in chunk]
    for row, label, picture in zip(train.rows, train.labels, pictures, strict=True):
        assert table[int(row)]["label"] == label
        assert (np.array(table[int(row)]["image"]) == np.array(picture)).all()


def test_pictures_that_fill_a_class_are_changed_and_the_first_ones_are_not(root):
    write_public(root, "gtsrb")
    options = {"n_test": 10, "per_class": 5, "seed": 0, "root": root}
    plain = public_pictures("gtsrb", 16, **options).train[0]
    filled, again = (public_pictures("gtsrb", 16, change=Warps(), **options) for _ in range(2))
    rows = public_rows("gtsrb", n_test=10, per_class=5, seed=0, root=root)[0].rows
    first = np.zeros(len(rows), dtype=bool)
    seen = set()
    for place, row in enumerate(rows.tolist()):
        first[place] = row not in seen
        seen.add(row)
    same = (plain == filled.train[0]).flatten(1).all(1).numpy()
    assert (same == first).all()
    assert first.sum() == 2 * 43
    assert torch.equal(filled.train[0], again.train[0])
    assert torch.bincount(filled.train[1]).tolist() == [5] * 43


def test_birds_of_imagenet_are_known_by_name(root):
    assert len(IMAGENET_BIRDS) == len(set(IMAGENET_BIRDS.values())) == 59
    assert [IMAGENET_BIRDS[i] for i in (7, 24, 80, 100, 127, 146)] == [
        "cock",
        "great grey owl",
        "black grouse",
        "black swan",
        "white stork",
        "albatross",
    ]
    names = [IMAGENET_BIRDS.get(i, f"another {i}") + ", so and so" for i in range(1000)]
    names[134] = "crane2"
    write_public(root, "imagenet", {"validation": 1}, label=datasets.ClassLabel(names=names))
    assert len(load_split("imagenet", "validation", root=root)) == 1000
    names[7], names[8] = names[8], names[7]
    write_public(root, "imagenet", {"train": 1}, label=datasets.ClassLabel(names=names))
    with pytest.raises(ValueError, match="class 7 is 'hen, so and so', but 'cock' is expected"):
        load_split("imagenet", "train", root=root)
