"""Gradients of a network with respect to its inputs and pre-activations, averaged over data.

A linear or convolutional layer computes h = W x. Its *tangent features* are J = df/dh, one row for every sample and
output (and position, where the layer is applied at several). With n samples, and sums over outputs and positions,

    K = (1/n) J^T J           covariance of the tangent features,
    AGOP = W^T K W            average outer product of the gradients with respect to the layer's input

(Beaglehole, Mitliagkas, Agarwala 2024, arXiv:2402.05271, section 2; K there has no 1/n).

Each chunk of samples takes one forward pass, and then backward passes of (outputs x samples) down to the
pre-activations. No gradient of a weight is formed, and memory does not grow with n: on a CPU the tangent features of a
pass fill at most 32 MiB of float32 and the activations of a chunk at most 128 MiB, where one sample is not larger. Sums
over many outputs take exact shortcuts (`core/routes.py`). We assume that f(x_a) depends on
sample a alone, and refuse modules that couple samples (BatchNorm with batch statistics). The module runs in the mode
that it is in (with dropout on, the gradients are those of one random mask), and its `.grad`s do not change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from ..core.compiled import as_written
from ..core.effort import progress
from ..core.layers import Layer
from ..core.passes import (
    Plan,
    Site,
    backward,
    budget,
    forward,
    planned,
    prepared,
    refuse_coupled_samples,
    refuse_other_rows,
    single,
)
from ..core.routes import blocks
from ..core.samples import Samples
from ..core.seeds import Drawn, Root, every

TILE = 128  # least number of columns of a symmetric product that are computed at a time


@dataclass(frozen=True, eq=False)
class TangentCovariance:
    """Weights of a layer and the covariance of its tangent features.

    W is a copy; for a convolution k_out is its number of channels and k_in = channels_in * kernel size, in the order of
    `torch.nn.functional.unfold`. Kbar is (1/n) (J - J0)^T (J - J0), or None without a reference. Where outputs were
    sampled, `without` holds the estimates with one group of outputs left out in turn, and `unsampled` the share of
    outputs that were not sampled.
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
    """Average gradient outer product (1/n) sum_a sum_c g_ac g_ac^T with g_ac = d f_c / d x at sample a: (d, d), PSD.

    `function` is any differentiable map (n, ...) -> (n,) or (n, ...), a module or not; inputs and outputs are flattened
    by sample. `chunk` is the number of samples in a pass (default: chosen for memory).

    Raises ValueError without samples, for outputs that lack one row for each sample or do not depend on the input, and
    for BatchNorm with batch statistics.
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
        block, root = max(1, room // (len(leaf) * len(total))), Root(outputs, 1, count)
        for seed in every(root, 0, count, block):
            (gradient,) = backward(outputs, [leaf], root.values(seed.factors), keep=not seed.last)
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

    A convolution gives (n, outputs, channels, positions...), a linear layer on inputs (n, T, k) gives (n, outputs, T,
    k_out). `layers` are names of `layer_names` (default: all layers that the forward pass calls). The result is held in
    memory as a whole; if you need only K, use `tangent_covariance`.

    Raises ValueError as `tangent_covariance` does, and for a layer that is called several times or does not keep the
    samples first.
    """
    samples = prepared(module, inputs, chunk)
    plan = planned(module, samples, layers, chunk)
    parts: dict[str, list[Tensor]] = {name: [] for name in plan.layers}
    rows: dict[str, list[Tensor]] = {name: [] for name in plan.layers}
    for block in blocks([module], samples, plan, squares=False):
        for name, site in single(block.calls[0], block.samples).items():
            rows[name].append(site.tangent.transpose(0, 1))
            if block.last:
                parts[name].append(torch.cat(rows[name], 1))
                rows[name] = []
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
    draws: int | None = None,
    seed: int = 0,
) -> dict[str, TangentCovariance]:
    """Weights W and tangent-feature covariance K = (1/n) sum J^T J of each layer, summed over outputs and positions.

    K is (k_out, k_out) and PSD, and W^T K W is the AGOP with respect to the layer's input. For a convolution, and for a
    linear layer on (n, T, k), the sum includes the positions; for a layer that is called several times in one forward
    pass, all its calls. With `reference`, a copy of the initial network, the result also holds
    Kbar = (1/n) sum (J - J0)^T (J - J0) on the same inputs.

    `n_outputs` = N estimates the sum over the C outputs of each sample from N of them, which `seed` draws uniformly and
    without replacement, weighted by C / N. K and Kbar are then unbiased estimates, and exact for N >= C. Scores
    computed from them have a bias that falls as 1 / N; `standard_errors` estimates their error.

    `draws` = N instead takes N combinations of all outputs of each sample, with random signs by `seed` (Hutchinson's
    estimator): also unbiased, exact for N >= C, and at the same cost several times more accurate where outputs are
    many, as in language models.

    `layers` are names of `layer_names` (default: all layers that the forward pass calls; `unmeasured_weights` lists the
    weights outside them). `chunk` is the number of samples in a pass (default: chosen for memory). A layer that does
    not affect the output has K = 0. For half-precision weights sums are kept in float32.

    Raises ValueError without samples, for n_outputs or draws < 2, for both at once, an unknown or uncalled layer,
    outputs that lack one row for each sample or do not depend on any layer, BatchNorm with batch statistics, and a
    reference that calls its layers differently; TypeError for an output that is not a tensor.
    """
    drawn = how_drawn(n_outputs, draws, seed)
    samples = prepared(module, inputs, chunk)
    plan = planned(module, samples, layers, chunk, drawn)
    if drawn is not None and drawn.signs and drawn.passes >= plan.outputs:
        plan = plan._replace(drawn=None)  # each output by itself costs no more
    sums = {name: _Sums.of(layer, plan, bar=reference is not None) for name, layer in plan.layers.items()}
    networks = [module]
    if reference is not None:
        refuse_coupled_samples(reference)
        theirs = planned(reference, samples, list(plan.layers), chunk, drawn)
        if theirs.outputs != plan.outputs:
            raise ValueError(
                f"the reference has {theirs.outputs} outputs and the module {plan.outputs}: pass a copy of the module"
            )
        networks.append(reference)
    done, unsampled, total = 0.0, 0.0, len(samples) * plan.passes
    progress(0, total)
    for block in blocks(networks, samples, plan):
        if block.whole is not None and block.whole[0] in sums:
            sums[block.whole[0]].add_identity(block.whole[1], plan)
        now, then = block.calls[0], block.calls[-1]
        for name, sites in now.items():
            shapes = [[site.tangent.shape for site in calls[name]] for calls in (now, then)]
            if shapes[0] != shapes[1]:
                raise ValueError(
                    f"the reference calls layer {name!r} differently from the module: pass a copy of the module"
                )
            sums[name].add(block.groups, sites, then[name])
        done, unsampled = done + block.work, unsampled + block.unsampled
        progress(round(done), total)
    return {name: each.result(len(samples), plan, unsampled / len(samples)) for name, each in sums.items()}


