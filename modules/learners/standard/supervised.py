"""Supervised training of any network, at little more than the cost of a bare loop even for thousands of small steps."""

import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any

import pytorch_lightning as pl
import torch
from jaxtyping import Float
from pytorch_lightning.plugins.precision import Precision
from pytorch_lightning.profilers import PassThroughProfiler
from pytorch_lightning.strategies import Strategy
from torch import Tensor, nn

from .history import History
from .losses import Batch, Diverged, Loss, accuracy, loss
from .schedules import Schedule
from .withheld import updates_withheld


class Supervised(pl.LightningModule):
    """Minimises the loss of `net` on the batches of a data module.

    Every training step takes `steps_per_batch` optimiser steps on its batch (fewer if the trainer's `max_steps` ends
    the fit): on a full batch that is plain gradient descent with fewer calls of the trainer. The trainer's
    `global_step` counts optimiser steps. W workers average the gradients of their shares of the batch, so the fit
    equals that of one worker on the whole batch.

    `loss` is a name of `learners.loss` or a function of (forward, batch); `optimizer` maps the network to its
    optimiser, e.g. `learners.gd(0.05)`. `schedule` maps the epoch (passes over the data so far, from 0) to a multiplier
    of the optimiser's learning rates, e.g. `learners.milestone_schedule([100, 200])`; it depends on the epoch alone, so
    a fit resumed from a checkpoint continues with the same rates. Validation and testing log `loss/val`, `loss/test`
    and, for class labels, `accuracy/...`.

    Raises `Diverged` when the loss is not finite, ValueError for an unknown loss, steps_per_batch < 1, or a precision
    that scales the loss (16-mixed).
    """

    def __init__(
        self,
        net: nn.Module,
        *,
        loss: str | Loss = "mse",
        optimizer: Callable[[nn.Module], torch.optim.Optimizer],
        steps_per_batch: int = 1,
        schedule: Schedule | None = None,
    ) -> None:
        super().__init__()
        if steps_per_batch < 1:
            raise ValueError(f"steps_per_batch must be at least 1, got {steps_per_batch}")
        self.automatic_optimization = False
        self.net = net
        self.loss = _loss(loss)
        self.optimizer = optimizer
        self.steps_per_batch = steps_per_batch
        self.schedule = schedule
        self._losses = History()
        self._all_trained = False  # whether the optimiser holds every parameter

    def __setattr__(self, name: str, value: Any) -> None:
        # the trainer sets the name of the current hook some 30 times a batch, and a module's own way is slow
        if (value is None or isinstance(value, str)) and name in self.__dict__:
            object.__setattr__(self, name, value)
        else:
            super().__setattr__(name, value)

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.net(x)
        return outputs

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return self.optimizer(self.net)

    @property
    def loss_history(self) -> Float[Tensor, " steps"]:
        """Training loss before each optimiser step so far, on the CPU."""
        return self._losses.values

    @property
    def catapult_ratio(self) -> float:
        """Largest training loss over the first, >= 1: well above 1 after an unstable phase; nan before any step."""
        history = self.loss_history
        return (history.max() / history[0]).item() if len(history) else float("nan")

    def on_fit_start(self) -> None:
        if getattr(self.trainer.precision_plugin, "scaler", None) is not None:
            raise ValueError("precision 16-mixed scales the loss, which is not supported: use bf16-mixed, 32 or 64")

    def on_train_start(self) -> None:
        optimizer = self.optimizers()
        assert not isinstance(optimizer, list)
        held = {id(p) for group in optimizer.param_groups for p in group["params"]}
        self._all_trained = all(id(p) in held for p in self.parameters())

    def on_train_epoch_start(self) -> None:
        if self.schedule is None:
            return
        optimizer = self.optimizers()
        assert not isinstance(optimizer, list)
        for group in optimizer.param_groups:  # kept in checkpoints, the unscheduled rate too
            rate = "full_lr" if "full_lr" in group else "lr"  # an optimiser with a warm-up sets `lr` itself
            group[rate] = group.setdefault("initial_lr", group[rate]) * self.schedule(self.current_epoch)

    def training_step(self, batch: Batch, batch_index: int) -> None:
        optimizer = self.optimizers()
        assert not isinstance(optimizer, list)
        weights = [p for group in optimizer.param_groups for p in group["params"] if p.requires_grad]
        trainer, net, loss = self.trainer, self.net, self.loss  # looked up once: a module's attributes are slow
        start, limit = trainer.global_step, trainer.max_steps
        steps = self.steps_per_batch if limit < 0 else min(self.steps_per_batch, limit - start)
        workers, withheld = trainer.world_size, updates_withheld()
        step = self._stepping(optimizer)
        losses = []
        for _ in range(steps):
            value = loss(net, batch)
            if self._all_trained and workers == 1:  # faster; otherwise it would also fill gradients of other weights
                for weight in weights:
                    weight.grad = None
                value.backward()
                value = value.detach()
            else:
                gradients: Sequence[Tensor | None] = torch.autograd.grad(value, weights, allow_unused=True)
                value = value.detach()
                if workers > 1:
                    value = _average([value, *(g for g in gradients if g is not None)], workers)
                for weight, gradient in zip(weights, gradients, strict=True):
                    weight.grad = gradient
            if withheld:  # an optimiser leaves weights without a gradient alone
                for weight in weights:
                    weight.grad = None
            step()
            losses.append(value)
        history = torch.stack(losses).cpu()
        self._losses.append(history)
        if not math.isfinite(history.sum().item()):  # a sum may overflow, so look again
            finite = history.isfinite()
            if not finite.all():
                raise Diverged(start + int(finite.int().argmin()))

    def _stepping(self, wrapped: Any) -> Callable[[], object]:
        """Return what takes one step of a wrapped optimiser: its own `step`, or a faster way to the same.

        Lightning calls all callbacks before each step, which takes as long as a fifth of a small network's step. Where
        the rest of its way is that of plain training, call those that listen, take the step, and count it.
        """
        trainer: Any = self.trainer  # Lightning sets its callbacks and profiler without types
        plain = pl.Callback.on_before_optimizer_step
        listening = [each for each in trainer.callbacks if type(each).on_before_optimizer_step is not plain]
        if (
            type(trainer.strategy).optimizer_step is not Strategy.optimizer_step
            or type(trainer.precision_plugin).optimizer_step is not Precision.optimizer_step
            or type(self).on_before_optimizer_step is not pl.LightningModule.on_before_optimizer_step
            or not isinstance(trainer.profiler, PassThroughProfiler)
            # others may log through the trainer, which must know the hook that they are in
            or not all(getattr(each, "logs_by_itself", False) for each in listening)
        ):
            step: Callable[[], object] = wrapped.step
            return step
        count, optimizer = trainer.fit_loop.epoch_loop.manual_optimization.optim_step_progress, wrapped.optimizer

        def step_alone() -> None:
            count.increment_ready()
            for each in listening:
                each.on_before_optimizer_step(trainer, self, optimizer)
            optimizer.step()
            count.increment_completed()

        return step_alone

    # the trainer asks for it at every batch, and would compute it each time
    training_step.__signature__ = inspect.signature(training_step)  # type: ignore[attr-defined]

    def validation_step(self, batch: Batch, batch_index: int) -> None:
        self._evaluate(batch, "val")

    def test_step(self, batch: Batch, batch_index: int) -> None:
        self._evaluate(batch, "test")

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["loss_history"] = self.loss_history.clone()  # without the room for more

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self._losses = History(checkpoint["loss_history"])

    def _evaluate(self, batch: Batch, part: str) -> None:
        x, y = batch
        outputs = self.net(x)
        values = {f"loss/{part}": self.loss(lambda _: outputs, batch)}
        share = accuracy(outputs, y)
        if share is not None:
            values[f"accuracy/{part}"] = share
        self.log_dict(values, batch_size=len(x), on_step=False, on_epoch=True)


def _loss(given: str | Loss) -> Loss:
    return loss(given) if isinstance(given, str) else given


def _average(tensors: list[Tensor], world_size: int) -> Tensor:
    """Average the tensors over all workers in place, in one all-reduce; return the first."""
    flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
    torch.distributed.all_reduce(flat)
    parts = flat.div_(world_size).split([tensor.numel() for tensor in tensors])
    for tensor, part in zip(tensors, parts, strict=True):
        tensor.copy_(part.view_as(tensor))
    return tensors[0]
