import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from strangers import Stranger, draw, site_gradients, slow_covariance
from torch import nn
from torch.nn import functional as F

from featurelab.modules import measures, nets
from featurelab.modules.measures.core import passes

double = torch.float64
exactly = {"rtol": 1e-10, "atol": 1e-12}


def patches(layer, z):
    """(positions, k_in) inputs that a convolution's weight matrix multiplies."""
    mode = "constant" if layer.padding_mode == "zeros" else layer.padding_mode
    (p, q) = layer.padding
    padded = F.pad(z, (q, q, p, p), mode=mode)
    return F.unfold(padded, layer.kernel_size, layer.dilation, 0, layer.stride)[0].T


@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("activation", ["relu", "quadratic", "tanh"])
def test_agop_equals_weights_times_tangent_covariance(activation, outputs):
    net, x = nets.mlp(5, 8, 2, outputs=outputs, activation=activation, seed=0), draw(13, 5)
    found = measures.layer_agop(net, x)
    assert list(found) == ["0", "1", "2"]
    hidden = x
    for i, layer in enumerate(net.layers):

        def rest(h, start=i):
            for j, later in enumerate(net.layers[start:], start):
                h = later(h)
                h = net.activation(h) if j < len(net.layers) - 1 else h
            return h

        torch.testing.assert_close(found[str(i)], measures.agop(rest, hidden), rtol=1e-12, atol=1e-12)
        hidden = net.activation(layer(hidden)).detach()


def test_agop_equals_a_loop_over_samples_and_outputs():
    net, x = Stranger(), draw(3, 2, 12, 10)
    expected = torch.zeros(240, 240, dtype=double)
    for sample in x:
        for c in range(3):
            leaf = sample[None].clone().requires_grad_()
            (g,) = torch.autograd.grad(net(leaf)[0, c], leaf)
            expected += torch.outer(g.flatten(), g.flatten()) / len(x)
    torch.testing.assert_close(measures.agop(net, x), expected, **exactly)


def test_agop_takes_any_differentiable_map():
    x = draw(50, 3)
    torch.testing.assert_close(
        measures.agop(lambda z: (z**2).sum(1), x), 4 * torch.einsum("ni,nj->ij", x, x) / 50, **exactly
    )
    A = draw(4, 3, seed=1)
    torch.testing.assert_close(measures.agop(lambda z: z @ A.T, x), A.T @ A, **exactly)

    def slope(z):
        """A function that differentiates inside: d (sum z^3) / dz = 3 z^2."""
        (g,) = torch.autograd.grad(z.pow(3).sum(), z, create_graph=True)
        return g

    torch.testing.assert_close(measures.agop(slope, x), (36 * x.square().mean(0)).diag(), **exactly)


def test_tangent_covariance_equals_the_slow_loop_on_a_strangers_network():
    net, x = Stranger(), draw(4, 2, 12, 10)
    found = measures.tangent_covariance(net, x)
    assert list(found) == ["stem", "block.0", "tokens", "head"]
    for name, layer in measures.layer_names(net).items():
        torch.testing.assert_close(found[name].K, slow_covariance(net, layer, x), **exactly)
        torch.testing.assert_close(found[name].W, layer.weight.detach().flatten(1))
        assert found[name].Kbar is None


@pytest.mark.parametrize("name", ["stem", "block.0"])
def test_the_agop_of_a_convolution_is_that_of_its_unfolded_patches(name):
    net, x = Stranger(), draw(3, 2, 12, 10)
    layer = measures.layer_names(net)[name]
    W = layer.weight.detach().flatten(1)
    expected, count = 0, 0
    for z, g in site_gradients(net, layer, x):
        p = patches(layer, z)
        h = p @ W.T
        assert h.shape[0] == g[0].flatten(1).shape[1]  # one patch a position, and the weight matrix acts on it
        torch.testing.assert_close(h + layer.bias, F.conv2d(*_padded(layer, z))[0].flatten(1).T)
        for row in g[0].flatten(1).T @ W:
            expected, count = expected + torch.outer(row, row) / len(x), count + 1
    assert count == 3 * 3 * h.shape[0]
    torch.testing.assert_close(measures.layer_agop(net, x, layers=[name])[name], expected, **exactly)


def _padded(layer, z):
    mode = "constant" if layer.padding_mode == "zeros" else layer.padding_mode
    p, q = layer.padding
    return F.pad(z, (q, q, p, p), mode=mode), layer.weight, layer.bias, layer.stride


