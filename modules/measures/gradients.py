"""Gradients of a network with respect to its inputs and pre-activations, averaged over data.

A linear or convolutional layer computes h = W x; its *tangent features* are J = df/dh, a row for every sample and
output (and position, where the layer is applied at several). With n samples, and sums over outputs and positions,

    K = (1/n) J^T J           covariance of the tangent features,
    AGOP = W^T K W            average outer product of the gradients with respect to the layer's input

(Beaglehole, Mitliagkas, Agarwala 2024, arXiv:2402.05271, section 2; K there has no 1/n).

How it is computed: one forward pass of a chunk of samples, then one backward pass of the batch (outputs x samples)
down to the pre-activations. No gradient of a weight is ever formed, and memory does not grow with n. Everything here
takes f(x_a) to depend on sample a alone, and a module that couples samples (BatchNorm on batch statistics) is refused.
The module is run in the mode it is in (with dropout on, the gradients are those of one random mask), and its `.grad`s
are left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from itertools import repeat
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from .compiled import as_written
from .layers import Layer, layer_names


@dataclass(frozen=True, eq=False)
class TangentCovariance:
    """A layer's weights beside the covariance of its tangent features.

    W is a copy; for a convolution k_out is its channels and k_in = channels_in * kernel size, in the
    order of `torch.nn.functional.unfold`. Kbar is (1/n) (J - J0)^T (J - J0), or None without reference.
    """

    W: Float[Tensor, "k_out k_in"]
    K: Float[Tensor, "k_out k_out"]
    Kbar: Float[Tensor, "k_out k_out"] | None = None


class Site(NamedTuple):
    """One call of a layer: its input (samples, ...) and tangent features (outputs, samples, ...)."""

    input: Tensor
    tangent: Tensor


@as_written
@torch.inference_mode(False)
@torch.enable_grad()
def agop(
    function: Callable[[Tensor], Tensor], inputs: Float[Tensor, "..."], *, chunk: int | None = None
) -> Float[Tensor, "dim dim"]:
    """Average gradient outer product (1/n) sum_a sum_c g_ac g_ac^T with g_ac = d f_c / d x at sample a, PSD.

    `function` is any differentiable map (n, ...) -> (n,) or (n, ...), a module or not; inputs and outputs are
    flattened per sample. `chunk` samples go through at a time (default: chosen for memory). Raises ValueError for no
    samples, for a function whose output has no row a sample or does not depend on its input, and for BatchNorm on
    batch statistics.
    """
    inputs = prepared(function, inputs, chunk)
    total = inputs.new_zeros(inputs[0].numel(), inputs[0].numel())
    if chunk is None:
        few = inputs[:2].clone().requires_grad_()
        count = _flat(function(few), len(few)).shape[1]
        # the network's own activations are not seen here: 1024 units stand in for them
        chunk = max(1, _budget(inputs) // (count * max(len(total), 1024)))
    for samples in inputs.split(chunk):
        leaf = samples.detach().requires_grad_()
        outputs = _flat(function(leaf), len(leaf))
        block = max(1, _budget(inputs) // (len(leaf) * len(total)))
        for (gradient,) in _backward(outputs, [leaf], block):
            rows = gradient.reshape(-1, len(total)).to(total.dtype)
            total.addmm_(rows.T, rows)
    return total.div_(len(inputs))


@as_written
@torch.inference_mode(False)
@torch.enable_grad()
def tangent_features(
    module: nn.Module, inputs: Shaped[Tensor, "n ..."], *, layers: Sequence[str] | None = None, chunk: int | None = None
) -> dict[str, Float[Tensor, "n outputs ..."]]:
    """Tangent features J_l = df/dh_l of each layer: (n, outputs, k_out).

    A convolution gives (n, outputs, channels, positions...), a linear layer on inputs (n, T, k) (n, outputs, T,
    k_out). `layers` are names of `layer_names` (default: all those that the forward pass calls). Memory is that of the
    result; for K alone use `tangent_covariance`. Raises ValueError as it does, and for a layer that is called several
    times or that does not keep the samples first."""
    inputs = prepared(module, inputs, chunk)
    plan = _plan(module, inputs, layers, chunk)
    parts: dict[str, list[Tensor]] = {name: [] for name in plan.layers}
    sizes = [len(samples) for samples in inputs.split(plan.chunk)]
    for size, calls in zip(sizes, _blocks(module, inputs, plan._replace(block=plan.outputs)), strict=True):
        for name, site in _single(calls, size).items():
            parts[name].append(site.tangent.transpose(0, 1))
    return {name: torch.cat(part) for name, part in parts.items()}


@as_written
@torch.inference_mode(False)
@torch.enable_grad()
def tangent_covariance(
    module: nn.Module,
    inputs: Shaped[Tensor, "..."],
    *,
    layers: Sequence[str] | None = None,
    chunk: int | None = None,
    reference: nn.Module | None = None,
) -> dict[str, TangentCovariance]:
    """Weights W and tangent-feature covariance K = (1/n) sum J^T J of each layer, summed over outputs and positions.

    K is (k_out, k_out) and PSD, and W^T K W is the AGOP with respect to the layer's input. For a convolution, as for a
    linear layer on (n, T, k), the sum runs over the positions; for a layer called several times in one forward pass,
    over its calls too. With `reference`, a copy of the initial network, also Kbar = (1/n) sum (J - J0)^T (J - J0) on
    the same inputs.

    `layers` are names of `layer_names` (default: all those that the forward pass calls; `left_out` names the weights
    that are in none of them); `chunk` samples go through at a time (default: chosen for memory). A layer that does not
    reach the output has K = 0. Raises ValueError for no
    samples, an unknown or uncalled layer, an output that has no row a sample or does not depend on any layer,
    BatchNorm on batch statistics, and a reference that calls its layers differently; TypeError for an output that is
    no tensor.
    """
    inputs = prepared(module, inputs, chunk)
    plan = _plan(module, inputs, layers, chunk)
    K = {name: _square(layer) for name, layer in plan.layers.items()}
    Kbar = {name: _square(layer) for name, layer in plan.layers.items()} if reference is not None else {}
    initial: Iterable[dict[str, list[Site]] | None] = repeat(None)
    if reference is not None:
        _refuse_coupled_samples(reference)
        theirs = _plan(reference, inputs, list(plan.layers), chunk)
        if theirs.outputs != plan.outputs:
            raise ValueError(f"the reference has {theirs.outputs} outputs, the module {plan.outputs}: not a copy of it")
        initial = _blocks(reference, inputs, plan._replace(layers=theirs.layers))
    for now, then in zip(_blocks(module, inputs, plan), initial, strict=False):
        for name, sites in now.items():
            J = [_rows(plan.layers[name], site.tangent) for site in sites]
            for rows in J:
                K[name].addmm_(rows.T, rows)
            if then is None:
                continue
            J0 = [_rows(plan.layers[name], site.tangent) for site in then[name]]
            if [rows.shape for rows in J] != [rows.shape for rows in J0]:
                raise ValueError(f"the reference calls layer {name!r} differently from the module: not a copy of it")
            for rows, rows0 in zip(J, J0, strict=True):
                change = rows - rows0
                Kbar[name].addmm_(change.T, change)
    n = len(inputs)
    return {
        name: TangentCovariance(
            W=layer.weight.detach().flatten(1).clone(),
            K=K[name].div_(n),
            Kbar=Kbar[name].div_(n) if reference is not None else None,
        )
        for name, layer in plan.layers.items()
    }


def layer_agop(
    module: nn.Module, inputs: Shaped[Tensor, "n ..."], *, layers: Sequence[str] | None = None, chunk: int | None = None
) -> dict[str, Float[Tensor, "_k_in _k_in"]]:
    """AGOP with respect to each layer's input (a convolution's input patches): W^T K W, PSD.

    Exact, not an approximation: (1/n) sum_a sum_c g g^T with g = W^T df_c/dh. Arguments and errors as in
    `tangent_covariance`.
    """
    found = tangent_covariance(module, inputs, layers=layers, chunk=chunk)
    return {name: layer.W.T @ layer.K @ layer.W for name, layer in found.items()}


@as_written
@torch.no_grad()
def layer_inputs(
    module: nn.Module, inputs: Shaped[Tensor, "n ..."], *, layers: Sequence[str] | None = None, chunk: int | None = None
) -> dict[str, Float[Tensor, "n ..."]]:
    """The input x_l of each layer: (n, k_in) for a linear one, (n, channels, positions...) for a convolution.

    Raises ValueError as `tangent_features` does.
    """
    inputs = prepared(module, inputs, chunk)
    plan = _plan(module, inputs, layers, chunk)
    parts: dict[str, list[Tensor]] = {name: [] for name in plan.layers}
    for samples in inputs.split(plan.chunk):
        _, calls = _forward(module, plan.layers, samples)
        for name, site in _single(calls, len(samples)).items():
            parts[name].append(site.input)
    return {name: torch.cat(part) for name, part in parts.items()}


class _Plan(NamedTuple):
    layers: dict[str, Layer]
    outputs: int
    chunk: int  # samples a forward pass
    block: int  # outputs a backward pass


def prepared(function: Callable[[Tensor], Tensor], inputs: Tensor, chunk: int | None) -> Tensor:
    if inputs.ndim == 0 or len(inputs) == 0:
        raise ValueError(f"inputs must hold at least one sample, got shape {tuple(inputs.shape)}")
    if chunk is not None and chunk < 1:
        raise ValueError(f"chunk must be at least 1 sample, got {chunk}")
    if isinstance(function, nn.Module):
        _refuse_coupled_samples(function)
    return inputs.clone() if inputs.is_inference() else inputs.detach()


def _refuse_coupled_samples(module: nn.Module) -> None:
    for name, part in module.named_modules():
        if isinstance(part, nn.modules.batchnorm._BatchNorm) and (part.training or part.running_mean is None):
            raise ValueError(
                f"{type(part).__name__} {name!r} uses batch statistics, so a sample's output depends on the others: "
                "call module.eval() first (it needs running statistics)"
            )


def _plan(module: nn.Module, inputs: Tensor, names: Sequence[str] | None, chunk: int | None) -> _Plan:
    """Look at one or two samples: which layers are called, how many outputs there are, how large a pass may be."""
    known = layer_names(module)
    for name in names or ():
        if name not in known:
            nearest = get_close_matches(name, known, n=1, cutoff=0.0)
            hint = f"; the nearest is {nearest[0]!r}" if nearest else ""
            raise ValueError(
                f"no linear or ungrouped convolutional layer {name!r}{hint} (of {', '.join(known) or 'none'})"
            )
    few = inputs[:2]
    outputs, calls = _forward(module, known, few)
    for name in names or ():
        if not calls[name]:
            raise ValueError(f"layer {name!r} is not called by the forward pass")
    layers = {name: known[name] for name in (names if names is not None else known) if calls[name]}
    if not layers:
        raise ValueError(f"{type(module).__name__} calls no linear or ungrouped convolutional layer")
    size = sum(site.tangent.numel() for sites in calls.values() for site in sites) // len(few)
    count = outputs.shape[1]
    chunk = chunk or max(1, _budget(inputs) // (size * count))
    block = max(1, min(count, _budget(inputs) // (size * min(chunk, len(inputs)))))
    return _Plan(layers, count, chunk, block)


def _budget(inputs: Tensor) -> int:
    """Numbers that the tangent features of one backward pass may hold: near a CPU's caches, many tiles for a GPU."""
    return 2**22 if inputs.device.type == "cpu" else 2**26


