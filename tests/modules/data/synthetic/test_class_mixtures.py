"""The class mixture."""

import pytest
import torch

from featurelab.modules import data


def test_a_mixture_has_the_means_noise_and_order_that_it_says():
    task = data.ClassMixture(3, 2000, 10, 2.0, n_test=9, seed=0)
    x, y = task.train
    labels = y.argmax(1)
    assert torch.equal(labels, torch.arange(3).repeat_interleave(2000))
    assert torch.equal(y, torch.nn.functional.one_hot(labels, 3).double())
    assert torch.allclose(torch.linalg.norm(task.means, dim=1), torch.full((3,), 2.0, dtype=torch.float64))
    noise = x - task.means[labels]
    assert torch.allclose(noise.T @ noise / len(x), torch.eye(10).double() / 10, atol=0.01)
    assert len(task.test[0]) == 9
    assert task.describe()["classes"] == 3


def test_more_samples_or_classes_leave_the_others_alone():
    small, large = data.ClassMixture(2, 3, 4, 1.0, seed=1), data.ClassMixture(3, 5, 4, 1.0, n_test=3, seed=1)
    assert torch.equal(small.train[0][:3], large.train[0][:3])
    assert torch.equal(small.train[0][3:], large.train[0][5:8])
    again, other = data.ClassMixture(2, 3, 4, 1.0, seed=1), data.ClassMixture(2, 3, 4, 1.0, seed=2)
    assert small.digest() == again.digest() != other.digest()


def test_signs_are_twice_one_hot_less_one():
    a, b = (data.ClassMixture(3, 2, 4, 1.0, targets=t, seed=0).train[1] for t in ("one_hot", "signs"))
    assert torch.equal(b, 2 * a - 1)


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: data.ClassMixture(0, 3, 4, 1.0, seed=0), "classes must be at least 1"),
        (lambda: data.ClassMixture(3, 3, 4, 1.0, n_test=4, seed=0), "n_test must be a multiple of the 3 classes"),
        (lambda: data.ClassMixture(3, 3, 4, 1.0, targets="ranks", seed=0), "targets"),
    ],
)
def test_what_cannot_be_is_refused_by_name(call, named):
    with pytest.raises(ValueError, match=named):
        call()
