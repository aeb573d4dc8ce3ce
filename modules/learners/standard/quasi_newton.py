"""Minimise to high accuracy a loss that is known exactly, such as one over infinitely many prompts."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

from .withheld import updates_withheld


def minimise_lbfgs(loss: Callable[[], Tensor], parameters: Iterable[nn.Parameter], steps: int) -> float:
    """Take up to `steps` steps of L-BFGS with a strong Wolfe line search on `loss()`; return the remaining loss.

    Changes the parameters in place, unless updates are withheld. For smooth losses of few parameters in float64. Raises
    ValueError for steps < 1.
    """
    if steps < 1:
        raise ValueError(f"steps must be at least 1, got {steps}")
    optimizer = torch.optim.LBFGS(
        list(parameters),
        max_iter=steps,
        max_eval=4 * steps,
        tolerance_grad=1e-13,
        tolerance_change=0.0,
        history_size=50,
        line_search_fn="strong_wolfe",
    )

    def closure() -> Tensor:
        optimizer.zero_grad()
        value = loss()
        value.backward()
        return value

    if not updates_withheld():
        optimizer.step(closure)
        optimizer.zero_grad()
    return loss().item()
