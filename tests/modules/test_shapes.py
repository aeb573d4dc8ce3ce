"""Calls in tests are checked against the array annotations of what they call."""

import re
from contextlib import suppress
from pathlib import Path

import arraychecks
import pytest
import torch
from jaxtyping import TypeCheckError

from featurelab import modules
from featurelab.modules import measures


def test_an_array_of_another_shape_is_refused():
    with pytest.raises(TypeCheckError, match="neural_feature_matrix"):
        measures.neural_feature_matrix(torch.ones(3))


def test_arrays_of_one_call_agree_on_their_shapes():
    with pytest.raises(TypeCheckError, match="diagonals"):
        measures.ansatz_diagonals(torch.ones(3, 2), torch.eye(4))


def test_a_function_is_checked_in_each_test_and_there_at_its_first_calls():
    for _ in range(arraychecks.CALLS):
        measures.neural_feature_matrix(torch.ones(3, 2))
    with suppress(IndexError):  # what it says itself of one that it cannot take
        measures.neural_feature_matrix(torch.ones(3))
    arraychecks.calls.clear()  # as before each test
    with pytest.raises(TypeCheckError, match="neural_feature_matrix"):
        measures.neural_feature_matrix(torch.ones(3))


def test_an_array_of_another_dtype_is_refused():
    with pytest.raises(TypeCheckError, match="neural_feature_matrix"):
        measures.neural_feature_matrix(torch.ones(3, 2, dtype=torch.long))


def test_no_annotation_is_of_an_alias_that_newer_numpy_declares_otherwise():
    """Since NumPy 2.5, jaxtyping takes `np.ndarray` but not `NDArray[...]`, and the import of the module would fail."""
    aliased = re.compile(r"\b(?:U?Int|Float|Bool|Integer|Real|Shaped|Num|Complex|Inexact)\d*\[\s*NDArray\[")
    root = Path(modules.__file__).parent
    assert not [str(path.relative_to(root)) for path in root.rglob("*.py") if aliased.search(path.read_text())]
