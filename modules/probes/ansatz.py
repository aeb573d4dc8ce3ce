"""The neural feature ansatz and the spectra behind it, layer by layer, during any fit."""

import difflib
from collections.abc import Sequence
from typing import Any, Literal

import pytorch_lightning as pl
from torch import Tensor, nn

from modules.measures import (
    decomposition,
    effective_rank,
    eigenvalue_dispersion,
    layer_names,
    stable_rank,
    tangent_covariance,
)

from .probe import Probe
from .reference import ReferenceProbe

QUANTITIES = ("nfa", "cnfa", "double_centered_nfa", "ptk_centered_nfa", "centered_ratio", "double_centered_ratio")
_NEED_KBAR = {"double_centered_nfa", "ptk_centered_nfa", "double_centered_ratio"}


class AnsatzProbe(ReferenceProbe):
    """Alignment of weights with tangent features, `<quantity>/<layer>`: see `measures.decomposition` for the formulas.

    Quantities (default: all): `nfa`, `cnfa`, `double_centered_nfa`, `ptk_centered_nfa` in [0, 1]; `centered_ratio` and
    `double_centered_ratio` >= 0. Centring is by the network as it stood when the fit began (`reference="init"`, a
    frozen copy, kept in checkpoints) or by a module given. What is undefined, such as `cnfa` at the start, is left
    out. A readout with one output has `nfa` 1 by definition, since its K is a number.

    Layers are linear and convolutional ones by the names of `measures.layer_names` (default: all that the forward pass
    calls). Beaglehole, Mitliagkas, Agarwala 2024, arXiv:2402.05271, figs. 2, 4, 6, 7. Raises ValueError for an unknown
    quantity, and at the first measurement for an unknown layer. Further options are those of `Probe`.
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
        values: dict[str, float] = {}
        for layer, now in found.items():
            scores = decomposition(now.W, initial[layer].weight.detach().flatten(1), now.K, now.Kbar)
            values |= {f"{name}/{layer}": scores[name] for name in self.quantities if name in scores}
        return values


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
        values = {}
        for layer, now in tangent_covariance(module, inputs, layers=self.layers).items():
            values[f"effective_rank/{layer}"] = effective_rank(now.W).item()
            values[f"stable_rank/{layer}"] = stable_rank(now.W).item()
            values[f"ptk_dispersion/{layer}"] = eigenvalue_dispersion(now.K).item()
        return values
