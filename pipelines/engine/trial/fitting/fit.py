"""Fit a learner as part of a trial: the one place where Lightning, the recorder and the hardware meet."""

import logging
import tempfile
import warnings
from collections.abc import Sequence
from contextlib import nullcontext
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from featurelab.pipelines.engine.errors import is_verbose
from featurelab.pipelines.engine.experiment.config import Config
from featurelab.pipelines.engine.libraries import pl, torch
from featurelab.pipelines.engine.trial.fitting.fitted import fitted, fitting
from featurelab.pipelines.engine.trial.fitting.observed import further
from featurelab.pipelines.engine.trial.place import current
from featurelab.tracking.lines import line

if TYPE_CHECKING:
    from pytorch_lightning.callbacks import Callback

    from featurelab.pipelines.engine.trial.fitting.fit_data import FitData
    from featurelab.tracking import Recorder


def trainer_for(config: Config, recorder: "Recorder | None" = None, **options: Any) -> "pl.Trainer":
    """A quiet, deterministic Lightning `Trainer` on the config's device that logs to the recorder.

    Args:
        options: further arguments of `Trainer`; they win over ours.
    """
    from featurelab.tracking.lightning import (
        RecorderLogger,  # imports lightning, which the declaration of a figure must not
    )

    # Lightning would list the accelerators, which the environment's record does, and give advice that is not for users
    if not is_verbose():
        lightning = logging.getLogger("pytorch_lightning")
        if lightning.level != logging.ERROR:  # setting it empties the caches of all loggers
            lightning.setLevel(logging.ERROR)
        warnings.filterwarnings("ignore", module="pytorch_lightning|lightning_fabric")
    torch.set_deterministic_debug_mode("error")  # Trainer(deterministic=True) would import torch.compile: 1 s
    _read_entry_points_once()
    place = current()
    settings: dict[str, Any] = {
        "accelerator": config.device,
        "devices": place.devices,
        "strategy": place.strategy,
        "plugins": list(place.plugins),
        "precision": config.precision,
        "logger": RecorderLogger(recorder) if recorder is not None else False,
        "benchmark": False,
        "enable_checkpointing": False,
        "enable_model_summary": False,
        "enable_progress_bar": False,
        "limit_val_batches": 0,
        "use_distributed_sampler": False,
    }
    return pl.Trainer(**(settings | options))


@cache
def _read_entry_points_once() -> None:
    """Let Lightning look once for installed packages with callbacks: it looks for each `Trainer`, which takes 20 ms."""
    from lightning_fabric.utilities import registry

    known: Any = registry
    known.entry_points = cache(known.entry_points)


def fit(
    learner: "pl.LightningModule",
    data: "FitData",
    config: Config,
    recorder: "Recorder",
    *,
    steps: int | None = None,
    epochs: int | None = None,
    probes: "Sequence[Callback]" = (),
    **options: Any,
) -> "pl.Trainer":
    """Train for `steps` optimiser steps or `epochs` passes; record the data before and the weights after.

    Whoever runs the trial may also store its weights: see `weights.py`.

    `data` is one of `featurelab.data`, a torch `DataLoader`, any LightningDataModule, or a pair (x, y) of tensors or
    arrays, which is one full batch; `((x, y), (x_test, y_test))` adds a test set. A loader's order is drawn from the
    config's stream `order`. Floating-point tensors of a loader or a pair are cast to the type of the weights.

    A resumed trial trains from its last checkpoint: see `checkpoint.py`.
    Raises KeyboardInterrupt, which Lightning would turn into SystemExit.
    """
    limits = {"max_steps": steps if steps is not None else -1, "max_epochs": epochs if epochs is not None else -1}
    from featurelab.pipelines.engine.trial.checkpoint import current_keeper
    from featurelab.pipelines.engine.trial.checkpoint_callback import begin
    from featurelab.pipelines.engine.trial.fitting.fit_data import RecordData, as_data, explained, identity, name_data
    from featurelab.pipelines.engine.trial.weights import current_saving

    fitting(learner)
    datamodule = as_data(data, learner, config)
    digest = name_data(datamodule, recorder) or identity(datamodule)
    recording = [RecordData(recorder)] if not hasattr(datamodule, "digest") else []
    keeper, saving, resumed = current_keeper(), None, None
    if keeper and (inexact := getattr(datamodule, "inexact", "")):
        keeper.begin("")
        keeper.note(resumable=f"no: {inexact}")
    elif keeper:
        saving, resumed = begin(keeper, f"{digest} {steps} {epochs}")
    weights = current_saving()
    keeping = weights.begin(learner) if weights else []
    callbacks = [*([saving] if saving else []), *probes, *further(), *recording, *keeping]
    if on_step := current().on_step:
        from featurelab.pipelines.engine.trial.progress import ReportProgress

        callbacks.append(ReportProgress(on_step))
    for probe in callbacks:
        if getattr(probe, "strict", True) is None:
            probe.strict = True  # type: ignore[attr-defined]  # in a figure, a failed measurement is an error
    trainer = trainer_for(config, recorder, callbacks=callbacks, **(limits | options))
    try:
        with tempfile.TemporaryDirectory() if resumed is not None else nullcontext("") as folder, explained():
            last = _written(resumed, Path(folder) / "from.ckpt")
            if last:  # otherwise Lightning would convert, and round, the weights that it has restored
                trainer.precision_plugin.convert_module(learner)
            trainer.fit(learner, datamodule=datamodule, ckpt_path=last, weights_only=True if last else None)
    except SystemExit as end:  # Lightning turns Ctrl-C into it; otherwise the scheduler or the trial has raised it
        if isinstance(end.__context__, KeyboardInterrupt):
            raise KeyboardInterrupt from None
        raise
    for probe in probes:
        if skipped := getattr(probe, "skipped", None):
            recorder.tags({f"skipped/{type(probe).__name__}": line("; ".join(f"{k}: {v}" for k, v in skipped.items()))})
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = Path(folder) / "last.ckpt"
        trainer.save_checkpoint(checkpoint, weights_only=True)  # in every process, since each waits for the others
        if current().rank == 0:
            recorder.file(checkpoint, "checkpoints")
    if weights:
        weights.store(learner, recorder)
    fitted(learner)
    return trainer


def evaluate(
    learner: "pl.LightningModule",
    data: "FitData",
    config: Config,
    recorder: "Recorder",
    *,
    step: int = 0,
) -> None:
    """Run the learner's test step on the training data, and record what it logs at `step`; `data` as for `fit`."""
    from featurelab.pipelines.engine.trial.fitting.fit_data import as_data, explained, name_data, name_loader

    datamodule = as_data(data, learner, config)
    named = name_data(datamodule, recorder)
    trainer = trainer_for(config, inference_mode=False)
    if not named:  # somebody else's data module, which makes its loader in its setup
        datamodule.prepare_data()
        datamodule.setup("fit")
    loader = datamodule.train_dataloader()
    if not named:
        name_loader(type(datamodule).__name__, loader, recorder)
    with explained():
        (values,) = trainer.test(learner, dataloaders=loader, verbose=False)
    recorder.log(values, step=step)


def _written(content: bytes | None, path: Path) -> Path | None:
    if content is None:
        return None
    path.write_bytes(content)
    return path