def how_drawn(n_outputs: int | None, draws: int | None, seed: int) -> Drawn | None:
    """How outputs are sampled; None if they are not. Raises ValueError as `tangent_covariance` does."""
    if n_outputs is not None and draws is not None:
        raise ValueError(f"give n_outputs or draws, got n_outputs={n_outputs} and draws={draws}")
    for name, value in (("n_outputs", n_outputs), ("draws", draws)):
        if value is not None and value < 2:
            raise ValueError(f"{name} must be at least 2, got {value}")
    count = n_outputs if draws is None else draws
    return None if count is None else Drawn(count, seed, signs=draws is not None)


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

    def add(self, groups: list[tuple[int, slice]], now: list[Site], then: list[Site]) -> None:
        """Add the products of one block; `then` are the same calls of the reference."""
        for group, part in groups:
            for site, other in zip(now, then, strict=True):
                J = site.tangent[part].to(self.K.dtype)
                _add_square(self.K[group], self.layer, J)
                if self.Kbar is not None:
                    _add_square(self.Kbar[group], self.layer, J - other.tangent[part].to(self.K.dtype))

    def add_identity(self, places: int, plan: Plan) -> None:
        """Add the products of tangent features that are the identity at so many places, now and in the reference."""
        for group, size in enumerate(plan.group_sizes()):
            self.K[group].diagonal().add_(places * size / plan.passes)

    def result(self, n: int, plan: Plan, unsampled: float) -> TangentCovariance:
        W = self.layer.weight.detach().flatten(1).to(self.K.dtype, copy=True)
        for sums in (self.K, self.Kbar):
            if sums is not None:
                sums.copy_(sums.tril() + sums.tril(-1).mT)
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