def test_tangent_features_are_gradients_by_finite_differences():
    net, x = nets.mlp(4, 6, 2, outputs=2, activation="tanh", seed=1), draw(5, 4)
    J = measures.tangent_features(net, x)
    step = 1e-6
    for name, layer in measures.layer_names(net).items():
        assert J[name].shape == (5, 2, layer.out_features)
        for unit in range(layer.out_features):
            shift = step * torch.eye(layer.out_features, dtype=double)[unit]
            values = []
            for sign in (1, -1):
                handle = layer.register_forward_hook(lambda _, args, h, s=sign, d=shift: h + s * d)
                values.append(net(x).detach())
                handle.remove()
            torch.testing.assert_close(J[name][:, :, unit], (values[0] - values[1]) / (2 * step), rtol=1e-7, atol=1e-8)


def test_tangent_features_square_to_the_covariance_and_keep_their_positions():
    net, x = Stranger(), draw(7, 2, 12, 10)
    J, found = measures.tangent_features(net, x, chunk=3), measures.tangent_covariance(net, x)
    assert J["stem"].shape == (7, 3, 4, 6, 5)
    assert J["tokens"].shape == (7, 3, 2, 5)
    assert J["head"].shape == (7, 3, 3)
    torch.testing.assert_close(torch.einsum("ncipq,ncjpq->ij", J["stem"], J["stem"]) / 7, found["stem"].K, **exactly)
    torch.testing.assert_close(
        torch.einsum("ncti,nctj->ij", J["tokens"], J["tokens"]) / 7, found["tokens"].K, **exactly
    )


def test_the_readouts_covariance_is_the_identity():
    net = nets.mlp(4, 6, 1, outputs=3, seed=0)
    torch.testing.assert_close(measures.tangent_covariance(net, draw(9, 4))["1"].K, torch.eye(3, dtype=double))


@given(chunk=st.integers(1, 40), n=st.integers(1, 33), outputs=st.integers(1, 5), budget=st.integers(1, 4000))
@settings(max_examples=40)
def test_how_the_work_is_cut_does_not_change_the_result(chunk, n, outputs, budget):
    net, x = nets.mlp(4, 6, 2, outputs=outputs, seed=2), draw(n, 4)
    start = nets.mlp(4, 6, 2, outputs=outputs, seed=3)
    whole, total = measures.tangent_covariance(net, x, reference=start), measures.agop(net, x)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("featurelab.modules.measures.core.passes.budget", lambda device: budget)
        patch.setattr("featurelab.modules.measures.gradients.derivatives.budget", lambda device: budget)
        cut = measures.tangent_covariance(net, x, chunk=chunk, reference=start)
        automatic = measures.tangent_covariance(net, x, reference=start)
        torch.testing.assert_close(measures.agop(net, x, chunk=chunk), total, **exactly)
        torch.testing.assert_close(measures.agop(net, x), total, **exactly)
    for name, layer in whole.items():
        for other in (cut[name], automatic[name]):
            torch.testing.assert_close((other.K, other.Kbar), (layer.K, layer.Kbar), **exactly)


@pytest.mark.parametrize("chunk", [None, 3])
def test_a_pass_holds_no_more_than_its_budget(chunk, monkeypatch):
    """Memory does not grow with n: batches handed to autograd stay within the budget, or twice that for one output."""
    sizes, outputs = [], []

    def watched(*args, **kwargs):
        found = passes.backward(*args, **kwargs)
        sizes.append(sum(g.numel() for g in found))
        outputs.append(len(found[0]))
        return found

    monkeypatch.setattr("featurelab.modules.measures.core.routes.backward", watched)
    monkeypatch.setattr("featurelab.modules.measures.core.passes.budget", lambda device: 500)
    net = nets.mlp(4, 16, 2, outputs=8, seed=0)
    measures.tangent_covariance(net, draw(64, 4), chunk=chunk)
    assert (max(outputs) > 1) == (chunk == 3)
    assert all(size <= (500 if several > 1 else 1000) for size, several in zip(sizes, outputs, strict=True))
    assert sum(sizes) == 64 * 8 * (16 + 16 + 8)


def test_the_reference_centres_the_tangent_features():
    net, x = Stranger(), draw(4, 2, 12, 10)
    start = copy.deepcopy(net)
    with torch.no_grad():
        for p in net.parameters():
            p.add_(0.1 * torch.randn_like(p))
    found = measures.tangent_covariance(net, x, reference=start, chunk=3)
    J, J0 = measures.tangent_features(net, x), measures.tangent_features(start, x)
    change = J["tokens"] - J0["tokens"]
    torch.testing.assert_close(found["tokens"].Kbar, torch.einsum("ncti,nctj->ij", change, change) / 4, **exactly)
    change = J["block.0"] - J0["block.0"]
    torch.testing.assert_close(found["block.0"].Kbar, torch.einsum("ncipq,ncjpq->ij", change, change) / 4, **exactly)
    unmoved = measures.tangent_covariance(start, x, reference=start)
    assert all(not layer.Kbar.any() for layer in unmoved.values())


