"""Probes on our own learner and on a stranger's module: when they measure, what they measure, what they leave alone."""

import copy
import math
import random

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.loggers import Logger
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from featurelab.modules.data import ChainMonomials, Digits
from featurelab.modules.learners import Supervised, gd, mse
from featurelab.modules.measures import (
    ansatz_decomposition,
    effective_rank,
    eigenvalue_dispersion,
    stable_rank,
    tangent_covariance,
)
from featurelab.modules.nets import mlp
from featurelab.modules.probes import AnsatzProbe, LossProbe, Measure, Probe, SpectrumProbe

DATA = ChainMonomials(40, 20, 8, 3, seed=0)


class Notes(Logger):
    """A logger that remembers."""

    name, version = "notes", "0"

    def __init__(self):
        super().__init__()
        self.lines = []

    def log_metrics(self, metrics, step=None):
        self.lines.append((step, dict(metrics)))

    def log_hyperparams(self, *arguments, **options):
        pass


class Stranger(pl.LightningModule):
    """Somebody else's: automatic optimisation, convolution, skip connection, batch norm, dropout, its own data."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.stem = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU())
        self.body = nn.Conv2d(4, 4, 3, padding=1)
        self.drop = nn.Dropout(0.3)
        self.head = nn.Linear(4 * 64, 10)

    def forward(self, x):
        h = self.stem(x)
        h = h + torch.relu(self.body(h))
        return self.head(self.drop(h.flatten(1)))

    def training_step(self, batch, _):
        x, y = batch
        noise = 0.01 * torch.randn_like(x) + 0.001 * float(np.random.rand()) + 0.001 * random.random()  # noqa: NPY002
        loss = nn.functional.cross_entropy(self(x + noise), y)
        self.log("their_loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)

    def train_dataloader(self):
        x, y = Digits(96, seed=0, dtype="float32").train
        return DataLoader(TensorDataset(x.reshape(-1, 1, 8, 8), y.argmax(1)), batch_size=32, shuffle=True)


def trainer(*callbacks, **options):
    flags = {
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    fixed = {"accelerator": "cpu", "devices": 1, "log_every_n_steps": 1, "callbacks": list(callbacks)}
    return pl.Trainer(**(flags | fixed | options))


def learner(**options):
    return Supervised(mlp(8, 12, 2, seed=0, init_scale=0.1), optimizer=gd(0.05), **options)


def weights(module, x):
    return {"size": sum(p.square().sum().item() for p in module.parameters())}


def steps(probe):
    return [step for step, _ in probe.history]


def test_training_with_probes_gives_the_same_bits_as_without():
    def fit(*probes):
        pl.seed_everything(1, verbose=False)
        module = Stranger()
        trainer(*probes, max_epochs=3).fit(module)
        return module

    def greedy(module, x):  # uses up random numbers, leaves gradients behind
        torch.randn(3), np.random.rand(), random.random()  # noqa: NPY002
        module(x).sum().backward()
        return 0.0

    probes = [AnsatzProbe(every=2), SpectrumProbe(every=3), Measure(greedy, every=1)]
    plain, probed = fit(), fit(*probes)
    for (name, a), (_, b) in zip(plain.state_dict().items(), probed.state_dict().items(), strict=True):
        assert torch.equal(a, b), name
    assert [len(probe.history) for probe in probes] == [6, 4, 10]
    layers = {name.split("/", 1)[1] for name in probes[0].latest()}
    assert layers == {"stem.0", "body", "head"}


def test_ansatz_probe_reports_the_decomposition_against_the_network_at_the_start():
    module, logger = learner(), Notes()
    initial = copy.deepcopy(module.net)
    probe = AnsatzProbe(every=5)
    trainer(probe, logger=logger, max_steps=10).fit(module, DATA)
    found = tangent_covariance(module.net, DATA.train[0], reference=initial)
    expected = {}
    for index, (layer, now) in enumerate(found.items()):
        scores = ansatz_decomposition(now.W, initial.layers[index].weight.detach(), now.K, now.Kbar)
        # at the readout, a number, an alignment is 1 whatever was learned
        expected |= {f"{name}/{layer}": value for name, value in scores.items() if layer != "2" or "ratio" in name}
    assert len(expected) == 14
    assert probe.latest() == pytest.approx(expected, rel=1e-9)
    measured = [line for line in logger.lines if any("nfa" in name for name in line[1])]
    assert measured == probe.history
    assert steps(probe) == [0, 5, 10]
    first = {f"{name}/{i}" for name in ("nfa", "centered_ratio") for i in range(3)}
    assert set(probe.history[0][1]) == first - {"nfa/2"}


def test_ansatz_probe_computes_only_what_is_asked(monkeypatch):
    import featurelab.modules.probes.tangents as tangents

    references = []

    def spy(*arguments, reference=None, **options):
        references.append(reference)
        return tangent_covariance(*arguments, reference=reference, **options)

    monkeypatch.setattr(tangents, "tangent_covariance", spy)
    probe = AnsatzProbe(every=2, layers=["1"], quantities=["nfa", "cnfa"])
    trainer(probe, max_steps=2).fit(learner(), DATA)
    assert references == [None, None]
    assert set(probe.latest()) == {"nfa/1", "cnfa/1"}


def test_ansatz_probe_takes_a_reference_of_ones_own():
    module = learner()
    zero = copy.deepcopy(module.net)
    nn.utils.vector_to_parameters(torch.zeros(sum(p.numel() for p in zero.parameters())).double(), zero.parameters())
    probe = AnsatzProbe(every=1, reference=zero, quantities=["nfa", "cnfa", "centered_ratio"])
    trainer(probe, max_steps=2).fit(module, DATA)
    for _, values in probe.history:  # with W0 = 0 nothing is taken away
        for layer in "01":
            assert values[f"cnfa/{layer}"] == pytest.approx(values[f"nfa/{layer}"], abs=1e-12)
        for layer in "012":
            assert values[f"centered_ratio/{layer}"] == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("every", "steps_per_batch", "total", "expected"),
    [
        (1, 1, 3, [0, 1, 2, 3]),
        (5, 1, 12, [0, 5, 10, 12]),
        (5, 3, 12, [0, 5, 10, 12]),  # a batch steps over multiples of 5, which are met all the same
        (4, 50, 10, [0, 4, 8, 10]),
        (100, 7, 10, [0, 10]),
    ],
)
def test_steps_are_measured_exactly_and_once(every, steps_per_batch, total, expected):
    probe, logger = Measure(weights, every), Notes()
    module = learner(steps_per_batch=steps_per_batch)
    trainer(probe, logger=logger, max_steps=total).fit(module, DATA)
    assert steps(probe) == expected
    assert [step for step, values in logger.lines if "size" in values] == expected
    # what was measured in mid-batch is the network after that many steps
    reference = {0: weights(learner(), None)["size"]}
    for step in expected[1:]:
        other = learner()
        trainer(max_steps=step).fit(other, DATA)
        reference[step] = weights(other, None)["size"]
    assert {step: values["size"] for step, values in probe.history} == reference


@pytest.mark.parametrize("steps_per_batch", [1, 6])
def test_further_steps_are_measured_exactly_and_once(steps_per_batch):
    probe = Measure(weights, 5, at=(1, 2, 10, 11, 99))
    trainer(probe, max_steps=12).fit(learner(steps_per_batch=steps_per_batch), DATA)
    assert steps(probe) == [0, 1, 2, 5, 10, 11, 12]


class OwnLoop(pl.LightningModule):
    """Manual optimisation, two steps a batch, with no regard to the trainer's hooks."""

    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.net = mlp(8, 4, 1, seed=0)

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch, _):
        optimizer = self.optimizers()
        for _ in range(2):
            optimizer.zero_grad()
            self.manual_backward(mse(self, batch))
            optimizer.step()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


