"""Features of stored views: what is kept, which two are shown, what the digest is of."""

import numpy as np
import pytest
import torch

from featurelab.modules.data import RepeatedSamples, StoredRows, StoredViews, ViewsOfRows, crop_and_flip, stored_views

X = torch.rand(7, 1, 6, 6, generator=torch.Generator().manual_seed(0))


def encode(x):
    return torch.stack([x.flatten(1).sum(1), x[:, 0, 0, 0]], dim=1)


def test_views_depend_on_the_picture_and_the_view_alone():
    change = crop_and_flip(2)
    whole = stored_views(encode, [X], views=4, change=change, seed=3)
    parts = stored_views(encode, X.split(3), views=2, change=change, seed=3, at_once=2)
    assert whole.features.shape == (7, 4, 2)
    torch.testing.assert_close(parts.features, whole.features[:, :2])
    torch.testing.assert_close(whole.clean, encode(X))
    for i in range(7):
        uniform = np.random.default_rng([3, i, 2, *b"views"]).random(3)
        shown = change(X[i : i + 1], torch.from_numpy(uniform)[None])
        torch.testing.assert_close(whole.features[i, 2], encode(shown)[0])
    assert torch.equal(whole.first(2).features, whole.features[:, :2])
    half = stored_views(encode, [(255 * X).byte()], views=1, dtype=torch.float16)
    assert half.features.dtype == torch.float16
    torch.testing.assert_close(half.clean, encode((255 * X).byte().float() / 255), rtol=1e-2, atol=1e-2)


def test_what_cannot_be_stored_is_refused():
    with pytest.raises(ValueError, match="needs `change`"):
        stored_views(encode, [X], views=2)
    with pytest.raises(ValueError, match="at least one picture"):
        stored_views(encode, [], views=1)
    with pytest.raises(ValueError, match="only 1 views are stored, but 9 are needed"):
        StoredViews(torch.zeros(2, 1, 3)).first(9)


def named(n, views, start=0):
    """Features that say which picture and which view they are of."""
    rows, columns = torch.meshgrid(torch.arange(n) + start, torch.arange(views), indexing="ij")
    return StoredViews(torch.stack([rows, columns], dim=2).float())


def test_two_different_views_are_shown_each_pair_as_often():
    stored = named(5, 3)
    uniform = torch.rand(3000, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    rows = torch.arange(3000) % 5
    shown = ViewsOfRows(stored)(rows, uniform)
    assert shown.shape == (3000, 4, 2)
    assert torch.equal(shown[:, :, 0], rows[:, None].expand(-1, 4).float())
    assert (shown[:, 0, 1] == 0).all()
    assert torch.equal(shown[:, 1], shown[:, 2])
    pairs = (3 * shown[:, 2, 1] + shown[:, 3, 1]).long()
    counts = torch.bincount(pairs, minlength=9).view(3, 3)
    assert (counts.diagonal() == 0).all()
    assert (counts[~torch.eye(3, dtype=torch.bool)] - 500).abs().max() < 100
    one = ViewsOfRows(named(5, 1))(rows, uniform)
    assert (one[:, :, 1] == 0).all()


def test_pairs_can_be_shuffled_or_of_others():
    rows, uniform = torch.tensor([4, 0, 2]), torch.rand(3, 4, dtype=torch.float64)
    shuffled = ViewsOfRows(named(5, 3), shuffled=True)(rows, uniform)
    assert all(shuffled[:, slot, 0].tolist() == [4, 0, 2] for slot in range(3))
    assert shuffled[:, 3, 0].tolist() == [2, 4, 0]
    others = ViewsOfRows(named(5, 3), others=named(3, 4, start=100))(rows, uniform)
    assert others[:, 0, 0].tolist() == others[:, 1, 0].tolist() == [4, 0, 2]
    assert others[:, 2, 0].tolist() == others[:, 3, 0].tolist() == [101, 100, 102]
    assert (others[:, 2, 1] != others[:, 3, 1]).all()


def test_a_data_module_shows_views_in_batches_and_its_digest_is_of_the_features():
    rows, y = torch.tensor([0, 3, 4, 1]), torch.tensor([0, 1, 0, 1])
    options = {"batch_size": 2, "order_seed": 0, "name": "some"}
    task = StoredRows(named(5, 3), rows, y, **options)
    (x, _), _ = task.train_dataloader()
    assert x.shape == (2, 4, 2)
    assert task.describe()["dim"] == 2
    assert task.digest() == StoredRows(named(5, 3), rows, y, **options).digest()
    other = {
        StoredRows(named(5, 2), rows, y, **options).digest(),
        StoredRows(named(5, 3), rows.flip(0), y, **options).digest(),
        StoredRows(named(5, 3), rows, 1 - y, **options).digest(),
        StoredRows(named(5, 3), rows, y, others=named(2, 2), **options).digest(),
    }
    assert len(other | {task.digest()}) == 5


def test_copies_are_the_sample_three_times():
    x, nothing = torch.arange(12).view(3, 4), torch.empty(3, 0)
    assert torch.equal(RepeatedSamples()(x, nothing), x[:, None].expand(-1, 3, -1))
    shuffled = RepeatedSamples(shuffled=True)(x, nothing)
    assert torch.equal(shuffled[:, 2], x.roll(1, 0))
    assert torch.equal(shuffled[:, :2], x[:, None].expand(-1, 2, -1))
    pairs = RepeatedSamples(paired=True)(torch.stack([x, -x], dim=1), nothing)
    assert torch.equal(pairs[:, 0], x)
    assert torch.equal(pairs[:, 1:], -x[:, None].expand(-1, 2, -1))
