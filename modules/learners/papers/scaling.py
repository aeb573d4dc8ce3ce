"""The power of the batch size that divides a penalty; apart, so that a config can name it without importing torch."""

from typing import Literal

Scaling = Literal["per_sample", "per_root", "sum"]
POWERS: dict[Scaling, float] = {"per_sample": 1.0, "per_root": 0.5, "sum": 0.0}