def test_a_module_with_its_own_loop_is_measured_at_the_steps_it_takes():
    probe = Measure(weights, 3)
    trainer(probe, max_epochs=4).fit(OwnLoop(), DATA)
    assert steps(probe) == [0, 3, 6, 8]


def test_epochs_are_counted_from_one():
    data = ChainMonomials(40, 0, 8, 3, seed=0, batch_size=10)
    probe = Measure(weights, 2, on="epoch")
    trainer(probe, max_epochs=5).fit(learner(), data)
    assert steps(probe) == [0, 8, 16, 20]


def test_measuring_is_in_evaluation_mode_and_everything_is_put_back():
    seen = {}

    class Look(Probe):
        def values(self, module, inputs, targets):
            seen["training"] = [part.training for part in module.modules()]
            seen["gradients"] = [p.grad for p in module.parameters()]
            return {"bad": math.nan, "worse": math.inf, "good": 1.0}

        def on_train_end(self, trainer, pl_module):
            pl_module.stem.eval()  # a mixture of modes
            before = [part.training for part in pl_module.modules()]
            gradients = [p.grad for p in pl_module.parameters()]
            self.history.clear()
            super().on_train_end(trainer, pl_module)
            seen["kept"] = before == [part.training for part in pl_module.modules()] and len(set(before)) == 2
            seen["same"] = all(a is b.grad for a, b in zip(gradients, pl_module.parameters(), strict=True))

    probe, logger = Look(every=100), Notes()
    trainer(probe, logger=logger, max_steps=2).fit(Stranger())
    assert not any(seen["training"])
    assert seen["gradients"] == [None] * len(seen["gradients"])
    assert seen["kept"]
    assert seen["same"]
    assert probe.latest() == {"good": 1.0}
    assert all("bad" not in values for _, values in logger.lines)


