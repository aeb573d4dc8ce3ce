import pytest
import torch
from convnets import check_net, parameters
from torch import nn

from featurelab.modules import nets


def test_named_networks_have_their_number_of_parameters():
    # the convolutional parts of the published networks
    known = {("11", False): 9_220_480, ("11", True): 9_225_984, ("16", True): 14_723_136, ("19", False): 20_024_384}
    for (name, batch_norm), count in known.items():
        net = nets.vgg(name, 10, batch_norm=batch_norm, seed=0)
        assert parameters(net.trunk) == count
        assert net.head.weight.shape == (10, 512)


@pytest.mark.parametrize("batch_norm", [True, False])
def test_small_layouts(batch_norm):
    layout = (6, 6, "M", 8, "M", 12, "M")
    check_net(lambda **o: nets.vgg(layout, 5, batch_norm=batch_norm, channels=1, **o), (3, 1, 8, 8), 12, 5)


def test_the_trunk_of_five_linear_layers_has_8192_features():
    trunk = nets.vgg_trunk(seed=0)
    assert parameters(trunk) == 9_220_480 - 64 - 2 * (512 * 512 * 9 + 512)
    assert [layer.bias is None for layer in trunk.modules() if isinstance(layer, nn.Conv2d)] == [True] + [False] * 5
    assert trunk(torch.zeros(1, 3, 32, 32)).shape == (1, 8192)
    grey = nets.vgg_trunk(1, width=4, seed=0)
    assert grey(torch.zeros(2, 1, 28, 28)).shape == (2, 8 * 4 * 16)  # 3 x 3 positions shared out over 4 x 4 windows


def test_wrong_layouts_are_refused():
    with pytest.raises(ValueError, match="unknown VGG '18'"):
        nets.vgg("18", 10, seed=0)
    for layout in (("M", "M"), (8, "P"), (8, 0), ()):
        with pytest.raises(ValueError, match="at least one number"):
            nets.vgg(layout, 10, seed=0)