def test_a_layer_called_twice_sums_over_its_calls():
    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.step, self.out = nn.Linear(5, 5, dtype=double), nn.Linear(5, 2, dtype=double)

        def forward(self, x):
            return self.out(torch.tanh(self.step(torch.tanh(self.step(x)))))

    torch.manual_seed(1)
    net, x = Recurrent(), draw(6, 5)
    torch.testing.assert_close(
        measures.tangent_covariance(net, x)["step"].K, slow_covariance(net, net.step, x), **exactly
    )
    with pytest.raises(ValueError, match="'step' is called 2 times"):
        measures.tangent_features(net, x)
    with pytest.raises(ValueError, match="'step' is called 2 times"):
        measures.layer_inputs(net, x)
    assert measures.tangent_features(net, x, layers=["out"])["out"].shape == (6, 2, 2)


@pytest.mark.filterwarnings("ignore:.*performance drop.*")
def test_a_transformer_is_measured_like_anything_else():
    torch.manual_seed(0)
    block = nn.TransformerEncoderLayer(8, 2, 12, dropout=0.0, batch_first=True, dtype=double)
    net = nn.Sequential(block, nn.Flatten(), nn.Linear(24, 2, dtype=double)).eval()
    x = draw(3, 3, 8)
    found = measures.tangent_covariance(net, x, layers=["0.linear1", "0.linear2", "2"])
    for name, layer in measures.layer_names(net).items():
        if name in found:
            torch.testing.assert_close(found[name].K, slow_covariance(net, layer, x), **exactly)


def test_layer_inputs_are_what_the_layers_see():
    net, x = nets.mlp(4, 6, 2, seed=0), draw(9, 4)
    found = measures.layer_inputs(net, x, chunk=4)
    torch.testing.assert_close(found["0"], x)
    torch.testing.assert_close(found["2"], F.relu(F.relu(x @ net.layers[0].weight.T) @ net.layers[1].weight.T).detach())


def test_layers_go_by_their_names_less_the_shared_prefix():
    net = nets.mlp(3, 4, 2, seed=0)
    wrapped = nn.ModuleDict({"model": nn.ModuleDict({"net": net})})
    assert list(measures.layer_names(net)) == list(measures.layer_names(wrapped)) == ["0", "1", "2"]
    assert list(measures.layer_names(nn.Linear(2, 2))) == ["0"]
    assert list(measures.layer_names(nn.Sequential(nn.ReLU(), nn.Linear(2, 2)))) == ["1"]
    assert list(measures.layer_names(nn.ModuleDict({"a": net, "ab": nn.Linear(2, 2)}))) == [
        "a.layers.0",
        "a.layers.1",
        "a.layers.2",
        "ab",
    ]
    assert measures.layer_names(nn.ReLU()) == {}


def test_modules_are_left_as_they_were_found():
    net, x = Stranger(), draw(3, 2, 12, 10)
    net.stem.weight.requires_grad_(False)
    net.head.weight.grad = torch.ones_like(net.head.weight)
    before = copy.deepcopy(net.state_dict())
    measures.tangent_covariance(net, x, reference=net)
    assert all(torch.equal(a, b) for a, b in zip(net.state_dict().values(), before.values(), strict=True))
    assert torch.equal(net.head.weight.grad, torch.ones_like(net.head.weight))
    assert all(p.grad is None for name, p in net.named_parameters() if name != "head.weight")
    assert not any(m._forward_hooks for m in net.modules())
    assert not net.training
    assert not x.requires_grad


def test_measuring_works_where_gradients_are_off():
    net, x = nets.mlp(4, 6, 1, seed=0), draw(5, 4)
    expected = measures.layer_agop(net, x)["0"]
    with torch.no_grad():
        torch.testing.assert_close(measures.layer_agop(net, x)["0"], expected)
    with torch.inference_mode():
        torch.testing.assert_close(measures.layer_agop(net, x.clone())["0"], expected)
        torch.testing.assert_close(measures.agop(net, x.clone()), expected)
    for p in net.parameters():
        p.requires_grad_(False)
    torch.testing.assert_close(measures.layer_agop(net, x)["0"], expected)


def test_weights_are_a_copy_that_training_does_not_move():
    net = nets.mlp(4, 6, 1, seed=0)
    found = measures.tangent_covariance(net, draw(5, 4))["0"]
    before = found.W.clone()
    with torch.no_grad():
        net.layers[0].weight.zero_()
    assert torch.equal(found.W, before)


