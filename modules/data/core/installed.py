"""The pictures that scikit-learn brings along, read once in a process: reading them takes longer than most uses."""

from functools import cache

import numpy as np
from jaxtyping import Float64, Int64, UInt8
from sklearn.datasets import load_digits, load_sample_images


@cache
def digits() -> tuple[Float64[np.ndarray, "1797 64"], Int64[np.ndarray, " 1797"]]:
    """Digits of 8 x 8 pixels in [0, 16], and their labels in 0 to 9. The arrays are shared and read-only."""
    pixels, labels = load_digits(return_X_y=True)
    labels = labels.astype(np.int64)
    for array in (pixels, labels):
        array.setflags(write=False)
    return pixels, labels


@cache
def photographs() -> tuple[UInt8[np.ndarray, "rows columns 3"], ...]:
    """The two photographs, in colours from 0 to 255. The arrays are shared and read-only."""
    photos = tuple(load_sample_images().images)
    for photo in photos:
        photo.setflags(write=False)
    return photos
