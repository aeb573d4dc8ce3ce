"""Every public dataset: schema, class names, choices of rows, classes, targets and pixels; and augmentation."""

import numpy as np
import pytest
import torch
from publicfiles import write_public

import featurelab.modules.data.public.images as public
from featurelab.modules.data import (
    CIFAR10,
    CIFAR100,
    CIFAR100_COARSE,
    CIFAR100_TO_COARSE,
    Batches,
    PublicImages,
    TensorData,
    available_datasets,
    check_dataset,
    crop_and_flip,
    dataset_source,
    load_split,
    require_dataset,
)

datasets = pytest.importorskip("datasets")


@pytest.fixture(scope="module", autouse=True)
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("public")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEATURELAB_DATA", str(root))
        patch.setattr(datasets.config, "HF_DATASETS_CACHE", str(root / "cache"))
        for entry in available_datasets():
            write_public(root, entry.name)
        yield root


@pytest.mark.parametrize("entry", [e for e in available_datasets() if not e.texts], ids=lambda entry: entry.name)
def test_every_source_is_read_with_its_own_options(entry):
    require_dataset(entry.name)
    n_test = 4 if entry.test != "train" else 0
    data = PublicImages(entry.name, 2 * entry.classes if entry.balanced else 20, n_test, seed=0, flatten=False)
    x, y = data.train
    assert x.shape[1:] == data.image_shape == (entry.channels, entry.size, entry.size)
    assert data.labels.train.max() < entry.classes
    assert (data.names is None) == (entry.names is None)
    assert data.describe()["n_test"] == len(data.labels.test) == n_test
    assert y.is_floating_point() == (entry.targets in ("signs", "one_hot"))
    report = check_dataset(entry.name)
    assert set(report["splits"]) >= {"train", entry.test}
    assert entry.needs
    assert entry.url.startswith("http")


def test_names_are_those_of_the_published_datasets():
    assert len(CIFAR10) == len(set(CIFAR10)) == 10
    assert [CIFAR10[i] for i in (0, 3, 9)] == ["airplane", "cat", "truck"]
    assert len(CIFAR100) == 100
    assert [CIFAR100[i] for i in (0, 19, 26, 29, 47, 99)] == [
        "apple",
        "cattle",
        "crab",
        "dinosaur",
        "maple_tree",
        "worm",
    ]
    assert list(CIFAR100_COARSE)[13] == "non-insect_invertebrates"
    # known pairs of a class and its super-class
    assert [CIFAR100_TO_COARSE[i] for i in (19, 29, 0, 11, 86, 90, 81, 65)] == [11, 15, 4, 14, 5, 18, 19, 16]
    assert np.bincount(CIFAR100_TO_COARSE).tolist() == [5] * 20


def test_files_with_other_classes_are_refused(tmp_path):
    wrong = datasets.ClassLabel(names=[*CIFAR10[:8], "truck", "ship"])
    write_public(tmp_path, "cifar10", {"train": 1}, label=wrong)
    with pytest.raises(ValueError, match="label: class 8 is 'truck', but 'ship' is expected"):
        load_split("cifar10", "train", root=tmp_path)
    write_public(tmp_path, "tiny_imagenet", {"train": 1}, label=datasets.ClassLabel(num_classes=201))
    with pytest.raises(ValueError, match="has 201 classes, but 200"):
        load_split("tiny_imagenet", "train", root=tmp_path)
    misspelt = datasets.ClassLabel(names=["cra" if name == "crab" else name for name in CIFAR100])
    write_public(tmp_path, "cifar100", {"train": 1}, fine_label=misspelt)
    assert len(load_split("cifar100", "train", root=tmp_path)) == 100


def test_super_classes_that_are_not_the_official_ones_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("publicfiles.CIFAR100_TO_COARSE", (0,) * 100)
    write_public(tmp_path, "cifar100", {"train": 1})
    with pytest.raises(ValueError, match="coarse_label do not match"):
        PublicImages("cifar100", 10, seed=0, root=tmp_path)


