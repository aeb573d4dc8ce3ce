"""MobileNets trained on ImageNet, read from the folders of published models without `transformers`."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from featurelab.modules.dtypes import Dtype, dtype_name

from .convolutional import GlobalMean, TrunkHead, initialised
from .pretrained import read_safetensors

# of the blocks above the first convolution
STRIDES = {
    "mobilenet_v1": (1, 2, 1, 2, 1, 2, 1, 1, 1, 1, 1, 2, 1),
    "mobilenet_v2": (2, 1, 2, 1, 1, 2, 1, 1, 1, 1, 1, 1, 2, 1, 1, 1),
}
NORMALISATION = ("weight", "bias", "running_mean", "running_var")
FIXED = {"hidden_act": "relu6", "tf_padding": True, "output_stride": 32, "first_layer_is_expansion": True}


def pretrained_mobilenet(
    folder: str | Path, classes: int | None = None, *, seed: int = 0, dtype: Dtype = "float32"
) -> TrunkHead:
    """A MobileNet, version 1 or 2 of any width, from `config.json` and `model.safetensors` in `folder`, all frozen.

    `trunk` is a sequence: the first convolution, 13 (version 1) or 16 (version 2) blocks, a 1x1 convolution in version
    2, and the mean over places. So `trunk[:k]` are the layers below a cut; `trunk[k:].requires_grad_()` trains those
    above. Normalisation is folded into weights and biases of the convolutions, whose running statistics stay fixed for
    that reason. `classes=None` keeps the head of ImageNet's classes, with 0 for the background; a number replaces it by
    a new linear layer, not frozen, drawn from `seed` by torch's default. Inputs are RGB in [-1, 1] of any size.

    A. Howard et al., arXiv:1704.04861; M. Sandler et al., arXiv:1801.04381; the layout is that of Google's models on
    the Hugging Face hub, such as google/mobilenet_v2_1.0_224. Raises ValueError for a folder without such a model.
    """
    try:
        config = json.loads(Path(folder, "config.json").read_text(encoding="utf-8"))
        version = config["model_type"]
        strides = STRIDES[version]
        weights = read_safetensors(Path(folder, "model.safetensors"))
        given = _Weights(weights, version, config.get("layer_norm_eps", 1e-3))
        trunk = _first(given, strides) if version == "mobilenet_v1" else _second(given, strides)
        outputs, width = weights["classifier.weight"].shape
        head = nn.Linear(width, outputs)
        head.load_state_dict({part: weights[f"classifier.{part}"] for part in ("weight", "bias")})
    except (OSError, KeyError, ValueError, RuntimeError) as error:
        raise ValueError(f"{folder} does not hold a MobileNet as config.json and model.safetensors: {error}") from error
    for name, value in FIXED.items():
        if config.get(name, value) != value:
            raise ValueError(f"{folder}: only MobileNets with {name}={value} are supported, got {config[name]}")
    net = TrunkHead(trunk, head).to(getattr(torch, dtype_name(dtype))).eval().requires_grad_(False)
    if classes is not None:
        net.head = initialised(lambda: nn.Linear(width, classes), seed=seed, dtype=dtype)
    return net


class SameConv2d(nn.Conv2d):
    """A convolution with ceil(side / stride) outputs a side; an odd row or column of zeros is added at the end.

    This is TensorFlow's padding "SAME", which differs from that of torch with a stride of 2 on even sides.
    """

    def forward(self, x: Float[Tensor, "n channels height width"]) -> Float[Tensor, "n out rows columns"]:
        (kernel, _), (stride, _) = self.kernel_size, self.stride
        short = [max(kernel - (side % stride or stride), 0) for side in reversed(x.shape[-2:])]
        around = [part for lacking in short for part in (lacking // 2, lacking - lacking // 2)]
        return super().forward(nn.functional.pad(x, around) if stride > 1 and any(around) else x)


class Added(nn.Sequential):
    """x + f(x) for the sequence f."""

    def forward(self, x: Shaped[Tensor, "..."]) -> Shaped[Tensor, "..."]:
        changed: Tensor = super().forward(x)
        return x + changed


class _Weights:
    """Published tensors, and the convolutions that are made of them."""

    def __init__(self, tensors: dict[str, Tensor], version: str, eps: float) -> None:
        self.tensors, self.version, self.eps = tensors, version, eps

    def convolution(self, name: str, stride: int = 1) -> SameConv2d:
        """The convolution `name`, with its normalisation folded into weights and biases."""
        kernel, scale, shift, mean, variance = (
            self.tensors[f"{self.version}.{name}.{part}"].double()
            for part in ("convolution.weight", *(f"normalization.{part}" for part in NORMALISATION))
        )
        width, inputs, side, _ = kernel.shape
        groups = width if inputs == 1 else 1
        made = SameConv2d(
            inputs * groups, width, side, stride=stride, groups=groups, padding=side // 2 if stride == 1 else 0
        )
        factor = scale / (variance + self.eps).sqrt()
        made.load_state_dict({"weight": kernel * factor[:, None, None, None], "bias": shift - mean * factor})
        return made


def _first(given: _Weights, strides: tuple[int, ...]) -> nn.Sequential:
    """Version 1: a depthwise and a 1x1 convolution in each block."""
    blocks = [
        nn.Sequential(
            given.convolution(f"layer.{2 * place}", stride),
            nn.ReLU6(),
            given.convolution(f"layer.{2 * place + 1}"),
            nn.ReLU6(),
        )
        for place, stride in enumerate(strides)
    ]
    stem = nn.Sequential(given.convolution("conv_stem", 2), nn.ReLU6())
    return nn.Sequential(stem, *blocks, GlobalMean())


def _second(given: _Weights, strides: tuple[int, ...]) -> nn.Sequential:
    """Version 2: blocks expand, convolve each channel, and reduce; where no shape changes, their input is added."""

    def inner(name: str, first: str, stride: int, before: int = 1) -> list[nn.Module]:
        return [
            given.convolution(f"{name}.{first}", before),
            nn.ReLU6(),
            given.convolution(f"{name}.conv_3x3", stride),
            nn.ReLU6(),
            given.convolution(f"{name}.reduce_1x1"),
        ]

    blocks: list[nn.Module] = [nn.Sequential(*inner("conv_stem", "first_conv", 1, 2))]
    for place, stride in enumerate(strides):
        parts = inner(f"layer.{place}", "expand_1x1", stride)
        same = stride == 1 and parts[0].in_channels == parts[-1].out_channels
        blocks.append((Added if same else nn.Sequential)(*parts))
    last = nn.Sequential(given.convolution("conv_1x1"), nn.ReLU6())
    return nn.Sequential(*blocks, last, GlobalMean())
