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

from .collapse import class_moments, nc1
from .labels import Labels
from .spectra import psd_power


def svd_attribution(
    weight: Real[Tensor, "k_out _k_in"],
    inputs: Float[Tensor, "n _k_in"],
    labels: Labels,
    activation: Callable[[Tensor], Tensor] = torch.relu,
    *,
    bias: Real[Tensor, " k_out"] | None = None,
) -> dict[str, float]:
    """NC1 (`measures.nc1`) at three places of a layer activation(W x + b): `input`, `right` and `output`.

    `right` is the NC1 of S V^T x, found without a
    decomposition as that of W x: U is orthogonal and so is (W^T W)^{1/2} x = V S V^T x of the same NC1. Raises
    ValueError for shapes that do not match and as `class_moments`.
    """
    if weight.ndim != 2 or inputs.ndim != 2 or inputs.shape[1] != weight.shape[1]:
        raise ValueError(f"weights {tuple(weight.shape)} do not act on inputs {tuple(inputs.shape)}")
    h = torch.nn.functional.linear(inputs, weight.to(inputs.dtype))
    outputs = activation(h if bias is None else h + bias)
    features = {"input": inputs, "right": h, "output": outputs}
    return {name: nc1(class_moments(x, labels)).item() for name, x in features.items()}


def attribution_drops(scores: Mapping[str, float]) -> dict[str, float]:
    """Natural logarithms of the factors by which NC1 falls in a layer, of the scores of `svd_attribution`.

    `right` = ln input - ln right, `activation` = ln right - ln output, `total` their sum; negative where NC1 grows.
    nan or inf where a score is 0 or inf.
    """
    start, right, end = (_log(scores[name]) for name in ("input", "right", "output"))
    return {"right": start - right, "activation": right - end, "total": start - end}


def agop_attribution(
    weight: Real[Tensor, "k_out k_in"],
    K: Real[Tensor, "k_out k_out"],
    inputs: Float[Tensor, "n k_in"],
    labels: Labels,
    *,
    power: float = 0.5,
    draws: int = 3,
    generator: torch.Generator,
) -> dict[str, float]:
    """NC1 of a layer's inputs after its AGOP's root, `agop`, and after that root turned at random, `rotated`.

    The AGOP is G = W^T K W with K of `tangent_covariance`; `agop` is the NC1 of G^power x, `rotated` the mean over
    `draws` of that of Q G^power Q^T x, Q Haar orthogonal: the same spectrum, other directions (arXiv:2402.13728,
    section 5: the AGOP decreases within-class variability). Raises ValueError as `class_moments`.

    With the thin SVD W = U S V^T, G^power x = V M V^T x with a small M, and V changes no inner product.
    """
    U, S, Vh = torch.linalg.svd(weight.double(), full_matrices=False)
    M = psd_power((U * S).T @ K.double() @ (U * S), power).to(inputs.dtype)

    def score(V: Tensor) -> float:
        return nc1(class_moments(inputs @ V.to(inputs.dtype) @ M, labels)).item()

    turned = []
    for _ in range(draws):
        gaussian = torch.randn(len(Vh.T), len(S), generator=generator, device=generator.device, dtype=torch.float64)
        turned.append(score(torch.linalg.qr(gaussian.to(inputs.device)).Q))
    return {"agop": score(Vh.T), "rotated": sum(turned) / draws}


def _log(score: float) -> float:
    return math.log(score) if score > 0 else -math.inf
