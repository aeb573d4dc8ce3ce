"""The neural feature ansatz and the spectra behind it, layer by layer, during any fit."""

import difflib
from collections.abc import Sequence
from typing import Any, Literal

import pytorch_lightning as pl
import torch
from torch import Tensor, nn

from featurelab.modules.measures import (
    TangentCovariance,
    decomposition,
    effective_rank,
    eigenvalue_dispersion,
    layer_names,
    left_out,
    stable_rank,
    tangent_covariance,
)

from .probe import Probe
from .reference import ReferenceProbe

QUANTITIES = ("nfa", "cnfa", "double_centered_nfa", "ptk_centered_nfa", "centered_ratio", "double_centered_ratio")
_NEED_KBAR = {"double_centered_nfa", "ptk_centered_nfa", "double_centered_ratio"}
_ALIGN_K, _ALIGN_KBAR = {"nfa", "cnfa"}, {"double_centered_nfa", "ptk_centered_nfa"}


class AnsatzProbe(ReferenceProbe):
    """Alignment of weights with tangent features, `<quantity>/<layer>`: see `measures.decomposition` for the formulas.

    Quantities (default: all): `nfa`, `cnfa`, `double_centered_nfa`, `ptk_centered_nfa` in [0, 1]; `centered_ratio` and
    `double_centered_ratio` >= 0. Centring is by the network as it stood when the fit began (`reference="init"`, a
    frozen copy, kept in checkpoints) or by a module given. What is undefined, such as `cnfa` at the start, is absent.

    An alignment that is 1 whatever the weights are is not reported, but named in `skipped`, as "nfa/2": where the K or
    Kbar that it is taken with is a multiple of the identity (a readout that is the output has K = I, a layer with one
    output a number), and where the layer has one input.

    Layers are linear and convolutional ones by the names of `measures.layer_names` (default: all that the forward pass
    calls; `skipped` names the weights that are left out by `measures.left_out`). Beaglehole, Mitliagkas, Agarwala 2024,
    arXiv:2402.05271, figs. 2, 4, 6, 7. Raises ValueError for an unknown quantity, and at the first measurement for an
    unknown layer. Further options are those of `Probe`.
    """

    def __init__(
        self,
        every: int = 1,
        layers: Sequence[str] | None = None,
        quantities: Sequence[str] = QUANTITIES,
        reference: Literal["init"] | nn.Module = "init",
        **options: Any,
    ) -> None:
        super().__init__(every=every, reference=reference, **options)
        for name in quantities:
            if name not in QUANTITIES:
                nearest = difflib.get_close_matches(name, QUANTITIES, n=1, cutoff=0.0)[0]
                raise ValueError(f"no quantity is called {name!r}; did you mean {nearest!r}? known: {QUANTITIES}")
        self.layers = layers
        self.quantities = tuple(quantities)

    def measure(self, module: pl.LightningModule, inputs: Tensor, targets: Any) -> dict[str, float]:
        initial = layer_names(self.reference)
        kbar = self.reference if _NEED_KBAR & set(self.quantities) else None
        found = tangent_covariance(module, inputs, layers=self.layers, reference=kbar)
        if self.layers is None:
            self.leave_out(left_out(module, found))
        values: dict[str, float] = {}
        for layer, now in found.items():
            scores = decomposition(now.W, initial[layer].weight.detach().flatten(1), now.K, now.Kbar)
            trivial = trivial_scores(now)
            for name in self.quantities:
                if name in trivial and name in scores:
                    self.skipped[f"{name}/{layer}"] = trivial[name]
                elif name in scores:
                    values[f"{name}/{layer}"] = scores[name]
        return values


def trivial_scores(layer: TangentCovariance) -> dict[str, str]:
    """The alignments that are 1 whatever the weights are, and why."""
    if layer.W.shape[1] == 1:
        return dict.fromkeys(_ALIGN_K | _ALIGN_KBAR, "1 by construction: the layer has one input")
    found: dict[str, str] = {}
    for names, symbol, M in ((_ALIGN_K, "K", layer.K), (_ALIGN_KBAR, "Kbar", layer.Kbar)):
        if M is not None and _is_multiple_of_identity(M):
            found |= dict.fromkeys(names, f"1 by construction: {symbol} is a multiple of the identity")
    return found


def _is_multiple_of_identity(M: Tensor) -> bool:
    """So nearly that the score's distance from 1, the square of the deviation, is lost in rounding."""
    c = M.diagonal().mean()
    deviation = M - c * torch.eye(len(M)).to(M)
    return bool(deviation.abs().amax() <= torch.finfo(M.dtype).eps ** 0.5 * c)


class SpectrumProbe(Probe):
    """Spectra of weights W and tangent covariances K, by layer.

    - `effective_rank/<layer>`: exp of the entropy of W's normalised singular values, in [1, rank W];
    - `stable_rank/<layer>`: |W|_F^2 / |W|_2^2, in [1, rank W];
    - `ptk_dispersion/<layer>`: std / mean of the eigenvalues of K, 0 for K = c I (fig. 1 of arXiv:2402.05271).

    `layers` as in `AnsatzProbe`; further options are those of `Probe`.
    """

    def __init__(self, every: int = 1, layers: Sequence[str] | None = None, **options: Any) -> None:
        super().__init__(every=every, **options)
        self.layers = layers

    def measure(self, module: pl.LightningModule, inputs: Tensor, targets: Any) -> dict[str, float]:
        found = tangent_covariance(module, inputs, layers=self.layers)
        if self.layers is None:
            self.leave_out(left_out(module, found))
        values = {}
        for layer, now in found.items():
            values[f"effective_rank/{layer}"] = effective_rank(now.W).item()
            values[f"stable_rank/{layer}"] = stable_rank(now.W).item()
            values[f"ptk_dispersion/{layer}"] = eigenvalue_dispersion(now.K).item()
        return values
