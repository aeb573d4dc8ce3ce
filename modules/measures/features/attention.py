"""How much of a row of attention falls on a span of tokens."""

from typing import NamedTuple

from jaxtyping import Bool, Float
from torch import Tensor


class SpanNorms(NamedTuple):
    """The norm of what falls on a span, and that divided by the root of the number of its tokens."""

    norm: Float[Tensor, " n"]
    per_token: Float[Tensor, " n"]


def attention_span_norms(rows: Float[Tensor, "n heads length"], inside: Bool[Tensor, "n length"]) -> SpanNorms:
    """|A_(:, S)|_F of each prompt: the root of the sum of squares over heads and over the tokens S of the span.

    `rows` are attention weights of one position, softmax over `length`, so the norm lies in [0, sqrt(heads)]. Figure
    5.3 of Shi, Wei, Xu, Liang 2024 shows such a norm and does not say how it is normalised.
    Raises ValueError for a span without tokens.
    """
    counts = inside.sum(1)
    if not bool((counts > 0).all()):
        raise ValueError("a span holds no token")
    norm = (rows * inside[:, None]).square().sum((1, 2)).sqrt()
    return SpanNorms(norm, norm / counts.to(rows).sqrt())
