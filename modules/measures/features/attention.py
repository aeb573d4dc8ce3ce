"""Attention of a token on a span of tokens."""

from typing import NamedTuple

from jaxtyping import Bool, Float
from torch import Tensor


class SpanNorms(NamedTuple):
    """Norm of the attention weights on a span (n,), and this divided by the root of the number of tokens."""

    norm: Float[Tensor, " n"]
    per_token: Float[Tensor, " n"]


def attention_span_norms(rows: Float[Tensor, "n heads length"], inside: Bool[Tensor, "n length"]) -> SpanNorms:
    """|A_(:, S)|_F of each prompt: root of the sum of squares over heads and over the tokens S of the span, (n,).

    `rows` are attention weights of one position after the softmax over `length`, so the norm lies in [0, sqrt(heads)].
    Figure 5.3 of Shi, Wei, Xu, Liang 2024 shows such a norm and does not say how it is normalised.

    Raises ValueError for a span without tokens.
    """
    counts = inside.sum(1)
    if not bool((counts > 0).all()):
        raise ValueError("every span must contain at least one token")
    norm = (rows * inside[:, None]).square().sum((1, 2)).sqrt()
    return SpanNorms(norm, norm / counts.to(rows).sqrt())