def test_official_super_classes_are_targets_too():
    data = PublicImages("cifar100", 50, 20, seed=0, targets="coarse")
    assert torch.equal(data.train[1], data.coarse.train)
    assert data.coarse.test.tolist() == [CIFAR100_TO_COARSE[c] for c in data.labels.test.tolist()]
    with pytest.raises(ValueError, match="no super-classes"):
        PublicImages("cifar10", 10, seed=0, targets="coarse")


def raw(name, split):
    rows = load_split(name, split)
    entry = dataset_source(name)
    x = public.images(rows, entry.size, channels=entry.channels).double() / 255
    return x, torch.from_numpy(public.labels(rows, entry.label))


def test_first_rows_stand_in_the_order_of_the_dataset():
    x, y = raw("mnist", "train")
    data = PublicImages("mnist", 25, None, seed=0, rows="first", flatten=False)
    torch.testing.assert_close(data.train[0], x[:25])
    assert torch.equal(data.labels.train, y[:25])
    assert len(data.test[0]) == 40
    by_class = PublicImages("mnist", 25, seed=9, rows="first", sort_by_class=True)
    order = torch.sort(y[:25], stable=True).indices
    assert torch.equal(by_class.labels.train, y[:25][order])
    torch.testing.assert_close(by_class.train[0], x[:25][order].flatten(1))
    assert len(PublicImages("mnist", None, seed=0).train[0]) == 80


def test_random_rows_are_drawn_by_the_seed_and_balanced_ones_as_many_of_each():
    a, b = (PublicImages("cifar10", 30, seed=seed) for seed in (0, 1))
    assert torch.equal(a.train[0], PublicImages("cifar10", 30, 10, seed=0).train[0])
    assert a.digest() != b.digest()
    balanced = PublicImages("cifar10", 40, seed=0, balanced=True)
    assert torch.bincount(balanced.labels.train).tolist() == [4] * 10
    first = PublicImages("cifar10", 20, seed=0, balanced=True, rows="first")
    assert first.labels.train.tolist() == [*range(10)] * 2
    with pytest.raises(ValueError, match="multiple of 10"):
        PublicImages("cifar10", 25, seed=0, balanced=True)


def test_a_subset_of_classes_is_relabelled_in_the_order_given():
    x, y = raw("cifar10", "train")
    data = PublicImages("cifar10", None, None, seed=0, rows="first", classes=(9, 2, 5), flatten=False)
    kept = torch.isin(y, torch.tensor([9, 2, 5]))
    torch.testing.assert_close(data.train[0], x[kept])
    assert data.labels.train.tolist() == [{9: 0, 2: 1, 5: 2}[c] for c in y[kept].tolist()]
    assert data.names == ("truck", "bird", "dog")
    pair = PublicImages("cifar10", 8, seed=0, classes=(0, 1), targets="signs", balanced=True)
    assert torch.equal(pair.train[1][:, 0], 2.0 * pair.labels.train - 1)
    with pytest.raises(ValueError, match=r"distinct numbers in 0\.\.9"):
        PublicImages("cifar10", 8, seed=0, classes=(0, 10))


def test_targets_are_codes_of_the_same_labels():
    made = {kind: PublicImages("mnist", 30, seed=4, targets=kind).train[1] for kind in ("labels", "one_hot", "signs")}
    assert made["labels"].dtype == torch.int64
    assert torch.equal(made["one_hot"].argmax(1), made["labels"])
    assert torch.equal(made["signs"], 2 * made["one_hot"] - 1)
    with pytest.raises(ValueError, match="targets must be one of labels"):
        PublicImages("mnist", 30, seed=4, targets="sign")


