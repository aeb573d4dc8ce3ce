"""The state of networks while they are measured: in float32, undisturbed, and in loops without Lightning."""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Protocol

import pytorch_lightning as pl
import torch
from pytorch_lightning.utilities.seed import isolate_rng
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


@contextmanager
def undisturbed(*networks: nn.Module) -> Iterator[None]:
    """In this block: evaluation mode, no gradients in the parameters, no caches. Everything is restored after it.

    This includes the random states of Python, NumPy and PyTorch.
    """
    modules = {id(part): part for network in networks for part in network.modules()}.values()
    modes = [(part, part.training) for part in modules]
    gradients = [(param, param.grad) for network in networks for param in network.parameters()]
    configs: dict[int, Any] = {id(part.config): part.config for part in modules if hasattr(part, "config")}
    caching = [config for config in configs.values() if getattr(config, "use_cache", None) is True]
    with isolate_rng(), torch.enable_grad():
        for network in networks:
            network.eval()
        for config in caching:
            config.use_cache = False
        for param, _ in gradients:
            param.grad = None
        try:
            yield
        finally:
            for param, gradient in gradients:
                param.grad = gradient
            for part, training in modes:
                part.training = training
            for config in caching:
                config.use_cache = True


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


class Logs(Protocol):
    """Records values at a step, as featurelab's recorders do."""

    def log(self, metrics: Mapping[str, float], step: int) -> Any: ...


class PlainLoop:
    """What a probe asks of Lightning, in a loop without it: one process, in the precision of the weights."""

    current_epoch = 0
    is_global_zero = True
    precision = "32-true"

    def __init__(self, device: torch.device) -> None:
        self.global_step, self.root_device = 0, device
        self.loggers: list[Any] = []
        self.precision_plugin = self.strategy = self


def device_of(module: nn.Module) -> torch.device:
    """The device of the first weight or buffer of a network; the CPU if it has none."""
    tensor = next(itertools.chain(module.parameters(), module.buffers()), None)
    return torch.device("cpu") if tensor is None else tensor.device
