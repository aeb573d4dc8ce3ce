"""Multilayer perceptrons without biases, drawn from a seed.

    x_0 = x,    h_l = W_l x_l,    x_(l+1) = phi(h_l),    f(x) = h_L

(Beaglehole, Mitliagkas, Agarwala 2024, arXiv:2402.05271, section 2).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from typing import Literal, TypeVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from featurelab.modules.dtypes import Dtype, dtype_name
from featurelab.modules.nets.standard.given_weights import linear_from_weights

T = TypeVar("T")


class Quadratic(nn.Module):
    """The activation phi(h) = h^2, elementwise."""

    def forward(self, h: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        return h.square()


ACTIVATIONS: dict[str, type[nn.Module]] = {
    "gelu": nn.GELU,
    "identity": nn.Identity,
    "quadratic": Quadratic,
    "relu": nn.ReLU,
    "sigmoid": nn.Sigmoid,
    "silu": nn.SiLU,
    "softplus": nn.Softplus,
    "tanh": nn.Tanh,
}
DTYPES = {"float64": torch.float64, "float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def activation(name: str) -> nn.Module:
    """The activation called `name`: one of gelu, identity, quadratic, relu, sigmoid, silu, softplus, tanh.

    Raises ValueError, which suggests the nearest known name, for any other name.
    """
    return _named(name, ACTIVATIONS, "activation")()


class MLP(nn.Module):
    """Linear layers with one activation after all but the last.

    `layers` holds them in order. Inputs with more than two dimensions (images) are flattened to (n, dim).
    """

    def __init__(self, layers: Iterable[nn.Linear], activation: nn.Module) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.activation = activation

    def forward(self, x: Float[Tensor, "n ..."]) -> Float[Tensor, "n outputs"]:
        x = x.flatten(1)
        *hidden, last = self.layers  # a slice would be a new module at each call
        for layer in hidden:
            x = self.activation(layer(x))
        outputs: Tensor = last(x)
        return outputs


def mlp(
    dim: int,
    width: int,
    hidden: int,
    *,
    outputs: int = 1,
    activation: str = "relu",
    init_scale: float | Sequence[float] = 1.0,
    seed: int,
    dtype: Dtype = "float64",
) -> MLP:
    """A bias-free MLP with `hidden` layers of `width` units and W_l,ij ~ N(0, s_l / fan_in).

    `init_scale` is s, a multiplier of the *variance*: one number for all layers, or one for each of the hidden + 1.
    Weights are drawn in float64 on the CPU, each layer from its own stream of `seed`, and then cast: float32 and
    float64 networks agree up to rounding, and changing the shape of one layer does not change the draws of the others.

    Raises ValueError for a size below 1 (`hidden` may be 0), a negative scale or a wrong number of scales, and an
    unknown activation or dtype.
    """
    sizes = _sizes(dim, width, hidden, outputs)
    scales = (
        [float(init_scale)] * (hidden + 1) if isinstance(init_scale, int | float) else [float(s) for s in init_scale]
    )
    if len(scales) != hidden + 1:
        raise ValueError(
            f"init_scale must be one number or {hidden + 1} (hidden layers and readout), got {len(scales)}"
        )
    if not all(0 <= s < float("inf") for s in scales):
        raise ValueError(f"init_scale multiplies a variance and must be finite and not negative, got {scales}")
    layers = [
        _layer(_draw(torch.randn, index, fan_in, fan_out, seed).mul_((scale / fan_in) ** 0.5), dtype)
        for index, fan_in, fan_out, scale in zip(range(hidden + 1), sizes[:-1], sizes[1:], scales, strict=True)
    ]
    return MLP(layers, _named(activation, ACTIVATIONS, "activation")())


def xavier_mlp(
    dim: int,
    width: int,
    hidden: int,
    *,
    outputs: int = 1,
    gain: float = 1.0,
    first: Literal["xavier", "default"] = "xavier",
    seed: int,
    dtype: Dtype = "float32",
) -> MLP:
    """A bias-free ReLU MLP with W_l,ij ~ U(-b, b), b = gain sqrt(6 / (fan_in + fan_out)) in its hidden layers.

    This is the initialisation of Glorot and Bengio (2010) times `gain`, which multiplies the *standard deviation*. The
    readout, and with `first="default"` the first layer, is drawn as torch draws a linear layer: b = fan_in^(-1/2).
    These are the networks of Beaglehole, Sukenik, Mondelli, Belkin 2024 (arXiv:2402.13728), appendix C, where features
    are learned if the gain is small.

    Streams, dtypes and errors as in `mlp`; ValueError also for an unknown `first`.
    """
    if first not in ("xavier", "default"):
        raise ValueError(f"first must be 'xavier' or 'default', got {first!r}")
    sizes = _sizes(dim, width, hidden, outputs)
    if not 0 <= gain < float("inf"):
        raise ValueError(f"gain multiplies a standard deviation and must be finite and not negative, got {gain}")
    layers = []
    for index, (fan_in, fan_out) in enumerate(itertools.pairwise(sizes)):
        default = index == hidden or (index == 0 and first == "default")
        bound = fan_in**-0.5 if default else gain * (6 / (fan_in + fan_out)) ** 0.5
        draw = _draw(torch.rand, index, fan_in, fan_out, seed).mul_(2).sub_(1).mul_(bound)
        layers.append(_layer(draw, dtype))
    return MLP(layers, nn.ReLU())


def quadratic_net(dim: int, width: int, *, seed: int, dtype: Dtype = "float64") -> MLP:
    """The quadratic network f(x) = a^T (W x)^2 with one hidden layer, a_i ~ N(0, 1), W_ij ~ N(0, 1 / width).

    `layers[0].weight` is W (width, dim) and `layers[1].weight` is a^T (1, width). The free-probability prediction
    (arXiv:2402.05271, figure 3) describes this network.
    """
    return mlp(dim, width, 1, activation="quadratic", init_scale=[dim / width, width], seed=seed, dtype=dtype)


def _sizes(dim: int, width: int, hidden: int, outputs: int) -> list[int]:
    for name, size, least in (("dim", dim, 1), ("width", width, 1), ("hidden", hidden, 0), ("outputs", outputs, 1)):
        if size < least:
            raise ValueError(f"{name} must be at least {least}, got {size}")
    return [dim, *[width] * hidden, outputs]


def _draw(law: Callable[..., Tensor], index: int, fan_in: int, fan_out: int, seed: int) -> Tensor:
    """Numbers (fan_out, fan_in) from the law `torch.randn` or `torch.rand`, of the stream of layer `index`."""
    stream = np.random.SeedSequence(seed, spawn_key=(index,)).generate_state(1, np.uint64).item()
    generator = torch.Generator().manual_seed(stream >> 1)
    return law(fan_out, fan_in, dtype=torch.float64, generator=generator, device="cpu")


def _layer(weights: Tensor, dtype: Dtype) -> nn.Linear:
    return linear_from_weights(weights, dtype=_named(dtype_name(dtype), DTYPES, "dtype"))


def _named(name: str, known: dict[str, T], what: str) -> T:
    if name in known:
        return known[name]
    nearest = get_close_matches(str(name), known, n=1, cutoff=0.0)[0]
    raise ValueError(f"unknown {what} {name!r}; the nearest known one is {nearest!r} (of {', '.join(sorted(known))})")
