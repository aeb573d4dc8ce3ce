"""Load the network that a run trained: its trial builds it, and stored weights or the same training fill it."""

from typing import TYPE_CHECKING, Any

import torch

from featurelab.pipelines.engine.errors import RequestError, RunError
from featurelab.pipelines.engine.sweep.records import read_trial
from featurelab.pipelines.engine.trial.fitting.fitted import listening
from featurelab.pipelines.engine.trial.run import perform
from featurelab.pipelines.engine.trial.signals import raised
from featurelab.pipelines.engine.trial.weights import read_weights, stored_weights
from featurelab.tracking.errors import BadArtifact
from featurelab.tracking.lines import line
from featurelab.tracking.outbox.null import NullRecorder
from featurelab.tracking.store.connect import Store

if TYPE_CHECKING:
    import pytorch_lightning as pl

WEIGHTS = "checkpoints/last.ckpt"  # what `fit` records when training has ended


class _Reached(BaseException):
    """Ends a trial at the fit that was asked for. No trial catches it."""


class _Fits:
    """The listener: keeps the learner of the latest fit and a copy of its weights, which the trial may still change.

    The fit `until` is not run if its weights are stored and the learner has a place for them before it is trained.
    """

    def __init__(self, until: int | None, stored: dict[str, Any] | None) -> None:
        self.learner: pl.LightningModule | None = None
        self.weights: dict[str, Any] = {}
        self.number, self._until, self._stored = 0, until, stored

    def fitting(self, learner: "pl.LightningModule") -> None:
        if self._stored is None or self.number + 1 != self._until:
            return
        kinds = {weight.dtype for weight in self._stored.values() if weight.is_floating_point()}
        if len(kinds) == 1:  # that of the precision in which it was trained
            learner.to(*kinds)
        if _shapes(learner.state_dict()) == _shapes(self._stored):
            self.number += 1
            self._reach(learner, self._stored)

    def fitted(self, learner: "pl.LightningModule") -> None:
        self.number += 1
        self.learner = learner
        self.weights = {name: value.clone() for name, value in learner.state_dict().items()}
        if self.number == self._until:
            self._reach(learner, self._stored or self.weights)

    def _reach(self, learner: "pl.LightningModule", weights: dict[str, Any]) -> None:
        self.learner, self.weights = learner, weights
        raise _Reached


def load(run_id: str, store: Store, fit: int | None = None) -> "pl.LightningModule":
    """Return the module as it was at the end of fit number `fit` of a finished trial, from 1; by default of the last.

    If the run has stored the weights of this fit on request, its trial runs up to this fit in this process, to build
    the network, and the stored weights are those of the module. Otherwise the trial runs again, and its last weights
    are compared, bit for bit, with those that each run stores. Nothing is recorded. The module is in evaluation mode.

    Raises `RequestError` for a run that is not a finished trial of one process, and for a fit that it does not have;
    `RunError` if the trial fails, or trains other weights here than those stored.
    """
    experiment, record, config = read_trial(run_id, store)
    if fit is not None and fit < 1:
        raise RequestError(f"fit = {fit}: fits are counted from 1")
    if record.status != "finished":
        raise RequestError(f"run {run_id} is {record.status}: only a finished run can be loaded")
    if record.workers > 1:
        raise RequestError(f"run {run_id} was trained by {record.workers} processes: only runs of one can be loaded")
    saved = stored_weights(store, run_id)
    until = fit or max(saved, default=None)
    stored = read_weights(store, run_id, saved[until]) if until in saved else None
    fits = _Fits(until, stored)
    try:
        with raised(), listening(fits):
            perform(experiment, config, NullRecorder())
    except _Reached:
        pass
    except Exception as error:
        raise RunError(f"the trial of run {run_id} failed when it was repeated: {line(str(error))}") from error
    if fits.learner is None or fits.number < (fit or 1):
        raise RequestError(f"run {run_id} has {fits.number} fit{'s' * (fits.number != 1)}: there is no fit {fit or 1}")
    fits.learner.load_state_dict(fits.weights)
    if fit is None and stored is None:
        _compare(fits.weights, run_id, store)
    fits.learner.trainer = None
    return fits.learner.eval()


def _shapes(weights: dict[str, Any]) -> dict[str, Any]:
    return {name: weight.shape for name, weight in weights.items()}


def _compare(weights: dict[str, Any], run_id: str, store: Store) -> None:
    """Raise `RunError` unless these weights are those that the run stored, if they can still be read."""
    try:
        path = store.download(run_id, WEIGHTS)
    except BadArtifact:
        return
    stored = torch.load(path, map_location="cpu", weights_only=True)["state_dict"]
    differing = [name for name in sorted(weights.keys() | stored.keys()) if not _equal(name, weights, stored)]
    if differing:
        raise RunError(
            f"run {run_id} does not repeat here bit for bit: {differing[0]} is not as stored; featurelab rerun "
            f"{run_id} says what changed"
        )


def _equal(name: str, weights: dict[str, Any], stored: dict[str, Any]) -> bool:
    if name not in weights or name not in stored:
        return False
    here, there = weights[name].cpu(), stored[name]
    return bool(here.dtype == there.dtype and here.shape == there.shape and torch.equal(here, there))