def test_given_inputs_are_measured_on_and_the_first_batch_otherwise():
    data = ChainMonomials(40, 0, 8, 3, seed=0, batch_size=10)
    first = next(iter(ChainMonomials(40, 0, 8, 3, seed=0, batch_size=10).train_dataloader()))
    mine = torch.randn(5, 8, dtype=torch.float64)
    seen = {"default": [], "given": []}
    probes = [
        Measure(lambda module, x: float(seen["default"].append(x) is None), name="a"),
        Measure(lambda module, x: float(seen["given"].append(x) is None), inputs=mine, name="b", prefix="mine/"),
    ]
    trainer(*probes, max_steps=6).fit(learner(), data)
    assert all(torch.equal(x, first[0]) for x in seen["default"])
    assert all(torch.equal(x, mine) for x in seen["given"])
    assert len(seen["given"]) == len(seen["default"]) == 7
    assert probes[1].latest() == {"mine/b": 1.0}


def test_a_resumed_fit_continues_history_and_keeps_the_first_reference(tmp_path):
    def fit(module, limit, path=None):
        probe = AnsatzProbe(every=4)
        fitting = trainer(probe, max_steps=limit)
        fitting.fit(module, DATA, ckpt_path=path, weights_only=False)
        return fitting, probe

    _, whole = fit(learner(), 12)
    half, _ = fit(learner(), 8)
    half.save_checkpoint(tmp_path / "half.ckpt")
    _, resumed = fit(learner(), 12, tmp_path / "half.ckpt")
    assert steps(resumed) == [0, 4, 8, 12]
    assert resumed.history == whole.history


def test_a_second_fit_starts_anew():
    probe = AnsatzProbe(every=4)
    trainer(probe, max_steps=4).fit(learner(), DATA)
    first = list(probe.history)
    trainer(probe, max_steps=4).fit(learner(), DATA)
    assert probe.history == first


def test_spectrum_probe_reports_weights_and_tangent_covariance():
    module, probe = learner(), SpectrumProbe(every=6, layers=["0", "1"])
    trainer(probe, max_steps=6).fit(module, DATA)
    expected = {}
    for layer, now in tangent_covariance(module.net, DATA.train[0], layers=["0", "1"]).items():
        expected |= {
            f"effective_rank/{layer}": effective_rank(now.W).item(),
            f"stable_rank/{layer}": stable_rank(now.W).item(),
            f"ptk_dispersion/{layer}": eigenvalue_dispersion(now.K).item(),
        }
    assert probe.latest() == pytest.approx(expected)


def test_loss_probe_uses_the_loss_of_the_learner():
    module = learner(loss="half_mse", steps_per_batch=4)
    probe = LossProbe({"train": DATA.train, "test": DATA.test, "none": (DATA.test[0][:0], DATA.test[1][:0])}, every=2)
    trainer(probe, max_steps=4).fit(module, DATA)
    assert probe.latest() == {
        "loss/train": pytest.approx(0.5 * mse(module, DATA.train).item()),
        "loss/test": pytest.approx(0.5 * mse(module, DATA.test).item()),
    }
    before = {step: values["loss/train"] for step, values in probe.history}
    assert before[2] == pytest.approx(module.loss_history[2].item())


def test_loss_probe_gives_balanced_accuracies_where_asked():
    x, y = DATA.train[0], torch.where(torch.arange(len(DATA.train[0])) < 3, 1.0, -1.0)[:, None]
    module, probe = learner(), LossProbe({"few": (x, y)}, balanced=True)
    trainer(probe, max_steps=1).fit(module, DATA)
    right = (module(x) > 0) == (y > 0)
    assert probe.latest()["balanced_accuracy/few"] == pytest.approx(
        (right[:3].double().mean() + right[3:].double().mean()).item() / 2
    )


def test_loss_probe_needs_a_loss_for_a_stranger_and_then_gives_accuracy_too():
    x, y = Digits(60, seed=1, dtype="float32").train
    sets = {"held": (x.reshape(-1, 1, 8, 8), y.argmax(1))}
    with pytest.raises(ValueError, match="does not know the loss of Stranger"):
        trainer(LossProbe(sets), max_steps=1).fit(Stranger())
    module, probe = Stranger(), LossProbe(sets, every=3, loss="cross_entropy")
    trainer(probe, max_epochs=2).fit(module)
    module.eval()
    outputs = module(sets["held"][0])
    assert probe.latest()["accuracy/held"] == (outputs.argmax(1) == sets["held"][1]).double().mean().item()
    assert probe.latest()["loss/held"] == pytest.approx(nn.functional.cross_entropy(outputs, sets["held"][1]).item())


def test_wrong_requests_are_refused():
    with pytest.raises(ValueError, match="did you mean 'cnfa'"):
        AnsatzProbe(quantities=["c_nfa"])
    with pytest.raises(ValueError, match="at least 1, got 0"):
        Measure(weights, every=0)
    with pytest.raises(ValueError, match="'step' or 'epoch', got 'batch'"):
        Measure(weights, on="batch")
    with pytest.raises(ValueError, match="not empty"):
        LossProbe({"none": (DATA.test[0][:0], DATA.test[1][:0])})
    with pytest.raises(TypeError, match="a batch of type dict does not start with a tensor"):
        Measure(weights, inputs={"x": 1})
    with pytest.raises(ValueError, match="no linear or ungrouped convolutional layer '7'"):
        trainer(AnsatzProbe(layers=["7"]), max_steps=1).fit(learner(), DATA)
