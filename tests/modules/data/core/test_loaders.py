"""A stranger's DataLoader as data: its order can be repeated, its dtypes agree, its digest says what it covers."""

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, TensorDataset, WeightedRandomSampler

from featurelab.modules import data

X, Y = torch.arange(12.0, dtype=torch.float64)[:, None], torch.arange(12)


class Rows(Dataset):
    """Samples of any kind."""

    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        row = self.rows[index]
        return row() if callable(row) else row


class Endless(IterableDataset):
    def __iter__(self):
        yield from X


def loader(**options):
    return DataLoader(TensorDataset(X, Y), **({"batch_size": 4, "shuffle": True} | options))


def seen(epochs, number=0):
    epochs.set_epoch(number)
    return [batch[1].tolist() for batch in epochs]


def test_the_order_of_an_epoch_depends_on_the_seed_and_the_epoch_alone():
    first = data.LoaderData(loader(), order_seed=7).train_dataloader()
    both = seen(first, 0), seen(first, 1)
    torch.rand(5)
    second = data.LoaderData(loader(), order_seed=7).train_dataloader()
    assert (seen(second, 1), seen(second, 0)) == both[::-1]
    assert both[0] != both[1] != seen(data.LoaderData(loader(), order_seed=8).train_dataloader(), 1)
    assert sorted(number for batch in both[0] for number in batch) == Y.tolist()


def test_epochs_follow_one_another_without_a_trainer():
    epochs = data.LoaderData(loader(), order_seed=7).train_dataloader()
    orders = [[batch[1].tolist() for batch in epochs] for _ in range(2)]
    assert orders == [seen(epochs, 0), seen(epochs, 1)]


def test_no_random_numbers_of_others_are_used():
    epochs = data.LoaderData(loader(sampler=WeightedRandomSampler([1.0] * 12, 12), shuffle=False)).train_dataloader()
    torch.manual_seed(3)
    before = torch.get_rng_state()
    first = seen(epochs)
    assert torch.equal(torch.get_rng_state(), before)
    torch.rand(1)
    assert seen(epochs) == first


def test_a_loader_with_a_generator_of_its_own_keeps_that_seed():
    def order(own, seed):
        given = loader(generator=torch.Generator().manual_seed(own))
        return seen(data.LoaderData(given, order_seed=seed).train_dataloader())

    assert order(1, 7) == order(1, 8) != order(2, 7)


def test_a_loader_is_the_same_when_a_second_fit_takes_it():
    given = loader()
    first = seen(data.LoaderData(given, order_seed=7).train_dataloader(), 1)
    assert seen(data.LoaderData(given, order_seed=7).train_dataloader(), 1) == first


def test_floating_tensors_of_any_batch_are_cast_and_others_kept():
    rows = Rows([{"x": X[i], "deep": [1.5, {"label": i}]} for i in range(4)])
    (batch,) = data.LoaderData(DataLoader(rows, batch_size=4), dtype=torch.float32).train_dataloader()
    assert (batch["x"].dtype, batch["deep"][0].dtype, batch["deep"][1]["label"].dtype) == (
        torch.float32,
        torch.float32,
        torch.int64,
    )


def test_workers_together_see_the_batches_of_one():
    given = data.LoaderData(loader(), order_seed=7)
    alone = seen(given.train_dataloader())
    parts = []
    for rank in range(2):
        given.trainer = type("Place", (), {"global_rank": rank, "world_size": 2})()
        parts.append(seen(given.train_dataloader()))
    assert [a + b for a, b in zip(*parts, strict=True)] == alone


def test_a_batch_that_cannot_be_shared_is_refused_with_what_to_choose():
    given = data.LoaderData(loader(batch_size=5))
    given.trainer = type("Place", (), {"global_rank": 0, "world_size": 2})()
    with pytest.raises(ValueError, match=r"shape \(5, 1\).* 2 workers: choose a batch_size that is a multiple of 2"):
        seen(given.train_dataloader())


def test_labels_inside_a_loader_cannot_be_permuted_and_that_is_said():
    with data.permuted_labels(0), pytest.raises(ValueError, match="permuted_labels cannot permute labels inside"):
        data.LoaderData(loader())


@pytest.mark.parametrize(
    "change",
    [
        lambda rows: rows[:-1],
        lambda rows: rows[::-1],
        lambda rows: [*rows[:-1], {**rows[-1], "text": "other"}],
        lambda rows: [*rows[:-1], {**rows[-1], "x": rows[-1]["x"] + 1e-12}],
        lambda rows: [{**row, "x": row["x"].astype(np.float32)} for row in rows],
    ],
)
def test_a_digest_tells_samples_apart(change):
    rows = [{"x": np.array([float(i)]), "text": f"é{i}", "label": i, "more": [None, True, b"x"]} for i in range(5)]
    digest, covers = data.digest_of(Rows(rows))
    assert (len(digest), covers) == (32, "all 5 samples")
    assert data.digest_of(Rows([dict(reversed(row.items())) for row in rows]))[0] == digest
    assert data.digest_of(Rows(change(rows)))[0] != digest


def test_a_digest_of_tensors_covers_all_of_them_and_that_of_many_samples_says_what_it_covers():
    many = torch.arange(5000.0)[:, None]
    digest, covers = data.digest_of(TensorDataset(many))
    assert covers == "all 5000 samples"
    changed = many.clone()
    changed[3] += 1
    assert data.digest_of(TensorDataset(changed))[0] != digest
    assert data.digest_of(Subset(TensorDataset(many), range(10)))[1] == "all 10 samples"
    assert data.digest_of(Rows(list(range(5000))))[1] == "1000 of 5000 samples"


def test_augmentation_from_seeded_generators_has_a_digest_and_disturbs_nothing():
    augmented = Rows([lambda: torch.rand(2) + torch.from_numpy(np.random.rand(2))] * 3)  # noqa: NPY002
    before = torch.get_rng_state()
    digest = data.digest_of(augmented)
    assert len(digest[0]) == 32
    assert torch.equal(torch.get_rng_state(), before)
    torch.rand(1)
    assert data.digest_of(augmented) == digest


@pytest.mark.parametrize(
    ("dataset", "why"),
    [
        (Endless(), "not digested: an iterable dataset"),
        (Rows([lambda: np.random.default_rng().random()]), "not digested: samples are random"),
        (Rows([object()]), "not digested: a object"),
        (Rows([np.array([object()])]), "not digested: a ndarray of objects"),
    ],
)
def test_where_there_is_no_digest_the_reason_stands_in_its_place(dataset, why):
    digest, covers = data.digest_of(dataset)
    assert (digest, covers) == (why, "nothing")
    assert len(digest) <= 36


def test_arrays_are_taken_as_tensors_are():
    pair = np.ones((3, 2)), np.arange(3)
    made = data.TensorData(pair, dtype="float32")
    assert made.digest() == data.TensorData(tuple(map(torch.from_numpy, pair)), dtype=torch.float32).digest()
