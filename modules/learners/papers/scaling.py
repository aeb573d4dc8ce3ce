"""Powers of the batch size that divide a penalty, in a file without torch so that configs can name them."""

from typing import Literal

Scaling = Literal["per_sample", "per_root", "sum"]
POWERS: dict[Scaling, float] = {"per_sample": 1.0, "per_root": 0.5, "sum": 0.0}
SwadRule = Literal["algorithm_1", "domainbed"]  # which segments SWAD averages
