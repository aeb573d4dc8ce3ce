"""What the probes of features share: the inputs of named layers, on the probe's batch or streamed over a dataset."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import pytorch_lightning as pl
import torch
from jaxtyping import Int64, Shaped
from torch import Tensor, nn

from featurelab.modules.measures import class_indices, layer_inputs, layer_names
from featurelab.modules.measures.labels import Labels

from .probe import Probe

CHUNK = 256  # samples in one forward pass over the probe's own batch


class Pass(NamedTuple):
    """Features of some samples: by network and layer, with labels as they were given, or None where there are none."""

    features: list[dict[str, Shaped[Tensor, "n ..."]]]
    labels: Shaped[Tensor, "n ..."] | None


class FeatureProbe(Probe):
    """Measures features, the features of layer L being the input of the linear or convolutional layer called L.

    - `layers`: names of `measures.layer_names`; by default the last linear layer that the forward pass calls, whose
      input is usually called the last-layer features. Inputs of more than two dimensions are flattened by sample.
    - `data`: what to measure on in place of the batch: batches (x, labels), any iterable that can be gone through
      again and again, such as a DataLoader. One batch is held at a time.
    - `labels`: class indices (n,) that replace the targets, in the order of the samples; for example the original
      classes where training is on coarser ones. With `data`, that must keep its order.

    Labels are what `measures.class_indices` takes: class indices (n,), rows that mark the class (one-hot, +-1), or a
    column of +-1. Further options are those of `Probe`. At the first measurement raises ValueError for an unknown
    layer, one that is called several times, and where labels are needed and there are none, or continuous targets.
    """

    def __init__(
        self,
        every: int = 1,
        layers: Sequence[str] | None = None,
        *,
        data: Iterable[tuple[Tensor, Tensor]] | None = None,
        labels: Labels | None = None,
        **options: Any,
    ) -> None:
        super().__init__(every=every, **options)
        self.layers = layers
        self.data = data
        self.labels = None if labels is None else class_indices(labels)

    @property
    def state_key(self) -> str:
        return self._generate_state_key(every=self.every, on=self.on, prefix=self.prefix, layers=self.layers)

    def chosen(self, module: nn.Module, inputs: Tensor) -> list[str]:
        """The names of the layers to measure."""
        return list(self.layers) if self.layers is not None else linear_calls(module, inputs)[-1:]

    def passes(
        self, networks: Sequence[nn.Module], layers: Sequence[str], inputs: Tensor, targets: Any
    ) -> Iterable[Pass]:
        """The samples' features in each network, batch by batch, as often as they are gone through."""
        if self.data is not None:
            return _Streamed(self.data, self.labels, networks, layers, inputs.device)
        labels = targets if self.labels is None else self.labels
        return [Pass(_features(networks, layers, inputs, CHUNK), _tensor(labels))]

    def labelled(self, found: Pass) -> Int64[Tensor, " n"]:
        """The class indices of a pass. Raises ValueError if it has none, not one a sample, or no classes."""
        if found.labels is None:
            raise ValueError(f"{type(self).__name__} needs labels: give inputs=(x, y), labels= or data=")
        features = next(iter(found.features[0].values()))
        if len(found.labels) != len(features):
            raise ValueError(f"{len(found.labels)} labels were given for {len(features)} samples")
        return class_indices(found.labels).to(features.device)

    def gathered(
        self, networks: Sequence[pl.LightningModule | nn.Module], layers: Sequence[str], inputs: Tensor, targets: Any
    ) -> Pass:
        """All samples' features at once."""
        parts = list(self.passes(networks, layers, inputs, targets))
        labels = torch.cat([self.labelled(part) for part in parts])
        features = [
            {name: torch.cat([part.features[i][name] for part in parts]) for name in layers}
            for i in range(len(networks))
        ]
        return Pass(features, labels)


class _Streamed:
    """Goes through batches (x, labels) anew each time."""

    def __init__(
        self,
        data: Iterable[tuple[Tensor, Tensor]],
        labels: Tensor | None,
        networks: Sequence[nn.Module],
        layers: Sequence[str],
        device: torch.device,
    ) -> None:
        self.data, self.labels, self.networks, self.layers, self.device = data, labels, networks, layers, device

    def __iter__(self) -> Iterator[Pass]:
        seen = 0
        for x, y in self.data:
            x = x.to(self.device)
            labels = y if self.labels is None else self.labels[seen : seen + len(x)]
            seen += len(x)
            yield Pass(_features(self.networks, self.layers, x, len(x)), _tensor(labels))


@torch.no_grad()
def linear_calls(module: nn.Module, inputs: Tensor) -> list[str]:
    """Names of the linear layers in the order in which the forward pass first calls them.

    Raises ValueError if it calls none.
    """
    called: dict[str, None] = {}
    handles = [
        layer.register_forward_pre_hook(lambda *_, name=name: called.setdefault(name))
        for name, layer in layer_names(module).items()
        if isinstance(layer, nn.Linear)
    ]
    try:
        module(inputs[:2])
    finally:
        for handle in handles:
            handle.remove()
    if not called:
        raise ValueError(f"{type(module).__name__} calls no linear layer: name the layers to measure")
    return list(called)


def _features(
    networks: Sequence[nn.Module], layers: Sequence[str], inputs: Tensor, chunk: int
) -> list[dict[str, Tensor]]:
    return [layer_inputs(network, inputs, layers=layers, chunk=max(1, chunk)) for network in networks]


def _tensor(labels: Any) -> Tensor | None:
    return labels if isinstance(labels, Tensor) else None
