"""A recorder that keeps in memory what a trial records."""

from pathlib import Path
from typing import Any

import torch

from featurelab.tracking.outbox.null import NullRecorder


class Kept(NullRecorder):
    """`curves[metric][step]`, `arrays[name][part]`, `dataset` as given, and the `weights` of the checkpoint."""

    def __init__(self) -> None:
        super().__init__()
        self.curves: dict[str, dict[int, float]] = {}
        self.arrays: dict[str, dict[str, Any]] = {}
        self.entries: list[Any] = []
        self.weights: dict[str, torch.Tensor] = {}

    @property
    def digest(self) -> str:
        (digest,) = {entry["dataset"]["digest"] for entry in self.entries if "dataset" in entry}
        return digest

    def array(self, name: str, **arrays: Any) -> None:
        super().array(name, **arrays)
        self.arrays[name] = arrays

    def file(self, path: Path, directory: str = "") -> None:
        super().file(path, directory)
        self.weights = torch.load(path, weights_only=True)["state_dict"]

    def _keep(self, values: Any, step: int) -> None:
        for metric, value in values.items():
            self.curves.setdefault(metric, {})[step] = value

    def _append(self, entry: Any) -> None:
        self.entries.append(entry)
