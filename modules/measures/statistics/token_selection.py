"""Whether the tokens that a method keeps of a prompt are those of a needle, and how they lie: one row a prompt.

`chosen` (n, k) are positions in the prompt, different ones in each row; the needle of a row is at `begins` and the
`span - 1` positions after it.
"""

import torch
from jaxtyping import Float, Int64
from torch import Tensor


def needle_share(chosen: Int64[Tensor, "n k"], begins: Int64[Tensor, " n"], span: int) -> Float[Tensor, " n"]:
    """The share of the needle's tokens that are kept: 1 where all are."""
    needle = begins[:, None] + torch.arange(span, device=begins.device)
    return (needle[:, :, None] == chosen[:, None, :]).any(2).double().mean(1)


def needle_distance(chosen: Int64[Tensor, "n k"], begins: Int64[Tensor, " n"], span: int) -> Int64[Tensor, " n"]:
    """Tokens from the needle to the nearest one that is kept; 0 where one of its own is (Shi et al. 2024, Fig. 5)."""
    return _away(chosen, begins, span).amin(1)


def share_near_needle(
    chosen: Int64[Tensor, "n k"], begins: Int64[Tensor, " n"], span: int, within: int
) -> Float[Tensor, " n"]:
    """The share of the kept tokens that are the needle's or at most `within` tokens from it."""
    return (_away(chosen, begins, span) <= within).double().mean(1)


def position_spread(chosen: Int64[Tensor, "n k"], length: int) -> Float[Tensor, " n"]:
    """Mean distance of two kept tokens over (length + 1)/3, that of two drawn from `length` tokens: 1 for random ones.

    (k + 1) / (length + 1) where k stand in a row. Raises ValueError for fewer than two.
    """
    k = chosen.shape[1]
    if k < 2:
        raise ValueError("a spread needs two tokens")
    ranks = 2 * torch.arange(k, device=chosen.device) - k + 1  # sum over pairs of x_j - x_i, of sorted x
    total = (chosen.sort(1).values * ranks).sum(1).double()
    return total / (k * (k - 1) / 2) * 3 / (length + 1)


def _away(chosen: Tensor, begins: Tensor, span: int) -> Tensor:
    before, after = begins[:, None] - chosen, chosen - (begins[:, None] + span - 1)
    return torch.maximum(before, after).clamp(min=0)
