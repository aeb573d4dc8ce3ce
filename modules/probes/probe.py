"""The probe: a measure taken on a fixed batch at chosen steps of any fit, leaving the fit as it would be without it."""

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

import pytorch_lightning as pl
import torch
from pytorch_lightning.utilities.seed import isolate_rng
from torch import Tensor, nn

from featurelab.modules.measures.compiled import as_written


class Probe(pl.Callback, ABC):
    """Measures a LightningModule before training, then every so often, and once more when training has ended.

    - `every`, `on`: each `every` optimiser steps or each `every` epochs. Steps are met exactly also where one batch
      takes several optimiser steps; a fit that counts its steps otherwise is measured at the first batch past each
      multiple.
    - `at`: further optimiser steps at which to measure, with `on="step"`.
    - `inputs`: the batch to measure on, a tensor x or a pair (x, y); by default the first training batch, which is
      kept. With several workers the first one measures, and that default is its share of the batch.
    - `prefix` is put before every name.

    Values go to all loggers of the trainer, at step `trainer.global_step`, and to `history`, a list of (step, values);
    what is not finite is left out. While measuring, the module is in evaluation mode without gradients in its
    parameters; modes, gradients and all random states are put back, so that training is the same with and without
    the probe. The history and a batch that was not given are kept in checkpoints: a resumed fit starts from them.
    Under torch.compile the network is measured as it was written, by the same names.

    `skipped` holds what the last measurement left out, name -> why, where it was meant to cover everything of a kind;
    empty if it left out nothing. The fit's first measurement with weights left out also warns (UserWarning).

    A subclass gives `measure`. Raises ValueError for every < 1 or an unknown `on`, TypeError at the first batch if
    that is neither a tensor nor a sequence that begins with inputs and targets.
    """

    def __init__(
        self,
        *,
        every: int = 1,
        on: Literal["step", "epoch"] = "step",
        at: Collection[int] = (),
        inputs: Tensor | tuple[Tensor, Tensor] | None = None,
        prefix: str = "",
    ) -> None:
        if every < 1:
            raise ValueError(f"every must be at least 1, got {every}")
        if on not in ("step", "epoch"):
            raise ValueError(f"on must be 'step' or 'epoch', got {on!r}")
        self.every, self.on, self.at, self.prefix = every, on, frozenset(at), prefix
        self.history: list[tuple[int, dict[str, float]]] = []
        self.skipped: dict[str, str] = {}
        self._warned = False
        self._given = None if inputs is None else _split(inputs)
        self._batch: tuple[Tensor, Any] | None = self._given

    @abstractmethod
    def measure(self, module: pl.LightningModule, inputs: Tensor, targets: Any) -> Mapping[str, float]:
        """The values to log, by name. `targets` is None where the batch has none."""

    def latest(self) -> dict[str, float]:
        """The values measured last; empty before the first time."""
        return self.history[-1][1] if self.history else {}

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.skipped, self._warned = {}, False
        if begins(trainer):
            self.history, self._batch = [], self._given

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        if self._batch is None:
            inputs, targets = _split(batch)  # copies: training may reuse the batch's memory
            self._batch = inputs.clone(), targets.clone() if isinstance(targets, Tensor) else targets
        if not self.history:
            self._take(trainer, pl_module)

    def on_before_optimizer_step(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, optimizer: torch.optim.Optimizer
    ) -> None:
        if self.on == "step" and self._due(trainer.global_step):
            self._take(trainer, pl_module)

    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if self.on == "step" and self._due(trainer.global_step):
            self._take(trainer, pl_module)

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self.on == "epoch" and (trainer.current_epoch + 1) % self.every == 0:
            self._take(trainer, pl_module)

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self._batch is not None:
            self._take(trainer, pl_module)

    def state_dict(self) -> dict[str, Any]:
        state: dict[str, Any] = {"history": list(self.history)}
        if self._given is None and self._batch is not None:
            state["batch"] = [part.cpu() if isinstance(part, Tensor) else None for part in self._batch]
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.history = list(state_dict["history"])
        if "batch" in state_dict:
            self._batch = tuple(state_dict["batch"])

    @property
    def state_key(self) -> str:
        return self._generate_state_key(every=self.every, on=self.on, prefix=self.prefix)

    def _due(self, step: int) -> bool:
        if not self.history:
            return False
        last = self.history[-1][0]
        return step // self.every > last // self.every or any(last < place <= step for place in self.at)

    def leave_out(self, weights: Mapping[str, str]) -> None:
        """Put weights that a measurement could not cover, name -> why, into `skipped`, and warn once a fit."""
        self.skipped |= weights
        if weights and not self._warned:
            self._warned = True
            names: dict[str, list[str]] = {}
            for name, why in weights.items():
                names.setdefault(why, []).append(name)
            told = "; ".join(f"{_some(which)} ({why})" for why, which in names.items())
            warnings.warn(f"{type(self).__name__} leaves out {told}: see its `skipped`", stacklevel=2)

    @as_written
    def _take(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        step = trainer.global_step
        if not trainer.is_global_zero or (self.history and self.history[-1][0] == step):
            return
        assert self._batch is not None
        inputs, targets = self._batch = _on_device(self._batch, module.device)
        self.skipped = {}
        with _undisturbed(module), trainer.precision_plugin.forward_context():
            found = self.measure(module, inputs, targets)
        values = {f"{self.prefix}{name}": float(value) for name, value in found.items()}
        values = {name: value for name, value in values.items() if math.isfinite(value)}
        self.history.append((step, values))
        if values:
            for logger in trainer.loggers:
                logger.log_metrics(values, step=step)


class Measure(Probe):
    """Any function of (module, inputs) as a probe: `Measure(lambda module, x: module(x).std(), every=10)`.

    The function returns a number, logged as `name` (default: the function's own), or numbers by name. Further
    options are those of `Probe`.
    """

    def __init__(
        self,
        function: Callable[[pl.LightningModule, Tensor], Mapping[str, float] | float | Tensor],
        every: int = 1,
        *,
        name: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__(every=every, **options)
        self.function = function
        self.name: str = name or str(getattr(function, "__name__", type(function).__name__))

    def measure(self, module: pl.LightningModule, inputs: Tensor, targets: Any) -> Mapping[str, float]:
        value = self.function(module, inputs)
        if isinstance(value, Tensor):
            value = value.item()
        return value if isinstance(value, Mapping) else {self.name: value}

    @property
    def state_key(self) -> str:
        return self._generate_state_key(every=self.every, on=self.on, prefix=self.prefix, name=self.name)


def begins(trainer: pl.Trainer) -> bool:
    """Whether a fit is a new one, and not one resumed from a checkpoint; not every module counts its steps."""
    return trainer.global_step == 0 and trainer.current_epoch == 0


@contextmanager
def _undisturbed(module: nn.Module) -> Iterator[None]:
    """Evaluation mode and no gradients in the parameters inside; modes, gradients and random states as before after."""
    modes = [(part, part.training) for part in module.modules()]
    gradients = [(param, param.grad) for param in module.parameters()]
    with isolate_rng(), torch.enable_grad():
        module.eval()
        for param, _ in gradients:
            param.grad = None
        try:
            yield
        finally:
            for param, gradient in gradients:
                param.grad = gradient
            for part, training in modes:
                part.training = training


def _some(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _split(batch: Any) -> tuple[Tensor, Any]:
    """Inputs and targets, None if there are none."""
    if isinstance(batch, Tensor):
        return batch.detach(), None
    if isinstance(batch, list | tuple) and batch and isinstance(batch[0], Tensor):
        return batch[0].detach(), batch[1] if len(batch) > 1 else None
    raise TypeError(
        f"a batch of type {type(batch).__name__} does not begin with a tensor of inputs: give inputs=(x, y)"
    )


def _on_device(batch: tuple[Tensor, Any], device: torch.device) -> tuple[Tensor, Any]:
    inputs, targets = batch
    return inputs.to(device), targets.to(device) if isinstance(targets, Tensor) else targets
