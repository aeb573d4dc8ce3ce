"""Forward and backward passes behind the measures of gradients.

The forward pass records every call of a layer; the backward pass runs in blocks of outputs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from .layers import Layer, layer_names
from .samples import Inputs, Samples
from .seeds import GROUPS, Drawn, Root, group_of

# A pass of one output is not batched and may be larger than the budget: larger convolutions keep more threads busy.
ONE_OUTPUT = 2  # its tangent features, in units of the budget
ACTIVATIONS = 8  # what autograd may keep of a forward pass, in units of the budget


class Site(NamedTuple):
    """One call of a layer: its input (samples, ...) and tangent features (outputs, samples, ...)."""

    input: Tensor
    tangent: Tensor


class Plan(NamedTuple):
    """How a network is measured: its layers, the number of outputs, and the sizes of passes."""

    layers: dict[str, Layer]
    head: str | None  # the layer whose output is that of the network
    outputs: int
    size: int  # numbers in the tangent features of one sample and output
    chunk: int  # samples a forward pass
    room: int  # numbers in the tangent features of a backward pass
    drawn: Drawn | None = None

    @property
    def passes(self) -> int:
        """Number of outputs that are differentiated for each sample."""
        return self.outputs if self.drawn is None else min(self.drawn.passes, self.outputs)

    @property
    def groups(self) -> int:
        return 1 if self.drawn is None else min(GROUPS, self.passes)

    def group_sizes(self) -> list[int]:
        sizes: list[int] = group_of(self.passes, self.groups).bincount().tolist()
        return sizes

    def block(self, samples: int, share: float = 1.0) -> int:
        """Outputs of a backward pass over so many samples, of which only a share of the positions is run."""
        return max(1, min(self.outputs, int(self.room / (self.size * share * samples))))


class Last(NamedTuple):
    """The last call of a layer in a forward pass, with tensors that autograd can differentiate."""

    name: str
    input: Tensor
    output: Tensor
    versions: tuple[int, int]

    @classmethod
    def of(cls, name: str, x: Tensor, output: Tensor) -> Last:
        return cls(name, x, output, (x._version, output._version))

    def gives(self, outputs: Tensor) -> bool:
        """Whether the network returned what this call returned, and neither tensor was changed in place since."""
        unchanged = (self.input._version, self.output._version) == self.versions
        return outputs is self.output and unchanged and self.input.requires_grad


class Run(NamedTuple):
    """One forward pass: outputs, 0 at padding, which of them count (None: all), and the calls of the layers."""

    outputs: Tensor  # (n, ...)
    counted: Tensor | None  # (n, count)
    calls: dict[str, list[Site]]
    head: Last | None  # the last call of a layer, if it returned the outputs

    def root(self) -> Root:
        """All outputs as the start of backward passes; outputs (n, T, ...) have T places."""
        outputs = self.outputs.flatten(1) if self.outputs.ndim > 1 else self.outputs[:, None]
        places = self.outputs.shape[1] if self.outputs.ndim == 3 else 1
        return Root(outputs, places, outputs.shape[1] // places)


def prepared(function: Any, inputs: Inputs | Samples, chunk: int | None) -> Samples:
    """Check the arguments of a measure, and return the inputs as samples without gradients."""
    samples = Samples(inputs).detach()
    if chunk is not None and chunk < 1:
        raise ValueError(f"chunk must be at least 1 sample, got {chunk}")
    if isinstance(function, nn.Module):
        refuse_coupled_samples(function)
    return samples


def refuse_coupled_samples(module: nn.Module) -> None:
    """Raise ValueError for a module with batch statistics, which couple samples."""
    for name, part in module.named_modules():
        if isinstance(part, nn.modules.batchnorm._BatchNorm) and (part.training or part.running_mean is None):
            raise ValueError(
                f"{type(part).__name__} {name!r} uses batch statistics, so a sample's output depends on the others: "
                "call module.eval() first (it needs running statistics)"
            )


def refuse_unknown(module: nn.Module, names: Sequence[str]) -> None:
    """Raise ValueError for a name that `layer_names` does not list."""
    known = layer_names(module)
    for name in names:
        if name not in known:
            nearest = get_close_matches(name, known, n=1, cutoff=0.0)
            hint = f"; the nearest is {nearest[0]!r}" if nearest else ""
            raise ValueError(
                f"no linear or ungrouped convolutional layer {name!r}{hint} (of {', '.join(known) or 'none'})"
            )


def planned(
    module: nn.Module, samples: Samples, names: Sequence[str] | None, chunk: int | None, drawn: Drawn | None = None
) -> Plan:
    """Run one or two samples to find the layers called, the number of outputs, and how large a pass may be.

    A forward pass takes as many samples as fit: the tangent features of one output into twice the budget, and what
    autograd keeps for the backward pass into eight times the budget. A backward pass then takes as many outputs as fit
    into the budget, but at least one.
    """
    refuse_unknown(module, names or ())
    known = layer_names(module)
    few = samples[:2]
    run, saved = _weighed(module, known, few)
    for name in names or ():
        if not run.calls[name]:
            raise ValueError(f"layer {name!r} is not called by the forward pass")
    layers = {name: known[name] for name in (names if names is not None else known) if run.calls[name]}
    if not layers:
        raise ValueError(f"{type(module).__name__} calls no linear or ungrouped convolutional layer")
    size = sum(site.tangent.numel() for sites in run.calls.values() for site in sites) // len(few)
    room, n = budget(samples.device), len(samples)
    if chunk is None:
        most = max(1, min(ONE_OUTPUT * room // size, ACTIVATIONS * room // max(saved // len(few), 1)))
        chunk = -(-n // -(-n // most))  # equal parts
    head = None if run.head is None else run.head.name
    return Plan(layers, head, run.outputs.numel() // len(few), size, chunk, room, drawn)


def _weighed(module: nn.Module, layers: dict[str, Layer], samples: Samples) -> tuple[Run, int]:
    """Run the samples, and count the numbers that autograd keeps for the backward pass; 0 where it cannot be told."""
    saved: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        saved[storage.data_ptr()] = storage.nbytes() // tensor.element_size()
        return tensor

    try:
        with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
            run = forward(module, layers, samples)
    except RuntimeError:  # torch.func inside a network refuses these hooks; an error of the network's own comes again
        return forward(module, layers, samples), 0
    given = [samples.inputs] if isinstance(samples.inputs, Tensor) else samples.inputs.values()
    others = [*module.parameters(), *module.buffers(), *(value for value in given if isinstance(value, Tensor))]
    own = {tensor.untyped_storage().data_ptr() for tensor in others if not is_lazy(tensor)}
    return run, sum(size for place, size in saved.items() if place not in own)


def called_weights(module: nn.Module, samples: Samples, names: Sequence[str] | None) -> dict[str, Tensor]:
    """Return the weights (k_out, k_in) of the layers, by default of all layers that the forward pass calls."""
    with torch.no_grad():
        plan = planned(module, samples, names, None)
    return {name: layer.weight.detach().flatten(1) for name, layer in plan.layers.items()}


def budget(device: torch.device) -> int:
    """Most numbers in the tangent features of a batched pass: 16 MiB of float32 on a CPU, 256 MiB on a GPU."""
    return 2**22 if device.type == "cpu" else 2**26


class _Record:
    """The calls of layers during a forward pass; until the backward pass `tangent` holds the pre-activation."""

    def __init__(self, layers: dict[str, Layer]) -> None:
        self.calls: dict[str, list[Site]] = {name: [] for name in layers}
        self.last: Last | None = None

    def note(self, name: str, _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], h: Tensor) -> Tensor:
        if torch.is_grad_enabled() and not h.requires_grad:
            h = h.detach().requires_grad_()
        x = args[0] if args else kwargs["input"]
        self.calls[name].append(Site(x.detach(), h))
        output = h.clone()  # an activation that works in place must not overwrite h
        self.last = Last.of(name, x, output) if torch.is_grad_enabled() and output.requires_grad else None
        return output


@contextmanager
def recording(layers: dict[str, Layer]) -> Iterator[_Record]:
    """Record every call of the layers."""
    record = _Record(layers)
    handles = [
        layer.register_forward_hook(partial(record.note, name), with_kwargs=True) for name, layer in layers.items()
    ]
    try:
        yield record
    finally:
        for handle in handles:
            handle.remove()


def forward(module: nn.Module, layers: dict[str, Layer], samples: Samples) -> Run:
    """Run the samples, and record every call of the layers."""
    with recording(layers) as record:
        selected = samples.selected(samples.returned(module))
    refuse_other_rows(selected, len(samples))
    head = record.last if record.last is not None and record.last.gives(selected) else None
    outputs = samples.blank(selected) if samples.blanked(selected) else selected
    outputs = outputs if outputs.shape[:1] == (len(samples),) else outputs.reshape(len(samples), -1)
    return Run(outputs, samples.counted(outputs), record.calls, head)


def refuse_other_rows(outputs: Any, n: int) -> None:
    """Raise TypeError or ValueError unless the outputs are a tensor of n rows; a single row may lack its axis."""
    if not isinstance(outputs, Tensor):
        raise TypeError(f"the output must be a tensor with one row for each sample, got {type(outputs).__name__}")
    if n > 1 and outputs.shape[:1] != (n,):
        raise ValueError(
            f"the output must have one row for each sample: {n} samples went in, shape {tuple(outputs.shape)} came out"
        )


def backward(at: Tensor, wanted: Sequence[Tensor], values: Tensor, *, keep: bool) -> list[Tensor]:
    """Gradients of values (block, *at.shape) times `at` in `wanted`, each (block, *wanted.shape).

    A block of one is an ordinary backward pass, whose kernels use all threads; a larger one is a batched pass.
    `keep` keeps the graph for further passes.
    """
    if not at.requires_grad:
        raise ValueError("the output does not depend differentiably on the tensor whose gradient is needed")
    used: list[bool] = []

    def pulled(value: Tensor) -> tuple[Tensor, ...]:
        gradients = pulled_back(at, wanted, value, keep=keep)
        used[:] = [g is not None for g in gradients]
        return tuple(g for g in gradients if g is not None)

    some = [g[None] for g in pulled(values[0])] if len(values) == 1 else torch.vmap(pulled)(values)
    following = iter(some)
    gradients = [next(following) if there else None for there in used]
    zero = at.new_zeros(())
    return [zero.expand(len(values), *h.shape) if g is None else g for h, g in zip(wanted, gradients, strict=True)]


def pulled_back(at: Tensor, wanted: Sequence[Tensor], value: Tensor, *, keep: bool) -> tuple[Tensor | None, ...]:
    """Gradients of the sum of value (as `at`) times `at` in `wanted`; None where it does not depend on it.

    What `torch.autograd.grad` does after it has compared the two shapes, for which it imports sympy: half a second.
    """
    if _run_backward is None:
        return torch.autograd.grad(at, wanted, value, retain_graph=keep, allow_unused=True)
    gradients: tuple[Tensor | None, ...] = _run_backward(
        (at,), (value.expand_as(at),), keep, False, tuple(wanted), True, accumulate_grad=False
    )
    return gradients


_run_backward: Any = getattr(torch.autograd.graph, "_engine_run_backward", None)


def single(calls: dict[str, list[Site]], samples: int) -> dict[str, Site]:
    """Return the only call of each layer, with one row for each sample."""
    for name, sites in calls.items():
        if len(sites) != 1:
            raise ValueError(
                f"layer {name!r} is called {len(sites)} times in one forward pass: its rows cannot be assigned to a "
                "single call"
            )
        if len(sites[0].input) != samples:
            shape = tuple(sites[0].input.shape)
            raise ValueError(f"layer {name!r} does not keep the samples first: {samples} went in, its input is {shape}")
    return {name: sites[0] for name, sites in calls.items()}
