"""Permuted labels: those of the training set alone, in an order of its own, wherever they are read."""

import pytest
import torch

from featurelab.modules import data


def made(**options):
    x = torch.arange(40.0).reshape(20, 2)
    return data.TensorData((x, torch.arange(20)), (x, torch.arange(20)), **options)


def test_training_labels_are_permuted_and_nothing_else_is():
    plain = made()
    with data.permuted_labels(3):
        permuted = made(batch_size=20)
    assert torch.equal(permuted.train[0], plain.train[0])
    assert not torch.equal(permuted.train[1], plain.train[1])
    assert torch.equal(permuted.train[1].sort().values, plain.train[1])
    assert torch.equal(permuted.labelled[1], plain.train[1])
    assert all(torch.equal(a, b) for a, b in zip(permuted.test, plain.test, strict=True))
    assert torch.equal(next(iter(permuted.train_dataloader()))[1], permuted.train[1]), "what is trained on"
    assert torch.equal(made().train[1], plain.train[1]), "once it is over"


def test_the_permutation_is_that_of_its_seed():
    labels = []
    for seed in (3, 3, 4):
        with data.permuted_labels(seed):
            labels.append(made().train[1])
    assert torch.equal(labels[0], labels[1])
    assert not torch.equal(labels[0], labels[2])


def test_what_is_drawn_is_drawn_as_without():
    def digits():
        return data.ChainMonomials(30, 10, 5, 3, seed=1)

    with data.permuted_labels(0):
        permuted = digits()
    assert torch.equal(permuted.train[0], digits().train[0])
    assert torch.equal(permuted.labelled[1], digits().train[1])
    assert not torch.equal(permuted.train[1], digits().train[1])


@pytest.mark.parametrize("treatment", ["original", "coarse", "random_coarse", "fine"])
def test_labels_that_are_merged_or_split_keep_their_classes_for_measuring(treatment):
    def relabelled():
        base = data.GaussianClusters(torch.eye(4), range(4), 40, 8, seed=0)
        return data.Relabelled(base, treatment, classes=4, coarse=2, seed=0)

    with data.permuted_labels(0):
        permuted = relabelled()
    plain = relabelled()
    assert torch.equal(permuted.parts, plain.parts)
    assert torch.equal(permuted.original[0], plain.original[0])
    assert torch.equal(permuted.labelled[1], plain.train[1])
    assert not torch.equal(permuted.train[1], plain.train[1])
    assert torch.equal(permuted.test[1], plain.test[1])
