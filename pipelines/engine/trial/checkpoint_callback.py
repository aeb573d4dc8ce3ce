"""The Lightning callbacks that keep weights of a fit: checkpoints to resume from, see `checkpoint.py`, and the best."""

import json
import math
import random
import re
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytorch_lightning as pl
import torch

from featurelab.pipelines.engine.trial.checkpoint import Keeper, Label, digest
from featurelab.pipelines.engine.trial.place import checkpoint_seconds
from featurelab.pipelines.engine.trial.progress import ReportProgress
from featurelab.tracking.outbox.journal import GENERATIONS, TRAINING
from featurelab.tracking.outbox.record import now

OURS = "featurelab"  # the key of our part of a checkpoint
LEAST_SHARE = 20  # after a save that took s seconds, none follows for at least 20 s


def begin(keeper: Keeper, fitted: str) -> "tuple[Checkpointing | None, bytes | None]":
    """The callback for the next fit of the trial, and the checkpoint to resume from, if there is one."""
    content = keeper.begin(fitted)
    if content is None and checkpoint_seconds() == float("inf"):
        return None, None
    return Checkpointing(keeper, fitted), content


class Checkpointing(pl.Callback):
    """Saves a fit at the end of an epoch. A fit restored from it continues as if it had never stopped.

    Must be the first callback: it saves, and restores the random generators, before other callbacks begin an epoch.
    """

    def __init__(self, keeper: Keeper, fitted: str) -> None:
        self.keeper, self.fit, self.fitted = keeper, keeper.fits, fitted
        self._pause = checkpoint_seconds()
        self._saving = False
        self._refused = False
        self._restored: dict[str, Any] | None = None
        self._last, self._first_epoch = 0.0, 0
        self._beginning: dict[str, Any] = {}

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._last, self._first_epoch = time.monotonic(), trainer.current_epoch
        self._beginning = unsaved_state(trainer, pl_module)

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self._restored is not None:
            _restore_random(self._restored)
            self._restored = None
            # the checkpoint is of a complete epoch, so the loops have nothing to catch up with either
            for loop in (trainer.fit_loop, trainer.fit_loop.epoch_loop):
                loop.on_iteration_done()
            return
        due = trainer.current_epoch > self._first_epoch and time.monotonic() - self._last >= self._pause
        due = due and trainer.is_global_zero and not self._refused
        if trainer.strategy.reduce_boolean_decision(due and self._exact(trainer, pl_module), all=False):
            self._save(trainer)

    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        if not self._saving:
            return
        checkpoint[OURS] = {"random": _random_state()}
        # the next epoch has already been announced: count only what is complete
        loops = checkpoint["loops"]["fit_loop"]
        for counts in (loops["epoch_progress"]["total"], loops["epoch_progress"]["current"]):
            counts.update(dict.fromkeys(("ready", "started", "processed"), counts["completed"]))
        batches = loops["epoch_loop.batch_progress"]
        batches["current"] = dict.fromkeys(batches["current"], 0)
        batches["is_last_batch"] = False
        loops["state_dict"].pop("combined_loader", None)

    def on_load_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        self._restored = checkpoint[OURS]["random"]

    def _exact(self, trainer: pl.Trainer, module: pl.LightningModule) -> bool:
        """Whether everything that changes is in the state; if not, the run is tagged once."""
        unsaved = unsaved_state(trainer, module)
        changed = [name for name, value in unsaved.items() if self._beginning.get(name) != value]
        if changed:
            self._refuse(f"{changed[0]} changes and is in no state_dict")
        return not changed

    def _refuse(self, reason: str) -> None:
        self._refused = True
        self.keeper.note(resumable=f"no: {reason}"[:500])

    def _save(self, trainer: pl.Trainer) -> None:
        began, saved_at, recorder = time.monotonic(), now(), self.keeper.recorder
        self._saving = True
        try:
            if recorder is None:
                trainer.save_checkpoint(Path(f"{TRAINING}.ckpt"))  # only the first rank writes, but all must call this
                return
            number = self.keeper.number + 1
            with recorder.files() as root:
                path = root / TRAINING / f"{number % GENERATIONS}.ckpt"
                path.parent.mkdir()
                trainer.save_checkpoint(path)
                torch.load(path, weights_only=True, mmap=True)
                label = Label(
                    number, self.fit, self.fitted, saved_at, trainer.current_epoch, trainer.global_step, digest(path)
                )
                path.with_suffix(".json").write_text(json.dumps(asdict(label)))
            self.keeper.number, self.keeper.saved = number, True
        except OSError:  # a full disk: the fit continues; the other ranks wait for this one
            if trainer.world_size > 1:
                trainer.strategy.barrier()
        except Exception as error:
            refused = re.search(r"(?:GLOBAL|type) `?(\S+?)`? was not an allowed", str(error))
            reason = f"its state holds a {refused[1]}" if refused else str(error).splitlines()[0]
            self._refuse(f"{reason}; only tensors and plain values are kept")
        finally:
            self._saving = False
            self._last = time.monotonic()
            self._pause = max(self._pause, LEAST_SHARE * (self._last - began))
            while now() <= saved_at:  # so that whatever is recorded from here on is later than the checkpoint
                time.sleep(0.001)


