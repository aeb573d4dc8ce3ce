"""Forward and backward passes behind the measures of gradients.

The forward pass records every call of a layer; the backward pass runs in blocks of outputs.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from difflib import get_close_matches
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from .layers import Layer, layer_names
from .samples import Inputs, Samples

GROUPS = 10  # of sampled outputs, from whose differences standard errors are estimated


class Site(NamedTuple):
    """One call of a layer: its input (samples, ...) and tangent features (outputs, samples, ...)."""

    input: Tensor
    tangent: Tensor


class Drawn(NamedTuple):
    """A random sample of `n_outputs` outputs for each sample; the same seed gives the same outputs."""

    n_outputs: int
    seed: int


class Plan(NamedTuple):
    """How a network is measured: its layers, the number of outputs, and the sizes of passes."""

    layers: dict[str, Layer]
    outputs: int
    chunk: int  # samples a forward pass
    block: int  # outputs a backward pass
    drawn: Drawn | None = None

    @property
    def passes(self) -> int:
        """Number of outputs that are differentiated for each sample."""
        return self.outputs if self.drawn is None else min(self.drawn.n_outputs, self.outputs)

    @property
    def groups(self) -> int:
        return 1 if self.drawn is None else min(GROUPS, self.passes)

    def group_of(self) -> Tensor:
        """The group of each sampled output, in ascending order; the sizes of the groups differ by at most 1."""
        return torch.arange(self.passes) * self.groups // self.passes

    def group_sizes(self) -> list[int]:
        sizes: list[int] = self.group_of().bincount().tolist()
        return sizes


class Block(NamedTuple):
    """One backward pass: the calls of each layer with their tangent features, and the group of each output."""

    calls: dict[str, list[Site]]
    groups: list[tuple[int, slice]]
    work: int  # outputs x samples
    unsampled: float


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
    """Run one or two samples to find the layers called, the number of outputs, and how large a pass may be."""
    refuse_unknown(module, names or ())
    known = layer_names(module)
    few = samples[:2]
    outputs, _, calls = forward(module, known, few)
    for name in names or ():
        if not calls[name]:
            raise ValueError(f"layer {name!r} is not called by the forward pass")
    layers = {name: known[name] for name in (names if names is not None else known) if calls[name]}
    if not layers:
        raise ValueError(f"{type(module).__name__} calls no linear or ungrouped convolutional layer")
    size = sum(site.tangent.numel() for sites in calls.values() for site in sites) // len(few)
    plan = Plan(layers, outputs.shape[1], 1, 1, drawn)
    count, room = plan.passes, budget(samples.device)
    chunk = chunk or max(1, room // (size * count))
    return plan._replace(chunk=chunk, block=max(1, min(count, room // (size * min(chunk, len(samples))))))


def called_weights(module: nn.Module, samples: Samples, names: Sequence[str] | None) -> dict[str, Tensor]:
    """Return the weights (k_out, k_in) of the layers, by default of all layers that the forward pass calls."""
    with torch.no_grad():
        plan = planned(module, samples, names, None)
    return {name: layer.weight.detach().flatten(1) for name, layer in plan.layers.items()}


def budget(device: torch.device) -> int:
    """Most numbers that tangent features of one backward pass may hold: a CPU's cache, or many tiles of a GPU."""
    return 2**22 if device.type == "cpu" else 2**26


@contextmanager
def recording(layers: dict[str, Layer]) -> Iterator[dict[str, list[Site]]]:
    """Record every call of the layers; until the backward pass `tangent` holds the pre-activation."""
    calls: dict[str, list[Site]] = {name: [] for name in layers}

    handles = [
        layer.register_forward_hook(partial(_record, calls[name]), with_kwargs=True) for name, layer in layers.items()
    ]
    try:
        yield calls
    finally:
        for handle in handles:
            handle.remove()


def _record(calls: list[Site], _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], h: Tensor) -> Tensor:
    if torch.is_grad_enabled() and not h.requires_grad:
        h = h.detach().requires_grad_()
    x = args[0] if args else kwargs["input"]
    calls.append(Site(x.detach(), h))
    return h.clone()  # an activation that works in place must not overwrite h


def forward(
    module: nn.Module, layers: dict[str, Layer], samples: Samples
) -> tuple[Tensor, Tensor | None, dict[str, list[Site]]]:
    """Return the outputs (n, count), which of them count (n, count) or None for all, and the calls of the layers."""
    with recording(layers) as calls:
        outputs = samples.outputs(module)
    counted = samples.counted(outputs) if isinstance(outputs, Tensor) else None
    return flat(outputs, len(samples)), counted, calls


def flat(outputs: Any, n: int) -> Tensor:
    """Outputs (n, count), flattened by sample. Raises TypeError or ValueError unless they have n rows."""
    if not isinstance(outputs, Tensor):
        raise TypeError(f"the output must be a tensor with one row for each sample, got {type(outputs).__name__}")
    if n > 1 and outputs.shape[:1] != (n,):
        raise ValueError(
            f"the output must have one row for each sample: {n} samples went in, shape {tuple(outputs.shape)} came out"
        )
    return outputs.reshape(n, -1)


