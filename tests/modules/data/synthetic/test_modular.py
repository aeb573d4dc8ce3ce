import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from featurelab.modules import data


@given(st.integers(2, 7), st.integers(2, 4), st.integers(0, 99))
def test_a_whole_set_is_every_tuple_once_with_its_sum(modulus, terms, seed):
    task = data.ModularAddition(modulus, terms, seed=seed)
    x, y = task.train
    found = {tuple(row): int(label) for row, label in zip(x.tolist(), y, strict=True)}
    expected = {a: sum(a) % modulus for a in itertools.product(range(modulus), repeat=terms)}
    assert found == expected
    assert len(x) == len(expected)
    assert len(task.test[0]) == 0


def test_a_split_shares_no_tuple_and_a_larger_training_set_begins_with_the_smaller():
    half, most = data.ModularAddition(5, 3, 62, seed=4), data.ModularAddition(5, 3, 100, 20, seed=4)
    train, test = ({tuple(row) for row in part[0].tolist()} for part in (half.train, half.test))
    assert not train & test
    assert len(train | test) == 125
    assert torch.equal(most.train[0][:62], half.train[0])
    assert len(most.test[0]) == 20
    assert not torch.equal(half.train[0], data.ModularAddition(5, 3, 62, seed=5).train[0])


def test_ids_are_tuples_to_the_base_p():
    ids = torch.arange(81)
    found = data.residue_tuples(ids, 4, 3)
    assert found.tolist() == [list(a) for a in itertools.product(range(3), repeat=4)]


def test_permuted_labels_are_the_same_labels_elsewhere():
    own = data.ModularAddition(5, 2, seed=0)
    with data.permuted_labels(3):
        other = data.ModularAddition(5, 2, seed=0)
    assert torch.equal(own.train[0], other.train[0])
    assert not torch.equal(own.train[1], other.train[1])
    assert torch.equal(own.train[1].sort().values, other.train[1].sort().values)


@pytest.mark.parametrize("what", ["classes", "residues"])
def test_renamed_tuples_and_sums_are_the_old_ones_up_to_one_permutation(what):
    old, new = (
        data.ModularAddition(7, 2, 30, seed=0),
        data.renamed(data.ModularAddition(7, 2, 30, seed=0), what, seed=1),
    )
    names = {}
    for (x, y), (z, t) in ((old.train, new.train), (old.test, new.test)):
        kept, before, after = ((x, z), y, t) if what == "classes" else ((y, t), x, z)
        assert torch.equal(*kept)
        for a, b in zip(before.flatten().tolist(), after.flatten().tolist(), strict=True):
            assert names.setdefault(a, b) == b
    assert sorted(names) == sorted(names.values()) == list(range(7))
    assert names != {a: a for a in range(7)}
    assert new.train[0].dtype == old.train[0].dtype


@pytest.mark.parametrize(
    ("modulus", "terms", "sizes"), [(1, 2, ()), (5, 1, ()), (47, 6, ()), (5, 2, (20, 6)), (5, 2, (0,))]
)
def test_impossible_sizes_are_refused(modulus, terms, sizes):
    with pytest.raises(ValueError, match=r"modulus|tuples"):
        data.ModularAddition(modulus, terms, *sizes, seed=0)
