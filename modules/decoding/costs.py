"""Costs of the methods: in closed form (theorem 9.3 of Shi's dissertation, 2024), and counted."""

from collections.abc import Callable
from typing import NamedTuple

from torch.utils.flop_counter import FlopCounterMode

from featurelab.modules.measures.statistics.work import FUSED_ATTENTION


class Costs(NamedTuple):
    """Products of numbers ("times", leading terms) and numbers held ("memory") for one prompt.

    As in the theorem: attention alone, with q . k of all pairs of tokens counted once.
    """

    prefill_time: int
    generation_time: int
    prefill_memory: int
    generation_memory: int


def closed_form_costs(
    *,
    n: int,
    keep: int,
    new: int,
    layers: int,
    filter_layer: int,
    heads: int,
    head_dim: int,
    kv_heads: int | None = None,
    weights: int = 0,
) -> dict[str, Costs]:
    """Costs of "full", "snapkv" (and "h2o") and "gemfilter" for n prompt tokens, `keep` of them kept, and `new` ones.

    `weights` is the number of weights in one layer. Memory of keys counts `kv_heads` (None: as many as heads). The
    printed prefill memory of full attention, m w + 2 m h e, lacks the factor n, which is included here. Keeping k
    counts min(k, n).
    """
    k, h, e, m, r = min(keep, n), heads, head_dim, layers, filter_layer
    g, w, t = kv_heads or heads, weights, new
    if not 1 <= r <= m or min(n, k, h, e, g) < 1 or t < 0:
        raise ValueError("closed_form_costs() needs positive sizes and a filter_layer between 1 and layers")
    memory = m * w + 2 * m * g * (k + t) * e
    snap = Costs(m * h * n**2 * e, m * h * (k * t + t**2) * e, m * w + 2 * g * n * e + 2 * m * g * k * e, memory)
    return {
        "full": Costs(
            m * h * n**2 * e, m * h * (n * t + t**2) * e, m * w + 2 * m * g * n * e, m * w + 2 * m * g * (n + t) * e
        ),
        "snapkv": snap,
        "h2o": snap,
        "gemfilter": Costs(r * h * n**2 * e, m * h * (k**2 + t**2) * e, r * w + 2 * g * n * e, memory),
    }


def counted_flops(call: Callable[[], object], *, attention: bool = False) -> int:
    """Multiplications and additions of the matrix products in `call`, including those of fused attention.

    `attention` counts those of attention alone: fused, or products of batches of matrices, which nothing else in these
    models uses. As torch does, counts masked products too, on CPU and GPU alike.
    """
    counter = FlopCounterMode(display=False, custom_mapping=FUSED_ATTENTION)
    with counter:
        call()
    counts = counter.get_flop_counts()["Global"]
    return sum(number for kind, number in counts.items() if not attention or any(name in str(kind) for name in _OURS))


_OURS = ("bmm", "scaled_dot_product")
