"""Keyed needles read back token by token, and curricula of rising length."""

import itertools

import numpy as np
import pytest
import torch

from featurelab.modules.data import (
    NEEDLE_WORDS,
    Levels,
    NeedlePrompts,
    TensorData,
    hidden_needles,
    permuted_labels,
    stream,
)


def spoken(row):
    return [NEEDLE_WORDS[i] for i in row]


def kind(word):
    return word.partition("_")[0]


def needles_in(words):
    """{key: (first value, second value)} and where each key stands, by going through a list of words."""
    found, places, at = {}, {}, 0
    while at < len(words):
        if kind(words[at]) == "key":
            assert [kind(word) for word in words[at + 1 : at + 3]] == ["value", "value"]
            assert words[at] not in found
            found[words[at]], places[words[at]] = tuple(words[at + 1 : at + 3]), at
            at += 3
        else:
            assert kind(words[at]) == "filler"
            at += 1
    return found, places


@pytest.mark.parametrize(("length", "count"), [(12, 4), (13, 4), (24, 4), (61, 3), (9, 1)])
def test_a_prompt_asks_for_one_of_its_needles(length, count):
    found = hidden_needles(200, length, stream(1, "here"), needles=count)
    assert found.prompts.shape == (200, length + 3)
    for row in range(200):
        begin, *content, query, key = spoken(found.prompts[row])
        assert (begin, query) == ("BEGIN", "Q")
        said, places = needles_in(content)
        assert len(said) == count
        assert said[key] == tuple(spoken(found.answers[row]))
        for each in range(count):
            own = NEEDLE_WORDS[found.keys[row, each]]
            assert said[own] == tuple(spoken(found.values[row, each]))
            assert places[own] + 1 == found.begins[row, each]
        assert key == NEEDLE_WORDS[found.keys[row, 0]]
        firsts, seconds = zip(*said.values(), strict=True)
        assert len(set(firsts)) == len(set(seconds)) == count
        grid = {place % 3 for place in places.values()}
        assert len(grid) == 1  # one shift a prompt


def test_every_place_is_taken_and_every_shift():
    begins = hidden_needles(3000, 20, stream(0, "here")).begins
    assert sorted(set(begins.flatten().tolist())) == list(range(1, 19))
    share = torch.bincount(begins[:, 0], minlength=19)[1:] / 3000
    assert share.max() < 1.3 * share.min() + 0.03


@pytest.mark.parametrize("depth", [0.0, 0.25, 0.5, 1.0])
def test_depth_places_the_needle_that_is_asked_for(depth):
    length = 99
    found = hidden_needles(300, length, stream(2, "here"), depth=depth)
    first, last = 1, length - 2
    near = first + depth * (last - first)
    assert (found.begins[:, 0] - near).abs().max() <= 3
    assert len(set(found.begins[:, 1].tolist())) > 20  # the others lie anywhere
    for row in range(300):
        assert len(set(found.begins[row].tolist())) == 4


def test_other_keys_can_be_asked_for():
    found = hidden_needles(300, 30, stream(3, "here"))
    other, absent = found.asking(found.other_key), found.asking(found.absent_key)
    for row in range(300):
        assert torch.equal(other[row, :-1], found.prompts[row, :-1])
        content = found.prompts[row, 1:-2].tolist()
        assert other[row, -1] in content
        assert other[row, -1] != found.prompts[row, -1]
        assert absent[row, -1] not in content
        assert kind(NEEDLE_WORDS[absent[row, -1]]) == "key"


@pytest.mark.parametrize(
    ("length", "options", "said"),
    [
        (11, {}, "4 needles of 3 tokens"),
        (99, {"needles": 17}, "17 needles"),
        (99, {"needles": 0}, "0 needles"),
        (30, {"depth": 1.2}, "depth must lie in"),
    ],
)
def test_what_cannot_be_is_refused(length, options, said):
    with pytest.raises(ValueError, match=said):
        hidden_needles(2, length, stream(0, "here"), **options)


def test_training_sequences_ask_for_each_needle_once():
    prompts = NeedlePrompts(300, 24, stream(4, "here"), batch_size=8)
    x, y = prompts.train
    orders = set()
    for row, answers in zip(x.tolist(), y.tolist(), strict=True):
        words = spoken(row)
        said, places = needles_in(words[1:25])
        blocks = [words[25 + 4 * block :][:4] for block in range(4)]
        assert [block[0] for block in blocks] == ["Q"] * 4
        assert {block[1]: tuple(block[2:]) for block in blocks} == said
        assert spoken(answers) == list(itertools.chain(*(block[2:] for block in blocks)))
        orders.add(tuple(np.argsort([places[block[1]] for block in blocks])))
    assert len(orders) == 24


def test_permuted_answers_are_those_of_other_sequences():
    plain = NeedlePrompts(300, 24, stream(4, "here"))
    with permuted_labels(1):
        permuted = NeedlePrompts(300, 24, stream(4, "here"))
    assert torch.equal(permuted.train[0], plain.train[0])
    assert (permuted.train[1] == plain.train[1]).all(1).double().mean() < 0.02
    assert sorted(permuted.train[1].tolist()) == sorted(plain.train[1].tolist())


def levels_of(sizes):
    parts = [(torch.full((size, 1), float(level)), torch.arange(size)) for level, size in enumerate(sizes)]
    return [TensorData(part, batch_size=2, order_seed=None) for part in parts]


def test_half_of_the_batches_are_of_the_level_that_is_reached():
    data = Levels(levels_of([4, 6, 8, 800]), seed=0, back=2)
    loader = data.train_dataloader()
    assert len(loader) == 400
    batches = iter(loader)
    seen = []
    for step in range(400):
        data.level = min(step // 100, 3)
        x, _ = next(batches)
        assert x.unique().tolist() == [data.shown]
        if step % 2 == 0:
            assert data.shown == data.level
        seen.append(data.shown)
    assert set(seen[:100]) == {0}
    for level in (1, 2, 3):
        others = seen[100 * level + 1 : 100 * (level + 1) : 2]
        assert set(others) == set(range(max(0, level - 2), level + 1))


def test_batches_go_on_where_they_were():
    whole, first = (Levels(levels_of([4, 60]), seed=0) for _ in range(2))
    whole.level = first.level = 1
    batches = [y.tolist() for _, y in whole.train_dataloader()]
    begun = iter(first.train_dataloader())
    assert [next(begun)[1].tolist() for _ in range(11)] == batches[:11]
    resumed = Levels(levels_of([4, 60]), seed=0)
    resumed.load_state_dict(first.state_dict())
    rest = iter(resumed.train_dataloader())
    assert [next(rest)[1].tolist() for _ in range(19)] == batches[11:]


def test_a_level_begins_anew_where_it_ends_and_digests_see_every_level():
    data = Levels(levels_of([4]), seed=0)
    loader = data.train_dataloader()
    epochs = [[y.tolist() for _, y in loader] for _ in range(2)]
    assert epochs == [[[0, 1], [2, 3]]] * 2
    assert data.describe()["levels"] == 1
    others = Levels(levels_of([4, 6]), seed=0), Levels(levels_of([5, 6]), seed=0)
    assert len({data.digest(), *(other.digest() for other in others)}) == 3
    with pytest.raises(ValueError, match="at least one data module"):
        Levels([], seed=0)
