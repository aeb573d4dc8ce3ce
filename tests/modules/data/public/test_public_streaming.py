"""Images decoded batch by batch: crops, order, classes, workers."""

import io

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from PIL import Image
from publicfiles import write_public

from featurelab.modules.data import BalancedBatches, StreamedImages, dataset_source, metric_split, random_classes
from featurelab.modules.data.public.streaming import IMAGENET_MEAN, IMAGENET_STD, ShuffledBatches, _random_part
from featurelab.modules.learners import Supervised, sgd
from featurelab.modules.nets import resnet

datasets = pytest.importorskip("datasets")
CLASSES = 200


@pytest.fixture(scope="module", autouse=True)
def birds(tmp_path_factory):
    root = tmp_path_factory.mktemp("birds")
    write_public(root, "cub200", {"train": 3, "test": 2}, files=2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(datasets.config, "HF_DATASETS_CACHE", str(root / "cache"))
        patch.setenv("FEATURELAB_DATA", str(root))
        yield root


def streamed(**options):
    return StreamedImages("cub200", **{"size": 16, "resize": 20, "batch_size": 8} | options)


def together(loader):
    batches = list(loader)
    return torch.cat([x for x, _ in batches]), torch.cat([y for _, y in batches])


def picture(root, split, row):
    files = sorted((root / "cub200").glob(f"{split}*.parquet"))
    table = datasets.load_dataset("parquet", data_files={split: [str(f) for f in files]}, split=split)
    encoded = table.cast_column("image", datasets.Image(decode=False))[row]["image"]["bytes"]
    return Image.open(io.BytesIO(encoded)).convert("RGB")


def test_test_pictures_are_middle_crops_standardised_as_imagenet(birds):
    x, y = together(streamed(train_classes=[0, 1], test_classes=[5, 3]).val_dataloader())
    assert (tuple(x.shape), x.dtype, y.tolist()) == ((4, 3, 16, 16), torch.float32, [1, 0, 1, 0])
    original = picture(birds, "test", 3)
    width, height = original.size
    assert (width, height) == (40, 50)
    # resized so that the shorter side is 20 and cut in the middle, in one step: from 32 x 32 pixels to 16 x 16
    cut = original.resize((16, 16), Image.Resampling.BILINEAR, box=(4, 9, 36, 41))
    expected = (np.array(cut) / 255 - IMAGENET_MEAN) / IMAGENET_STD
    np.testing.assert_allclose(x[0].permute(1, 2, 0).numpy(), expected, atol=1e-6)


def test_pooled_sets_hold_all_rows_of_disjoint_classes():
    first, rest = metric_split(CLASSES)
    data = streamed(train_classes=first, test_classes=rest, pooled=True)
    train, test = data.labels
    assert (len(train), len(test)) == (500, 500)
    assert torch.bincount(train).tolist() == torch.bincount(test).tolist() == [5] * 100
    assert data.describe()["outputs"] == 100
    assert [len(part) for part in metric_split(dataset_source("cars196").classes)] == [98, 98]


def test_at_most_so_many_rows_a_class_and_the_first_of_them():
    data = streamed(train_classes=[7, 3], per_class=2)
    assert data.labels[0].tolist() == [1, 0, 1, 0]  # the order of the dataset: 3, 7, 203, 207
    assert len(streamed().labels[0]) == 3 * CLASSES


def test_training_batches_repeat_and_change_with_epoch_and_seed():
    options = {"train_classes": range(10), "test_classes": [0]}
    data = streamed(order_seed=3, **options)
    loader = data.train_dataloader()
    first, second = together(loader), together(loader)
    again = streamed(order_seed=3, **options).train_dataloader()
    assert all(torch.equal(a, b) for a, b in zip(first, together(again), strict=True))
    assert not torch.equal(first[1], second[1])
    assert not torch.equal(first[0], together(streamed(order_seed=4, **options).train_dataloader())[0])
    again.batch_sampler.sampler.set_epoch(1)
    assert all(torch.equal(a, b) for a, b in zip(second, together(again), strict=True))
    assert sorted(first[1].tolist()) == sorted(second[1].tolist()) == sorted(list(range(10)) * 3)
    plain = streamed(order_seed=3, augment=False, **options)
    shown, y = together(plain.train_dataloader())
    stored, labels = together(plain.loader("train"))
    assert not torch.equal(first[0], shown)
    assert torch.equal(first[1], y)
    assert {x.sum().item() for x in shown} == {x.sum().item() for x in stored}
    assert sorted(y.tolist()) == sorted(labels.tolist())


def test_loader_processes_change_nothing():
    options = {"train_classes": range(6), "test_classes": [0], "order_seed": 1}
    alone, helped = (together(streamed(workers=workers, **options).train_dataloader()) for workers in (0, 2))
    assert all(torch.equal(a, b) for a, b in zip(alone, helped, strict=True))


def test_balanced_batches_hold_so_many_of_so_many_classes():
    y = np.repeat(np.arange(7), [4, 4, 4, 4, 4, 4, 2])
    batches = BalancedBatches(y, 3, 4, order_seed=0)
    assert len(batches) == 26 // 12
    seen = set()
    for _ in range(30):
        for batch in batches:
            rows = [row for row, _, _ in batch]
            counts = np.bincount(y[rows], minlength=7)
            assert sorted(counts[counts > 0].tolist()) == [4, 4, 4]
            seen.update(np.flatnonzero(counts).tolist())
            assert all(len({row for row in rows if y[row] == c}) == 4 for c in np.flatnonzero(counts) if c != 6)
    assert seen == set(range(7))
    assert batches.epoch == 30


@pytest.mark.parametrize("kind", ["balanced", "shuffled"])
def test_workers_together_see_the_batches_of_one_worker(kind):
    def batches(rank=0, world_size=1):
        options = {"order_seed": 2, "rank": rank, "world_size": world_size}
        y = np.arange(40) % 5
        return list(BalancedBatches(y, 3, 4, **options) if kind == "balanced" else ShuffledBatches(40, 12, **options))

    shares = [batches(rank, 2) for rank in range(2)]
    assert [a + b for a, b in zip(*shares, strict=True)] == batches()
    assert all(len(a) == len(b) for a, b in zip(*shares, strict=True))


def test_a_trainer_sees_the_permutation_and_crops_of_each_epoch():
    seen = []

    class Watched(Supervised):
        def training_step(self, batch, batch_index):
            seen.append(batch)
            super().training_step(batch, batch_index)

    data = streamed(train_classes=range(4), test_classes=range(4), balanced=(2, 3), order_seed=5)
    net = resnet(4, depths=(1,), widths=(4,), seed=0)
    trainer = pl.Trainer(
        accelerator="cpu",
        max_epochs=2,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
    )
    trainer.fit(Watched(net, loss="cross_entropy", optimizer=sgd(0.01, 0.9)), datamodule=data)
    alone = streamed(train_classes=range(4), test_classes=range(4), balanced=(2, 3), order_seed=5).train_dataloader()
    expected = [batch for _ in range(2) for batch in alone]
    assert len(seen) == len(expected) == 4
    assert all(torch.equal(a, c) and torch.equal(b, d) for (a, b), (c, d) in zip(seen, expected, strict=True))


def test_digests_tell_rows_and_sizes_apart():
    a, b = streamed(train_classes=[0, 1], test_classes=[2]), streamed(train_classes=[0, 1], test_classes=[2])
    assert a.digest() == b.digest()
    assert a.digest() != streamed(train_classes=[0, 3], test_classes=[2]).digest()
    assert a.digest() != streamed(train_classes=[0, 1], test_classes=[2], size=15).digest()


def test_random_parts_lie_inside_and_have_the_area_and_proportions_asked_for():
    rng = np.random.default_rng(0)
    parts = np.array([_random_part(60, 50, 0.2, rng) for _ in range(2000)])
    left, top, right, bottom = parts.T
    assert left.min() >= 0
    assert top.min() >= 0
    assert right.max() <= 60
    assert bottom.max() <= 50
    area, proportion = (right - left) * (bottom - top) / 3000, (right - left) / (bottom - top)
    assert 0.2 <= area.min() < 0.22
    assert area.max() > 0.9
    assert proportion.min() > 3 / 4 - 1e-9
    assert proportion.max() < 4 / 3 + 1e-9
    assert _random_part(1000, 10, 0.9, rng) == (495.0, 0.0, 505.0, 10.0)  # no such part: the middle


def test_random_classes_are_different_and_repeat():
    drawn = random_classes(3, range(100, 200), 5)
    assert drawn == random_classes(3, range(100, 200), 5) != random_classes(4, range(100, 200), 5)
    assert len(set(drawn)) == 5
    assert all(100 <= c < 200 for c in drawn)


def test_wrong_requests_are_named():
    with pytest.raises(ValueError, match="no rows of class 200"):
        streamed(train_classes=[0, 200])
    with pytest.raises(ValueError, match="named twice"):
        streamed(train_classes=[1, 1])
    with pytest.raises(ValueError, match="there are only 2 classes"):
        streamed(train_classes=[0, 1], balanced=(3, 4)).train_dataloader()
    with pytest.raises(ValueError, match="size <= resize"):
        streamed(size=32)
    with pytest.raises(ValueError, match="shared equally"):
        ShuffledBatches(10, 4, order_seed=0, world_size=4)
    with pytest.raises(ValueError, match="need 6 classes, but there are only 5"):
        random_classes(0, range(5), 6)
