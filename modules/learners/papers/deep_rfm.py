"""Networks built layer by layer without gradient descent: Deep RFM and its linearisation.

Beaglehole, Sukenik, Mondelli, Belkin 2024, "Average gradient outer product as a mechanism for deep neural collapse"
(arXiv:2402.13728). An epoch of the trainer is a layer: `Trainer(max_epochs=depth).fit(learner, full-batch data)`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Literal

import pytorch_lightning as pl
import torch
from jaxtyping import Float, Integer, Real
from torch import Tensor, nn

from featurelab.modules import measures, theory
from featurelab.modules.measures.gradients.kernel_machines import BLOCK_BYTES, RadialKernel

from ..standard.withheld import updates_withheld

Watch = Callable[[int, Mapping[str, Tensor], Tensor], Mapping[str, float]]


class LayerByLayer(pl.LightningModule, ABC):
    """Adds one layer in each epoch, from the whole training set. Logs values at step = layer, counted from 1.

    Subclasses define `add_layer`. Values that are not finite are not logged. Raises ValueError for minibatches and for
    several workers.
    """

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False

    @abstractmethod
    def add_layer(self, layer: int, x: Float[Tensor, "n dim"], targets: Real[Tensor, "n ..."]) -> Mapping[str, float]:
        """Build the layer from all training inputs and targets; return the values to log, by name."""

    def configure_optimizers(self) -> None:
        return None

    @torch.no_grad()
    def training_step(self, batch: tuple[Tensor, Tensor], batch_index: int) -> None:
        if batch_index or self.trainer.world_size > 1:
            raise ValueError("layer-by-layer learners need the whole training set in one batch on one worker")
        layer = self.trainer.current_epoch + 1
        self.log_at(layer, self.add_layer(layer, *batch))

    def log_at(self, layer: int, values: Mapping[str, float]) -> None:
        finite = {name: float(value) for name, value in values.items() if math.isfinite(value)}
        for logger in self.trainer.loggers if finite else ():
            logger.log_metrics(finite, step=layer)


def collapse_metrics(
    layer: int, stages: Mapping[str, Float[Tensor, "n _dim"]], labels: Integer[Tensor, " n"]
) -> dict[str, float]:
    """NC1 and NC2 of every stage, `nc1/<stage>` and `nc2_cosines/<stage>`, and Gram summaries of the projected stage.

    `stages` maps names to features. This is what `DeepRFM` measures by default.
    """
    values = {}
    for stage, features in stages.items():
        moments = measures.class_moments(features, labels)
        values[f"nc1/{stage}"] = measures.nc1(moments).item()
        values[f"nc2_cosines/{stage}"] = measures.nc2_cosines(moments).item()
    gram = measures.gram_summary(stages["projected"], labels)
    names = {"within": "gram_within", "between": "gram_between", "relative_error": "gram_error"}
    return values | {f"{names[part]}/projected": value for part, value in gram.items()}


class DeepRFM(LayerByLayer):
    """Deep recursive feature machine (algorithm 1): layer l has inputs X_l, rows normalised to length 1, and is

        alpha_l = (k(X_l, X_l) + mu I)^-1 Y,    M_l = AGOP of the predictor,    X_(l+1) = Phi_l(X_l M_l^power)

    with one kernel fit and one AGOP in each layer. After the last layer, a kernel regression on the normalised X_(L+1)
    is the predictor, which `forward` applies to any inputs (m, dim) through the layers built so far.

    Args:
        kernel: k, radial.
        feature_map: `feature_map(layer, dim)` returns the module Phi_l for inputs of `dim` numbers. It is called
            each time the map is needed, and must draw the same weights every time.
        power: of the AGOP; the paper uses 1/2. 0 leaves the data unchanged, without an AGOP: a control.
        ridge: mu; 0 interpolates.
        agop_scale: M is divided by its largest entry (`max`), averaged (`mean`) or summed (`sum`) over samples. Only
            maps that are not homogeneous, such as the cosine, depend on it.
        watch: `watch(layer, stages, labels)` returns the values to log of each layer, from the stages `input` X_l,
            `projected` X_l M_l^power and `features` Phi_l(X_l M_l^power); default: `collapse_metrics`.

    Targets are rows (n, K), K > 1, that mark the class as `measures.class_indices` says. Besides what `watch` returns,
    each layer logs `krr_residual/layer` (relative, see `measures.kernel_regression`; do not trust a layer whose
    residual is not `accurate`, in float64 above 1e-8), `krr_cholesky/layer` (1 if Cholesky was the solver, else 0) and
    `participation_ratio/agop`. At the last layer the predictor logs `krr_residual/predictor`, and on the data module's
    sets `loss/train|test` (squared error, mean over samples and outputs) and `accuracy/train|test`.

    A checkpoint holds only the coefficients alpha, from which a resumed fit rebuilds its layers. Raises ValueError for
    a negative power or an unknown scale, and at the first layer for other targets.
    """

    centres: Tensor  # only with a predictor
    coefficients: Tensor

    def __init__(
        self,
        kernel: RadialKernel,
        feature_map: Callable[[int, int], nn.Module],
        *,
        power: float = 0.5,
        ridge: float = 0.0,
        agop_scale: Literal["max", "mean", "sum"] = "max",
        watch: Watch = collapse_metrics,
        block_bytes: int = BLOCK_BYTES,
    ) -> None:
        super().__init__()
        if not power >= 0:
            raise ValueError(f"power must not be negative, got {power}")
        if agop_scale not in ("max", "mean", "sum"):
            raise ValueError(f"agop_scale must be 'max', 'mean' or 'sum', got {agop_scale!r}")
        self.kernel, self.feature_map = kernel, feature_map
        self.power, self.ridge, self.agop_scale = power, ridge, agop_scale
        self.watch, self.block_bytes = watch, block_bytes
        self._solutions: list[str] = []  # names of buffers
        self._transforms: list[Tensor | None] = []  # M^power of each layer made so far, None: the identity
        self._next: Tensor | None = None  # inputs of the layer to come

    @torch.no_grad()
    def forward(self, x: Float[Tensor, "m dim"]) -> Float[Tensor, "m outputs"]:
        """Outputs of the predictor. Raises ValueError before the end of a fit."""
        if not hasattr(self, "centres"):
            raise ValueError("DeepRFM has no predictor before the end of a fit: call Trainer.fit first")
        for layer, transform in enumerate(self._transforms, 1):
            _, x = self._stages(layer, _unit_rows(x), transform.to(x) if transform is not None else None)
        return measures.kernel_predict(
            self.kernel, _unit_rows(x), self.centres, self.coefficients, block_bytes=self.block_bytes
        )

    def add_layer(self, layer: int, x: Float[Tensor, "n dim"], targets: Real[Tensor, "n ..."]) -> Mapping[str, float]:
        X = self._inputs(x)
        alpha, values, K = X.new_empty(0), dict[str, float](), None
        if self.power:
            K = self.kernel(X)
            solved = measures.kernel_regression(K, targets.to(X), self.ridge)
            alpha = solved.coefficients
            values["krr_residual/layer"] = solved.residual
            values["krr_cholesky/layer"] = float(solved.solver == "cholesky")
        self.register_buffer(f"alpha_{layer}", alpha)
        self._solutions.append(f"alpha_{layer}")
        transform, ratio = self._transform(X, alpha, K)
        self._transforms.append(transform)
        projected, features = self._stages(layer, X, transform)
        self._next = _unit_rows(features)
        stages = {"input": X, "projected": projected, "features": features}
        return values | ratio | dict(self.watch(layer, stages, _classes(targets)))

    @torch.no_grad()
    def on_train_end(self) -> None:
        assert self.trainer.train_dataloader is not None
        sets = {"train": next(iter(self.trainer.train_dataloader))}
        data: Any = getattr(self.trainer, "datamodule", None)
        for batch in data.val_dataloader() if data else []:
            sets["test"] = batch
        x, targets = (t.to(self.device) for t in sets["train"])
        X = self._inputs(x)
        solved = measures.kernel_regression(self.kernel(X), targets.to(X), self.ridge)
        self.register_buffer("centres", X, persistent=False)
        self.register_buffer("coefficients", solved.coefficients, persistent=False)
        values = {"krr_residual/predictor": solved.residual}
        for part, (x, y) in sets.items():
            outputs, y = self(x.to(X)), y.to(X)
            values[f"loss/{part}"] = (outputs - y).square().mean().item()
            values[f"accuracy/{part}"] = (outputs.argmax(1) == _classes(y)).double().mean().item()
        self.log_at(len(self._transforms), values)

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self._solutions = []
        for name, tensor in checkpoint["state_dict"].items():
            if name.startswith("alpha_"):
                self.register_buffer(name, torch.empty_like(tensor))
                self._solutions.append(name)
        self._transforms, self._next = [], None

    def _inputs(self, x: Tensor) -> Tensor:
        """Inputs of the next layer at the training points; rebuilds layers whose coefficients a checkpoint holds."""
        if self._next is None:
            X = _unit_rows(x)
            for layer, name in enumerate(self._solutions, 1):
                if len(self._transforms) < layer:
                    K = self.kernel(X) if self.power else None
                    self._transforms.append(self._transform(X, getattr(self, name), K)[0])
                X = _unit_rows(self._stages(layer, X, self._transforms[layer - 1])[1])
            self._next = X
        return self._next

    def _transform(self, X: Tensor, alpha: Tensor, K: Tensor | None) -> tuple[Tensor | None, dict[str, float]]:
        """M^power at these inputs, and the participation ratio of M; the kernel matrix K is lost."""
        if not self.power or updates_withheld():
            return None, {}
        M = measures.kernel_agop(self.kernel, X, X, alpha, K=K, block_bytes=self.block_bytes)
        if self.agop_scale == "sum":
            M = M * len(X)
        elif self.agop_scale == "max":
            M = M / M.max().clamp(min=torch.finfo(M.dtype).tiny)
        return measures.psd_power(M, self.power).to(X), {
            "participation_ratio/agop": measures.participation_ratio(M).item()
        }

    def _stages(self, layer: int, X: Tensor, transform: Tensor | None) -> tuple[Tensor, Tensor]:
        projected = X if transform is None else X @ transform
        return projected, self.feature_map(layer, projected.shape[1]).to(X)(projected)


class LinearisedDeepRFM(LayerByLayer):
    """Deep RFM with linearised kernel and feature map, on Gram matrices (section 4.2 and theorem 4.3).

    A_1 is X X^T, plus the multiple of the identity that lifts its least eigenvalue to lambda_Phi. Layer l computes G_l
    = B B^T / kappa with B = A_l (A_l + lambda_k I)^-1 Y, and A_(l+1) = G_l + lambda_Phi I. Targets Y are one-hot rows
    of balanced classes. Each layer logs `gram_error` = |G_l - Y Y^T|_2, `nc1/gram` of G_l and `nc1/features` of
    A_(l+1).

    `kappa` is the scale: `exact`, that of `theory.deep_neural_collapse.kappa_exact`, or `printed`. Raises ValueError
    for another one, for negative ridges, and at the first layer for classes of different sizes.
    """

    gram: Tensor

    def __init__(self, ridge: float, feature_ridge: float, kappa: Literal["exact", "printed"] = "exact") -> None:
        super().__init__()
        if not min(ridge, feature_ridge) >= 0:
            raise ValueError(f"ridge and feature_ridge must not be negative, got {ridge} and {feature_ridge}")
        if kappa not in ("exact", "printed"):
            raise ValueError(f"kappa must be 'exact' or 'printed', got {kappa!r}")
        self.ridge, self.feature_ridge, self.kappa = ridge, feature_ridge, kappa
        self.register_buffer("gram", torch.empty(0))

    def add_layer(self, layer: int, x: Float[Tensor, "n dim"], targets: Real[Tensor, "n ..."]) -> Mapping[str, float]:
        labels, counts = _classes(targets), targets.sum(0)
        if not (counts == counts[0]).all():
            raise ValueError(f"classes must have equal sizes, got {counts.int().tolist()}")
        A = self.gram if self.gram.numel() else theory.deep_neural_collapse.lift_spectrum(x @ x.T, self.feature_ridge)
        if self.kappa == "exact":
            kappa = theory.deep_neural_collapse.kappa_exact(int(counts[0]), self.ridge, self.feature_ridge)
        else:
            kappa = theory.deep_neural_collapse.kappa_printed(self.ridge, self.feature_ridge)
        B = theory.deep_neural_collapse.linearised_layer(A, targets, self.ridge)
        G = B @ B.T / kappa
        self.gram = (G + G.T) / 2 + self.feature_ridge * torch.eye(len(G)).to(G)
        within, between = measures.scatter_traces_from_gram(self.gram, labels)
        return {
            "gram_error": theory.deep_neural_collapse.gram_error(B, targets, kappa).item(),
            "nc1/gram": measures.nc1(measures.class_moments(B, labels)).item(),
            "nc1/features": (within / between).item(),
        }

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.gram = torch.empty_like(checkpoint["state_dict"]["gram"])


def _classes(targets: Tensor) -> Tensor:
    if targets.ndim != 2 or targets.shape[1] < 2:
        raise ValueError(f"targets must be rows (n, K) with a column for each class, got {tuple(targets.shape)}")
    return measures.class_indices(targets)


def _unit_rows(x: Tensor) -> Tensor:
    """Scale rows to length 1; rows of zeros, as from units that are all inactive, stay zero."""
    return nn.functional.normalize(x, dim=1, eps=torch.finfo(x.dtype).tiny)
