"""A dtype is given by name, as settings have it, or as torch's own: both mean the same."""

import pytest
import torch
from torch import nn

from featurelab.modules import data, nets
from featurelab.modules.dtypes import dtype_name

NETS = {
    "mlp": lambda dtype: nets.mlp(3, 4, 1, seed=0, dtype=dtype),
    "xavier_mlp": lambda dtype: nets.xavier_mlp(3, 4, 1, seed=0, dtype=dtype),
    "conv_trunk": lambda dtype: nets.conv_trunk(1, (2,), seed=0, dtype=dtype),
    "perceptron": lambda dtype: nets.perceptron((3, 2), seed=0, dtype=dtype),
    "cubic": lambda dtype: nets.cubic_net(3, 4, omega=0.1, seed=0, dtype=dtype),
    "thresholded": lambda dtype: nets.thresholded_net(torch.eye(3), torch.ones(3), torch.zeros(3), dtype),
    "two_layer": lambda dtype: nets.two_layer(3, 4, seed=0, dtype=dtype),
    "norm_softmax": lambda dtype: nets.NormSoftmax(3, 4, seed=0, dtype=dtype),
    "trunk_feature": lambda dtype: nets.TrunkFeature(nn.Identity(), 3, 4, seed=0, dtype=dtype),
}


@pytest.mark.parametrize("build", NETS.values(), ids=NETS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_a_network_is_the_same_by_either(build, dtype):
    named, own = (build(given).state_dict() for given in (dtype_name(dtype), dtype))
    assert {values.dtype for values in own.values() if values.is_floating_point()} == {dtype}
    for name, values in named.items():
        assert torch.equal(values, own[name])


def test_random_features_are_the_same_by_either():
    x = torch.eye(3)
    named, own = (nets.RandomFeatures("cos", 3, 4, seed=0, dtype=d)(x) for d in ("float32", torch.float32))
    assert torch.equal(named, own)


def test_data_is_the_same_by_either():
    named, own = (data.ChainMonomials(8, 2, 3, 2, seed=0, dtype=d) for d in ("float32", torch.float32))
    assert named.digest() == own.digest()
    assert own.describe()["dtype"] == "float32"


def test_a_dtype_without_fractions_is_refused_as_by_name():
    pair = torch.ones(2, 1), torch.ones(2, 1)
    for dtype in ("int32", torch.int32):
        for build in (NETS["mlp"], NETS["two_layer"], lambda dtype: data.TensorData(pair, dtype=dtype)):
            with pytest.raises(ValueError, match=r"dtype.*int32"):
                build(dtype)
