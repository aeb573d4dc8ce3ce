"""Calls in tests are checked against the array annotations of what they call."""

import pytest
import torch
from jaxtyping import TypeCheckError

from featurelab.modules import measures


def test_an_array_of_another_shape_is_refused():
    with pytest.raises(TypeCheckError, match="neural_feature_matrix"):
        measures.neural_feature_matrix(torch.ones(3))


def test_arrays_of_one_call_agree_on_their_shapes():
    with pytest.raises(TypeCheckError, match="diagonals"):
        measures.ansatz_diagonals(torch.ones(3, 2), torch.eye(4))


def test_an_array_of_another_dtype_is_refused():
    with pytest.raises(TypeCheckError, match="neural_feature_matrix"):
        measures.neural_feature_matrix(torch.ones(3, 2, dtype=torch.long))
