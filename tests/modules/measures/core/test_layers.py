"""Which weights measuring leaves out, and networks under torch.compile, which are measured as they were written."""

import subprocess
import sys

import pytest
import torch
from torch import nn

from featurelab.modules import measures
from featurelab.modules.measures.core.compiled import as_written

X = torch.randn(6, 5, 8, generator=torch.Generator().manual_seed(0))


class Several(nn.Module):
    """Every kind of weight that is not a linear layer's, beside linear layers that are called or not."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embedding = nn.Embedding(7, 8)
        self.recurrent = nn.GRU(8, 8, batch_first=True)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.up = nn.ConvTranspose1d(8, 8, 3)
        self.depthwise = nn.Conv1d(8, 8, 3, groups=4)
        self.mixing = nn.Parameter(torch.randn(8, 8))
        self.norm = nn.BatchNorm1d(8)
        self.constrained = nn.utils.parametrizations.spectral_norm(nn.Linear(8, 8))
        self.head = nn.Linear(8, 7)
        self.head.weight = self.embedding.weight
        self.found_out = nn.LazyLinear(2)
        self.unused = nn.Linear(4, 4)
        self.unseen = nn.LazyLinear(3, bias=False)

    def forward(self, x):
        h = self.recurrent(x)[0]
        h = self.attention(h, h, h, need_weights=False)[0]
        h = self.norm(self.depthwise(self.up(h.mT))).mean(2) @ self.mixing
        h = self.constrained(torch.tanh(h))
        return self.head(h) + self.found_out(h).sum(1, keepdim=True)


def several():
    net = Several().eval()
    net(X)
    return net


def test_every_weight_that_is_not_measured_is_named_with_the_reason():
    net = several()
    found = measures.tangent_covariance(net, X)
    assert list(found) == ["constrained", "head", "found_out"]
    unknown, uncalled = "{} is not a kind of layer that is measured", "the forward pass does not call its layer"
    assert measures.unmeasured_weights(net, found) == {
        "mixing": unknown.format("Several"),
        "recurrent.weight_ih_l0": unknown.format("GRU"),
        "recurrent.weight_hh_l0": unknown.format("GRU"),
        "attention.in_proj_weight": unknown.format("MultiheadAttention"),
        "attention.out_proj.weight": uncalled,
        "up.weight": unknown.format("ConvTranspose1d"),
        "depthwise.weight": unknown.format("Conv1d of 4 groups"),
        "unused.weight": uncalled,
        "unseen.weight": uncalled,
    }


def test_what_is_left_out_of_any_network_is_named_without_measuring_it():
    named = measures.unmeasured_weights(several())
    assert set(named) == {
        "mixing",
        "recurrent.weight_ih_l0",
        "recurrent.weight_hh_l0",
        "attention.in_proj_weight",
        "attention.out_proj.weight",
        "up.weight",
        "depthwise.weight",
    }
    assert measures.unmeasured_weights(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))) == {}
    assert list(
        measures.unmeasured_weights(nn.Sequential(nn.Conv1d(5, 4, 3), nn.Linear(24, 3)), kinds=(nn.Linear,))
    ) == ["0.weight"]


def test_nothing_is_left_out_of_a_network_of_linear_and_convolutional_layers():
    net = nn.Sequential(nn.Conv1d(5, 4, 3), nn.BatchNorm1d(4), nn.Flatten(), nn.Linear(24, 3)).eval()
    assert measures.unmeasured_weights(net, measures.tangent_covariance(net, X)) == {}
    assert list(measures.unmeasured_weights(net, ["3"])) == ["0.weight"]
    assert measures.unmeasured_weights(net, ["3"], (nn.Linear,)) == {
        "0.weight": "Conv1d is not a kind of layer that is measured"
    }


def test_the_layers_of_a_transformer_are_measured_also_where_it_has_a_fast_path():
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    net = nn.Sequential(nn.TransformerEncoder(layer, 2), nn.Flatten(), nn.Linear(40, 2)).eval().requires_grad_(False)
    inner = [f"0.layers.{i}.linear{j}" for i in (0, 1) for j in (1, 2)]
    with torch.inference_mode():
        assert list(measures.layer_inputs(net, X)) == [*inner, "2"]
    assert {name.rsplit(".", 2)[-2] for name in measures.unmeasured_weights(net, [*inner, "2"])} == {
        "self_attn",
        "out_proj",
    }


def network():
    torch.manual_seed(1)
    return nn.Sequential(*[part for _ in range(6) for part in (nn.Linear(8, 8), nn.Tanh())], nn.Linear(8, 3))


class Half(nn.Module):
    """A network of which a part is compiled, beside a layer that is not."""

    def __init__(self, body):
        super().__init__()
        self.body, self.head = body, nn.Linear(3, 2)

    def forward(self, x):
        return self.head(self.body(x))


def in_place(net):
    net.compile(backend="eager")
    return net


def a_method(net):
    net.forward = torch.compile(net.forward, backend="eager")
    return net


@pytest.mark.parametrize("how", [lambda net: torch.compile(net, backend="eager"), in_place, a_method])
@pytest.mark.usefixtures("unchecked")
def test_a_compiled_network_is_measured_as_it_was_written(how):
    torch.manual_seed(0)
    plain, x = Half(network()), X[:, 0]
    torch.manual_seed(0)
    compiled = Half(how(network()))
    compiled(x)  # compiled code that knows of no hooks is there before the measurement
    for measure in (measures.tangent_covariance, measures.tangent_features, measures.layer_inputs):
        expected, found = measure(plain, x), measure(compiled, x)
        assert (
            list(found)
            == list(expected)
            == ["body.0", "body.2", "body.4", "body.6", "body.8", "body.10", "body.12", "head"]
        )
    for name, layer in measures.tangent_covariance(plain, x).items():
        assert torch.equal(measures.tangent_covariance(compiled, x)[name].K, layer.K)
    assert torch.equal(measures.agop(compiled, x), measures.agop(plain, x))
    assert measures.unmeasured_weights(compiled, ["head"]).keys() == measures.unmeasured_weights(plain, ["head"]).keys()
    torch.testing.assert_close(measures.ntk(compiled, x), measures.ntk(plain, x))


@pytest.mark.usefixtures("unchecked")
def test_code_goes_on_being_compiled_after_a_measurement_and_is_not_compiled_anew():
    from torch._dynamo.testing import CompileCounter

    count = CompileCounter()
    net = torch.compile(network(), backend=count)
    x = X[:, 0]
    net(x)
    before = count.frame_count
    measures.tangent_covariance(net, x)
    assert count.frame_count == before == 1
    net(x)
    assert count.frame_count == 1
    net(X)
    assert count.frame_count == 2


@pytest.mark.usefixtures("unchecked")
def test_measuring_works_inside_of_code_that_is_being_compiled():
    net, x, seen = network(), X[:, 0], []

    @torch.compile(backend="eager")
    def step():
        seen.append(measures.tangent_covariance(net, x))
        return net(x).sum()

    step()
    assert torch.equal(seen[0]["0"].K, measures.tangent_covariance(net, x)["0"].K)


def test_measuring_does_not_import_the_compiler():
    code = """
import sys, torch
from featurelab.modules import measures
measures.tangent_covariance(torch.nn.Linear(2, 2), torch.randn(3, 2))
print("torch._dynamo" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False"]


def test_what_runs_as_written_keeps_its_name_arguments_and_errors():
    @as_written
    def divided(a, *, by):
        """a / by"""
        return a / by

    assert (divided.__name__, divided.__doc__, divided(6, by=3)) == ("divided", "a / by", 2)
    with pytest.raises(ZeroDivisionError):
        divided(1, by=0)
