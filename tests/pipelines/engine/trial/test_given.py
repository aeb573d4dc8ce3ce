"""What `fit` and `evaluate` take as data, from a stranger's arrays to a data module."""

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from interrupting import Watched, cut_short, points
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from featurelab.modules import data, learners, nets
from featurelab.pipelines.engine.experiment.config import Config, TrainedConfig
from featurelab.pipelines.engine.trial import checkpoint_callback
from featurelab.pipelines.engine.trial.controls import controlled
from featurelab.pipelines.engine.trial.fitting.fit import evaluate, fit
from featurelab.pipelines.engine.trial.process import deterministic
from featurelab.pipelines.engine.verdict.check import MemoryRecorder

RNG = np.random.default_rng(0)
X = RNG.normal(size=(24, 6))
Y = X[:, :1] - X[:, 1:2]


class Stranger(pl.LightningModule):
    """Weights of torch's own type, float32."""

    def __init__(self, width=4):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(6, width), torch.nn.ReLU(), torch.nn.Linear(width, 1))
        self.seen = []

    def training_step(self, batch, index):
        self.seen.append(batch[1].flatten().tolist())
        loss = (self.net(batch[0]) - batch[1]).square().mean()
        self.log("loss/train", loss, on_step=False, on_epoch=True)
        return loss

    def test_step(self, batch, index):
        self.log("loss/test", (self.net(batch[0]) - batch[1]).square().mean())

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.05)


class Noisy(Dataset):
    """Augmented from the global generators, in float64."""

    def __len__(self):
        return len(X)

    def __getitem__(self, index):
        return torch.from_numpy(X[index]) + 0.1 * torch.randn(6), Y[index]


class Stream(IterableDataset):
    def __iter__(self):
        yield from zip(X, Y, strict=True)


class Module(pl.LightningDataModule):
    def setup(self, stage):
        self.rows = TensorDataset(torch.from_numpy(X).float(), torch.from_numpy(Y).float())

    def train_dataloader(self):
        return DataLoader(self.rows, batch_size=5, shuffle=True)


KINDS = {
    "loader": lambda: DataLoader(Noisy(), batch_size=5, shuffle=True),
    "stream": lambda: DataLoader(Stream(), batch_size=5),
    "module": Module,
    "arrays": lambda: (X, Y),
    "tensors": lambda: (torch.from_numpy(X), torch.from_numpy(Y)),
    "with a test set": lambda: ((X, Y), (X[:3], Y[:3])),
}


def fitted(make, width=4, **settings):
    """A learner trained for three epochs, and what was recorded of it."""
    config, recorder = Config(**settings), MemoryRecorder()
    with deterministic(config):
        torch.manual_seed(config.streams.init)
        learner = Stranger(width)
        fit(learner, make(), config, recorder, epochs=3)
        evaluate(learner, make(), config, recorder, step=9)
    return learner, recorder


@pytest.mark.parametrize("make", KINDS.values(), ids=KINDS)
def test_the_same_seed_gives_the_same_bits(make):
    (first, kept), (second, _) = fitted(make), fitted(make)
    assert first.seen == second.seen
    assert all(torch.equal(w, second.state_dict()[name]) for name, w in first.state_dict().items())
    assert kept.curves["loss/test"].keys() == {9}
    named = [entry["dataset"] for entry in kept.entries if "dataset" in entry]
    assert [entry["digest"] for entry in named] == [named[0]["digest"]] * 2
    assert named[0]["digest"] == "not digested: an iterable dataset" or len(named[0]["digest"]) == 32


@pytest.mark.parametrize("precision", ["32-true", "64-true", "bf16-mixed"])
@pytest.mark.parametrize("make", [KINDS["loader"], KINDS["arrays"]], ids=["loader", "arrays"])
def test_types_of_data_and_weights_agree(make, precision):
    assert fitted(make, precision=precision)[1].curves["loss/test"]


