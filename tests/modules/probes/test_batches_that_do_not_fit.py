"""A batch that a network does not take: one line, an entry in `skipped`, and training as if no probe were there."""

import warnings

import pytest
import pytorch_lightning as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from featurelab.modules.data import TensorData
from featurelab.modules.learners import Supervised, sgd
from featurelab.modules.nets import mlp
from featurelab.modules.probes import AnsatzProbe, CannotMeasure, CollapseProbe, LossProbe, Measure, SpectrumProbe

QUIET = dict.fromkeys(["logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"], False)
IMAGES = torch.randn(24, 1, 8, 8, generator=torch.Generator().manual_seed(0))


class Gan(pl.LightningModule):
    """Two networks, two optimisers, its own loop; forward takes noise, batches are images."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.automatic_optimization = False
        self.generator = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 64))
        self.discriminator = nn.Sequential(nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, z):
        return self.generator(z)

    def training_step(self, batch, _):
        real = batch[0].flatten(1)
        for own, sign in zip(self.optimizers(), (1, -1), strict=True):
            own.zero_grad()
            fake = self(torch.randn(len(real), 10))
            self.manual_backward(sign * (self.discriminator(real).mean() - self.discriminator(fake).mean()))
            own.step()

    def configure_optimizers(self):
        return [torch.optim.Adam(part.parameters(), lr=1e-3) for part in (self.discriminator, self.generator)]


def fit(module, *watching, batches=None, steps=6):
    pl.seed_everything(0, verbose=False)
    batches = DataLoader(TensorDataset(IMAGES, torch.arange(24) % 3), batch_size=8) if batches is None else batches
    pl.Trainer(accelerator="cpu", max_steps=steps, callbacks=list(watching), **QUIET).fit(module, batches)
    return module


@pytest.mark.parametrize("probe", [AnsatzProbe, SpectrumProbe, CollapseProbe])
def test_a_gan_trains_on_with_one_line_and_an_entry_in_skipped(probe):
    watching = probe(every=2)
    with pytest.warns(UserWarning, match="could not measure") as record:
        module = fit(Gan(), watching)
    (line,) = [str(told.message) for told in record if "could not measure" in str(told.message)]
    assert "\n" not in line
    assert line.startswith(
        f"{probe.__name__} could not measure Gan on inputs (8, 1, 8, 8) float32, targets (8) int64: ".replace(
            "(8)", "(8,)"
        )
    )
    assert "mat1 and mat2 shapes cannot be multiplied" in line
    assert list(watching.skipped) == ["measurement"]
    assert watching.skipped["measurement"].startswith("inputs (8, 1, 8, 8) float32")
    assert watching.history == [(step, {}) for step in (0, 2, 4, 6)]
    for (name, a), b in zip(module.state_dict().items(), fit(Gan()).state_dict().values(), strict=True):
        assert torch.equal(a, b), name


def test_a_gan_is_measured_on_inputs_that_it_takes():
    watching = [AnsatzProbe(every=2, inputs=torch.randn(16, 10)), SpectrumProbe(every=2, data=torch.randn(16, 10))]
    watching.append(AnsatzProbe(every=2, inputs=lambda batch: batch[0].flatten(1)[:, :10], prefix="cut/"))
    fit(Gan(), *watching)
    for probe in watching:
        assert len(probe.latest()) > 4
        assert "measurement" not in probe.skipped


@pytest.mark.parametrize("probe", [AnsatzProbe(strict=True), Measure(lambda module, x: module(x).std(), strict=True)])
def test_strict_ends_training_with_one_clear_error(probe):
    with pytest.raises(
        CannotMeasure, match=r"could not measure Gan on inputs \(8, 1, 8, 8\) float32.*: mat1"
    ) as refused:
        fit(Gan(), probe)
    assert "\n" not in str(refused.value)
    assert isinstance(refused.value.__cause__, RuntimeError)


@pytest.mark.parametrize("batches", [[["a", "b"], ["c"]], [{"text": ["a"]}], [7]])
def test_a_batch_without_tensors_is_told_once(batches):
    class Blind(Gan):
        def training_step(self, batch, _):
            super().training_step((IMAGES[:4],), _)

    watching = Measure(lambda module, x: 1.0, every=2)
    with pytest.warns(UserWarning, match="does not start with a tensor of inputs and names none") as record:
        fit(Blind(), watching, batches=DataLoader(batches, batch_size=None), steps=2)
    assert len([told for told in record if "could not measure" in str(told.message)]) == 1
    assert watching.latest() == {}
    assert "measurement" in watching.skipped
    with pytest.raises(CannotMeasure):
        fit(Blind(), Measure(lambda module, x: 1.0, strict=True), batches=DataLoader(batches, batch_size=None))


def test_a_later_measurement_that_works_leaves_nothing_in_skipped():
    calls = []

    def once_broken(module, x):
        calls.append(x)
        if len(calls) == 1:
            raise RuntimeError("first\nline")
        return 1.0

    watching = Measure(once_broken, every=3, name="works")
    with pytest.warns(UserWarning, match="float32, targets .*: first. Training continues"):
        fit(Gan(), watching)
    assert watching.history == [(0, {}), (3, {"works": 1.0}), (6, {"works": 1.0})]
    assert watching.skipped == {}


@pytest.mark.parametrize("strict", [None, True])
def test_a_signal_of_ones_own_passes_through(strict):
    class Stop(Exception):
        pass

    def stop(module, x):
        raise Stop

    with pytest.raises(Stop):
        fit(Gan(), Measure(stop, strict=strict))


def test_the_traceback_of_a_strict_error_ends_where_the_mistake_is():
    def mistaken(module, x):
        return {}["no such key"]

    with pytest.raises(CannotMeasure) as refused:
        fit(Gan(), Measure(mistaken, strict=True))
    assert refused.traceback[-1].name == "mistaken"


def test_a_layer_that_does_not_exist_is_refused_before_training():
    with pytest.raises(ValueError, match="no linear or ungrouped convolutional layer 'generatr'"):
        fit(Gan(), AnsatzProbe(layers=["generatr"]))


def test_a_figure_never_loses_a_measurement_without_a_word(monkeypatch):
    """Our own experiments are strict, unless they say otherwise."""
    import featurelab.pipelines.engine.trial.fitting.fit as engine
    from featurelab.pipelines.engine.experiment.config import Config
    from featurelab.tracking.outbox.null import NullRecorder

    class Stop(Exception):
        pass

    def caught(config, recorder, *, callbacks, **options):
        raise Stop(*[getattr(callback, "strict", "none") for callback in callbacks])

    monkeypatch.setattr(engine, "trainer_for", caught)
    task = TensorData((torch.randn(8, 3), torch.randn(8, 1)), dtype="float32")
    watching = [LossProbe({"train": task.train}), AnsatzProbe(strict=False), pl.Callback()]
    learner = Supervised(mlp(3, 4, 1, seed=0), optimizer=sgd(0.1))
    with pytest.raises(Stop) as stopped:
        engine.fit(learner, task, Config(device="cpu"), NullRecorder(), steps=1, probes=watching)
    assert stopped.value.args == (True, False, "none")


def test_nothing_is_said_where_everything_fits():
    module = Supervised(mlp(8, 6, 1, seed=0, dtype="float32"), optimizer=sgd(0.1))
    x = torch.randn(12, 8)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", ".*could not measure|.*takes about|.*float32", UserWarning)
        probe = AnsatzProbe()
        fit(module, probe, batches=DataLoader(TensorDataset(x, x[:, :1]), batch_size=4), steps=3)
    assert len(probe.history) == 4
