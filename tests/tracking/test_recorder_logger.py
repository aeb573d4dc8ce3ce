from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch")
import pytorch_lightning as pl  # noqa: E402
from pytorch_lightning.utilities import rank_zero_only  # noqa: E402

from featurelab.tracking.lightning import RecorderLogger  # noqa: E402
from featurelab.tracking.outbox.null import NullRecorder  # noqa: E402
from featurelab.tracking.outbox.record import Diverged, Recorder  # noqa: E402


class Line(pl.LightningModule):
    """Fits a line to noise, so that the loss differs at each step."""

    def __init__(self, lr: float = 0.01):
        super().__init__()
        self.save_hyperparameters()
        self.layer = torch.nn.Linear(2, 1)
        self.losses: list[float] = []

    def training_step(self, batch, index):
        loss = self.layer(batch).square().mean()
        self.losses.append(loss.item())
        self.log("loss/train", loss)
        self.logger.experiment.array(f"weights/{self.global_step}", w=self.layer.weight.detach().numpy())
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=self.hparams.lr)


def _fit(module, recorder, steps):
    trainer = pl.Trainer(
        max_steps=steps,
        logger=RecorderLogger(recorder),
        log_every_n_steps=1,
        accelerator="cpu",
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(module, torch.utils.data.DataLoader(torch.randn(8, 2), batch_size=2))


def test_a_fit_is_recorded_step_by_step_without_epochs_or_hyperparameters(store, tmp_path):
    run_id = store.start_run("system/figure", "fit")
    module = Line()
    with Recorder(store, run_id, outbox=tmp_path / "outbox") as recorder:
        _fit(module, recorder, 6)
        logger = RecorderLogger(recorder)
        assert (logger.name, logger.version, logger.experiment) == ("recorder", run_id, recorder)
        assert store.get_run(run_id).info.status == "RUNNING"
    history = store.client.get_metric_history(run_id, "loss/train")
    assert sorted((m.step, m.value) for m in history) == list(enumerate(module.losses))
    run = store.get_run(run_id)
    assert set(run.data.metrics) == {"loss/train", "best.loss.train"}
    assert run.data.params == {}
    assert len(store.client.list_artifacts(run_id, "arrays/weights")) == 6


def test_a_fit_stops_at_the_step_at_which_it_diverges():
    module = Line(lr=1e30)
    with pytest.raises(Diverged) as caught:
        _fit(module, NullRecorder(), 50)
    assert not math.isfinite(module.losses[-1])
    assert caught.value.step == len(module.losses) - 1 < 10


def test_only_rank_zero_records(monkeypatch):
    seen = []
    logger = RecorderLogger(NullRecorder(listeners=[lambda metrics, step: seen.append((dict(metrics), step))]))
    logger.log_metrics({"epoch": 1, "nfa/0": 0.5}, 3)
    logger.log_metrics({"epoch": 1}, 4)
    monkeypatch.setattr(rank_zero_only, "rank", 1)
    logger.log_metrics({"nfa/0": 0.7}, 5)
    assert seen == [({"nfa/0": 0.5}, 3)]