class BestWeights(pl.Callback):
    """Holds a copy of the best weights so far; it is part of checkpoints, so that a resumed fit has them."""

    def __init__(self, learner: pl.LightningModule) -> None:
        self.value, self.step = math.inf, -1
        self.weights: dict[str, Any] = {}
        self._learner = learner

    def keep(self, value: float, step: int) -> None:
        self.value, self.step = value, step
        self.weights = {name: weight.detach().clone() for name, weight in self._learner.state_dict().items()}

    def state_dict(self) -> dict[str, Any]:
        return {"value": self.value, "step": self.step, "weights": self.weights}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.value, self.step, self.weights = (state_dict[name] for name in ("value", "step", "weights"))


def unsaved_state(trainer: pl.Trainer, module: pl.LightningModule) -> dict[str, Any]:
    """A summary of the attributes of callbacks and the module that checkpoints do not contain."""
    unsaved: dict[str, Any] = {}
    for callback in trainer.callbacks:  # type: ignore[attr-defined]
        saves_itself = _overrides(callback, pl.Callback, "state_dict", "on_save_checkpoint")
        if not saves_itself and not isinstance(callback, Checkpointing | ReportProgress):
            unsaved |= {f"{type(callback).__name__}.{name}": _summary(value) for name, value in vars(callback).items()}
    if not _overrides(module, pl.LightningModule, "on_save_checkpoint", "on_load_checkpoint"):
        of_lightning = vars(pl.LightningModule())
        own = {name: value for name, value in vars(module).items() if name not in of_lightning}
        unsaved |= {f"{type(module).__name__}.{name}": _summary(value) for name, value in own.items()}
    return unsaved


def _summary(value: Any) -> Any:
    """What shows that a value has changed: a number or text itself, the length of a collection, a tensor's version."""
    if isinstance(value, torch.Tensor):
        return id(value), value._version
    if isinstance(value, list | tuple | dict | set):
        return len(value)
    return value if isinstance(value, bool | int | float | str) else None


def _overrides(obj: Any, base: type, *methods: str) -> bool:
    return any(getattr(type(obj), method) is not getattr(base, method) for method in methods)


def _random_state() -> dict[str, Any]:
    """The states of the global generators, in tensors and plain values."""
    name, keys, *rest = cast(tuple[Any, ...], np.random.get_state())  # noqa: NPY002 - which others may use
    version, internal, gauss = random.getstate()
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
    return {
        "torch": torch.get_rng_state(),
        "cuda": cuda,
        "numpy": [str(name), keys.tolist(), *rest],
        "python": [version, list(internal), gauss],
    }


def _restore_random(state: dict[str, Any]) -> None:
    torch.set_rng_state(state["torch"])
    if torch.cuda.is_available() and len(state["cuda"]) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all(state["cuda"])
    name, keys, *rest = state["numpy"]
    np.random.set_state((name, np.array(keys, dtype=np.uint32), *rest))  # noqa: NPY002
    version, internal, gauss = state["python"]
    random.setstate((version, tuple(internal), gauss))
