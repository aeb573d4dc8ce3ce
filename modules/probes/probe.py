"""The probe: measures on a fixed batch at chosen steps of any fit, without affecting the fit."""

import math
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple, Self

import pytorch_lightning as pl
import torch
from torch import Tensor, nn

from featurelab.modules.measures.core.compiled import as_written
from featurelab.modules.measures.core.effort import listening
from featurelab.modules.measures.core.passes import refuse_unknown
from featurelab.modules.measures.core.samples import Inputs, Outputs, Samples, described, moved

from .batches import Data, Names, Stream, is_batch, is_names, joined, split
from .cost import Cost, StepClock
from .precision import Logs, PlainLoop, device_of, in_float32, undisturbed, widened

# what a network raises on inputs that do not fit; other exceptions, such as signals to stop, pass through
MISFITS = (ValueError, TypeError, RuntimeError, LookupError, AttributeError, ArithmeticError)


class CannotMeasure(ValueError):
    """A failed measurement of a probe with `strict=True`; says which probe and module failed, and on what."""


Kind = Literal["start", "step", "epoch", "end"]


class Moment(NamedTuple):
    """When a measurement is taken: before the first step, after a step, after an epoch or at the end of a fit."""

    trainer: pl.Trainer
    kind: Kind

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Itself: a measure may copy the network, whose hooks know the probe, and no trainer can be copied in a fit."""
        return self


class Probe(pl.Callback, ABC):
    """Measures a LightningModule before training, at regular intervals, and once more when training has ended.

    - `every`, `on`: every so many optimiser steps or epochs. Steps are exact also if a batch takes several optimiser
      steps; a fit that counts its steps differently is measured at the first batch past each multiple.
    - `at`: further optimiser steps at which to measure, with `on="step"`.
    - `inputs`: what to measure on, a tensor x, a pair (x, y), a mapping of tensors, a DataLoader or a
      LightningDataModule; by default the first training batch, which is kept. With several workers the first one
      measures, and this default is its share of the batch. Or where the inputs are in a batch: a name, several names,
      or a function of the batch.
    - `targets`: where the targets are, a name or a function of the batch.
    - `outputs`: which result of the network to use, a name or a function of what it returns.
    - `data`: as `inputs`, but read batch by batch if the probe can; others hold all of it at once.
    - `prefix` is put before every name.
    - `strict`: whether a failed measurement ends training, with CannotMeasure. By default it only gives one warning in
      a fit, and its reason is in `skipped`. The figures of this package are strict.

    Without `inputs`, `targets` and `outputs` the probe guesses. The targets of a mapping are its `labels`, `label`,
    `targets`, `target` or `y`, and the inputs all its other tensors; outputs are a tensor, its `logits`, or its only
    tensor. `measures.Samples` says how a network is called. Outputs (n, T, ...) do not count where `attention_mask` is
    0.

    Values go to all loggers of the trainer, at step `trainer.global_step`, and to `history`, a list of (step, values);
    values that are not finite are left out. While measuring, the module is in evaluation mode, without gradients in its
    parameters and without a cache of keys and values. Afterwards modes, gradients and all random states are restored,
    so that training is the same with and without the probe. Half-precision weights are float32 while measuring, and
    autocast is off. Checkpoints include the history and a batch that was not given, from which a resumed fit continues.
    Under torch.compile the network is measured as it was written, with the same names.

    `skipped` says what the last measurement left out, name -> why, if it was meant to cover everything of a kind, and
    is empty otherwise. The first measurement of a fit that leaves out weights also warns (UserWarning). A measurement
    that will take longer than ten training steps announces this once in a fit, and shows a progress bar on a terminal.

    `measure` measures a network in a training loop without Lightning.

    Subclasses define `values`. Raises ValueError for every < 1 or an unknown `on`, TypeError for given inputs without
    a tensor, and at the first measurement ValueError for unknown layers.
    """

    logs_by_itself = True  # never through the trainer: `learners.Supervised` may call its hooks without it
    streams = False  # whether `values` iterates over `data` itself
    layers: Sequence[str] | None = None
    n_outputs: int | None = None
    draws: int | None = None
    moment: Moment | None = None  # while it measures in a fit

    def __init__(
        self,
        *,
        every: int = 1,
        on: Literal["step", "epoch"] = "step",
        at: Collection[int] = (),
        inputs: Data | Names | None = None,
        targets: Names | None = None,
        outputs: Outputs | None = None,
        data: Data | None = None,
        prefix: str = "",
        strict: bool | None = None,
    ) -> None:
        if every < 1:
            raise ValueError(f"every must be at least 1, got {every}")
        if on not in ("step", "epoch"):
            raise ValueError(f"on must be 'step' or 'epoch', got {on!r}")
        self.every, self.on, self.at, self.prefix, self.strict = every, on, frozenset(at), prefix, strict
        self.history: list[tuple[int, dict[str, float]]] = []
        self.skipped: dict[str, str] = {}
        self._where = inputs if inputs is not None and is_names(inputs) else None
        self._targets, self._outputs = targets, outputs
        self.data = data
        self._source = data if inputs is None or self._where is not None else inputs
        given = self._source is not None and is_batch(self._source)
        self._given = split(self._source, self._where, targets) if given else None
        self._batch: tuple[Inputs, Any] | None = self._given
        self._step, self._clock = 0, StepClock()
        self._said: set[str] = set()
        self._loop: PlainLoop | None = None

    @abstractmethod
    def values(self, module: nn.Module, inputs: Any, targets: Any) -> Mapping[str, float]:
        """The values to log, by name. Inputs are a tensor or a mapping; `targets` is None if the batch has none."""

    @as_written
    def measure(
        self, net: nn.Module, batch: Any = None, step: int = 0, *, recorder: "Logs | None" = None
    ) -> dict[str, float]:
        """Measure a network in a training loop without Lightning, and return the values by name.

        The values are those that the probe measures in a Lightning fit, at the same weights and on the same batch. They
        are appended to `history`, and given to `recorder.log(values, step=step)`. Every call measures: `every` and `at`
        are for Lightning. The first call begins a fit: probes that compare the network with its start keep a copy, so
        call it before training.

        Args:
            net: the network, or a LightningModule.
            batch: what to measure on, as a training batch; not used if the probe was given `inputs` or `data`.
            step: the number of optimiser steps so far.
            recorder: anything with a method `log(values, step=...)`.

        Raises ValueError without a batch where one is needed, and CannotMeasure with `strict=True`.
        """
        if self._loop is None:
            self._loop = PlainLoop(device_of(net))
            self.on_fit_start(self._loop, net)  # type: ignore[arg-type]
            self.on_train_start(self._loop, net)  # type: ignore[arg-type]
        if self._source is None:
            if batch is None:
                raise ValueError(f"{type(self).__name__} needs a batch to measure on")
            self._batch = split(batch, self._where, self._targets)
        self._loop.global_step = step
        self.skipped, self.moment = {}, Moment(self._loop, "step")  # type: ignore[arg-type]
        try:
            self._take(self._loop, net)  # type: ignore[arg-type]
        finally:
            self.moment = None
        if recorder is not None and self.latest():
            recorder.log(self.latest(), step=step)
        return dict(self.latest())

    def latest(self) -> dict[str, float]:
        """The latest values; empty before the first measurement."""
        return self.history[-1][1] if self.history else {}

    def samples(self, inputs: Inputs) -> Samples:
        """The inputs, with the way to run networks on them."""
        return Samples(inputs, self._outputs)

    def stream(self, inputs: Inputs, targets: Any) -> Iterable[tuple[Inputs, Any]]:
        """The batches to measure on: those of `data`, which can be iterated many times, or the single batch."""
        if self.data is None or is_batch(self.data):
            return [(inputs, targets)]
        return _Widened(Stream(self.data, Samples(inputs).device, self._where, self._targets))

    def networks(self, module: nn.Module) -> list[nn.Module]:
        """All networks that a measurement runs, the one in training first."""
        return [module]

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.skipped, self._said, self._clock = {}, set(), StepClock()
        if begins(trainer):
            self.history, self._batch = [], self._given

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        if self._batch is None and self._source is None:
            try:
                inputs, targets = split(batch, self._where, self._targets)
            except MISFITS as error:
                self._batchless(trainer, pl_module, batch, error)
            else:
                self._batch = copied(inputs), copied(targets)  # training may reuse the batch's memory
        self._take_if_due("start", trainer, pl_module)
        self._clock.begin(trainer.global_step)

    def on_before_optimizer_step(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, optimizer: torch.optim.Optimizer
    ) -> None:
        self._take_if_due("step", trainer, pl_module)

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self._clock.end(trainer.global_step)
        self._take_if_due("step", trainer, pl_module)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._take_if_due("epoch", trainer, pl_module)

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._take_if_due("end", trainer, pl_module)

    def state_dict(self) -> dict[str, Any]:
        state: dict[str, Any] = {"history": list(self.history)}
        if self._given is None and self._batch is not None:
            parts = [part if isinstance(part, Tensor | dict) else None for part in self._batch]
            state["batch"] = moved(parts, torch.device("cpu"))
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.history = list(state_dict["history"])
        if "batch" in state_dict:
            self._batch = tuple(state_dict["batch"])

    @property
    def state_key(self) -> str:
        return self._generate_state_key(every=self.every, on=self.on, prefix=self.prefix)

    def due(self, kind: Kind, trainer: pl.Trainer) -> bool:
        """Whether the probe measures at this moment of a fit."""
        return trainer.is_global_zero and self.due_at(kind, trainer.global_step, trainer.current_epoch)

    def due_at(self, kind: Kind, step: int, epoch: int) -> bool:
        """Whether the probe measures at this step, in this epoch, counted from 0."""
        last = self.history[-1][0] if self.history else None
        if last == step:
            return False
        if kind == "end":
            return self._batch is not None or self._source is not None
        if kind == "epoch":
            return self.on == "epoch" and (epoch + 1) % self.every == 0
        if last is None or kind == "start":
            return last is None and kind == "start"
        return self.on == "step" and (
            step // self.every > last // self.every or any(last < place <= step for place in self.at)
        )

    def reads(self) -> tuple[Any, ...]:
        """Where inputs and outputs come from: equal for probes that measure the same ones."""
        if self._given is not None:
            given = self._given[0]
            tensors = [given] if isinstance(given, Tensor) else [v for v in given.values() if isinstance(v, Tensor)]
            return "given", [(x.data_ptr(), x.shape) for x in tensors], self._outputs
        streamed = self.streams and self.data is not None and self._source is self.data
        return "source", id(self._source), streamed, self._where, self._targets, self._outputs

    def leave_out(self, weights: Mapping[str, str]) -> None:
        """Record weights that a measurement could not cover, name -> why, in `skipped`, and warn once in a fit."""
        self.skipped |= weights
        if weights and "leaves out" not in self._said:
            self._said.add("leaves out")
            names: dict[str, list[str]] = {}
            for name, why in weights.items():
                names.setdefault(why, []).append(name)
            told = "; ".join(f"{_some(which)} ({why})" for why, which in names.items())
            warnings.warn(f"{type(self).__name__} leaves out {told}: see its `skipped`", stacklevel=2)

    @as_written
    def _take_if_due(self, kind: Kind, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        if not self.due(kind, trainer):
            return
        self.skipped = {}
        self.moment = Moment(trainer, kind)
        try:
            self._take(trainer, module)
        finally:
            self.moment = None

    def _take(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        self._step = step = trainer.global_step
        begun = time.perf_counter()
        if self.layers is not None:
            refuse_unknown(module, self.layers)
        try:
            measured = self._measured(trainer, module)
        except MISFITS as error:
            inputs, targets = self._batch or (None, None)
            self._fail(module, f"inputs {described(inputs)}, targets {described(targets)}", error)
            measured = {}
        values = {f"{self.prefix}{name}": float(value) for name, value in measured.items()}
        values = {name: value for name, value in values.items() if math.isfinite(value)}
        self.history.append((step, values))
        if values:
            for logger in trainer.loggers:
                logger.log_metrics(values, step=step)
        StepClock.measuring += time.perf_counter() - begun

    def _measured(self, trainer: pl.Trainer, module: pl.LightningModule) -> Mapping[str, float]:
        networks, device = self.networks(module), device_of(module)
        with undisturbed(*networks), in_float32(trainer, networks, self.not_in_float32):
            if self._batch is None:
                self._batch = self._gathered(device)
            self._batch = moved(self._batch, device)
            inputs, targets = (widened(part) for part in self._batch)
            samples = self.samples(inputs)
            hint = "; draws= estimates it from random combinations of the outputs" if self._can_draw() else ""
            cost = Cost(
                type(self).__name__,
                lambda: self._clock.known_or_tried(module, samples),
                partial(self._once, "cost"),
                hint=hint,
            )
            with listening(cost):
                try:
                    return self.values(module, inputs, targets)
                finally:
                    cost.close()

    def _gathered(self, device: torch.device) -> tuple[Inputs, Any]:
        stream = Stream(self._source, device, self._where, self._targets)
        if self.streams and self._source is self.data:
            return next(iter(stream))  # for the shapes
        return joined(stream)

    def _can_draw(self) -> bool:
        return "draws" in vars(self) and self.draws is None and self.n_outputs is None

    def _batchless(self, trainer: pl.Trainer, module: pl.LightningModule, batch: Any, error: Exception) -> None:
        if trainer.is_global_zero and not self.history:
            self._fail(module, described(batch), error)
            self.history.append((trainer.global_step, {}))

    def _fail(self, module: nn.Module, what: str, error: Exception) -> None:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0][:300]
        line = f"{type(self).__name__} could not measure {type(module).__name__} on {what}: {reason}"
        if self.strict:
            raise CannotMeasure(line).with_traceback(error.__traceback__) from error  # ends at the mistake
        self.skipped = {"measurement": f"{what}: {reason}"}
        self._once("failed", f"{line}. Training continues; say in inputs=, targets= or outputs= what to measure")

    def not_in_float32(self, reason: str) -> None:
        """Record why a measurement was not in float32, and warn once in a fit."""
        self.skipped["float32"] = reason
        self._once("float32", f"{type(self).__name__}: {reason}")

    def _once(self, kind: str, line: str) -> None:
        """Warn at most once in a fit about each kind of trouble."""
        if kind not in self._said:
            self._said.add(kind)
            warnings.warn(line, stacklevel=2)


def begins(trainer: pl.Trainer) -> bool:
    """Whether a fit is new rather than resumed from a checkpoint; not every module counts its steps."""
    return trainer.global_step == 0 and trainer.current_epoch == 0


class _Widened:
    """A stream whose half-precision inputs are converted to float32."""

    def __init__(self, stream: Stream) -> None:
        self.whole = stream

    def __iter__(self) -> Iterator[tuple[Inputs, Any]]:
        for inputs, targets in self.whole:
            yield widened(inputs), widened(targets)

    def __len__(self) -> int:
        return len(self.whole)


def copied(value: Any) -> Any:
    """Copy the tensors in inputs or targets."""
    if isinstance(value, dict):
        return {name: copied(part) for name, part in value.items()}
    return value.clone() if isinstance(value, Tensor) else value


def _some(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
