"""Pictures of several domains, one of which is held out: the protocol of DomainBed."""

from __future__ import annotations

import colorsys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int64, UInt8
from sklearn.datasets import load_digits
from torch import Tensor

from featurelab.modules.dtypes import Dtype

from .augment import Augmentation
from .public import images
from .public_sources import domains as places
from .public_sources import labels, load, source
from .streaming import IMAGENET_MEAN, IMAGENET_STD, BalancedBatches, ShuffledBatches
from .tensors import Pair, TensorData, stream


class HeldOutDomain(TensorData):
    """Pictures of all domains but one to train on, a share of each set apart for validation; the other one to test on.

    `domains` maps a name to pictures (n, 3, size, size), uint8, and labels (n,). `train`, `validation` and `test` hold
    them as they are; what the loaders give, and `inputs` makes of any of them, are numbers standardised as ImageNet's.
    A training batch has `batch_size` pictures of each training domain, drawn anew for every batch, changed by
    `augment`; an epoch is as many batches as all training pictures fill. The split is drawn from `seed`.

    I. Gulrajani, D. Lopez-Paz, "In Search of Lost Domain Generalization", arXiv:2007.01434: 20% for validation, whose
    accuracy chooses the model. There accuracy on the held-out domain is that on 80% of it, here on all.

    Raises ValueError for an unknown domain, fewer than two, or a share that leaves a domain without either part.
    """

    validation: Pair

    def __init__(
        self,
        domains: Mapping[str, Pair],
        held_out: str,
        *,
        share: float = 0.2,
        batch_size: int,
        augment: Augmentation | None = None,
        seed: int,
        order_seed: int = 0,
        dtype: Dtype = "float32",
        name: str = "domains",
    ) -> None:
        if held_out not in domains or len(domains) < 2:
            raise ValueError(f"held_out must be one of at least two domains {list(domains)}, got {held_out!r}")
        self.held_out, self.training = held_out, tuple(known for known in domains if known != held_out)
        parts: dict[str, list[Pair]] = {"train": [], "validation": []}
        for known in self.training:
            x, y = domains[known]
            order = torch.from_numpy(stream(seed, f"split of {known}").permutation(len(x)))
            kept = len(x) - round(share * len(x))
            if not 0 < kept < len(x):
                raise ValueError(f"a share of {share} leaves no part of the {len(x)} pictures of {known}")
            parts["train"].append((x[order[:kept]], y[order[:kept]]))
            parts["validation"].append((x[order[kept:]], y[order[kept:]]))
        train, validation = (_joined(found) for found in parts.values())
        super().__init__(
            train, domains[held_out], batch_size=batch_size, order_seed=order_seed, dtype=dtype, name=name,
            augment=augment,
        )  # fmt: skip
        self.validation, self.share = validation, share
        self.domain_of = np.repeat(np.arange(len(self.training)), [len(x) for x, _ in parts["train"]])
        self.floating = getattr(torch, str(dtype))

    def inputs(self, x: UInt8[Tensor, "n 3 *size"]) -> Float[Tensor, "n 3 *size"]:
        """What a network sees of pictures, without augmentation."""
        return self._standardised(x.to(self.floating) / 255)

    def train_dataloader(self) -> Any:
        trainer = self.trainer
        rank, world_size = (trainer.global_rank, trainer.world_size) if trainer else (0, 1)
        assert self.batch_size is not None
        batches = BalancedBatches(
            self.domain_of, len(self.training), self.batch_size, order_seed=self.order_seed, rank=rank,
            world_size=world_size,
        )  # fmt: skip
        return _Shown(self, self.train, batches, augment=self.augment)

    def val_dataloader(self) -> Any:
        """The held-out domain in its own order; every worker evaluates all of it."""
        assert self.batch_size is not None
        return _Shown(self, self.test, ShuffledBatches(len(self.test[0]), self.batch_size, order_seed=None))

    def describe(self) -> dict[str, Any]:
        return super().describe() | {
            "held_out": self.held_out,
            "n_validation": len(self.validation[0]),
            "image_shape": tuple(self.train[0].shape[1:]),
        }

    def _standardised(self, x: Tensor) -> Tensor:
        mean, std = (torch.tensor(values).to(x)[:, None, None] for values in (IMAGENET_MEAN, IMAGENET_STD))
        return (x - mean) / std