@pytest.mark.parametrize("ddof", [0, 1])
@pytest.mark.parametrize("flatten", [True, False])
def test_pixels_are_standardised_by_the_training_rows(ddof, flatten):
    options = {"seed": 0, "rows": "first", "flatten": flatten, "ddof": ddof}
    (x, _), (t, _) = raw("cifar10", "train"), raw("cifar10", "test")
    x, t = x[:40], t[:30]
    each = PublicImages("cifar10", 40, 30, pixels="per_pixel", **options)
    mean, spread = x.mean(0), x.std(0, correction=ddof)
    torch.testing.assert_close(each.train[0].reshape(x.shape), (x - mean) / spread)
    torch.testing.assert_close(each.test[0].reshape(t.shape), (t - mean) / spread)
    channel = PublicImages("cifar10", 40, 30, pixels="per_channel", **options)
    mean = x.mean((0, 2, 3), keepdim=True)
    spread = x.movedim(1, 0).flatten(1).std(1, correction=ddof).view(1, 3, 1, 1)
    torch.testing.assert_close(channel.train[0].reshape(x.shape), (x - mean) / spread)
    torch.testing.assert_close(channel.test[0].reshape(t.shape), (t - mean) / spread)


def by_hand(x, uniform, pad, fill=0.0):
    out = torch.full_like(x, fill)
    n, _, height, width = x.shape
    for i in range(n):
        down, right = (int((2 * pad + 1) * u) - pad for u in uniform[i, :2].tolist())
        for r in range(height):
            for c in range(width):
                if 0 <= r + down < height and 0 <= c + right < width:
                    out[i, :, r, c] = x[i, :, r + down, c + right]
        if uniform[i, 2] < 0.5:
            out[i] = out[i].flip(-1)
    return out


@pytest.mark.parametrize(("pad", "fill"), [(2, 0.0), (4, -1.5), (0, 0.0)])
def test_crops_and_mirrors_are_those_of_a_loop(pad, fill):
    rng = torch.Generator().manual_seed(0)
    x = torch.rand(12, 2, 5, 6, generator=rng)
    uniform = torch.rand(12, 3, generator=rng, dtype=torch.float64)
    uniform[0], uniform[1] = 0.0, 1 - 1e-16
    assert torch.equal(crop_and_flip(pad, fill=fill)(x, uniform), by_hand(x, uniform, pad, fill))
    still = crop_and_flip(pad, flip=False, fill=fill)(x, uniform)
    assert torch.equal(still, by_hand(x, torch.cat([uniform[:, :2], torch.ones(12, 1)], 1), pad, fill))


def test_augmented_batches_repeat_and_do_not_depend_on_the_number_of_workers():
    x, y = torch.rand(24, 1, 6, 6), torch.arange(24)
    options = {"order_seed": 3, "augment": crop_and_flip(2)}
    alone = Batches((x, y), 8, **options)
    first, second = list(alone), list(alone)
    shares = [list(Batches((x, y), 8, rank=rank, world_size=2, **options)) for rank in range(2)]
    for (a, b), (left, right) in zip(first, zip(*shares, strict=True), strict=True):
        assert torch.equal(a, torch.cat([left[0], right[0]]))
        assert torch.equal(b, torch.cat([left[1], right[1]]))
    again = Batches((x, y), 8, **options)
    again.set_epoch(1)
    assert all(torch.equal(a, c) for (a, _), (c, _) in zip(second, again, strict=True))
    plain = torch.cat([a for a, _ in Batches((x, y), 8, order_seed=3)])
    assert not torch.equal(torch.cat([a for a, _ in first]), plain)


def test_what_is_measured_is_not_augmented():
    data = TensorData((torch.rand(8, 1, 6, 6), torch.arange(8)), batch_size=4, augment=crop_and_flip())
    before = data.train[0].clone()
    batches = list(data.train_dataloader())
    assert torch.equal(data.train[0], before)
    assert not any(torch.equal(x, before[y]) for x, y in batches)
    images = PublicImages("cifar10", 16, 8, seed=0, flatten=False, batch_size=8, augment=crop_and_flip())
    assert torch.equal(next(iter(images.val_dataloader()))[0], images.test[0])
    with pytest.raises(ValueError, match="needs images"):
        next(iter(PublicImages("cifar10", 16, seed=0, batch_size=8, augment=crop_and_flip()).train_dataloader()))
    with pytest.raises(ValueError, match="pad"):
        crop_and_flip(-1)
