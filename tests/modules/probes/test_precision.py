"""Networks that train in half precision are measured in float32, and training does not notice."""

import copy

import pytest
import pytorch_lightning as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from transformers_nets import QUIET, batch, network
from transformers_nets import fit as fine_tune

from featurelab.modules import measures, probes

X = torch.randn(48, 6, generator=torch.Generator().manual_seed(0))
Y = torch.arange(48) % 3
PRECISIONS = ["bf16-mixed", "bf16-true"]


class Module(pl.LightningModule):
    def __init__(self, net=None):
        super().__init__()
        torch.manual_seed(0)
        self.net = net or nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Dropout(0.2), nn.Linear(12, 8), nn.Tanh())
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        return self.head(self.net(x))

    def training_step(self, batch, _):
        return nn.functional.cross_entropy(self(batch[0]), batch[1])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def fit(precision, *watching, module=None, steps=6):
    pl.seed_everything(0, verbose=False)
    module = module or Module()
    start = copy.deepcopy(module)
    trainer = pl.Trainer(accelerator="cpu", max_steps=steps, precision=precision, callbacks=list(watching), **QUIET)
    trainer.fit(module, DataLoader(TensorDataset(X, Y), batch_size=16))
    return module, start


@pytest.mark.parametrize("precision", PRECISIONS)
def test_values_are_those_of_the_weights_in_float32(precision):
    ansatz, spectrum = probes.AnsatzProbe(every=6, inputs=X), probes.SpectrumProbe(every=6, inputs=X)
    collapse = probes.CollapseProbe(every=6, inputs=(X, Y))
    loss = probes.LossProbe({"all": (X, Y)}, every=6, loss="cross_entropy")
    module, start = fit(precision, ansatz, spectrum, collapse, loss)
    assert next(module.parameters()).dtype == (torch.bfloat16 if precision == "bf16-true" else torch.float32)
    if precision == "bf16-true":
        start = start.bfloat16()
    module, start = module.float().eval(), start.float().eval()
    for layer, now in measures.tangent_covariance(module, X, reference=start).items():
        W0 = measures.layer_names(start)[layer].weight.detach()
        for name, value in measures.ansatz_decomposition(now.W, W0, now.K, now.Kbar).items():
            if f"{name}/{layer}" not in ansatz.skipped:
                assert ansatz.latest()[f"{name}/{layer}"] == pytest.approx(value, rel=1e-5)
        dispersion = measures.eigenvalue_dispersion(now.K).item()
        assert spectrum.latest()[f"ptk_dispersion/{layer}"] == pytest.approx(dispersion, rel=1e-5)
    outputs = module(X)
    assert loss.latest()["loss/all"] == pytest.approx(nn.functional.cross_entropy(outputs, Y).item(), rel=1e-5)
    features = measures.layer_inputs(module, X, layers=["head"])["head"]
    assert collapse.latest()["nc1/head"] == pytest.approx(measures.nc1(measures.class_moments(features, Y)).item())
    assert "float32" not in ansatz.skipped.keys() | spectrum.skipped.keys()


@pytest.mark.parametrize("precision", PRECISIONS)
def test_training_in_half_precision_is_the_same_with_and_without_probes(precision):
    watching = [probes.AnsatzProbe(), probes.CKAProbe(), probes.Measure(lambda module, x: module(x).std())]
    (plain, _), (watched, _) = fit(precision), fit(precision, *watching)
    for a, b in zip(plain.parameters(), watched.parameters(), strict=True):
        assert a.dtype == b.dtype
        assert torch.equal(a, b)
    tied = [
        fine_tune(network("llama", tie_word_embeddings=True), batch("llama"), *some, precision=precision)
        for some in ([], [probes.AnsatzProbe(quantities=["nfa"])])
    ]
    for a, b in zip(*[each.parameters() for each in tied], strict=True):
        assert torch.equal(a, b)
    assert tied[1].model.lm_head.weight is tied[1].model.model.embed_tokens.weight


def test_functions_of_the_network_see_float32_too():
    seen = []
    fit("bf16-true", probes.Measure(lambda module, x: seen.append((module(x).dtype, x.dtype)) or 0.0))
    assert set(seen) == {(torch.float32, torch.float32)}


def test_weights_that_are_half_precision_by_themselves_are_measured_in_float32():
    class Half(Module):
        def training_step(self, batch, _):
            return nn.functional.cross_entropy(self(batch[0].bfloat16()).float(), batch[1])

    probe = probes.SpectrumProbe()
    module, _ = fit("32-true", probe, module=Half().bfloat16())
    assert probe.latest()
    assert next(module.parameters()).dtype == torch.bfloat16


class Stubborn(nn.Sequential):
    """Switches autocast on by itself."""

    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return super().forward(x).to(x.dtype)


def test_a_network_that_computes_in_half_precision_by_itself_is_named():
    probe = probes.SpectrumProbe()
    with pytest.warns(UserWarning, match="the network computes in bfloat16 by itself, not in float32") as record:
        fit("32-true", probe, module=Module(Stubborn(nn.Linear(6, 8))))
    assert len([line for line in record if "bfloat16" in str(line.message)]) == 1
    assert "bfloat16" in probe.skipped["float32"]
    assert probe.latest()
