import pytest
import torch
from convnets import check_net, parameters
from torch.nn import functional as F

from featurelab.modules import nets


def test_densenet_121_has_its_number_of_parameters_and_features():
    net = nets.densenet121(1000, stem="imagenet", seed=0)
    assert parameters(net) == 7_978_856
    assert net.head.in_features == 1024


@pytest.mark.parametrize("stem", ["small", "imagenet"])
def test_small_densenets(stem):
    # 8 channels, + 2 x 4, halved to 8, + 4, halved to 6; the last block adds 4
    check_net(
        lambda **o: nets.densenet(3, blocks=(2, 1, 1), growth=4, stem=stem, channels=1, **o),
        (3, 1, 32, 32),
        10,
        3,
    )


def test_a_dense_layer_appends_its_new_channels():
    net = nets.densenet(3, blocks=(1,), growth=4, channels=1, seed=0, dtype="float64").eval()
    x = torch.randn(2, 1, 6, 6, dtype=torch.float64)
    eps = net.trunk[1][0].new[0].eps
    h = net.trunk[0](x)
    new = net.trunk[1][0].new
    inner = F.conv2d((h / (1 + eps) ** 0.5).relu(), new[2].weight)
    added = F.conv2d((inner / (1 + eps) ** 0.5).relu(), new[5].weight, padding=1)
    expected = (torch.cat([h, added], 1) / (1 + eps) ** 0.5).relu().flatten(2).mean(2)
    torch.testing.assert_close(net.features(x), expected)


def test_wrong_densenets_are_refused():
    with pytest.raises(ValueError, match="positive sizes"):
        nets.densenet(3, blocks=(), seed=0)
    with pytest.raises(ValueError, match="positive sizes"):
        nets.densenet(3, stem="large", seed=0)
