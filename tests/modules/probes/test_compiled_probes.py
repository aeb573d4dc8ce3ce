"""Probes of networks under torch.compile: the same names and values as without, however it was compiled."""

import pytest
import pytorch_lightning as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from featurelab.modules.data import ChainMonomials
from featurelab.modules.learners import Supervised, gd
from featurelab.modules.nets import mlp
from featurelab.modules.probes import (
    AlignmentProbe,
    AnsatzProbe,
    CKAProbe,
    CollapseProbe,
    LossProbe,
    Measure,
    SpectrumProbe,
)

pytestmark = pytest.mark.usefixtures("unchecked")

draw = torch.Generator().manual_seed(0)
X, Y = torch.randn(64, 8, generator=draw), torch.arange(64) % 3


class Module(pl.LightningModule):
    """Six hidden layers and a readout."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(*[part for _ in range(6) for part in (nn.Linear(8, 8), nn.Tanh())], nn.Linear(8, 3))

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch, _):
        return nn.functional.cross_entropy(self(batch[0]), batch[1])

    def validation_step(self, batch, _):  # compiles the network in evaluation mode before anything is measured
        self.log("loss/val", nn.functional.cross_entropy(self(batch[0]), batch[1]))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.3)


def whole(module, **options):
    return torch.compile(module, **options)


def whole_in_place(module, **options):
    module.compile(**options)
    return module


def part(module, **options):
    module.net = torch.compile(module.net, **options)
    return module


def part_in_place(module, **options):
    module.net.compile(**options)
    return module


def method(module, **options):
    module.forward = torch.compile(module.forward, **options)
    return module


class CompileLater(pl.Callback):
    """After the probes have seen the module, and taken their copies."""

    def __init__(self, how, **options):
        self.how, self.options = how, options

    def on_train_epoch_start(self, trainer, module):
        if trainer.current_epoch == 1:
            self.how(module, **self.options)


def probes():
    return [
        AnsatzProbe(every=2),
        SpectrumProbe(every=3),
        CollapseProbe(every=2, layers=["0", "8", "12"]),
        CollapseProbe(every=2, data=DataLoader(TensorDataset(X, Y), batch_size=20)),
        AlignmentProbe(every=2),
        CKAProbe(every=2, layers=["2", "12"]),
        LossProbe({"all": (X, Y)}, every=2, loss="cross_entropy"),
        Measure(lambda module, x: module(x).std(), every=2, name="spread"),
    ]


def fit(module, *callbacks):
    torch._dynamo.reset()
    watching = probes()
    flags = dict.fromkeys(["logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"], False)
    batches = DataLoader(TensorDataset(X, Y), batch_size=32)
    trainer = pl.Trainer(accelerator="cpu", max_epochs=3, callbacks=[*watching, *callbacks], **flags)
    trainer.fit(module, batches, batches)
    return watching


@pytest.fixture(scope="module")
def expected():
    return fit(Module())


def assert_alike(found, expected, rel, abs=1e-5):
    for probe, other in zip(found, expected, strict=True):
        assert [step for step, _ in probe.history] == [step for step, _ in other.history]
        for (_, values), (_, others) in zip(probe.history, other.history, strict=True):
            assert list(values) == list(others)
            assert values == (others if rel is None else pytest.approx(others, rel=rel, abs=abs))
        assert probe.skipped == other.skipped


def test_every_layer_is_measured(expected):
    layers = {name.split("/")[1] for name in expected[0].latest()}
    assert layers == {"0", "2", "4", "6", "8", "10", "12"}


@pytest.mark.parametrize("how", [whole, whole_in_place, part, part_in_place, method])
def test_a_compiled_module_is_measured_as_it_was_written(how, expected):
    assert_alike(fit(how(Module(), backend="eager")), expected, rel=None)


@pytest.mark.parametrize("how", [whole_in_place, part, part_in_place, method])
def test_a_module_may_be_compiled_after_the_probe_has_seen_it(how, expected):
    assert_alike(fit(Module(), CompileLater(how, backend="eager")), expected, rel=None)


@pytest.mark.parametrize("how", [whole, part])
def test_the_compiler_of_gradients_makes_no_difference(how, expected):
    assert_alike(fit(how(Module(), backend="aot_eager")), expected, rel=1e-4)


@pytest.mark.heavy
@pytest.mark.parametrize("how", [whole, part, part_in_place])
def test_generated_code_makes_no_difference(how, expected):
    assert_alike(fit(how(Module())), expected, rel=1e-3)


def test_a_probe_that_measures_in_mid_batch_of_compiled_training_finds_the_same():
    def measured(change):
        module = Supervised(mlp(8, 12, 2, seed=0, init_scale=0.1), optimizer=gd(0.05), steps_per_batch=3)
        probe = AnsatzProbe(every=2)
        flags = dict.fromkeys(["logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"], False)
        trainer = pl.Trainer(accelerator="cpu", max_steps=7, callbacks=[probe], **flags)
        trainer.fit(change(module), ChainMonomials(40, 20, 8, 3, seed=0))
        return [probe]

    compiled = measured(lambda module: torch.compile(module, backend="eager"))
    assert_alike(compiled, measured(lambda module: module), rel=1e-9, abs=1e-12)


def test_training_of_a_compiled_module_is_the_same_with_and_without_probes():
    def weights(watching):
        torch._dynamo.reset()
        flags = dict.fromkeys(["logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"], False)
        trainer = pl.Trainer(accelerator="cpu", max_epochs=2, callbacks=watching, **flags)
        module = Module()
        trainer.fit(torch.compile(module, backend="aot_eager"), DataLoader(TensorDataset(X, Y), batch_size=32))
        return torch.cat([param.detach().flatten() for param in module.parameters()])

    assert torch.equal(weights(probes()), weights([]))
