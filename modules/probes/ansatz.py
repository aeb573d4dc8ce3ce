"""The neural feature ansatz and the spectra behind it, layer by layer, during any fit."""

import copy
import difflib
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import pytorch_lightning as pl
import torch
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

QUANTITIES = ("nfa", "cnfa", "double_centered_nfa", "ptk_centered_nfa", "centered_ratio", "double_centered_ratio")
_NEED_KBAR = {"double_centered_nfa", "ptk_centered_nfa", "double_centered_ratio"}


class AnsatzProbe(Probe):
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
        super().__init__(every=every, **options)
        for name in quantities:
            if name not in QUANTITIES:
                nearest = difflib.get_close_matches(name, QUANTITIES, n=1, cutoff=0.0)[0]
                raise ValueError(f"no quantity is called {name!r}; did you mean {nearest!r}? known: {QUANTITIES}")
        self.layers = layers
        self.quantities = tuple(quantities)
        self._reference = reference if isinstance(reference, nn.Module) else None
        self._given_reference = isinstance(reference, nn.Module)
        self._restored: Mapping[str, Any] | None = None

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        super().on_train_start(trainer, pl_module)
        if self._given_reference or not trainer.is_global_zero:
            return
        if self._reference is None or trainer.global_step == 0:
            self._reference = _frozen(pl_module)
        if self._restored is not None:
            self._reference.load_state_dict(self._restored)
            self._restored = None

    def measure(self, module: pl.LightningModule, inputs: Tensor, targets: Any) -> dict[str, float]:
        assert self._reference is not None
        initial = layer_names(self._reference)
        kbar = self._reference if _NEED_KBAR & set(self.quantities) else None
        found = tangent_covariance(module, inputs, layers=self.layers, reference=kbar)
        values: dict[str, float] = {}
        for layer, now in found.items():
            scores = decomposition(now.W, initial[layer].weight.detach().flatten(1), now.K, now.Kbar)
            values |= {f"{name}/{layer}": scores[name] for name in self.quantities if name in scores}
        return values

    def state_dict(self) -> dict[str, Any]:
        state = super().state_dict()
        if self._reference is not None and not self._given_reference:
            state["reference"] = {name: value.cpu() for name, value in self._reference.state_dict().items()}
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict(state_dict)
        self._restored = state_dict.get("reference")


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


@torch.no_grad()
def _frozen(module: pl.LightningModule) -> nn.Module:
    frozen = copy.deepcopy(module).eval().requires_grad_(False)
    for param in frozen.parameters():
        param.grad = None
    return frozen