@contextmanager
def _recording(layers: dict[str, Layer]) -> Iterator[dict[str, list[Site]]]:
    """Note every call of the layers; `tangent` holds the pre-activation itself until the backward pass."""
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


def _forward(module: nn.Module, layers: dict[str, Layer], samples: Tensor) -> tuple[Tensor, dict[str, list[Site]]]:
    with _recording(layers) as calls:
        outputs = module(samples)
    return _flat(outputs, len(samples)), calls


def _flat(outputs: Any, n: int) -> Tensor:
    if not isinstance(outputs, Tensor):
        raise TypeError(f"the output must be a tensor with a row a sample, got {type(outputs).__name__}")
    if n > 1 and outputs.shape[:1] != (n,):
        raise ValueError(
            f"the output must have a row a sample: {n} samples went in, shape {tuple(outputs.shape)} came out"
        )
    return outputs.reshape(n, -1)


def _blocks(module: nn.Module, inputs: Tensor, plan: _Plan) -> Iterator[dict[str, list[Site]]]:
    """Walk over blocks of (outputs x samples), with the calls of each layer and their tangent features."""
    for samples in inputs.split(plan.chunk):
        outputs, calls = _forward(module, plan.layers, samples)
        for name, sites in calls.items():
            if not all(site.tangent.requires_grad for site in sites):
                raise ValueError(
                    f"layer {name!r} runs under torch.no_grad inside the module: it has no gradients to measure"
                )
        wanted = [site.tangent for sites in calls.values() for site in sites]
        for gradients in _backward(outputs, wanted, plan.block):
            found = iter(gradients)
            yield {name: [Site(site.input, next(found)) for site in sites] for name, sites in calls.items()}


