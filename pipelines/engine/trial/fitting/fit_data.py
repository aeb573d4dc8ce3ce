"""The data that `fit` and `evaluate` accept, turned into data modules, and named in the record."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pytorch_lightning as pl
import torch
from torch.utils.data import DataLoader, Dataset

from featurelab.modules.data import LoaderData, TensorData, digest_of
from featurelab.modules.data.core.permuted import label_order
from featurelab.pipelines.engine.experiment.config import Config

if TYPE_CHECKING:
    from featurelab.modules.language import FewShotPrompts
    from featurelab.tracking import Recorder

    Array = torch.Tensor | np.ndarray
    Pair = tuple[Array, Array]
    FitData = TensorData | FewShotPrompts | pl.LightningDataModule | DataLoader[Any] | Pair | tuple[Pair, Pair]

MISMATCH = re.compile(r"dtype|scalar type|Input type .* should be the same")


def as_data(data: Any, learner: pl.LightningModule, config: Config) -> Any:
    """The data module for a fit of `learner`.

    Raises TypeError for anything but data, and ValueError for a data module whose labels a control cannot permute.
    """
    if isinstance(data, pl.LightningDataModule) or hasattr(data, "digest"):
        if label_order(1) is not None and not hasattr(data, "digest"):
            raise ValueError(
                f"control=permuted_labels cannot permute labels inside {type(data).__name__}: give data.TensorData, or"
                ' declare controls=("untrained",)'
            )
        return data
    dtype = _weights_of(learner, config)
    if isinstance(data, DataLoader):
        return LoaderData(data, order_seed=config.streams.order, dtype=dtype)
    if isinstance(data, list | tuple) and len(data) == 2:
        parts = (data,) if all(map(_is_array, data)) else data
        if all(isinstance(part, list | tuple) and len(part) == 2 and all(map(_is_array, part)) for part in parts):
            return TensorData(*parts, order_seed=config.streams.order, dtype=dtype or config.dtype)
    make = "torch.utils.data.DataLoader(dataset, batch_size=..., shuffle=True)"
    hint = f": give {make}" if isinstance(data, Dataset) or hasattr(data, "__getitem__") else ""
    raise TypeError(f"data must be a data module, a DataLoader or tensors (x, y), not {type(data).__name__}{hint}")


def _is_array(value: Any) -> bool:
    return isinstance(value, torch.Tensor | np.ndarray)


def _weights_of(learner: pl.LightningModule, config: Config) -> torch.dtype | None:
    """The floating-point type of the learner's weights, or the config's if they have several types or none."""
    if config.precision == "64-true":
        return config.dtype  # Lightning converts the weights
    kinds = {weight.dtype for weight in learner.parameters() if weight.is_floating_point()}
    return kinds.pop() if len(kinds) == 1 else config.dtype


def name_data(data: Any, recorder: "Recorder") -> str:
    """Record the data with their digest, and return it; return nothing for data that have no digest before the fit."""
    if not hasattr(data, "digest"):
        return ""
    description = data.describe()
    digest: str = description["digest"] if isinstance(data, LoaderData) else data.digest()[:32]  # MLflow: at most 36
    recorder.dataset(data.name or type(data).__name__, digest, description)
    return digest


def identity(data: Any) -> str:
    """A text that identifies a data module without a digest, so that a fit resumes only on the same data."""
    return f"{type(data).__module__}.{type(data).__qualname__} {dict(data.hparams)}"


def name_loader(name: str, loader: Any, recorder: "Recorder") -> None:
    """Record the dataset behind the training loader of somebody else's data module."""
    if isinstance(loader, DataLoader):
        digest, covers = digest_of(loader.dataset)
    else:
        digest, covers = "not digested: not a DataLoader", "nothing"
    recorder.dataset(name, digest, {"name": name, "digest_covers": covers})


class RecordData(pl.Callback):
    """Records the data of a data module that makes its loader in its setup."""

    def __init__(self, recorder: "Recorder") -> None:
        self._recorder = recorder

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        name_loader(type(trainer.datamodule).__name__, trainer.train_dataloader, self._recorder)  # type: ignore[attr-defined]


@contextmanager
def explained() -> Iterator[None]:
    """Inside, an error about two floating-point types says what to write."""
    try:
        yield
    except (RuntimeError, ValueError) as error:  # a probe raises the latter
        first = str(error).partition("\n")[0]
        if not MISMATCH.search(first):
            raise
        example = "data.TensorData((x, y), dtype=config.dtype)"
        hint = f"write dtype=config.dtype where data and networks are made, as in {example}"
        raise TypeError(f"{first}: {hint}").with_traceback(
            error.__traceback__
        ) from error  # the traceback with the author's frame
