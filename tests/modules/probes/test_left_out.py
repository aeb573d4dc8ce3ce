"""What probes leave out, and that they say so: weights that they cannot measure, scores that say nothing."""

import copy
import itertools
import pickle
import warnings

import pytest
import pytorch_lightning as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from featurelab.modules import measures
from featurelab.modules.probes import (
    AnsatzProbe,
    AttributionProbe,
    CKAProbe,
    CollapseProbe,
    GramProbe,
    Measure,
    SpectrumProbe,
)

draw = torch.Generator().manual_seed(0)
X = torch.randn(48, 6, 4, generator=draw)
Y = torch.arange(48) % 3
TARGETS = torch.randn(48, 3, generator=draw)


class Module(pl.LightningModule):
    """Trains `net` on class labels or on numbers."""

    def __init__(self, net, targets=Y):
        super().__init__()
        self.net, self.targets = net, targets

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch, _):
        x, y = batch
        outputs = self(x)
        if y.is_floating_point():
            return nn.functional.mse_loss(outputs, y.reshape(outputs.shape))
        return nn.functional.cross_entropy(outputs, y)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

    def train_dataloader(self):
        return DataLoader(TensorDataset(X, self.targets), batch_size=16)


class Tokens(nn.Module):
    """A recurrent layer and attention before two linear layers."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.recurrent = nn.LSTM(4, 8, batch_first=True)
        self.attention = nn.TransformerEncoderLayer(8, 2, 8, dropout=0.0, batch_first=True)
        self.hidden, self.head = nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x):
        return self.head(torch.relu(self.hidden(self.attention(self.recurrent(x)[0]).mean(1))))


TOKENS = {
    "net.recurrent.weight_ih_l0": "LSTM is not a kind of layer that is measured",
    "net.recurrent.weight_hh_l0": "LSTM is not a kind of layer that is measured",
    "net.attention.self_attn.in_proj_weight": "MultiheadAttention is not a kind of layer that is measured",
    "net.attention.self_attn.out_proj.weight": "the forward pass does not call its layer",
}


def linear(*sizes):
    torch.manual_seed(0)
    parts = [part for a, b in itertools.pairwise(sizes) for part in (nn.Linear(a, b), nn.Tanh())]
    return nn.Sequential(nn.Flatten(), *parts[:-1])


def fit(module, *probes, steps=4, **options):
    flags = dict.fromkeys(["logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"], False)
    pl.Trainer(accelerator="cpu", max_steps=steps, callbacks=list(probes), **flags).fit(module, **options)
    return module


def told(record):
    return [str(line.message) for line in record if "leaves out" in str(line.message)]


@pytest.mark.filterwarnings("ignore:.*performance drop.*")
@pytest.mark.parametrize("probe", [AnsatzProbe(quantities=["nfa"]), SpectrumProbe(), AttributionProbe()])
def test_a_probe_of_all_layers_says_once_a_fit_which_weights_it_leaves_out(probe):
    probe = copy.deepcopy(probe)
    assert probe.skipped == {}
    for _ in range(2):
        with pytest.warns(UserWarning, match="leaves out") as record:
            fit(Module(Tokens()), probe)
        assert len(probe.history) == 5
        assert len(told(record)) == 1
        assert "\n" not in told(record)[0]
        assert told(record)[0] == (
            f"{type(probe).__name__} leaves out net.recurrent.weight_ih_l0, net.recurrent.weight_hh_l0 "
            "(LSTM is not a kind of layer that is measured); net.attention.self_attn.in_proj_weight "
            "(MultiheadAttention is not a kind of layer that is measured); net.attention.self_attn.out_proj.weight "
            "(the forward pass does not call its layer): see its `skipped`"
        )
        assert {name: why for name, why in probe.skipped.items() if "/" not in name} == TOKENS


@pytest.mark.parametrize(
    ("probe", "net"),
    [
        (SpectrumProbe(layers=["hidden"]), Tokens()),  # the user has chosen
        (AnsatzProbe(layers=["hidden"]), Tokens()),
        (AttributionProbe(layers=["hidden"]), Tokens()),
        (SpectrumProbe(), linear(24, 8, 3)),
        (CollapseProbe(), Tokens()),  # one layer by definition
        (Measure(lambda module, x: 0.0), Tokens()),
    ],
)
def test_nothing_is_said_where_nothing_was_left_out(probe, net):
    with warnings.catch_warnings(record=True) as record:
        warnings.simplefilter("always")
        fit(Module(net), probe)
    assert told(record) == []
    assert probe.skipped == {}


def test_attribution_leaves_convolutions_out_and_the_readout_is_none_of_its_layers():
    net = nn.Sequential(nn.Conv1d(6, 4, 3), nn.Flatten(), nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 3))
    probe = AttributionProbe()
    with pytest.warns(UserWarning, match="leaves out net.0.weight"):
        fit(Module(net), probe)
    assert probe.skipped == {"net.0.weight": "Conv1d is not a kind of layer that is measured"}


def test_many_weights_are_told_in_one_short_line():
    net = linear(24, *[4] * 20, 3)
    net.forward = lambda x: net[-1](torch.tanh(net[1](x.flatten(1))))
    probe = SpectrumProbe()
    with pytest.warns(UserWarning, match=r"net.3.weight, net.5.weight, net.7.weight and 16 more \(the forward"):
        fit(Module(net), probe)
    assert len(probe.skipped) == 19


@pytest.mark.filterwarnings("ignore:.*leaves out", "ignore:.*performance drop.*")
def test_training_with_weights_left_out_is_the_same_and_probes_travel():
    probes = [AnsatzProbe(every=2), AttributionProbe(every=2)]
    plain, probed = fit(Module(Tokens())), fit(Module(Tokens()), *probes)
    for a, b in zip(plain.parameters(), probed.parameters(), strict=True):
        assert torch.equal(a, b)
    for probe in probes:
        for travelled in (pickle.loads(pickle.dumps(probe)), copy.deepcopy(probe)):
            assert travelled.skipped == probe.skipped != {}
        fresh = type(probe)(every=2)
        fresh.load_state_dict(probe.state_dict())
        assert fresh.history == probe.history


def test_alignments_of_the_readout_are_one_by_construction_and_not_reported():
    probe = AnsatzProbe(every=2)
    module = fit(Module(linear(24, 8, 3)), probe)
    found = measures.tangent_covariance(module, X[:16])["3"]
    assert torch.equal(found.K, torch.eye(3))
    assert measures.nfa(found.W, found.K) == pytest.approx(1)  # the function still answers
    of_readout = {name.split("/")[0] for _, values in probe.history for name in values if name.endswith("/3")}
    assert of_readout == {"centered_ratio", "double_centered_ratio"}
    assert probe.skipped == dict.fromkeys(["nfa/3", "cnfa/3"], "1 by construction: K is a multiple of the identity")
    assert {"nfa/1", "cnfa/1", "double_centered_nfa/1", "ptk_centered_nfa/1"} <= probe.latest().keys()


@pytest.mark.parametrize("factor", [1.0, 1 / 3, 0.7])
def test_a_readout_that_is_scaled_is_none_the_less_trivial(factor):
    class Scaled(nn.Sequential):
        def forward(self, x):
            return factor * super().forward(x)

    probe = AnsatzProbe(quantities=["nfa"], inputs=torch.randn(5000, 6, 4, generator=draw))
    fit(Module(Scaled(*linear(24, 5, 10, 3))), probe, steps=1)
    assert probe.skipped.keys() == {"nfa/5"}
    assert probe.latest().keys() == {"nfa/1", "nfa/3"}


def test_layers_of_one_output_or_one_input_are_trivial_wherever_they_are():
    probe = AnsatzProbe(every=2)
    fit(Module(linear(24, 1, 5, 1), TARGETS[:, 0]), probe)
    one_output, one_input = (
        "1 by construction: {} is a multiple of the identity",
        "1 by construction: the layer has one input",
    )
    alignments = ["nfa", "cnfa", "double_centered_nfa", "ptk_centered_nfa"]
    assert probe.skipped == {
        **{f"{name}/1": one_output.format("K" if name in ("nfa", "cnfa") else "Kbar") for name in alignments},
        **{f"{name}/3": one_input for name in alignments},
        **{f"{name}/5": one_output.format("K") for name in ("nfa", "cnfa")},  # Kbar is 0: nothing is defined
    }
    assert {name.split("/")[0] for name in probe.latest()} == {"centered_ratio", "double_centered_ratio"}


def test_what_is_skipped_is_what_the_last_measurement_left_out():
    net = nn.Sequential(nn.Flatten(), nn.Linear(24, 8), nn.Linear(8, 8))
    nn.init.orthogonal_(net[2].weight, generator=draw)  # the hidden layer's K is W'W = I, until it is trained
    probe = AnsatzProbe(every=4, quantities=["nfa"])
    fit(Module(net), probe)
    assert [sorted(values) for _, values in probe.history] == [[], ["nfa/1"]]
    assert probe.skipped.keys() == {"nfa/2"}


@pytest.mark.parametrize("probe", [CollapseProbe, GramProbe, AttributionProbe])
@pytest.mark.parametrize("targets", [TARGETS, TARGETS[:, :1], TARGETS[:, 0]], ids=["rows", "column", "numbers"])
def test_continuous_targets_have_no_classes(probe, targets):
    net = linear(24, 8, 3 if targets.shape[1:] == (3,) else 1)
    with pytest.raises(ValueError, match=r"labels must.* got .*-?\d\.\d+") as refused:
        fit(Module(net, targets), probe(strict=True))
    assert "\n" not in str(refused.value)
    named = probe(labels=Y[:16])
    fit(Module(net, targets), named)
    assert named.latest()


@pytest.mark.parametrize("targets", [TARGETS, TARGETS[:, 0]], ids=["rows", "numbers"])
def test_a_probe_that_needs_no_labels_takes_any_targets(targets):
    probe = CKAProbe()
    fit(Module(linear(24, 8, 3 if targets.ndim == 2 else 1), targets), probe)
    assert probe.latest().keys() == {"cka/3"}