def test_the_order_of_a_loader_is_of_the_stream_order_whatever_else_is_drawn():
    plain = lambda: DataLoader(TensorDataset(*map(torch.from_numpy, (X, Y))), batch_size=5, shuffle=True)  # noqa: E731
    narrow, wide, other = fitted(plain), fitted(plain, width=50), fitted(plain, seed=1)
    assert narrow[0].seen == wide[0].seen != other[0].seen


def test_the_dtype_of_a_config_is_that_of_torch_and_names_itself_to_our_own():
    assert torch.ones(2, dtype=Config().dtype).dtype == torch.float32
    assert nets.mlp(2, 3, 1, seed=0, dtype=Config(precision="64-true").dtype)(torch.ones(1, 2).double()) is not None


def test_types_that_differ_are_told_with_what_to_write():
    with pytest.raises(
        TypeError, match=r"write dtype=config\.dtype .* data\.TensorData\(\(x, y\), dtype=config\.dtype"
    ):
        fitted(lambda: data.TensorData((X, Y)))


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (Noisy(), r"not Noisy: give torch\.utils\.data\.DataLoader\(dataset, "),
        (X, r"not ndarray: give torch\.utils\.data\.DataLoader"),
        (3, "must be a data module, a DataLoader or tensors"),
        ((X, 3), "not tuple"),
    ],
)
def test_what_is_no_data_is_refused_with_what_to_write(given, says):
    with pytest.raises(TypeError, match=says):
        fitted(lambda: given)


@pytest.mark.parametrize("make", [KINDS["loader"], Module], ids=["loader", "module"])
def test_labels_out_of_reach_of_a_control_are_said_to_be(make):
    config = TrainedConfig(control="permuted_labels")
    with controlled(config), pytest.raises(ValueError, match="permuted_labels cannot permute labels inside"):
        fit(Stranger(), make(), config, MemoryRecorder(), epochs=1)


def build(make):
    def built(config):
        net = nets.mlp(6, 8, 1, seed=0)
        return learners.Supervised(net, optimizer=learners.adam(0.01)), make(), [], {"epochs": 6}

    return built


@pytest.fixture
def saving_every_epoch(monkeypatch):
    monkeypatch.setenv("FEATURELAB_CHECKPOINT_SECONDS", "0")
    monkeypatch.setattr(checkpoint_callback, "LEAST_SHARE", 0)


@pytest.mark.parametrize("kind", ["loader", "module", "arrays"])
def test_a_trial_that_was_cut_short_continues_with_the_same_bits(store, tmp_path, saving_every_epoch, kind):
    undisturbed, disturbed = Watched(build(KINDS[kind]), cut_in=None), Watched(build(KINDS[kind]))
    whole = undisturbed.run(store, tmp_path).run_id
    run_id = cut_short(store, tmp_path, disturbed)
    began = len(disturbed.epochs)
    assert disturbed.run(store, tmp_path, run_id=run_id, attempt=2).status == "finished"
    assert disturbed.epochs[began:] == undisturbed.epochs[4:]
    assert points(store, run_id) == points(store, whole)
    assert all(torch.equal(disturbed.weights[name], value) for name, value in undisturbed.weights.items())


def test_a_trial_on_a_stream_starts_over_and_says_why(store, tmp_path, saving_every_epoch):
    undisturbed, disturbed = Watched(build(KINDS["stream"]), cut_in=None), Watched(build(KINDS["stream"]))
    undisturbed.run(store, tmp_path)
    run_id = cut_short(store, tmp_path, disturbed)
    assert store.get_run(run_id).data.tags["resumable"] == "no: an iterable dataset cannot start in the middle"
    began = len(disturbed.epochs)
    assert disturbed.run(store, tmp_path, run_id=run_id, attempt=2).status == "finished"
    assert disturbed.epochs[began:] == list(range(6))
    assert all(torch.equal(disturbed.weights[name], value) for name, value in undisturbed.weights.items())
