"""Synthetic classes: smooth random fields under white noise as small pictures, and Gaussian clouds as features."""

import numpy as np
import torch
from jaxtyping import Float64, Int64
from torch import Tensor

from ..core.tensors import stream


def random_fields(
    classes: int,
    per_class: int,
    *,
    noise: float | tuple[float, float] = 0.7,
    size: int = 8,
    coarse: int = 4,
    seed: int,
) -> tuple[Float64[Tensor, "{classes}*{per_class} 1 {size} {size}"], Int64[Tensor, " {classes}*{per_class}"]]:
    """Pictures (n, 1, size, size) and labels (n,), class by class.

    Picture i of class c is P_c + s_c Z_ci. The prototype P_c is coarse x coarse white Gaussian noise, interpolated
    bilinearly to size x size and scaled to standard deviation 1 over its pixels; Z is white Gaussian noise. s_c is
    `noise`; if that is a pair (low, high), s_c is drawn uniformly from it for each class, so that some classes are
    tighter than others. Prototypes, noise levels and the pictures of each class have separate streams of `seed`, so
    that more classes or pictures do not change the existing ones.

    Raises ValueError for fewer than one class or picture, coarse not in [2, size], or noise that is negative or a pair
    in the wrong order.
    """
    low, high = (noise, noise) if isinstance(noise, int | float) else noise
    if classes < 1 or per_class < 1:
        raise ValueError(f"there must be at least one class and one picture of each, got {classes} and {per_class}")
    if not 2 <= coarse <= size:
        raise ValueError(f"coarse must lie between 2 and size={size}, got {coarse}")
    if not 0 <= low <= high < float("inf"):
        raise ValueError(f"noise must be a standard deviation or a pair (low, high) of them, got {noise!r}")
    drawn = torch.from_numpy(stream(seed, "prototypes").standard_normal((classes, 1, coarse, coarse)))
    prototypes = torch.nn.functional.interpolate(drawn, size=(size, size), mode="bilinear", align_corners=False)
    prototypes = prototypes / prototypes.std(dim=(1, 2, 3), correction=0, keepdim=True)
    levels = torch.from_numpy(stream(seed, "levels").uniform(low, high, classes))
    pictures = torch.stack([_pictures(per_class, size, seed, label) for label in range(classes)])
    x = prototypes[:, None] + levels[:, None, None, None, None] * pictures
    return x.flatten(0, 1), torch.arange(classes).repeat_interleave(per_class)


def _pictures(count: int, size: int, seed: int, label: int) -> Tensor:
    return torch.from_numpy(stream(seed, f"pictures {label}").standard_normal((count, 1, size, size)))


def class_clouds(
    classes: int, per_class: int, dim: int, *, noise: float = 1.0, heterogeneity: float = 0.0, seed: int
) -> tuple[Float64[Tensor, "{classes}*{per_class} {dim}"], Int64[Tensor, " {classes}*{per_class}"]]:
    """Gaussian clouds x_ci = mu_c + s_c z_ci (n, dim) and labels (n,), class by class.

    mu_c is uniform on the sphere of radius sqrt(dim) and z is white Gaussian. s_c is uniform in noise * [1 -
    heterogeneity, 1 + heterogeneity], so that classes differ only in how tight they are. Each part has its own stream
    of `seed`. Raises ValueError for a size below 1, negative noise, or heterogeneity outside [0, 1].
    """
    for name, size in (("classes", classes), ("per_class", per_class), ("dim", dim)):
        if size < 1:
            raise ValueError(f"{name} must be at least 1, got {size}")
    if not noise >= 0 or not 0 <= heterogeneity <= 1:
        raise ValueError(f"need noise >= 0 and heterogeneity in [0, 1], got {noise} and {heterogeneity}")
    means = stream(seed, "means").standard_normal((classes, 1, dim))
    means *= dim**0.5 / np.linalg.norm(means, axis=-1, keepdims=True)
    spread = noise * (1 + heterogeneity * stream(seed, "levels").uniform(-1, 1, (classes, 1, 1)))
    x = means + spread * stream(seed, "samples").standard_normal((classes, per_class, dim))
    return torch.from_numpy(x).flatten(0, 1), torch.arange(classes).repeat_interleave(per_class)
