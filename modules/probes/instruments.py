"""Every instrument that carries over to a network, whatever the network is, during any fit."""

import difflib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor, nn

from featurelab.modules.measures import (
    ClassMoments,
    agop,
    class_indices,
    decomposition,
    effective_rank,
    eigenvalue_dispersion,
    layer_inputs,
    layer_names,
    nc1,
    tangent_covariance,
)

from .ansatz import trivial_scores
from .features import linear_calls
from .reference import ReferenceProbe

QUANTITIES = ("nc1", "feature_rank", "weight_rank", "nfa", "cnfa", "ptk_dispersion", "input_agop_rank")


class InstrumentsProbe(ReferenceProbe):
    """Collapse, spectra, alignment and gradients of one network, on its features, the weights before them, its inputs.

    - `nc1`: tr S_W / tr S_B of the features by class, in [0, inf);
    - `feature_rank`: effective rank of the centred features over their number, in (0, 1];
    - `weight_rank`: effective rank of the weights right before the features over the greatest it can be, in (0, 1];
    - `nfa`, `cnfa`: alignment of these weights with their tangent features, in [0, 1] (`measures.decomposition`);
    - `ptk_dispersion`: std / mean of the eigenvalues of these weights' tangent covariance;
    - `input_agop_rank`: effective rank of the AGOP in the inputs over their number, in (0, 1].

    The features are the input of the layer `readout`, by default that of the last linear layer that is called; the
    weights those of the layer `hidden`, by default the linear layer called before it. Names are those of
    `measures.layer_names`; `readout=""` stands for the network's outputs, and the weights are those before its last
    linear layer then too. `view` makes the inputs of the network from those of a batch. What does not carry over is
    absent, and `skipped` says why: inputs that are whole numbers have no gradient, continuous targets no classes.
    `quantities` (default: all) are those wanted. Raises ValueError for an unknown one. Further options are those of
    `Probe`.
    """

    def __init__(
        self,
        every: int = 1,
        quantities: Sequence[str] = QUANTITIES,
        *,
        readout: str | None = None,
        hidden: str | None = None,
        view: Callable[[Tensor], Tensor] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(every=every, **options)
        for name in quantities:
            if name not in QUANTITIES:
                nearest = difflib.get_close_matches(name, QUANTITIES, n=1, cutoff=0.0)[0]
                raise ValueError(f"no quantity is called {name!r}; did you mean {nearest!r}? known: {QUANTITIES}")
        self.quantities = frozenset(quantities)
        self.readout, self.hidden, self.view = readout, hidden, view

    def measure(self, module: pl.LightningModule, inputs: Tensor, targets: Any) -> dict[str, float]:
        x = self.view(inputs) if self.view else inputs
        values: dict[str, float] = {}
        readout, hidden = self._places(module, x)
        with self._reasons("nc1", "feature_rank"):
            features = self._features(module, x, readout)
            centred = features - features.mean(0)
            values["feature_rank"] = (effective_rank(centred) / min(centred.shape)).item()
            with self._reasons("nc1"):
                moments = ClassMoments.empty()
                moments.update(features, _classes(targets))
                values["nc1"] = nc1(moments.occurring()[0]).item()
        with self._reasons("weight_rank", "nfa", "cnfa", "ptk_dispersion"):
            values |= self._weights(module, x, hidden)
        with self._reasons("input_agop_rank"):
            if not x.is_floating_point():
                raise ValueError("the inputs are whole numbers, along which nothing is differentiable")
            M = agop(module, x)
            values["input_agop_rank"] = (effective_rank(M) / len(M)).item()
        self.skipped = {name: why for name, why in self.skipped.items() if name in self.quantities}
        return {name: values[name] for name in QUANTITIES if name in values and name in self.quantities}

    def _weights(self, module: nn.Module, x: Tensor, hidden: str | None) -> dict[str, float]:
        if hidden is None:
            raise ValueError("no linear layer comes before the features")
        (now,) = tangent_covariance(module, x, layers=[hidden]).values()
        before = layer_names(self.reference)[hidden].weight.detach().flatten(1)
        scores, trivial = decomposition(now.W, before, now.K), trivial_scores(now)
        self.skipped |= {name: why for name, why in trivial.items() if name in ("nfa", "cnfa")}
        aligned = {name: float(scores[name]) for name in ("nfa", "cnfa") if name in scores and name not in trivial}
        rank = (effective_rank(now.W) / min(now.W.shape)).item()
        return {"weight_rank": rank, "ptk_dispersion": eigenvalue_dispersion(now.K).item()} | aligned

    def _places(self, module: nn.Module, x: Tensor) -> tuple[str | None, str | None]:
        try:
            called = linear_calls(module, x)
        except ValueError:
            return self.readout, self.hidden
        readout = called[-1] if self.readout is None else self.readout
        before = called[: called.index(readout or called[-1])]
        return readout, self.hidden or (before[-1] if before else None)

    @torch.no_grad()
    def _features(self, module: nn.Module, x: Tensor, readout: str | None) -> Tensor:
        if readout is None:
            raise ValueError("no linear layer reads features: name one, or readout='' for the outputs")
        found: Tensor = layer_inputs(module, x, layers=[readout])[readout] if readout else module(x)
        return found.flatten(1)

    @contextmanager
    def _reasons(self, *names: str) -> Iterator[None]:
        try:
            yield
        except (ValueError, TypeError) as error:
            self.skipped |= dict.fromkeys(names, str(error).splitlines()[0])


def _classes(targets: Any) -> Tensor:
    if not isinstance(targets, Tensor):
        raise ValueError("there are no labels")
    return class_indices(targets)
