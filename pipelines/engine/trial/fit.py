"""Fit a learner as part of a trial: the one place where Lightning, the recorder and the hardware meet."""

import logging
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from featurelab.pipelines.engine.experiment.config import Config
from featurelab.pipelines.engine.lazy import lazy
from featurelab.pipelines.engine.trial.observed import further
from featurelab.pipelines.engine.trial.place import current
from featurelab.tracking.lines import line

if TYPE_CHECKING:
    import pytorch_lightning as pl
    from pytorch_lightning.callbacks import Callback

    from featurelab.pipelines.engine.trial.given import Given
    from featurelab.tracking import Recorder
else:
    pl = lazy("pytorch_lightning")


def trainer_for(config: Config, recorder: "Recorder | None" = None, **options: Any) -> "pl.Trainer":
    """A quiet, deterministic Lightning `Trainer` on the config's device that logs to the recorder.

    Args:
        options: further arguments of `Trainer`; they win over ours.
    """
    from featurelab.tracking.lightning import (
        RecorderLogger,  # imports lightning, which the declaration of a figure must not
    )

    # which accelerators are there is in the record of the environment, and its advice is not for our users
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="pytorch_lightning")
    place = current()
    settings: dict[str, Any] = {
        "accelerator": config.device,
        "devices": place.devices,
        "strategy": place.strategy,
        "plugins": list(place.plugins),
        "precision": config.precision,
        "logger": RecorderLogger(recorder) if recorder is not None else False,
        "deterministic": True,
        "enable_checkpointing": False,
        "enable_model_summary": False,
        "enable_progress_bar": False,
        "limit_val_batches": 0,
        "use_distributed_sampler": False,
    }
    return pl.Trainer(**(settings | options))


def fit(
    learner: "pl.LightningModule",
    data: "Given",
    config: Config,
    recorder: "Recorder",
    *,
    steps: int | None = None,
    epochs: int | None = None,
    probes: "Sequence[Callback]" = (),
    **options: Any,
) -> "pl.Trainer":
    """Train for `steps` optimiser steps or `epochs` passes, then keep the weights and name the data in the record.

    `data` is one of `featurelab.data`, a torch `DataLoader`, any LightningDataModule, or a pair (x, y) of tensors or
    arrays, which makes one full batch; `((x, y), (x_test, y_test))` brings a test set. A loader's order is drawn from
    the config's stream `order`; its floating-point tensors, and those of a pair, are cast to the type of the weights.

    A resumed trial trains from its last checkpoint: see `checkpoint.py`.
    Raises KeyboardInterrupt where Lightning would swallow it, so that the run ends as killed and not as done.
    """
    limits = {"max_steps": steps if steps is not None else -1, "max_epochs": epochs if epochs is not None else -1}
    from featurelab.pipelines.engine.trial.checkpoint import keeper
    from featurelab.pipelines.engine.trial.checkpoint_callback import begin
    from featurelab.pipelines.engine.trial.given import Naming, as_data, explained, identity, name_data

    given = as_data(data, learner, config)
    digest = name_data(given, recorder) or identity(given)
    naming = [Naming(recorder)] if not hasattr(given, "digest") else []
    owner, saving, resumed = keeper(), None, None
    if owner and (inexact := getattr(given, "inexact", "")):
        owner.begin("")
        owner.note(resumable=f"no: {inexact}")
    elif owner:
        saving, resumed = begin(owner, f"{digest} {steps} {epochs}")
    callbacks = [*([saving] if saving else []), *probes, *further(), *naming]
    if on_step := current().on_step:
        from featurelab.pipelines.engine.trial.watched import Watched

        callbacks.append(Watched(on_step))
    for probe in callbacks:
        if getattr(probe, "strict", True) is None:
            probe.strict = True  # type: ignore[attr-defined]  # no figure loses a measurement without a word
    trainer = trainer_for(config, recorder, callbacks=callbacks, **(limits | options))
    try:
        with tempfile.TemporaryDirectory() as folder, explained():
            last = _written(resumed, Path(folder) / "from.ckpt")
            if last:  # Lightning converts the weights after it has restored them, which would round them
                trainer.precision_plugin.convert_module(learner)
            trainer.fit(learner, datamodule=given, ckpt_path=last, weights_only=True if last else None)
    except SystemExit as end:  # Lightning turns Ctrl-C into it; any other one is a scheduler's or the trial's own
        if isinstance(end.__context__, KeyboardInterrupt):
            raise KeyboardInterrupt from None
        raise
    for probe in probes:
        if skipped := getattr(probe, "skipped", None):
            recorder.tags({f"skipped/{type(probe).__name__}": line("; ".join(f"{k}: {v}" for k, v in skipped.items()))})
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = Path(folder) / "last.ckpt"
        trainer.save_checkpoint(checkpoint, weights_only=True)  # in every process: they wait for one another in it
        if current().rank == 0:
            recorder.file(checkpoint, "checkpoints")
    return trainer


def evaluate(
    learner: "pl.LightningModule",
    data: "Given",
    config: Config,
    recorder: "Recorder",
    *,
    step: int = 0,
) -> None:
    """Run the learner's test step on the training data, given as to `fit`, and record what it logs at `step`."""
    from featurelab.pipelines.engine.trial.given import as_data, explained, name_data, name_loader

    given = as_data(data, learner, config)
    named = name_data(given, recorder)
    trainer = trainer_for(config, inference_mode=False)
    if not named:  # a data module of somebody else's, whose loader is made in its setup
        given.prepare_data()
        given.setup("fit")
    loader = given.train_dataloader()
    if not named:
        name_loader(type(given).__name__, loader, recorder)
    with explained():
        (values,) = trainer.test(learner, dataloaders=loader, verbose=False)
    recorder.log(values, step=step)


def _written(content: bytes | None, path: Path) -> Path | None:
    if content is None:
        return None
    path.write_bytes(content)
    return path
