"""Store the weights that a trial trains: of each fit the last ones, or the best by the experiment's metric."""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from featurelab.pipelines.engine.libraries import pl, torch
from featurelab.tracking.errors import BadArtifact

if TYPE_CHECKING:
    from featurelab.pipelines.engine.trial.checkpoint_callback import BestWeights
    from featurelab.tracking import Recorder
    from featurelab.tracking.store.store import Store

FOLDER = "weights"  # among the artifacts of a run: a file for each fit, counted from 1


class Saving:
    """Stores the weights of each fit of one trial: `last`, or `best` at the best recorded value of `metric`."""

    def __init__(self, which: Literal["last", "best"], metric: str, mode: str) -> None:
        self.which, self.metric, self.sign = which, metric, 1 if mode == "min" else -1
        self.fits = self.bytes = 0
        self._best: BestWeights | None = None

    def begin(self, learner: "pl.LightningModule") -> "list[pl.Callback]":
        """Return the callbacks that the next fit needs."""
        from featurelab.pipelines.engine.trial.checkpoint_callback import BestWeights

        self.fits += 1
        self._best = BestWeights(learner) if self.which == "best" else None
        return [self._best] if self._best else []

    def on_metrics(self, metrics: Mapping[str, float], step: int) -> None:
        """Listen to the recorder: keep the weights where the metric is better than before."""
        value = self.sign * metrics.get(self.metric, math.nan)
        if self._best and value < self._best.value:
            self._best.keep(value, step)

    def store(self, learner: "pl.LightningModule", recorder: "Recorder") -> None:
        """Store the weights of the fit that has ended; its last ones where the metric was not recorded."""
        best, self._best = self._best, None
        weights = best.weights if best and best.weights else learner.state_dict()
        with recorder.files() as root:
            path = root / FOLDER / f"{self.fits}.pt"
            path.parent.mkdir()
            torch.save({name: value.detach().cpu() for name, value in weights.items()}, path)
            self.bytes += path.stat().st_size
        step = f" at step {best.step}" if best and best.weights else ""
        which = self.which if step or self.which == "last" else f"last: the fit did not record {self.metric}"
        recorder.tags({f"weights/{self.fits}": which + step, "weights_bytes": self.bytes})


_saving: ContextVar[Saving | None] = ContextVar("saving", default=None)


def current_saving() -> Saving | None:
    """Return what stores the weights of this trial, None if nothing does."""
    return _saving.get()


@contextmanager
def saving_with(saving: Saving | None) -> Iterator[None]:
    """Inside, `fit` stores weights with `saving`."""
    token = _saving.set(saving)
    try:
        yield
    finally:
        _saving.reset(token)


def stored_weights(store: "Store", run_id: str) -> dict[int, str]:
    """Return the artifacts that hold the weights of a run, by number of the fit; empty if it stored none."""
    paths = {Path(path).stem: path for path in store.artifact_paths(run_id, FOLDER)}
    return {int(stem): path for stem, path in sorted(paths.items()) if stem.isdecimal()}


def read_weights(store: "Store", run_id: str, path: str) -> "dict[str, torch.Tensor]":
    """Return stored weights by name. Nothing is unpickled. Raises BadArtifact for anything but weights."""
    try:
        weights = torch.load(store.download(run_id, path), map_location="cpu", weights_only=True)
    except Exception as error:  # what torch raises depends on the damage
        raise BadArtifact(f"artifact {path!r} of run {run_id} holds no weights") from error
    if not isinstance(weights, dict) or not all(isinstance(value, torch.Tensor) for value in weights.values()):
        raise BadArtifact(f"artifact {path!r} of run {run_id} holds no weights")
    return weights
