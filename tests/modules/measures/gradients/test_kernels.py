import pytest
import torch
from torch import nn

from featurelab.modules import measures, nets


def draw(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("outputs", [1, 3])
def test_layer_ntk_equals_the_product_of_its_two_kernels_and_autograd(outputs):
    net, x = nets.mlp(4, 7, 2, outputs=outputs, seed=0), draw(9, 4)
    theta = measures.layer_ntk(net, x, chunk=4)
    for name in ("0", "1", "2"):
        expected = measures.ntk(net, x, parameters=[f"layers.{name}.weight"])
        torch.testing.assert_close(theta[name], expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(sum(theta.values()), measures.ntk(net, x, chunk=2), rtol=1e-12, atol=1e-12)


def test_ntk_equals_a_loop_of_parameter_gradients():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv1d(2, 3, 2), nn.Tanh(), nn.Flatten(), nn.Linear(9, 2)).double()
    x = draw(5, 2, 4)
    rows = [
        [
            torch.cat([g.flatten() for g in torch.autograd.grad(net(s[None])[0, c], list(net.parameters()))])
            for c in (0, 1)
        ]
        for s in x
    ]
    expected = torch.tensor([[sum(a @ b for a, b in zip(u, v, strict=True)) for v in rows] for u in rows])
    torch.testing.assert_close(measures.ntk(net, x), expected)
    with torch.inference_mode():
        torch.testing.assert_close(measures.ntk(net, x.clone()), expected)


def test_ptk_has_the_spectrum_of_the_tangent_covariance():
    net, x = nets.mlp(4, 6, 2, seed=0), draw(11, 4)
    kernel = measures.ptk(measures.tangent_features(net, x)["0"])
    K = measures.tangent_covariance(net, x)["0"].K
    assert kernel.shape == (11, 11)
    torch.testing.assert_close(torch.linalg.eigvalsh(kernel)[-6:] / 11, torch.linalg.eigvalsh(K))


def test_layers_without_the_product_form_are_refused():
    torch.manual_seed(0)
    convolutional = nn.Sequential(nn.Conv1d(2, 3, 2), nn.Flatten(), nn.Linear(9, 2)).double()
    assert list(measures.layer_ntk(convolutional, draw(5, 2, 4))) == ["2"]
    with pytest.raises(ValueError, match="'0' is a Conv1d, not linear"):
        measures.layer_ntk(convolutional, draw(5, 2, 4), layers=["0"])
    tokens = nn.Sequential(nn.Linear(4, 3), nn.Flatten(), nn.Linear(6, 2)).double()
    with pytest.raises(ValueError, match="several positions"):
        measures.layer_ntk(tokens, draw(5, 2, 4))


def test_unknown_parameters_and_batch_statistics_are_refused():
    with pytest.raises(ValueError, match=r"no parameter 'weight' \(of layers.0.weight"):
        measures.ntk(nets.mlp(2, 3, 1, seed=0), draw(4, 2), parameters=["weight"])
    with pytest.raises(ValueError, match="BatchNorm1d"):
        measures.ntk(nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)), torch.randn(4, 2))
