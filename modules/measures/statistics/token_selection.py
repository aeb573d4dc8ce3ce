"""Positions of the tokens that a method keeps of a prompt, relative to a needle in it; one row a prompt.

`chosen` (n, k) are distinct positions in the prompt. The needle of a row occupies `begins` and the `span - 1` positions
after it.
"""

import torch
from jaxtyping import Float, Int64
from torch import Tensor


def needle_share(chosen: Int64[Tensor, "n k"], begins: Int64[Tensor, " n"], span: int) -> Float[Tensor, " n"]:
    """Share (n,) of the needle's tokens that are kept: 1 if all are."""
    needle = begins[:, None] + torch.arange(span, device=begins.device)
    return (needle[:, :, None] == chosen[:, None, :]).any(2).double().mean(1)


def needle_distance(chosen: Int64[Tensor, "n k"], begins: Int64[Tensor, " n"], span: int) -> Int64[Tensor, " n"]:
    """Distance (n,) of the needle to the nearest kept token; 0 if one of its own is kept (Shi et al. 2024, fig. 5)."""
    return _away(chosen, begins, span).amin(1)


def share_near_needle(
    chosen: Int64[Tensor, "n k"], begins: Int64[Tensor, " n"], span: int, within: int
) -> Float[Tensor, " n"]:
    """Share (n,) of the kept tokens that belong to the needle or lie at most `within` tokens from it."""
    return (_away(chosen, begins, span) <= within).double().mean(1)


def position_spread(chosen: Int64[Tensor, "n k"], length: int) -> Float[Tensor, " n"]:
    """Mean distance (n,) of two kept tokens over (length + 1)/3: about 1 for a random choice.

    k consecutive tokens have (k + 1) / (length + 1). Raises ValueError for fewer than two tokens.
    """
    k = chosen.shape[1]
    if k < 2:
        raise ValueError(f"position_spread() needs at least 2 tokens, got {k}")
    ranks = 2 * torch.arange(k, device=chosen.device) - k + 1  # sum over pairs of x_j - x_i, of sorted x
    total = (chosen.sort(1).values * ranks).sum(1).double()
    return total / (k * (k - 1) / 2) * 3 / (length + 1)


def _away(chosen: Tensor, begins: Tensor, span: int) -> Tensor:
    before, after = begins[:, None] - chosen, chosen - (begins[:, None] + span - 1)
    return torch.maximum(before, after).clamp(min=0)
