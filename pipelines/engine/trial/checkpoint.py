"""Checkpoints of training, from which a trial resumes after its process or its machine has died.

They are Lightning's own, with optimiser, callbacks and loops, plus the states of the global random generators. A
checkpoint is saved at the end of an epoch, at most every FEATURELAB_CHECKPOINT_SECONDS (30; `off` for none), and saving
takes at most a twentieth of the time. The newest two are kept as `0.ckpt` and `1.ckpt` in the artifact directory
`training` of the run, each with its digest in a `.json` beside it. So a trial can resume on another machine, and where
a crash cut one checkpoint short, the other is used. While the store is away, checkpoints wait in the outbox, and trials
resume from there. They are deleted when the trial has ended.

A checkpoint belongs to the n-th fit of a trial. A resumed trial runs from its beginning: everything before that fit is
repeated, earlier fits too. This gives the same points again, and no point is stored twice.

A fit that cannot resume exactly saves nothing, and the tag `resumable` says why: a callback or a module changes
something that is not in its state, or a state holds more than tensors and plain values, so that loading it would run
code. What a function gathers elsewhere, when a probe calls it, goes unnoticed.
"""

import hashlib
import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path

import torch

from featurelab.pipelines.engine.trial.place import current
from featurelab.tracking.outbox.journal import TRAINING
from featurelab.tracking.outbox.record import Recorder
from featurelab.tracking.store.store import Store


@dataclass(frozen=True)
class Label:
    """What the `.json` beside a checkpoint says.

    `number` counts the checkpoints of a run, and `fit` the fits of the trial. `fitted` identifies the data and the
    length of the fit. `time` is in milliseconds since 1970.
    """

    number: int
    fit: int
    fitted: str
    time: int
    epoch: int
    step: int
    digest: str


class Keeper:
    """Keeps the checkpoints of one trial; the other ranks of a distributed trial have one without a recorder."""

    def __init__(self, recorder: Recorder | None, newest: "tuple[Label, bytes] | None" = None) -> None:
        """`newest` is the checkpoint to resume from, None for a new trial."""
        self.recorder = recorder
        self.number = newest[0].number if newest else 0
        self.saved = newest is not None
        self.fits = 0
        self._newest = newest

    def begin(self, fitted: str) -> bytes | None:
        """Begin the next fit of the trial, and return the checkpoint that it resumes from, if there is one.

        `fitted` identifies the data and the length of the fit, which must be those of the checkpoint.
        """
        self.fits += 1
        content = None
        if self._newest and self._newest[0].fit == self.fits:
            label, content = self._newest
            self._newest = None
            if label.fitted != fitted:
                self.note(resumable="no: the data or the length of the fit have changed")
                content = None
            elif self.recorder is not None:
                self.recorder.pass_over(label.time)
                self.note(resumed=f"from step {label.step}, epoch {label.epoch} of fit {label.fit}")
        return _from_first_rank(content)

    def note(self, **tags: str) -> None:
        """Set tags of the trial's run."""
        if self.recorder is not None:
            self.recorder.tags(tags)


_keeper: ContextVar[Keeper | None] = ContextVar("keeper", default=None)


def current_keeper() -> Keeper | None:
    """The keeper of the trial that runs here; None for a trial without a store."""
    return _keeper.get()


@contextmanager
def keeping_with(keeper: Keeper) -> Iterator[None]:
    """Inside, fits save their checkpoints with this keeper."""
    token = _keeper.set(keeper)
    try:
        yield
    finally:
        _keeper.reset(token)


def newest(store: Store, run_id: str, outbox: Path) -> tuple[Label, bytes] | None:
    """The newest complete checkpoint of a run, from the store or from this machine's outbox; None without one.

    Raises StoreError where the store does not answer.
    """
    with tempfile.TemporaryDirectory() as folder:
        checkpoints: list[tuple[Label, Path | str]] = []  # a path in the outbox, or the name of an artifact
        for path in (outbox / run_id).glob(f"*/{TRAINING}/*.json"):
            checkpoints += [(label, path.with_suffix(".ckpt")) for label in _label(path)]
        for name in store.artifact_paths(run_id, TRAINING):
            if name.endswith(".json"):
                local = store.download(run_id, name, Path(folder))
                checkpoints += [(label, name.removesuffix(".json") + ".ckpt") for label in _label(local)]
        for label, place in sorted(checkpoints, key=lambda each: each[0].number, reverse=True):
            try:
                path = place if isinstance(place, Path) else store.download(run_id, place, Path(folder))
                content = path.read_bytes()
            except Exception:
                continue  # cut short, or being sent right now: then the store has it under the same number
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
    """Send the first worker's checkpoint to all workers of a trial."""
    if current().world_size == 1 or not torch.distributed.is_initialized():
        return content
    box = [content]
    torch.distributed.broadcast_object_list(box, src=0)
    return box[0]
