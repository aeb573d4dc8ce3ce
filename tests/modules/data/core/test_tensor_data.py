"""Batches of tensors: order, shares of workers, digests."""

from itertools import chain

import pytest
import pytorch_lightning as pl
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from featurelab.modules.data import Batches, TensorData


def numbered(n):
    x = torch.arange(n, dtype=torch.float64)[:, None]
    return x, -x


def visited(loader):
    return [x.squeeze(1).tolist() for x, _ in loader]


@given(n=st.integers(1, 60), batch_size=st.integers(1, 70), seed=st.integers(0, 2**40))
@settings(max_examples=60)
def test_every_epoch_visits_every_sample_once_with_its_target(n, batch_size, seed):
    loader = Batches(numbered(n), batch_size, order_seed=seed)
    for _ in range(2):
        batches = list(loader)
        assert len(batches) == len(loader)
        assert sorted(torch.cat([x for x, _ in batches]).squeeze(1).tolist()) == list(range(n))
        assert all(torch.equal(x, -y) for x, y in batches)
        assert all(len(x) == min(batch_size, n) for x, _ in batches[:-1])


@given(batches=st.integers(1, 5), share=st.integers(1, 4), workers=st.integers(2, 4), epoch=st.integers(0, 3))
@settings(max_examples=40)
def test_workers_together_see_the_batches_of_one_worker(batches, share, workers, epoch):
    size = share * workers
    data = numbered(batches * size)
    loaders = [Batches(data, size, order_seed=3, rank=rank, world_size=workers) for rank in range(workers)]
    alone = Batches(data, size, order_seed=3)
    for loader in (*loaders, alone):
        loader.set_epoch(epoch)
    together = [list(chain.from_iterable(parts)) for parts in zip(*map(visited, loaders), strict=True)]
    assert together == visited(alone)
    assert all(len(part) == share for loader in loaders for part in visited(loader))


def test_epochs_and_seeds_differ_and_repeat():
    first, again, other = (Batches(numbered(40), 8, order_seed=seed) for seed in (5, 5, 6))
    epochs = [visited(first) for _ in range(3)]
    assert epochs == [visited(again) for _ in range(3)]
    assert epochs[0] != epochs[1] != epochs[2] != epochs[0]
    assert epochs[0] != visited(other)
    again.set_epoch(1)
    assert visited(again) == epochs[1]


def test_full_batch_is_the_tensors_themselves_in_their_own_order():
    x, y = numbered(12)
    ((batch_x, batch_y),) = TensorData((x, y)).train_dataloader()
    assert batch_x.data_ptr() == x.data_ptr()
    assert batch_y.data_ptr() == y.data_ptr()


@pytest.mark.parametrize(("n", "batch_size"), [(9, None), (10, 5), (10, 4)])
def test_batches_that_do_not_divide_among_workers_are_refused(n, batch_size):
    # 10 in batches of 4 leaves a last batch of 2, which two workers share but three or four cannot
    world = 4 if batch_size == 4 else 2
    with pytest.raises(ValueError, match=f"cannot be shared equally by {world} workers"):
        Batches(numbered(n), batch_size, world_size=world)


class Visits(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1, dtype=torch.float64))
        self.seen = []

    def training_step(self, batch, _):
        self.seen.append((self.current_epoch, batch[0].squeeze(1).tolist()))
        return (batch[0] * self.weight).sum()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.0)


def quiet(**options):
    flags = {
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    return pl.Trainer(accelerator="cpu", devices=1, **(flags | options))


def test_a_trainer_visits_the_permutation_of_each_epoch():
    module, data = Visits(), TensorData(numbered(12), batch_size=4, order_seed=7)
    quiet(max_epochs=3).fit(module, data)
    loader = Batches(numbered(12), 4, order_seed=7)
    expected = [(epoch, batch) for epoch in range(3) for batch in visited(loader)]
    assert module.seen == expected


def test_a_resumed_fit_continues_with_the_next_permutation(tmp_path):
    data = TensorData(numbered(12), batch_size=4, order_seed=7)
    whole, first, second = Visits(), Visits(), Visits()
    quiet(max_epochs=4).fit(whole, data)
    trainer = quiet(max_epochs=2)
    trainer.fit(first, data)
    trainer.save_checkpoint(tmp_path / "half.ckpt")
    quiet(max_epochs=4).fit(second, data, ckpt_path=tmp_path / "half.ckpt", weights_only=False)
    assert first.seen + second.seen == whole.seen


def test_digest_tells_values_shapes_and_types_apart():
    x, y = numbered(6)
    base = TensorData((x, y)).digest()
    assert base == TensorData((x.clone(), y.clone())).digest()
    nudged = x.clone()
    nudged[3] = torch.nextafter(nudged[3], torch.tensor(99.0, dtype=x.dtype))
    others = [
        TensorData((nudged, y)),
        TensorData((x.reshape(3, 2), y[:3])),
        TensorData((x, y), dtype="float32"),
        TensorData((x[:4], y[:4]), (x[4:], y[4:])),
    ]
    assert len({base, *(other.digest() for other in others)}) == 5


def test_dtype_applies_to_numbers_and_spares_class_labels():
    x, _ = numbered(6)
    data = TensorData((x, torch.tensor([0, 1, 2, 0, 1, 2])), dtype="float32")
    assert (data.train[0].dtype, data.train[1].dtype) == (torch.float32, torch.int64)
    assert data.describe() == {"name": "tensors", "n_train": 6, "n_test": 0, "dim": 1, "outputs": 3, "dtype": "float32"}


def test_bad_requests_say_what_was_received():
    x, y = numbered(4)
    with pytest.raises(ValueError, match="got 'int32'"):
        TensorData((x, y), dtype="int32")
    with pytest.raises(ValueError, match="4 inputs but 3 targets"):
        TensorData((x, y[:3]))
    with pytest.raises(ValueError, match="at least 1"):
        TensorData((x, y), batch_size=0)