class _Shown:
    """Batches of pictures by the rows that a sampler names, augmented where asked to, standardised."""

    def __init__(
        self, task: HeldOutDomain, pair: Pair, batches: BalancedBatches | ShuffledBatches, *,
        augment: Augmentation | None = None,
    ) -> None:  # fmt: skip
        self.task, self.pair, self.batches, self.augment = task, pair, batches, augment
        self.sampler, self.batch_sampler = batches, None  # where Lightning looks for `set_epoch`

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[Pair]:
        device = self.task.trainer.strategy.root_device if self.task.trainer else self.pair[0].device
        x, y = self.pair
        for keys in self.batches:
            rows = torch.tensor([row for row, _, _ in keys])
            # moved before they become numbers: a quarter of the bytes
            shown = x[rows].to(device).to(self.task.floating) / 255
            if self.augment is not None:
                # for each picture by its place in the epoch: the same on any number of workers
                drawn = [
                    np.random.default_rng([self.task.order_seed, epoch, place, *b"augment"]).random(
                        self.augment.numbers
                    )
                    for _, epoch, place in keys
                ]
                shown = self.augment(shown, torch.from_numpy(np.stack(drawn)).to(device))
            yield self.task._standardised(shown), y[rows].to(device)


def public_domains(
    name: str, size: int, *, root: str | Path | None = None
) -> dict[str, tuple[UInt8[Tensor, "n 3 {size} {size}"], Int64[Tensor, " n"]]]:
    """All pictures of a public dataset by domain, with their labels: decoded and resized once, kept as bytes.

    Raises DatasetMissing; ValueError where the dataset has no domains.
    """
    entry = source(name)
    if entry.domain is None:
        raise ValueError(f"{name} has no domains")
    found: dict[str, list[Pair]] = {domain: [] for domain in entry.domains}
    for split in entry.splits:
        table = load(name, split, root=root)
        y, owners = labels(table, entry.label), places(table, entry)
        for place, domain in enumerate(entry.domains):
            rows = np.flatnonzero(owners == place)
            if len(rows):
                found[domain].append((images(table.select(rows), size), torch.from_numpy(y[rows])))
    return {domain: _joined(parts) for domain, parts in found.items() if parts}


def _joined(parts: Sequence[Pair]) -> Pair:
    return torch.cat([x for x, _ in parts]), torch.cat([y for _, y in parts])


def painted_digits(
    agreements: Mapping[str, float], size: int = 16, *, noise: float = 0.1, seed: int
) -> dict[str, tuple[UInt8[Tensor, "n 3 {size} {size}"], Int64[Tensor, " n"]]]:
    """Handwritten digits painted in a colour that tells the label as often as the domain says: pictures, and labels.

    The 1797 digits of 8 x 8 pixels are shared among the domains of `agreements` and enlarged (bilinear). In a domain of
    agreement a the hue is the label's, one of ten, with probability a, else uniform among the ten; every channel gets
    N(0, noise^2). A small stand-in, ours, for a benchmark of pictures. Raises ValueError for no domain or an agreement
    outside of [0, 1].
    """
    if not agreements or not all(0 <= a <= 1 for a in agreements.values()):
        raise ValueError(f"agreements are probabilities, of one domain at least; got {dict(agreements)}")
    pixels, y = load_digits(return_X_y=True)
    hues = np.array([colorsys.hsv_to_rgb(place / 10, 1.0, 1.0) for place in range(10)])
    parts = np.array_split(stream(seed, "digits").permutation(len(y)), len(agreements))
    found = {}
    for (name, agreement), rows in zip(agreements.items(), parts, strict=True):
        chance = stream(seed, f"domain {name}")
        colour = np.where(chance.random(len(rows)) < agreement, y[rows], chance.integers(0, 10, len(rows)))
        strokes = torch.from_numpy(pixels[rows].reshape(-1, 1, 8, 8) / 16)
        strokes = torch.nn.functional.interpolate(strokes, size=(size, size), mode="bilinear", align_corners=False)
        shown = strokes * torch.from_numpy(hues[colour])[:, :, None, None]
        shown = shown + noise * torch.from_numpy(chance.standard_normal(shown.shape))
        found[name] = ((255 * shown.clamp(0, 1)).round().to(torch.uint8), torch.from_numpy(y[rows]).long())
    return found