def _add_square(K: Tensor, layer: Layer, J: Tensor) -> None:
    """Add J^T J to K, J the tangent features (outputs, samples, ...) of a layer; only K's lower triangle is filled."""
    if isinstance(layer, nn.Linear):
        columns = J.reshape(-1, J.shape[-1])
    else:
        J = J.flatten(0, 1).flatten(2)
        channels, positions = J.shape[1:]
        if positions >= channels:  # the products of single samples take no more room than J
            K.add_(torch.bmm(J, J.mT).sum(0))
            return
        columns = J.transpose(0, 1).reshape(channels, -1).T
    tile = max(TILE, -(-len(K) // 4))
    for start in range(0, len(K), tile):
        stop = min(start + tile, len(K))
        K[start:stop, :stop].addmm_(columns[:, start:stop].T, columns[:, :stop])


def standard_errors(
    layer: TangentCovariance, scores: Callable[[TangentCovariance], Mapping[str, float]]
) -> dict[str, float]:
    """Standard errors of a layer's scores due to sampling outputs (not due to sampling data).

    Delete-a-group jackknife over the groups of sampled outputs, with the correction for a finite number of outputs: 0
    if all outputs were used. Returns {} for a K that was not sampled, and leaves out scores that some replicate lacks.
    """
    if not layer.without:
        return {}
    replicates = [scores(other) for other in layer.without]
    names = [name for name in replicates[0] if all(name in other for other in replicates)]
    values = torch.tensor([[float(other[name]) for name in names] for other in replicates], dtype=torch.float64)
    return dict(zip(names, _jackknife(values, layer.unsampled).tolist(), strict=True))


def sampling_error(layer: TangentCovariance) -> float:
    """Standard error of a sampled K relative to K, both in the Frobenius norm; nan for a K that was not sampled."""
    if not layer.without:
        return float("nan")
    values = torch.stack([other.K for other in layer.without]).flatten(1)
    return float(_jackknife(values, layer.unsampled).norm() / layer.K.norm())


def pooled(parts: Sequence[tuple[int, Mapping[str, TangentCovariance]]]) -> dict[str, TangentCovariance]:
    """K and Kbar of all samples together, from those of batches of n samples: means weighted by n."""
    total = sum(n for n, _ in parts)

    def mean(values: Sequence[Tensor | None]) -> Tensor | None:
        weighted = [value * (n / total) for (n, _), value in zip(parts, values, strict=True) if value is not None]
        return torch.stack(weighted).sum(0) if weighted else None

    def pooled_layer(several: Sequence[TangentCovariance]) -> TangentCovariance:
        K = mean([part.K for part in several])
        assert K is not None
        groups = range(min(len(part.without) for part in several))
        unsampled = sum(part.unsampled * n / total for (n, _), part in zip(parts, several, strict=True))
        without = tuple(pooled_layer([part.without[group] for part in several]) for group in groups)
        return TangentCovariance(several[0].W, K, mean([part.Kbar for part in several]), without, unsampled)

    return {name: pooled_layer([layers[name] for _, layers in parts]) for name in parts[0][1]}


def _jackknife(values: Tensor, unsampled: float) -> Tensor:
    G = len(values)
    error: Tensor = ((values - values.mean(0)).square().sum(0) * ((G - 1) / G * unsampled)).sqrt()
    return error


def _run(function: Callable[[Tensor], Any], samples: Tensor) -> Tensor:
    outputs = Samples(samples).outputs(function)
    refuse_other_rows(outputs, len(samples))
    return outputs.reshape(len(samples), -1)


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
    tangents = tangent_covariance(module, inputs, layers=layers, chunk=chunk)
    return {name: layer.W.T @ layer.K @ layer.W for name, layer in tangents.items()}


@as_written
@torch.no_grad()
def layer_inputs(
    module: nn.Module,
    inputs: Shaped[Tensor, "n ..."] | Mapping[str, Any] | Samples,
    *,
    layers: Sequence[str] | None = None,
    chunk: int | None = None,
) -> dict[str, Float[Tensor, "n ..."]]:
    """The input x_l of each layer: (n, k_in) for a linear layer, (n, channels, positions...) for a convolution.

    Raises ValueError as `tangent_features` does.
    """
    samples = prepared(module, inputs, chunk)
    plan = planned(module, samples, layers, chunk)
    parts: dict[str, list[Tensor]] = {name: [] for name in plan.layers}
    for some in samples.split(plan.chunk):
        for name, site in single(forward(module, plan.layers, some).calls, len(some)).items():
            parts[name].append(site.input)
    return {name: torch.cat(part) for name, part in parts.items()}
