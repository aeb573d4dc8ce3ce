"""A run stores the weights of its fits on request, and its network is loaded from them without training."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch

import featurelab as fl
from featurelab.pipelines.engine.trial.checkpoint_callback import BestWeights
from featurelab.pipelines.engine.trial.weights import Saving, read_weights, saving_with, stored_weights
from featurelab.tracking.errors import BadArtifact
from featurelab.tracking.outbox.null import NullRecorder

NAME = "neural_feature_ansatz/init_scale"
SMALL: dict[str, Any] = {"n_train": 16, "n_test": 8, "dim": 6, "width": 8, "measure_every": 1, "lr": 0.5, "seed": 1}


@pytest.fixture
def here(store: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", store.uri)
    monkeypatch.delenv("FEATURELAB_OUTBOX", raising=False)
    return store


@contextmanager
def without_training() -> Iterator[None]:
    def fit(*args: Any, **options: Any) -> None:
        raise AssertionError("it was trained")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pl.Trainer, "fit", fit)
        yield


def put(here: Any, run: Any, content: Any, folder: Path) -> None:
    """Replace the weights of the first fit of a run."""
    path = folder / "1.pt"
    path.write_bytes(content) if isinstance(content, bytes) else torch.save(content, path)
    here.log_file(run.run_id, path, "weights")


def equal(one: Any, other: Any) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_the_last_weights_are_loaded_without_training(here: Any) -> None:
    run = fl.experiment(NAME).run(steps=4, save="last", **SMALL)
    trained = torch.load(here.download(run.run_id, "checkpoints/last.ckpt"), weights_only=True)["state_dict"]
    with without_training():
        net = fl.load(run.run_id)
        assert equal(net.state_dict(), trained)
        assert equal(fl.load(run.run_id, fit=1).state_dict(), trained)
        assert not net.training
    assert len(fl.runs()) == 1
    tags = here.get_run(run.run_id).data.tags
    size = here.download(run.run_id, "weights/1.pt").stat().st_size
    assert (tags["weights/1"], tags["weights_bytes"]) == ("last", str(size))


def test_the_best_weights_are_those_of_the_step_with_the_best_metric(here: Any) -> None:
    run = fl.experiment(NAME).run(steps=10, save="best", **SMALL)
    best = int(run.curves()["loss/test"].idxmin())
    assert 0 < best < 10
    stopped_there = fl.experiment(NAME).run(steps=best, **SMALL)
    with without_training():
        net = run.load()
    assert equal(net.state_dict(), stopped_there.load().state_dict())
    assert here.get_run(run.run_id).data.tags["weights/1"] == f"best at step {best}"


def test_a_run_stores_no_weights_for_loading_unless_asked_to(here: Any) -> None:
    run = fl.experiment(NAME).run(steps=2, **SMALL)
    assert stored_weights(here, run.run_id) == {}
    with without_training(), pytest.raises(fl.RunError, match="it was trained"):
        run.load()


def test_a_network_whose_weights_have_no_place_before_training_is_trained_again(here: Any, tmp_path: Path) -> None:
    run = fl.experiment(NAME).run(steps=2, save="last", **SMALL)
    weights = read_weights(here, run.run_id, "weights/1.pt")
    put(here, run, {f"lazy.{name}": weight for name, weight in weights.items()}, tmp_path)
    with without_training(), pytest.raises(fl.RunError, match="it was trained"):
        run.load()


@pytest.mark.parametrize("content", [b"no archive", b"", {"w": Path("anything but weights")}, {"w": 1.0}])
def test_what_holds_no_weights_is_refused_and_not_unpickled(here: Any, content: Any, tmp_path: Path) -> None:
    run = fl.experiment(NAME).run(steps=2, save="last", **SMALL)
    put(here, run, content, tmp_path)
    with pytest.raises(BadArtifact, match="holds no weights"):
        run.load()


def test_the_best_weights_survive_a_checkpoint() -> None:
    learner = pl.LightningModule()
    learner.weight = torch.nn.Parameter(torch.ones(2))
    before = BestWeights(learner)
    before.keep(0.5, 3)
    learner.weight.data += 1
    after = BestWeights(learner)
    after.load_state_dict(before.state_dict())
    assert (after.value, after.step, after.weights["weight"].tolist()) == (0.5, 3, [1.0, 1.0])


def test_a_fit_that_does_not_record_the_metric_stores_its_last_weights() -> None:
    kept: dict[str, str] = {}

    class Kept(NullRecorder):
        def tags(self, tags: Any) -> None:
            kept.update(tags)

    learner = pl.LightningModule()
    learner.weight = torch.nn.Parameter(torch.ones(2))
    saving = Saving("best", "loss/test", "min")
    with saving_with(saving):
        saving.begin(learner)
        saving.on_metrics({"loss/train": 0.1}, 1)
        saving.store(learner, Kept())
    assert kept["weights/1"] == "last: the fit did not record loss/test"
