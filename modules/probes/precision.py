"""Measure in float32 what trains in half precision."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor, nn

from featurelab.modules.measures import layer_names

HALF = (torch.bfloat16, torch.float16)


@contextmanager
def in_float32(trainer: pl.Trainer, networks: Sequence[nn.Module], tell: Callable[[str], None]) -> Iterator[None]:
    """In this block half-precision weights and buffers are float32 and autocast is off; after it they are restored.

    Other precisions do not change. `tell` receives the reason if something is in half precision nevertheless.
    """
    plugin = trainer.precision_plugin
    device = trainer.strategy.root_device.type
    with ExitStack() as after:
        if str(plugin.precision).startswith(("transformer-engine", "nf4", "fp4", "int8")):
            after.enter_context(plugin.forward_context())
            tell(f"computed in the trainer's precision {plugin.precision}, not in float32")
        elif str(plugin.precision).startswith("64"):
            after.enter_context(plugin.forward_context())
        else:
            after.enter_context(torch.autocast(device, enabled=False))
            before = torch.get_default_dtype()
            if before in HALF:
                after.callback(torch.set_default_dtype, before)
                torch.set_default_dtype(torch.float32)
        for network in networks:
            for tensor in [*network.parameters(), *network.buffers()]:
                if tensor.dtype in HALF:
                    after.callback(setattr, tensor, "data", tensor.data)
                    tensor.data = tensor.data.float()
        for layer in layer_names(networks[0]).values():
            after.callback(layer.register_forward_hook(_Telling(tell)).remove)
        yield


def widened(batch: Any) -> Any:
    """The batch with half-precision tensors converted to float32."""
    if isinstance(batch, Tensor):
        return batch.float() if batch.dtype in HALF else batch
    if isinstance(batch, dict):
        return {name: widened(value) for name, value in batch.items()}
    return batch


class _Telling:
    """A forward hook that reports outputs in half precision: a network may switch autocast on by itself."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self.tell = tell

    def __call__(self, layer: nn.Module, _: Any, outputs: Any) -> None:
        if isinstance(outputs, Tensor) and outputs.dtype in HALF:
            self.tell(f"the network computes in {str(outputs.dtype).removeprefix('torch.')} by itself, not in float32")