def _backward(outputs: Tensor, wanted: Sequence[Tensor], block: int) -> Iterator[list[Tensor]]:
    """d outputs_c / d wanted, each (block, *wanted.shape): one batched backward pass for every `block` outputs c."""
    if not outputs.requires_grad:
        raise ValueError("the output does not depend, differentiably, on what its gradient is asked for")
    n, count = outputs.shape
    for start in range(0, count, block):
        stop = min(start + block, count)
        seeds = outputs.new_zeros(stop - start, count)
        seeds[:, start:stop].fill_diagonal_(1)
        gradients = torch.autograd.grad(
            outputs,
            wanted,
            seeds[:, None, :].expand(-1, n, -1),
            is_grads_batched=True,
            allow_unused=True,
            retain_graph=stop < count,
        )
        zero = outputs.new_zeros(())
        yield [zero.expand(stop - start, *h.shape) if g is None else g for h, g in zip(wanted, gradients, strict=True)]


def _single(calls: dict[str, list[Site]], samples: int) -> dict[str, Site]:
    """The one call of each layer, with a row a sample."""
    for name, sites in calls.items():
        if len(sites) != 1:
            raise ValueError(
                f"layer {name!r} is called {len(sites)} times in one forward pass: its rows belong to no one call"
            )
        if len(sites[0].input) != samples:
            shape = tuple(sites[0].input.shape)
            raise ValueError(f"layer {name!r} does not keep the samples first: {samples} went in, its input is {shape}")
    return {name: sites[0] for name, sites in calls.items()}


def _square(layer: Layer) -> Tensor:
    return layer.weight.new_zeros(len(layer.weight), len(layer.weight)).detach()


def _rows(layer: Layer, tangent: Tensor) -> Tensor:
    """Tangent features as (outputs * samples * positions, k_out)."""
    if not isinstance(layer, nn.Linear):
        tangent = tangent.movedim(2, -1)
    return tangent.reshape(-1, tangent.shape[-1]).to(layer.weight.dtype)
