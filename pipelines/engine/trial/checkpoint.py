"""Checkpoints of training that a trial can resume from after its process or its machine has died.

They are Lightning's own, with optimiser, callbacks and loops, and the states of the global random generators. One is
taken when an epoch is over, at most every FEATURELAB_CHECKPOINT_SECONDS (30; `off` for none), and so that saving takes
a twentieth of the time at most. They go to the artifact directory `training` of the run, the newest two in turn as
`0.ckpt` and `1.ckpt`, each beside its digest in `.json`. So another machine can resume from one; one that a crash
cut short is noticed, and the one before is used. While the store is away they wait in the outbox, where they are found
too. When the trial is over they are deleted.

A checkpoint belongs to the n-th fit of a trial. A resumed trial runs from its beginning: what comes before that
fit is repeated, earlier fits too, which gives the same points again, and none is stored twice.

Nothing is saved, and the tag `resumable` says why, where a fit could not resume exactly: where a callback or a module
changes what it does not keep in its state, or a state holds anything but tensors and plain values, which loading would
have to run code for. What a function that was given to a probe gathers elsewhere is not seen.
"""

import hashlib
import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from featurelab.pipelines.engine.trial.place import current
from featurelab.tracking.outbox.journal import TRAINING
from featurelab.tracking.outbox.record import Recorder
from featurelab.tracking.store.store import Store


@dataclass(frozen=True)
class Label:
    """What is written down beside a checkpoint.

    `number` counts those of a run, `fit` the fits of the trial; `fitted` stands for what the fit was of; `time` is when
    it was taken, in milliseconds since the epoch.
    """

    number: int
    fit: int
    fitted: str
    time: int
    epoch: int
    step: int
    digest: str


class Keeper:
    """Keeps the checkpoints of one trial; on the other ranks of a distributed one, without a recorder, takes part."""

    def __init__(self, recorder: Recorder | None, found: "tuple[Label, bytes] | None" = None) -> None:
        self.recorder = recorder
        self.number = found[0].number if found else 0
        self.saved = found is not None
        self.fits = 0
        self._found = found

    def begin(self, fitted: str) -> bytes | None:
        """Count the next fit of the trial; returns the checkpoint to resume from, if there is one.

        `fitted` stands for the data and the length of the fit: no fit resumes from a checkpoint of anything else.
        """
        self.fits += 1
        content = None
        if self._found and self._found[0].fit == self.fits:
            label, content = self._found
            self._found = None
            if label.fitted != fitted:
                self.note(resumable="no: the data or the length of the fit are not what they were")
                content = None
            elif self.recorder is not None:
                self.recorder.pass_over(label.time)
                self.note(resumed=f"from step {label.step}, epoch {label.epoch} of fit {label.fit}")
        return _from_first_rank(content)

    def note(self, **tags: str) -> None:
        if self.recorder is not None:
            self.recorder.tags(tags)


_keeper: ContextVar[Keeper | None] = ContextVar("keeper", default=None)


def keeper() -> Keeper | None:
    """The keeper of the trial that runs here; None where a trial runs without a store."""
    return _keeper.get()


@contextmanager
def kept_by(chosen: Keeper) -> Iterator[None]:
    """Inside, the fits of a trial save their checkpoints with this keeper."""
    token = _keeper.set(chosen)
    try:
        yield
    finally:
        _keeper.reset(token)


def newest(store: Store, run_id: str, outbox: Path) -> tuple[Label, bytes] | None:
    """The newest checkpoint of a run that is whole, from the store or from this machine's outbox; None without one.

    Raises StoreError where the store cannot be asked.
    """
    with tempfile.TemporaryDirectory() as folder:
        found: list[tuple[Label, Any]] = []
        for path in (outbox / run_id).glob(f"*/{TRAINING}/*.json"):
            found += [(label, path.with_suffix(".ckpt")) for label in _label(path)]
        for name in store.artifact_paths(run_id, TRAINING):
            if name.endswith(".json"):
                local = store.download(run_id, name, Path(folder))
                found += [(label, name.removesuffix(".json") + ".ckpt") for label in _label(local)]
        for label, place in sorted(found, key=lambda each: each[0].number, reverse=True):
            try:
                path = place if isinstance(place, Path) else store.download(run_id, place, Path(folder))
                content = path.read_bytes()
            except Exception:
                continue  # cut short, or just being sent: the store then has it under the same number
            if hashlib.sha256(content).hexdigest() == label.digest:
                return label, content
    return None


def digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _label(path: Path) -> list[Label]:
    try:
        return [Label(**json.loads(path.read_text()))]
    except (OSError, ValueError, TypeError):
        return []


def _from_first_rank(content: bytes | None) -> bytes | None:
    """All workers resume from what the first of them found."""
    if current().world_size == 1 or not torch.distributed.is_initialized():
        return content
    box = [content]
    torch.distributed.broadcast_object_list(box, src=0)
    return box[0]
