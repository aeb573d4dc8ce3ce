"""Class indices from every way in which labels are written, and from nothing else."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from featurelab.modules import measures

draw = torch.Generator().manual_seed(0)
Y = torch.tensor([0, 2, 1, 2])
ROWS = torch.eye(3)[Y]


@pytest.mark.parametrize(
    "labels",
    [
        Y,
        Y.int(),
        Y.float(),
        ROWS,
        ROWS.bool(),
        ROWS.long(),
        2 * ROWS - 1,
        ROWS - 1 / 3,  # centred
        ROWS - ROWS.mean(1, keepdim=True),
        0.9 * ROWS + 0.1 / 3,  # smoothed
        (0.9 * ROWS + 0.1 / 3).bfloat16(),
        (ROWS / 7).half(),
        1e-30 * ROWS.double(),
        torch.nn.functional.normalize(ROWS - 1 / 3),
    ],
    ids=lambda labels: f"{labels.dtype}".removeprefix("torch."),
)
def test_labels_may_be_indices_or_rows_that_mark_the_class(labels):
    assert torch.equal(measures.class_indices(labels), Y)
    assert torch.equal(measures.class_indices(labels[1:2]), Y[1:2])
    assert measures.class_indices(labels[:0]).shape == (0,)


@pytest.mark.parametrize(
    ("column", "expected"),
    [([1.0, -1.0], [1, 0]), ([0.0, 1.0], [0, 1]), ([1, 0], [1, 0]), ([1.0], [1]), ([-1.0], [0]), ([0.0], [0])],
)
def test_a_column_holds_two_classes_of_which_a_batch_may_lack_one(column, expected):
    assert measures.class_indices(torch.tensor(column)[:, None]).tolist() == expected


@pytest.mark.parametrize(
    ("labels", "complaint"),
    [
        (torch.tensor([0.5]), r"not whole: \[0.5\]"),
        (torch.tensor([1.0, torch.nan]), "not whole"),
        (torch.tensor([-1]), "at least 0, got -1"),
        (torch.zeros(2, 2, 2), r"got shape \(2, 2, 2\)"),
        (torch.randn(9, 3, generator=draw), r"got \(9, 3\) with a row \["),
        (torch.randn(9, 3, generator=draw).softmax(1), "got"),
        (torch.randn(9, 1, generator=draw), "-1 and 1 or 0 and 1"),
        (torch.tensor([[-1.0], [0.0], [1.0]]), "-1 and 1 or 0 and 1"),
        (torch.tensor([[3], [4]]), r"\(indices are \(n,\)\), got \[3, 4\]"),
        (torch.tensor([[1, 1, 0], [0, 1, 0]]), r"row \[1, 1, 0\]"),
        (torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]), r"row \[0, 0, 0\]"),
        (torch.tensor([[1.0, 0.0], [0.0, 2.0]]), r"row \[1, 0\]"),
        (torch.ones(3, 4), r"row \[1, 1, 1, 1\]"),
        (torch.full((2, 2), torch.nan), "nan"),
        (torch.cat([torch.eye(6), torch.eye(6)[:1] + 1e-3]), r"\.\.\.\]"),
    ],
)
def test_what_names_no_classes_is_refused_with_what_was_received(labels, complaint):
    with pytest.raises(ValueError, match=complaint) as refused:
        measures.class_indices(labels)
    assert "\n" not in str(refused.value)


@given(st.integers(2, 20), st.integers(2, 5), st.integers(0, 2**31))
def test_continuous_targets_are_never_taken_for_classes(n, K, seed):
    targets = torch.randn(n, K, generator=torch.Generator().manual_seed(seed))
    for continuous in (targets, targets[:, :1], targets[:, 0]):
        with pytest.raises(ValueError, match="labels must"):
            measures.class_indices(continuous)