def blocks(module: nn.Module, samples: Samples, plan: Plan) -> Iterator[Block]:
    """Yield blocks of (outputs x samples) with the calls of each layer and their tangent features."""
    draw = random.Random(plan.drawn.seed) if plan.drawn is not None else None
    for some in samples.split(plan.chunk):
        with _batched_attention(some, plan):
            outputs, counted, calls = forward(module, plan.layers, some)
        for name, sites in calls.items():
            if not all(site.tangent.requires_grad for site in sites):
                raise ValueError(
                    f"layer {name!r} runs under torch.no_grad inside the module: it has no gradients to measure"
                )
        wanted = [site.tangent for sites in calls.values() for site in sites]
        seeds = each_output(outputs, plan.block) if draw is None else _sampled(outputs, counted, plan, draw)
        for seed, gradients in backward(outputs, wanted, seeds):
            found = iter(gradients)
            noted = {name: [Site(site.input, next(found)) for site in sites] for name, sites in calls.items()}
            yield Block(noted, seed.groups, len(seed.values) * len(some), seed.unsampled)


class Seeds(NamedTuple):
    """Factors of the outputs in one backward pass, and the range of each group in the block."""

    values: Tensor  # (block, n, outputs)
    last: bool
    groups: list[tuple[int, slice]]
    unsampled: float = 0.0  # in the last block: the sum over samples of the share of outputs that is left out


def backward(outputs: Tensor, wanted: Sequence[Tensor], seeds: Iterator[Seeds]) -> Iterator[tuple[Seeds, list[Tensor]]]:
    """Yield gradients of seeds * outputs in `wanted`, each (block, *wanted.shape), one batched pass for a block."""
    if not outputs.requires_grad:
        raise ValueError("the output does not depend differentiably on the tensor whose gradient is needed")
    zero = outputs.new_zeros(())
    for seed in seeds:
        gradients = torch.autograd.grad(
            outputs, wanted, seed.values, is_grads_batched=True, allow_unused=True, retain_graph=not seed.last
        )
        size = len(seed.values)
        yield seed, [zero.expand(size, *h.shape) if g is None else g for h, g in zip(wanted, gradients, strict=True)]


def each_output(outputs: Tensor, block: int) -> Iterator[Seeds]:
    """Yield seeds that select every output once, `block` outputs at a time."""
    n, count = outputs.shape
    for start in range(0, count, block):
        stop = min(start + block, count)
        seeds = outputs.new_zeros(stop - start, count)
        seeds[:, start:stop].fill_diagonal_(1)
        yield Seeds(seeds[:, None, :].expand(-1, n, -1), stop == count, [(0, slice(None))])


def _sampled(outputs: Tensor, counted: Tensor | None, plan: Plan, draw: random.Random) -> Iterator[Seeds]:
    """Seeds: sqrt(C / N) at N of the C outputs of a sample and 0 elsewhere, so that sums of squares are unbiased.

    Each sample has its own draw, without replacement. C does not count outputs at padding.
    """
    n, count = outputs.shape
    N = plan.passes
    index, scale = torch.zeros(n, N, dtype=torch.long), torch.zeros(n, N, dtype=torch.float64)
    unsampled = 0.0
    for row in range(n):
        places = None if counted is None else counted[row].nonzero().flatten().cpu()
        C = count if places is None else len(places)
        chosen = torch.tensor(draw.sample(range(C), min(N, C)), dtype=torch.long)
        index[row, : len(chosen)] = chosen if places is None else places[chosen]
        scale[row, : len(chosen)] = (C / max(len(chosen), 1)) ** 0.5
        unsampled += 1 - len(chosen) / C if C else 0.0
    index, scale = index.to(outputs.device), scale.to(outputs)
    group = plan.group_of()
    for start in range(0, N, plan.block):
        stop = min(start + plan.block, N)
        seeds = outputs.new_zeros(stop - start, n, count)
        seeds.scatter_(2, index[:, start:stop].T[..., None], scale[:, start:stop].T[..., None])
        present = group[start:stop].unique_consecutive(return_counts=True)
        ends = present[1].cumsum(0).tolist()
        parts = [slice(a, b) for a, b in zip([0, *ends], ends, strict=False)]
        last = stop == N
        yield Seeds(seeds, last, list(zip(present[0].tolist(), parts, strict=True)), unsampled if last else 0.0)


def _batched_attention(samples: Samples, plan: Plan) -> AbstractContextManager[Any]:
    """On CPUs compute attention by matrix products: the fused kernel differentiates one output at a time."""
    if samples.device.type == "cpu" and plan.block > 1:
        return sdpa_kernel(SDPBackend.MATH)
    return nullcontext()


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


def rows(layer: Layer, tangent: Tensor) -> Tensor:
    """Tangent features as (outputs * samples * positions, k_out)."""
    if not isinstance(layer, nn.Linear):
        tangent = tangent.movedim(2, -1)
    return tangent.reshape(-1, tangent.shape[-1]).to(layer.weight.dtype)
