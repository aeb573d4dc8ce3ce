"""Projected gradient descent: weights return to a set after every step, by exact projections."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from scipy import optimize
from torch import Tensor, nn

from ..standard.optimizers import Factory
from ..standard.withheld import updates_withheld

Projection = Callable[[Float[Tensor, "rows columns"]], Float[Tensor, "rows columns"]]


def projected_optimizer(factory: Factory, projection: Projection) -> Factory:
    """An optimiser whose every step ends with projection(W) of each weight matrix W; other parameters do not change."""

    def made(net: nn.Module) -> torch.optim.Optimizer:
        optimizer = factory(net)
        optimizer.register_step_post_hook(put_back)
        return optimizer

    @torch.no_grad()
    def put_back(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        if updates_withheld():
            return
        for group in optimizer.param_groups:
            for weight in group["params"]:
                if weight.ndim == 2:
                    weight.copy_(projection(weight))

    return made


def project_spectral_frobenius(
    W: Float[Tensor, "rows columns"], frobenius: float, spectral: float = 1.0
) -> Float[Tensor, "rows columns"]:
    """The nearest matrix with |W|_2 <= spectral and |W|_F <= frobenius.

    Its singular values are min(spectral, sigma / (1 + mu)), with the smallest mu >= 0 that satisfies the second bound,
    in closed form: with the j largest clipped, (1 + mu)^2 = (sum of the other sigma^2) / (frobenius^2 - j spectral^2).
    Raises ValueError for a bound that is not positive.
    """
    _positive(frobenius=frobenius, spectral=spectral)
    s, U, rows = _singular(W)
    scale = torch.ones((), dtype=s.dtype, device=s.device)  # 1 + mu
    if s.clamp(max=spectral).norm() > frobenius:
        number = torch.arange(len(s)).to(s)
        room = frobenius**2 - number * spectral**2  # what remains for the others if so many are clipped
        others = s.square().flip(0).cumsum(0).flip(0)
        scales = (others / room.clamp(min=torch.finfo(s.dtype).tiny)).sqrt()
        fits = (room > 0) & (s <= spectral * scales)
        scale = scales[fits.nonzero()[0, 0]]
    return _rescaled(W, U, torch.minimum(1 / scale, spectral / s), rows)


def project_spectral_near(
    W: Float[Tensor, "rows columns"], centre: Float[Tensor, "rows columns"], radius: float, spectral: float = 1.0
) -> Float[Tensor, "rows columns"]:
    """The nearest matrix with |W|_2 <= spectral and |W - centre|_F <= radius.

    This is the spectral projection of centre + s (W - centre), with the largest s <= 1 that satisfies the second bound.
    Raises ValueError for bounds that are not positive and a centre with |centre|_2 > spectral.
    """
    _positive(radius=radius, spectral=spectral)
    rounding = torch.finfo(centre.dtype).eps ** 0.5  # of norms: on a GPU they are less exact than on a CPU
    if torch.linalg.matrix_norm(centre, 2) > spectral * (1 + rounding):
        raise ValueError("centre must lie in the spectral ball")

    def at(s: float) -> Tensor:
        between = centre + s * (W - centre)
        values, U, rows = _singular(between)
        return _rescaled(between, U, (spectral / values).clamp(max=1.0), rows)

    def beyond(s: float) -> float:
        return float((at(s) - centre).norm()) - radius

    if beyond(1.0) <= 0:
        return at(1.0)
    first = min(1.0, radius / float((W - centre).norm()))  # a projection does not increase distances
    if beyond(first) >= -1e-12 * radius:
        return at(first)
    return at(optimize.brentq(beyond, first, 1.0, xtol=1e-13, rtol=1e-13))


def _singular(W: Tensor) -> tuple[Tensor, Tensor, bool]:
    """Descending singular values, vectors of the shorter side, and whether that side is the rows.

    Computed from the Gram matrix, several times as fast as a decomposition of W. Small values lose half of their
    digits, but we only scale directions of W by 1/(1 + mu) or less, which does not depend on small values.
    """
    rows = W.shape[0] <= W.shape[1]
    squares, U = torch.linalg.eigh(W @ W.mT if rows else W.mT @ W)
    return squares.flip(0).clamp(min=torch.finfo(W.dtype).tiny).sqrt(), U.flip(1), rows


def _rescaled(W: Tensor, U: Tensor, factors: Tensor, rows: bool) -> Tensor:
    """W with its singular values multiplied by the factors."""
    return (U * factors) @ (U.mT @ W) if rows else ((W @ U) * factors) @ U.mT


def _positive(**bounds: float) -> None:
    for name, bound in bounds.items():
        if not (bound > 0 and math.isfinite(bound)):
            raise ValueError(f"{name} must be positive and finite, got {bound}")
