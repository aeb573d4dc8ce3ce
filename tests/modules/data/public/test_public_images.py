"""Public datasets from small parquet files of the same schema as on the hub."""

import io
import shutil
import sys

import numpy as np
import pytest
import torch
from PIL import Image

import featurelab.modules.data.public.images as public
from featurelab.modules.data import (
    DatasetMissing,
    PublicImages,
    available_datasets,
    check_dataset,
    fetch_dataset,
    load_split,
)

datasets = pytest.importorskip("datasets")


@pytest.fixture(autouse=True)
def private_cache(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("FEATURELAB_DATA", raising=False)
    return tmp_path / "cache"


def png(pixels):
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return {"bytes": buffer.getvalue(), "path": None}


def write(root, name, split, pictures, labels, label, label_type):
    features = datasets.Features({"image": datasets.Image(), "unused": datasets.Value("int64"), label: label_type})
    rows = {"image": [png(p) for p in pictures], "unused": list(range(len(pictures))), label: labels}
    folder = root / name
    folder.mkdir(parents=True, exist_ok=True)
    half = len(pictures) // 2
    whole = datasets.Dataset.from_dict(rows, features=features)
    for part, indices in enumerate((range(half), range(half, len(pictures)))):  # several files a split, as on the hub
        whole.select(indices).to_parquet(folder / f"{split}-0000{part}-of-00002.parquet")


@pytest.fixture
def svhn(tmp_path):
    rng = np.random.default_rng(0)
    pictures = {
        split: rng.integers(0, 256, (n, 32, 32, 3), dtype=np.uint8) for split, n in (("train", 30), ("test", 12))
    }
    pictures["train"][:, 0, 0] = 7  # a constant pixel
    for split, images in pictures.items():
        write(
            tmp_path,
            "svhn",
            split,
            images,
            [i % 10 for i in range(len(images))],
            "label",
            datasets.ClassLabel(num_classes=10),
        )
    return tmp_path, pictures


@pytest.fixture
def celeba(tmp_path):
    rng = np.random.default_rng(1)
    glasses = [i % 5 == 0 for i in range(60)]
    pictures = [np.full((218, 178, 3), 200 if g else 50, dtype=np.uint8) for g in glasses]
    for picture in pictures:
        picture[:40, :40] = rng.integers(0, 256, (40, 40, 3))
    write(tmp_path, "celeba", "train", pictures, glasses, "Eyeglasses", datasets.Value("bool"))
    return tmp_path


def test_svhn_pixels_are_standardised_and_labels_one_hot(svhn):
    root, pictures = svhn
    data = PublicImages("svhn", 20, 12, seed=0, root=root)
    x, y = data.train
    assert (tuple(x.shape), tuple(y.shape), data.image_shape) == ((20, 3072), (20, 10), (3, 32, 32))
    spread = x.std(0, correction=0)
    constant = x.amax(0) == x.amin(0)
    assert torch.allclose(spread[~constant], torch.ones(1, dtype=torch.float64))
    assert constant.sum() == 3
    assert x.mean(0).abs().max() < 1e-12
    # the test set holds every row once: undo nothing, compare differences of two rows with the pictures written
    chosen = public.stream(0, "test").permutation(12)
    train_rows = public.stream(0, "train").permutation(30)[:20]
    raw = pictures["train"][train_rows].transpose(0, 3, 1, 2).reshape(20, -1) / 255
    scale = np.where(np.ptp(raw, axis=0) > 0, raw.std(0), 1.0)
    expected = (pictures["test"][chosen].transpose(0, 3, 1, 2).reshape(12, -1) / 255 - raw.mean(0)) / scale
    assert np.allclose(data.test[0].numpy(), expected, atol=1e-10)
    assert data.test[1].argmax(1).tolist() == [i % 10 for i in chosen]


def test_celeba_subset_is_balanced_resized_and_signed(celeba, monkeypatch):
    monkeypatch.setenv("FEATURELAB_DATA", str(celeba))
    data = PublicImages("celeba", 16, seed=3, dtype="float32")
    x, y = data.train
    assert (tuple(x.shape), x.dtype) == ((16, 3 * 96 * 96), torch.float32)
    assert y.flatten().tolist().count(1.0) == y.flatten().tolist().count(-1.0) == 8
    corner = x.reshape(16, 3, 96, 96)[:, :, -1, -1]
    assert torch.allclose(corner, torch.where(y > 0, 200 / 255, 50 / 255).expand(16, 3).float())
    assert data.digest() == PublicImages("celeba", 16, seed=3, dtype="float32").digest()
    assert data.digest() != PublicImages("celeba", 16, seed=4, dtype="float32").digest()


def test_too_few_rows_are_said_so(celeba, svhn):
    with pytest.raises(ValueError, match="gives only 27 balanced rows, but 30 are needed"):
        PublicImages("celeba", 30, seed=0, root=celeba)
    with pytest.raises(ValueError, match="gives only 30 rows, but 31 are needed"):
        PublicImages("svhn", 31, seed=0, root=svhn[0])
    with pytest.raises(ValueError, match="multiple of 2"):
        PublicImages("celeba", 15, seed=0, root=celeba)


def test_check_reports_rows_schema_and_a_digest_of_the_content(svhn):
    root, pictures = svhn
    report = check_dataset("svhn", root=root)
    assert report["present"]
    assert {split: entry["rows"] for split, entry in report["splits"].items()} == {"train": 30, "test": 12}
    assert set(report["splits"]["train"]["columns"]) == {"image", "label"}
    pictures["test"][5, 3, 3, 0] ^= 1
    write(
        root,
        "svhn",
        "test",
        pictures["test"],
        [i % 10 for i in range(12)],
        "label",
        datasets.ClassLabel(num_classes=10),
    )
    after = check_dataset("svhn", root=root)
    assert after["splits"]["train"]["digest"] == report["splits"]["train"]["digest"]
    assert after["splits"]["test"]["digest"] != report["splits"]["test"]["digest"]


def test_a_missing_dataset_says_how_to_get_it():
    for entry in available_datasets():
        way = f"`featurelab data fetch {entry.name}`" if entry.repo_id else "put parquet files"
        with pytest.raises(DatasetMissing, match=way) as caught:
            load_split(entry.name, next(iter(entry.splits)))
        assert "\n" not in str(caught.value)
        assert check_dataset(entry.name)["present"] is False
    with pytest.raises(DatasetMissing, match="cannot be fetched"):
        fetch_dataset("vlcs")


def test_files_are_read_once_and_again_when_they_change(svhn):
    root, pictures = svhn
    rows = load_split("svhn", "test", root=root)
    assert load_split("svhn", "test", root=root) is rows
    labels = [9] * len(pictures["test"])
    write(root, "svhn", "test", pictures["test"], labels, "label", datasets.ClassLabel(num_classes=10))
    assert load_split("svhn", "test", root=root)["label"][:] == labels
    for file in (root / "svhn").glob("test*"):
        file.write_bytes(b"not parquet")
    with pytest.raises(DatasetMissing, match="svhn"):
        load_split("svhn", "test", root=root)


def test_loading_never_opens_a_connection(monkeypatch):
    def refuse(*arguments, **options):
        raise AssertionError("a connection was opened")

    monkeypatch.setattr("socket.socket.connect", refuse)
    monkeypatch.setattr("socket.getaddrinfo", refuse)
    with pytest.raises(DatasetMissing):
        load_split("svhn", "train")


def test_a_cached_hub_copy_is_found_offline(svhn, private_cache):
    root, _ = svhn
    built = load_split("svhn", "train", root=root)
    (arrow,) = private_cache.glob("parquet/**/*-train.arrow")
    hub = private_cache / "ufldl-stanford___svhn" / "cropped_digits" / "0.0.0" / ("0" * 40)
    hub.mkdir(parents=True)
    shutil.copy(arrow, hub / "svhn-train.arrow")
    info = (arrow.parent / "dataset_info.json").read_text()
    info = info.replace('"dataset_name": "parquet"', '"dataset_name": "svhn"')
    info = info.replace('"config_name": "default"', '"config_name": "cropped_digits"')
    (hub / "dataset_info.json").write_text(info.replace('"builder_name": "parquet"', '"builder_name": "cache"'))
    cached = load_split("svhn", "train")
    assert public.labels(cached, "label").tolist() == public.labels(built, "label").tolist()
    assert torch.equal(public.images(cached, 32), public.images(built, 32))


def test_fetch_gives_up_when_the_hub_is_out_of_reach(monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(DatasetMissing, match="cannot be reached"):
        fetch_dataset("svhn")


def test_without_the_extra_the_message_names_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(DatasetMissing, match=r"pip install 'feature-learning-lab\[public\]'"):
        load_split("celeba", "train")


def test_wrong_names_and_schemas_are_named(tmp_path):
    with pytest.raises(ValueError, match="did you mean 'celeba'"):
        load_split("celebA", "train")
    with pytest.raises(ValueError, match="no split 'validation'"):
        load_split("svhn", "validation")
    write(tmp_path, "celeba", "train", [np.zeros((8, 8, 3), np.uint8)] * 4, [0] * 4, "Hat", datasets.Value("bool"))
    with pytest.raises(ValueError, match="no column 'Eyeglasses'"):
        load_split("celeba", "train", root=tmp_path)


def test_grey_pictures_and_odd_sizes_become_rgb_squares(tmp_path):
    grey = [np.full((20, 40), value, dtype=np.uint8) for value in (10, 90)]
    write(tmp_path, "svhn", "train", grey, [1, 2], "label", datasets.Value("int64"))
    pixels = public.images(load_split("svhn", "train", root=tmp_path), 32, chunk=1)
    assert torch.equal(pixels.flatten(1).unique(dim=1), torch.tensor([[10], [90]], dtype=torch.uint8))
    assert (pixels.shape, pixels.dtype) == ((2, 3, 32, 32), torch.uint8)