def test_a_layer_that_does_not_reach_the_output_has_no_covariance():
    class Dead(nn.Module):
        def __init__(self):
            super().__init__()
            self.dead, self.live = nn.Linear(3, 4, dtype=double), nn.Linear(3, 2, dtype=double)

        def forward(self, x):
            self.dead(x)
            return self.live(x)

    found = measures.tangent_covariance(Dead(), draw(5, 3))
    assert not found["dead"].K.any()
    torch.testing.assert_close(found["live"].K, torch.eye(2, dtype=double))


def test_batch_statistics_are_refused():
    x = draw(4, 2, 12, 10)
    for measure in (measures.tangent_covariance, measures.tangent_features, measures.agop, measures.layer_inputs):
        with pytest.raises(ValueError, match=r"BatchNorm2d 'norm' .*eval"):
            measure(Stranger().train(), x)
    with pytest.raises(ValueError, match="BatchNorm2d"):
        measures.tangent_covariance(Stranger(), x, reference=Stranger().train())
    without = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3, track_running_stats=False)).eval()
    with pytest.raises(ValueError, match="BatchNorm1d"):
        measures.tangent_covariance(without, torch.randn(4, 3))


def test_wrong_requests_are_refused_with_the_reason():
    net, x = nets.mlp(4, 6, 1, seed=0), draw(5, 4)
    with pytest.raises(ValueError, match=r"layer '01'; the nearest is '[01]'"):
        measures.tangent_covariance(net, x, layers=["01"])
    with pytest.raises(ValueError, match="ungrouped convolutional layer 'depthwise'"):
        measures.tangent_covariance(Stranger(), draw(2, 2, 12, 10), layers=["depthwise"])
    with pytest.raises(ValueError, match="at least one sample"):
        measures.tangent_covariance(net, x[:0])
    with pytest.raises(ValueError, match="chunk must be at least 1"):
        measures.agop(net, x, chunk=0)
    with pytest.raises(ValueError, match="one row for each sample"):
        measures.agop(lambda z: z.T, x)
    with pytest.raises(ValueError, match="does not depend"):
        measures.agop(lambda z: z.detach(), x)
    stranger = Stranger()
    stranger.unused = nn.Linear(2, 2)
    assert "unused" not in measures.tangent_covariance(stranger, draw(2, 2, 12, 10))
    with pytest.raises(ValueError, match="'unused' is not called"):
        measures.tangent_covariance(stranger, draw(2, 2, 12, 10), layers=["unused"])
    with pytest.raises(ValueError, match="calls no linear"):
        measures.tangent_covariance(nn.ReLU(), x)
    with pytest.raises(ValueError, match="pass a copy"):
        measures.tangent_covariance(net, x, reference=nets.mlp(4, 6, 1, outputs=2, seed=0))
    with pytest.raises(ValueError, match="pass a copy"):
        measures.tangent_covariance(net, x, reference=nets.mlp(4, 7, 1, seed=0))


class Tuple(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 2, dtype=double)

    def forward(self, x):
        return (self.layer(x),)


def test_outputs_that_are_no_tensor_are_refused():
    with pytest.raises(TypeError, match=r"must be a tensor .* got tuple"):
        measures.tangent_covariance(Tuple(), draw(5, 4))


def test_layers_run_without_gradients_are_refused():
    class Frozen(Tuple):
        def forward(self, x):
            with torch.no_grad():
                h = self.layer(x)
            return h * x[:, :2]

    with pytest.raises(ValueError, match=r"under torch\.no_grad"):
        measures.tangent_covariance(Frozen(), draw(5, 4))


def test_layers_that_lose_the_sample_dimension_have_a_covariance_but_no_features():
    class Folded(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.out = nn.Linear(4, 3, dtype=double), nn.Linear(3, 1, dtype=double)

        def forward(self, x):
            h = torch.tanh(self.layer(x.flatten(0, 1))).unflatten(0, x.shape[:2])
            return self.out(h.sum(1))

    torch.manual_seed(0)
    net, x = Folded(), draw(5, 3, 4)
    torch.testing.assert_close(
        measures.tangent_covariance(net, x)["layer"].K, slow_covariance(net, net.layer, x), **exactly
    )
    with pytest.raises(ValueError, match="does not keep the samples first"):
        measures.tangent_features(net, x)


def test_float32_agrees_with_float64():
    x = draw(64, 20)
    single = measures.tangent_covariance(nets.mlp(20, 30, 3, outputs=3, seed=0, dtype="float32"), x.float())
    for name, layer in measures.tangent_covariance(nets.mlp(20, 30, 3, outputs=3, seed=0), x).items():
        assert single[name].K.dtype == torch.float32
        assert (single[name].K.double() - layer.K).norm() < 1e-5 * layer.K.norm()
