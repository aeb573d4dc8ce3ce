"""Convolutional classifiers, plain stacks of convolutions, and what convolutional networks have in common.

Every network here is a `TrunkHead`: a trunk from images to feature vectors, and a linear head on them. `initialised`
builds trunks without touching the global random state; pooling uses operations with a deterministic backward pass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, TypeVar

import numpy as np
import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from featurelab.modules.dtypes import Dtype, dtype_name

from .mlps import DTYPES, _named

Net = TypeVar("Net", bound=nn.Module)
Init = Literal["he", "he_fan_in", "default"]
INITS = {"he": "he", "he_fan_in": "he_fan_in", "default": "default"}


class TrunkHead(nn.Module):
    """f(x) = head(trunk(x)); `features(x)` = trunk(x), flattened, is the input of the head.

    The head may be any module on vectors, such as a linear layer or an MLP.
    """

    def __init__(self, trunk: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.trunk = trunk
        self.head = head

    def features(self, x: Shaped[Tensor, "n ..."]) -> Float[Tensor, "n dim"]:
        maps: Tensor = self.trunk(x)
        return maps.flatten(1)

    def forward(self, x: Shaped[Tensor, "n ..."]) -> Float[Tensor, "n ..."]:
        outputs: Tensor = self.head(self.features(x))
        return outputs


class GlobalMean(nn.Module):
    """The mean of each channel over all positions."""

    def forward(self, x: Float[Tensor, "n channels height width"]) -> Float[Tensor, "n channels"]:
        return x.mean((-2, -1))


class MeanGrid(nn.Module):
    """Means over a size x size grid of windows.

    Window i spans rows floor(i h / size) .. ceil((i + 1) h / size) - 1, and columns likewise, so that windows overlap
    if size does not divide h. This is the adaptive average pooling of torch, whose CUDA backward pass is not
    deterministic.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def forward(
        self, x: Float[Tensor, "n channels height width"]
    ) -> Float[Tensor, "n channels {self.size} {self.size}"]:
        rows, columns = (self._windows(length, x) for length in x.shape[-2:])
        return rows @ x @ columns.T

    def _windows(self, length: int, like: Tensor) -> Tensor:
        i = torch.arange(self.size)[:, None]
        begin, end = i * length // self.size, -(-(i + 1) * length // self.size)
        at = torch.arange(length)
        return (((at >= begin) & (at < end)) / (end - begin)).to(like)


def conv_trunk(
    channels_in: int = 1,
    channels: Sequence[int] = (16, 32, 64),
    *,
    strides: Sequence[int] | None = None,
    batch_norm: bool = True,
    pool: int = 1,
    seed: int,
    init: Init = "default",
    dtype: Dtype = "float32",
) -> nn.Sequential:
    """3x3 convolutions, each with ReLU and, if `batch_norm`, batch normalisation; then pooling to a vector.

    `strides` has one number for each convolution (default: 1, then 2 each). `pool` is the side of the grid of means
    that is flattened at the end: (n, channels_in, h, w) -> (n, channels[-1] * pool^2); 1 is the global mean.
    Convolutions have a bias only without batch normalisation. Weights as in `initialised`.

    Raises ValueError for no channels, another number of strides, or an unknown init or dtype.
    """
    steps = [1] + [2] * (len(channels) - 1) if strides is None else list(strides)
    if not channels or len(steps) != len(channels):
        raise ValueError(
            f"conv_trunk() needs at least one channel number and as many strides, got {tuple(channels)} and "
            f"{tuple(steps)}"
        )

    def build() -> nn.Sequential:
        parts: list[nn.Module] = []
        before = channels_in
        for width, stride in zip(channels, steps, strict=True):
            parts.append(nn.Conv2d(before, width, 3, stride=stride, padding=1, bias=not batch_norm))
            parts += [nn.BatchNorm2d(width), nn.ReLU()] if batch_norm else [nn.ReLU()]
            before = width
        parts.append(GlobalMean() if pool == 1 else nn.Sequential(MeanGrid(pool), nn.Flatten()))
        return nn.Sequential(*parts)

    return initialised(build, seed=seed, init=init, dtype=dtype)


