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

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Any

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from ..core.compiled import as_written
from ..core.effort import progress
from ..core.layers import Layer
from ..core.passes import (
    Block,
    Drawn,
    Plan,
    backward,
    blocks,
    budget,
    each_output,
    flat,
    forward,
    planned,
    prepared,
    refuse_coupled_samples,
    rows,
    single,
)
from ..core.samples import Samples


@dataclass(frozen=True, eq=False)
class TangentCovariance:
    """A layer's weights beside the covariance of its tangent features.

    W is a copy; for a convolution k_out is its channels and k_in = channels_in * kernel size, in the
    order of `torch.nn.functional.unfold`. Kbar is (1/n) (J - J0)^T (J - J0), or None without reference.
    Where outputs were sampled, `without` are the estimates without one group of them each, and `unsampled` is the share
    of outputs that were not sampled.
    """

    W: Float[Tensor, "k_out k_in"]
    K: Float[Tensor, "k_out k_out"]
    Kbar: Float[Tensor, "k_out k_out"] | None = None
    without: tuple[TangentCovariance, ...] = ()
    unsampled: float = 0.0


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
    prepared_inputs = prepared(function, inputs, chunk).inputs
    assert isinstance(prepared_inputs, Tensor)
    inputs = prepared_inputs
    room, done = budget(inputs.device), 0
    total = inputs.new_zeros(inputs[0].numel(), inputs[0].numel())
    few = inputs[:2].clone().requires_grad_()
    count = _run(function, few).shape[1]
    # the network's own activations are not seen here: 1024 units stand in for them
    chunk = chunk or max(1, room // (count * max(len(total), 1024)))
    progress(0, count * len(inputs))
    for samples in inputs.split(chunk):
        leaf = samples.detach().requires_grad_()
        outputs = _run(function, leaf)
        block = max(1, room // (len(leaf) * len(total)))
        for _, (gradient,) in backward(outputs, [leaf], each_output(outputs, block)):
            g = gradient.reshape(-1, len(total)).to(total.dtype)
            total.addmm_(g.T, g)
            done += len(gradient) * len(leaf)
            progress(done, count * len(inputs))
    return total.div_(len(inputs))


@as_written
@torch.inference_mode(False)
@torch.enable_grad()
def tangent_features(
    module: nn.Module,
    inputs: Shaped[Tensor, "n ..."] | Mapping[str, Any] | Samples,
    *,
    layers: Sequence[str] | None = None,
    chunk: int | None = None,
) -> dict[str, Float[Tensor, "n outputs ..."]]:
    """Tangent features J_l = df/dh_l of each layer: (n, outputs, k_out).

    A convolution gives (n, outputs, channels, positions...), a linear layer on inputs (n, T, k) (n, outputs, T,
    k_out). `layers` are names of `layer_names` (default: all those that the forward pass calls). Memory is that of the
    result; for K alone use `tangent_covariance`. Raises ValueError as it does, and for a layer that is called several
    times or that does not keep the samples first."""
    samples = prepared(module, inputs, chunk)
    plan = planned(module, samples, layers, chunk)
    parts: dict[str, list[Tensor]] = {name: [] for name in plan.layers}
    sizes = [len(some) for some in samples.split(plan.chunk)]
    for size, block in zip(sizes, blocks(module, samples, plan._replace(block=plan.outputs)), strict=True):
        for name, site in single(block.calls, size).items():
            parts[name].append(site.tangent.transpose(0, 1))
    return {name: torch.cat(part) for name, part in parts.items()}


@as_written
@torch.inference_mode(False)
@torch.enable_grad()
def tangent_covariance(
    module: nn.Module,
    inputs: Shaped[Tensor, "..."] | Mapping[str, Any] | Samples,
    *,
    layers: Sequence[str] | None = None,
    chunk: int | None = None,
    reference: nn.Module | None = None,
    n_outputs: int | None = None,
    seed: int = 0,
) -> dict[str, TangentCovariance]:
    """Weights W and tangent-feature covariance K = (1/n) sum J^T J of each layer, summed over outputs and positions.

    K is (k_out, k_out) and PSD, and W^T K W is the AGOP with respect to the layer's input. For a convolution, as for a
    linear layer on (n, T, k), the sum runs over the positions; for a layer called several times in one forward pass,
    over its calls too. With `reference`, a copy of the initial network, also Kbar = (1/n) sum (J - J0)^T (J - J0) on
    the same inputs.

    With `n_outputs` = N, each sample's sum over its C outputs is estimated from N of them, drawn uniformly without
    replacement by `seed` and weighted by C / N. K and Kbar are then unbiased estimates, and exact for N >= C; scores
    computed from them are not unbiased, but their bias falls as 1 / N. See `standard_errors`.

    `layers` are names of `layer_names` (default: all those that the forward pass calls; `left_out` names the weights
    that are in none of them); `chunk` samples go through at a time (default: chosen for memory). A layer that does not
    reach the output has K = 0. Half-precision weights are summed up in float32. Raises ValueError for no samples,
    n_outputs < 2, an unknown or uncalled layer, an output that has no row a sample or does not depend on any layer,
    BatchNorm on batch statistics, and a reference that calls its layers differently; TypeError for an output that is
    no tensor.
    """
    if n_outputs is not None and n_outputs < 2:
        raise ValueError(f"n_outputs must be at least 2, got {n_outputs}")
    samples = prepared(module, inputs, chunk)
    drawn = None if n_outputs is None else Drawn(n_outputs, seed)
    plan = planned(module, samples, layers, chunk, drawn)
    sums = {name: _Sums.of(layer, plan, bar=reference is not None) for name, layer in plan.layers.items()}
    initial: Iterable[Block | None] = repeat(None)
    if reference is not None:
        refuse_coupled_samples(reference)
        theirs = planned(reference, samples, list(plan.layers), chunk, drawn)
        if theirs.outputs != plan.outputs:
            raise ValueError(f"the reference has {theirs.outputs} outputs, the module {plan.outputs}: not a copy of it")
        initial = blocks(reference, samples, plan._replace(layers=theirs.layers))
    done, unsampled = 0, 0.0
    progress(0, len(samples) * plan.passes)
    for now, then in zip(blocks(module, samples, plan), initial, strict=False):
        for name, sites in now.calls.items():
            J = [site.tangent for site in sites]
            J0 = [site.tangent for site in then.calls[name]] if then is not None else None
            if J0 is not None and [part.shape for part in J] != [part.shape for part in J0]:
                raise ValueError(f"the reference calls layer {name!r} differently from the module: not a copy of it")
            sums[name].add(now.groups, J, J0)
        done, unsampled = done + now.work, unsampled + now.unsampled
        progress(done, len(samples) * plan.passes)
    return {name: total.result(len(samples), plan, unsampled / len(samples)) for name, total in sums.items()}


@dataclass
class _Sums:
    """Sums of J^T J and (J - J0)^T (J - J0) of a layer, one for each group of sampled outputs."""

    layer: Layer
    K: Tensor
    Kbar: Tensor | None

    @classmethod
    def of(cls, layer: Layer, plan: Plan, *, bar: bool) -> _Sums:
        k, dtype = len(layer.weight), torch.promote_types(layer.weight.dtype, torch.float32)
        K = torch.zeros(plan.groups, k, k, dtype=dtype, device=layer.weight.device)
        return cls(layer, K, K.clone() if bar else None)

    def add(self, groups: list[tuple[int, slice]], J: list[Tensor], J0: list[Tensor] | None) -> None:
        for group, part in groups:
            for place, tangent in enumerate(J):
                now = rows(self.layer, tangent[part]).to(self.K.dtype)
                self.K[group].addmm_(now.T, now)
                if J0 is not None and self.Kbar is not None:
                    change = now - rows(self.layer, J0[place][part]).to(self.K.dtype)
                    self.Kbar[group].addmm_(change.T, change)

    def result(self, n: int, plan: Plan, unsampled: float) -> TangentCovariance:
        W = self.layer.weight.detach().flatten(1).to(self.K.dtype, copy=True)
        whole = TangentCovariance(W, self.K.sum(0).div_(n), None if self.Kbar is None else self.Kbar.sum(0).div_(n))
        if plan.groups < 2:
            return whole
        others = []
        for group, size in enumerate(plan.group_sizes()):
            factor = plan.passes / (plan.passes - size)
            K, Kbar = (
                None if of is None or sums is None else (of - sums[group] / n) * factor
                for of, sums in ((whole.K, self.K), (whole.Kbar, self.Kbar))
            )
            assert K is not None
            others.append(TangentCovariance(W, K, Kbar))
        return replace(whole, without=tuple(others), unsampled=unsampled)


def standard_errors(
    layer: TangentCovariance, scores: Callable[[TangentCovariance], Mapping[str, float]]
) -> dict[str, float]:
    """Standard errors of a layer's scores that come from sampling outputs, not from sampling data.

    Delete-a-group jackknife over the groups of sampled outputs, with the correction for a finite number of outputs: 0
    where all were taken. {} for a K that was not sampled; a score that is not in every replicate is absent.
    """
    if not layer.without:
        return {}
    replicates = [scores(other) for other in layer.without]
    names = [name for name in replicates[0] if all(name in other for other in replicates)]
    values = torch.tensor([[float(other[name]) for name in names] for other in replicates], dtype=torch.float64)
    return dict(zip(names, _jackknife(values, layer.unsampled).tolist(), strict=True))


def sampling_error(layer: TangentCovariance) -> float:
    """Standard error of a sampled K over its size, both in the Frobenius norm; nan for a K that was not sampled."""
    if not layer.without:
        return float("nan")
    values = torch.stack([other.K for other in layer.without]).flatten(1)
    return float(_jackknife(values, layer.unsampled).norm() / layer.K.norm())


def pooled(parts: Sequence[tuple[int, Mapping[str, TangentCovariance]]]) -> dict[str, TangentCovariance]:
    """K and Kbar of all samples together, from those of batches of n samples each: means weighted by n."""
    total = sum(n for n, _ in parts)

    def mean(values: Sequence[Tensor | None]) -> Tensor | None:
        kept = [value * (n / total) for (n, _), value in zip(parts, values, strict=True) if value is not None]
        return torch.stack(kept).sum(0) if kept else None

    def one(several: Sequence[TangentCovariance]) -> TangentCovariance:
        K = mean([part.K for part in several])
        assert K is not None
        groups = range(min(len(part.without) for part in several))
        unsampled = sum(part.unsampled * n / total for (n, _), part in zip(parts, several, strict=True))
        without = tuple(one([part.without[group] for part in several]) for group in groups)
        return TangentCovariance(several[0].W, K, mean([part.Kbar for part in several]), without, unsampled)

    return {name: one([found[name] for _, found in parts]) for name in parts[0][1]}


def _jackknife(values: Tensor, unsampled: float) -> Tensor:
    G = len(values)
    error: Tensor = ((values - values.mean(0)).square().sum(0) * ((G - 1) / G * unsampled)).sqrt()
    return error


def _run(function: Callable[[Tensor], Any], samples: Tensor) -> Tensor:
    return flat(Samples(samples).outputs(function), len(samples))


def layer_agop(
    module: nn.Module,
    inputs: Shaped[Tensor, "n ..."] | Mapping[str, Any] | Samples,
    *,
    layers: Sequence[str] | None = None,
    chunk: int | None = None,
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
    module: nn.Module,
    inputs: Shaped[Tensor, "n ..."] | Mapping[str, Any] | Samples,
    *,
    layers: Sequence[str] | None = None,
    chunk: int | None = None,
) -> dict[str, Float[Tensor, "n ..."]]:
    """The input x_l of each layer: (n, k_in) for a linear one, (n, channels, positions...) for a convolution.

    Raises ValueError as `tangent_features` does.
    """
    samples = prepared(module, inputs, chunk)
    plan = planned(module, samples, layers, chunk)
    parts: dict[str, list[Tensor]] = {name: [] for name in plan.layers}
    for some in samples.split(plan.chunk):
        _, _, calls = forward(module, plan.layers, some)
        for name, site in single(calls, len(some)).items():
            parts[name].append(site.input)
    return {name: torch.cat(part) for name, part in parts.items()}
