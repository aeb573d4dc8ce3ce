"""Which part of a layer contracts its classes: the singular values and right vectors of its weights, or its activation.

A layer computes activation(W x), W = U S V^T. NC1 does not see rotations, so U changes nothing, and the classes
contract in two places only: from x to S V^T x, and from W x to its activation (arXiv:2402.13728, section 5).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch
from jaxtyping import Float, Real
from torch import Tensor

from ..core.labels import Labels
from ..features.collapse import class_moments, nc1
from ..spectra.matrices import haar_frames
from .ansatz import AgopRoot


def svd_attribution(
    weight: Real[Tensor, "k_out _k_in"],
    inputs: Float[Tensor, "n _k_in"],
    labels: Labels,
    activation: Callable[[Tensor], Tensor] = torch.relu,
    *,
    bias: Real[Tensor, " k_out"] | None = None,
) -> dict[str, float]:
    """NC1 (`measures.nc1`) at three places of a layer activation(W x + b): `input`, `right` and `output`.

    `right` is the NC1 of S V^T x. It equals that of W x, because U is orthogonal, so no decomposition is needed;
    (W^T W)^{1/2} x = V S V^T x has the same NC1.

    Raises ValueError for shapes that do not match, and as `class_moments` does.
    """
    if weight.ndim != 2 or inputs.ndim != 2 or inputs.shape[1] != weight.shape[1]:
        raise ValueError(f"weights {tuple(weight.shape)} do not act on inputs {tuple(inputs.shape)}")
    h = torch.nn.functional.linear(inputs, weight.to(inputs.dtype))
    outputs = activation(h if bias is None else h + bias)
    features = {"input": inputs, "right": h, "output": outputs}
    return {name: nc1(class_moments(x, labels)).item() for name, x in features.items()}


def attribution_drops(scores: Mapping[str, float]) -> dict[str, float]:
    """ln of the factor by which NC1 falls at each step through a layer, from the scores of `svd_attribution`.

    `right` = ln input - ln right, `activation` = ln right - ln output, and `total` is their sum; negative where NC1
    grows. nan or inf where a score is 0 or inf.
    """
    start, right, end = (_log(scores[name]) for name in ("input", "right", "output"))
    return {"right": start - right, "activation": right - end, "total": start - end}


def agop_attribution(
    root: AgopRoot, inputs: Float[Tensor, "n _k_in"], labels: Labels, *, draws: int = 3, generator: torch.Generator
) -> dict[str, float]:
    """NC1 of a layer's inputs after the root of its AGOP, `agop`, and after that root in random directions, `rotated`.

    `root` comes from `agop_root`. `agop` is the NC1 of G^power x. `rotated` is the mean over `draws` of the NC1 of Q
    G^power Q^T x, Q Haar orthogonal, which has the same spectrum and other directions (arXiv:2402.13728, section 5: the
    AGOP decreases within-class variability). Raises ValueError as `class_moments`.
    """

    def score(V: Tensor) -> float:  # of V M V^T x: V changes no inner product
        return nc1(class_moments(inputs @ V.to(inputs.dtype) @ root.M.to(inputs.dtype), labels)).item()

    turned = [score(Q) for Q in haar_frames(len(root.V), len(root.S), draws, generator, device=inputs.device)]
    return {"agop": score(root.V), "rotated": sum(turned) / draws}


def _log(score: float) -> float:
    return math.log(score) if score > 0 else -math.inf