def cnn(
    channels_in: int = 1,
    channels: Sequence[int] = (16, 32, 64),
    *,
    outputs: int,
    strides: Sequence[int] | None = None,
    batch_norm: bool = True,
    pool: int = 1,
    seed: int,
    init: Init = "default",
    dtype: Dtype = "float32",
) -> TrunkHead:
    """A convolutional classifier: images (n, channels_in, h, w) of any size to `outputs` numbers each.

    The trunk is a `conv_trunk` with one 3x3 convolution, normalisation and ReLU for each entry of `channels`; by
    default every convolution but the first halves the sides. Then come the mean of each channel, or means over a
    `pool` x `pool` grid, and one linear layer, `head`. `features(x)` are its inputs, (n, channels[-1] * pool^2).

    Weights as in `initialised`; the head and every convolution have random streams of their own.

    Raises ValueError for outputs < 1, no channels, another number of strides, or an unknown init or dtype.
    """
    if outputs < 1:
        raise ValueError(f"outputs must be at least 1, got {outputs}")
    trunk = conv_trunk(
        channels_in, channels, strides=strides, batch_norm=batch_norm, pool=pool, seed=seed, init=init, dtype=dtype
    )
    head = initialised(lambda: nn.Linear(channels[-1] * pool**2, outputs), seed=seed, dtype=dtype)
    return TrunkHead(trunk, head)


def initialised(
    build: Callable[[], Net], *, seed: int, init: Init = "he", linear_std: float | None = None, dtype: Dtype = "float32"
) -> Net:
    """The network that `build` makes, with parameters drawn from `seed` alone.

    - Convolutions: "he" is N(0, 2 / fan_out), "he_fan_in" N(0, 2 / fan_in) (He et al. 2015, arXiv:1502.01852), both
      with zero biases; "default" is torch's U(-1, 1) / sqrt(fan_in), also for biases. fan_out counts output channels
      times kernel positions.
    - Linear layers: torch's default, or N(0, linear_std^2) with zero biases. Normalisation: scale 1, shift 0.

    Each tensor has its own stream, by the name of its module, so that changing one layer does not change the others.
    Draws are made in float64 and cast. Raises ValueError for an unknown init or dtype, TypeError for a module with
    parameters of another kind.
    """
    kind, rule = _named(dtype_name(dtype), DTYPES, "dtype"), _named(init, INITS, "init")
    with torch.device("meta"):  # no numbers drawn, the global random state untouched
        net = build()
    _place(net, kind)
    for name, module in net.named_modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            _fill(module, name, seed, rule, linear_std)
        elif isinstance(module, nn.modules.batchnorm._NormBase | nn.LayerNorm | nn.GroupNorm):
            module.reset_parameters()  # ones and zeros
        elif list(module.parameters(recurse=False)) or list(module.buffers(recurse=False)):
            raise TypeError(
                f"initialised() cannot draw the parameters of {name or 'the network'}, a {type(module).__name__}"
            )
    return net


def _place(net: nn.Module, kind: torch.dtype) -> None:
    """Give a net without numbers memory on the CPU. `Module.to_empty` would import SymPy for that, in every worker."""
    for module in net.modules():
        for name, parameter in list(module.named_parameters(recurse=False)):
            setattr(module, name, nn.Parameter(torch.empty(parameter.shape, dtype=kind)))
        for name, buffer in list(module.named_buffers(recurse=False)):
            setattr(module, name, torch.empty(buffer.shape, dtype=kind if buffer.is_floating_point() else buffer.dtype))


@torch.no_grad()
def _fill(layer: nn.Conv2d | nn.Linear, name: str, seed: int, rule: str, linear_std: float | None) -> None:
    kernel = layer.weight[0, 0].numel() if isinstance(layer, nn.Conv2d) else 1
    fan_in, fan_out = layer.weight[0].numel(), layer.weight.shape[0] * kernel
    weights, biases = (_generator(seed, f"{name}.{part}") for part in ("weight", "bias"))
    if isinstance(layer, nn.Conv2d):
        std = {"he": (2 / fan_out) ** 0.5, "he_fan_in": (2 / fan_in) ** 0.5, "default": None}[rule]
    else:
        std = linear_std
    draw = torch.empty(layer.weight.shape, dtype=torch.float64)
    bound = fan_in**-0.5
    layer.weight.copy_(
        draw.uniform_(-bound, bound, generator=weights) if std is None else draw.normal_(0, std, generator=weights)
    )
    if layer.bias is not None:
        draw = torch.zeros(layer.bias.shape, dtype=torch.float64)
        layer.bias.copy_(draw.uniform_(-bound, bound, generator=biases) if std is None else draw)


def _generator(seed: int, name: str) -> torch.Generator:
    state = np.random.SeedSequence([seed, *name.encode()]).generate_state(1, np.uint64).item()
    return torch.Generator().manual_seed(state >> 1)
