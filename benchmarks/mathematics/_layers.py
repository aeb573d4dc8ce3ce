"""The forward pass of the peers that loop over outputs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torch import Tensor, nn

from featurelab.modules import measures


def forward(net: nn.Module, run: Callable[[], Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
    """Return what `run` does with the network, and what each of its layers gives, to be differentiated by."""
    calls = dict[str, Tensor]()

    def note(name: str, _: nn.Module, args: tuple[Tensor, ...], h: Tensor) -> Tensor:
        calls[name] = h
        return h.clone()

    handles = [layer.register_forward_hook(partial(note, name)) for name, layer in measures.layer_names(net).items()]
    outputs = run()
    for handle in handles:
        handle.remove()
    return outputs, calls
