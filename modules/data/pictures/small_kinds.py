"""Grey pictures of 8 x 8 pixels of several kinds, without a download: small stand-ins for different datasets."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float64, Int64
from numpy.typing import NDArray

from featurelab.modules.data.core import installed
from featurelab.modules.dtypes import Dtype

from ..core.tensors import TensorData, stream

EDGE = 8
Kind = Literal["digits", "turned", "shapes", "gratings", "photos", "noise"]
PICTURE_KINDS: dict[Kind, int] = {
    "digits": 10,
    "turned": 10,
    "shapes": 6,
    "gratings": 8,
    "photos": 2,
    "noise": 1,
}  # classes

Labels = Int64[np.ndarray, " n"]
Pictures = tuple[Float64[np.ndarray, "n 8 8"], Labels]


def small_pictures(
    kind: Kind,
    n_train: int = 1000,
    n_test: int | None = None,
    *,
    classes: int | None = None,
    seed: int,
    dtype: Dtype = "float32",
) -> TensorData:
    """Pictures (n, 1, 8, 8) in [0, 1] with integer labels; the rest of a finite set, or 500 pictures, are for testing.

    - `digits`: scikit-learn's 1,797 digits. `turned`: the same, turned by 90 degrees.
    - `shapes`: a disc, a ring, a square, a frame, a plus or a cross, bright on dark, of random place, size and greys.
    - `gratings`: (1 + a sin(2 pi f u + phase)) / 2 along u at the angle pi k / 8 of class k; f is 1 to 3 a side.
    - `photos`: the 2,080 patches of 8 x 8 pixels of scikit-learn's two photographs at half their resolution, labelled
      by the photograph, each stretched to [0, 1].
    - `noise`: independent uniform pixels.

    Classes take turns as long as they have pictures, so that any first n rows are nearly balanced; `classes` keeps the
    first so many classes. Raises ValueError for an unknown kind, or more pictures than there are.
    """
    if kind not in PICTURE_KINDS:
        raise ValueError(f"kind must be one of {', '.join(PICTURE_KINDS)}, got {kind!r}")
    count = PICTURE_KINDS[kind] if classes is None else classes
    if not 1 <= count <= PICTURE_KINDS[kind]:
        raise ValueError(f"classes must lie between 1 and {PICTURE_KINDS[kind]} for {kind}, got {classes}")
    if kind in DRAWN:
        total = n_train + (500 if n_test is None else n_test)
        y = np.arange(total) % count
        x = DRAWN[kind](y, stream(seed, kind))
    else:
        x, y = FOUND[kind]()
        x, y = x[y < count], y[y < count]
        order = balanced_order(y, stream(seed, "digits" if kind == "turned" else kind))
        total = len(y) if n_test is None else n_train + n_test
        if not 1 <= n_train <= total <= len(y):
            raise ValueError(f"there are only {len(y)} pictures of {kind}, but {total} are needed")
        x, y = x[order[:total]], y[order[:total]]
    pixels, labels = torch.from_numpy(x).unsqueeze(1), torch.from_numpy(y)
    return TensorData(
        (pixels[:n_train], labels[:n_train]), (pixels[n_train:], labels[n_train:]), dtype=dtype, name=kind
    )


def balanced_order(labels: Labels, chance: np.random.Generator) -> Int64[np.ndarray, " n"]:
    """A random order of these samples, in which the first n have each class floor or ceil of n / classes times.

    This holds as long as every class has samples left.
    """
    place = np.empty(len(labels))
    for label in np.unique(labels):
        rows = chance.permutation(np.flatnonzero(labels == label))
        place[rows] = np.arange(len(rows))
    order: NDArray[np.int64] = np.lexsort((chance.random(len(labels)), place))
    return order


def _digits() -> Pictures:
    pixels, labels = installed.digits()
    return pixels.reshape(-1, EDGE, EDGE) / 16.0, labels.astype(np.int64)


def _turned() -> Pictures:
    x, y = _digits()
    return np.rot90(x, axes=(1, 2)).copy(), y


@cache
def _photos() -> Pictures:
    by_photo = []
    for photo in installed.photographs():
        grey = photo.astype(np.float64).mean(2)
        rows, columns = (side // (2 * EDGE) for side in grey.shape)
        grey = grey[: rows * 2 * EDGE, : columns * 2 * EDGE]
        half = grey.reshape(rows * EDGE, 2, columns * EDGE, 2).mean((1, 3))
        patches = half.reshape(rows, EDGE, columns, EDGE).swapaxes(1, 2).reshape(-1, EDGE, EDGE)
        low, high = (end(patches, axis=(1, 2), keepdims=True) for end in (np.min, np.max))
        by_photo.append((patches - low) / np.maximum(high - low, 1.0))
    patches, labels = np.concatenate(by_photo), np.repeat(np.arange(len(by_photo)), [len(part) for part in by_photo])
    for array in (patches, labels):
        array.setflags(write=False)  # as they are shared
    return patches, labels.astype(np.int64, copy=False)


def _shapes(y: Labels, chance: np.random.Generator) -> Float64[np.ndarray, "n 8 8"]:
    centre = chance.uniform(2.75, 4.25, (2, len(y), 1, 1))
    size = chance.uniform(2.0, 3.0, (len(y), 1, 1))
    bright, dark = chance.uniform(0.6, 1.0, (len(y), 1, 1)), chance.uniform(0.0, 0.3, (len(y), 1, 1))
    rows, columns = np.mgrid[:EDGE, :EDGE]
    u, v = np.abs(rows - centre[0]), np.abs(columns - centre[1])
    far, wide = np.hypot(u, v), np.maximum(u, v)
    inside = np.stack(  # how far within the shape, in pixels
        [
            size - far,
            0.6 - np.abs(far - size),
            0.9 * size - wide,
            0.6 - np.abs(wide - size),
            np.minimum(0.6 - np.minimum(u, v), size - wide),
            np.minimum(0.8 - np.abs(u - v), size - wide),
        ]
    )
    own = np.clip(inside[y, np.arange(len(y))] + 0.5, 0, 1)
    drawn: NDArray[np.float64] = dark + (bright - dark) * own
    return drawn


def _gratings(y: Labels, chance: np.random.Generator) -> Float64[np.ndarray, "n 8 8"]:
    periods, height = chance.uniform(1, 3, (len(y), 1, 1)), chance.uniform(0.6, 1, (len(y), 1, 1))
    phase, angle = chance.uniform(0, 2 * np.pi, (len(y), 1, 1)), np.pi * y[:, None, None] / PICTURE_KINDS["gratings"]
    rows, columns = np.mgrid[:EDGE, :EDGE] / EDGE
    drawn: NDArray[np.float64] = (
        1 + height * np.sin(2 * np.pi * periods * (np.cos(angle) * columns + np.sin(angle) * rows) + phase)
    ) / 2
    return drawn


def _noise(y: Labels, chance: np.random.Generator) -> Float64[np.ndarray, "n 8 8"]:
    return chance.random((len(y), EDGE, EDGE))


FOUND: dict[str, Callable[[], Pictures]] = {"digits": _digits, "turned": _turned, "photos": _photos}
DRAWN: dict[str, Callable[[Labels, np.random.Generator], NDArray[np.float64]]] = {
    "shapes": _shapes,
    "gratings": _gratings,
    "noise": _noise,
}
