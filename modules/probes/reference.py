"""Probes that compare the network with another one, by default with itself at the start of the fit."""

import copy
import types
from collections.abc import Mapping
from typing import Any, Literal

import pytorch_lightning as pl
import torch
from torch import nn

from .probe import Probe, begins


class ReferenceProbe(Probe):
    """Keeps a frozen copy of the module as the fit begins, in `reference`, or uses another module.

    The copy is in evaluation mode, without gradients, and part of checkpoints, so that a resumed fit is compared with
    the start of the first one. Subclasses call `compare_with`.
    """

    _reference: nn.Module | None = None
    _given_reference = False
    _restored: Mapping[str, Any] | None = None

    def compare_with(self, reference: Literal["init"] | nn.Module) -> None:
        """Set the reference: "init", the network as the fit begins, or a module."""
        self._given_reference = isinstance(reference, nn.Module)
        self._reference = reference if isinstance(reference, nn.Module) else None

    def networks(self, module: nn.Module) -> list[nn.Module]:
        return [module, self.reference]

    @property
    def reference(self) -> nn.Module:
        """The network to compare with. Raises RuntimeError before a fit has begun."""
        if self._reference is None:
            raise RuntimeError(f"{type(self).__name__} has no reference before the fit begins")
        return self._reference

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        super().on_train_start(trainer, pl_module)
        if self._given_reference or not trainer.is_global_zero:
            return
        if self._reference is None or begins(trainer):
            self._reference = frozen(pl_module)
        if self._restored is not None:
            self._reference.load_state_dict(self._restored)
            self._restored = None

    def state_dict(self) -> dict[str, Any]:
        state = super().state_dict()
        if self._reference is not None and not self._given_reference:
            state["reference"] = {name: value.cpu() for name, value in self._reference.state_dict().items()}
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict(state_dict)
        self._restored = state_dict.get("reference")


@torch.no_grad()
def frozen(module: nn.Module) -> nn.Module:
    """A copy in evaluation mode, without gradients."""
    copied = copy.deepcopy(module).eval().requires_grad_(False)
    copies = dict(copied.named_modules())
    twins = {part: copies[name] for name, part in module.named_modules() if name in copies}
    for part, twin in twins.items():
        for name, value in vars(part).items():
            written = getattr(value, "_torchdynamo_orig_callable", None)
            # deepcopy does not copy functions, so a method under torch.compile would run the original network
            if isinstance(written, types.MethodType) and written.__self__ in twins:
                setattr(twin, name, types.MethodType(written.__func__, twins[written.__self__]))
    for param in copied.parameters():
        param.grad = None
    return copied
