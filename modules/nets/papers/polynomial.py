"""One hidden layer with the activation z^k for sums of k residues, and the network of its largest margin.

Li, Liang, Shi, Song, Zhou 2024, arXiv:2402.09469.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import torch
from jaxtyping import Float, Integer
from torch import Tensor, nn

from featurelab.modules.dtypes import Dtype

from ..standard.given_weights import linear_from_weights


class PolynomialNet(nn.Module):
    """f(a)[c] = sum_i (u_i1(a_1) + ... + u_ik(a_k))^k w_i(c) for residues a_1, ..., a_k and classes c modulo p.

    Without biases; homogeneous of degree k + 1. `hidden` takes the k residues one-hot, one after the other, so its
    weight (m, k p) holds the embeddings u_ij; `head` has the weight (p, m).
    """

    def __init__(self, hidden: nn.Linear, head: nn.Linear) -> None:
        super().__init__()
        self.hidden, self.head = hidden, head
        self.modulus = head.out_features
        self.terms = hidden.in_features // self.modulus

    @property
    def neurons(self) -> Float[Tensor, "width vectors modulus"]:
        """(m, k + 1, p): the k embeddings u_i1, ..., u_ik of each neuron and its output vector w_i; keeps gradients."""
        U = self.hidden.weight.unflatten(1, (self.terms, self.modulus))
        return torch.cat([U, self.head.weight.T[:, None]], dim=1)

    def features(self, x: Integer[Tensor, "n terms"]) -> Float[Tensor, "n width"]:
        """The activations z^k."""
        one_hot = nn.functional.one_hot(x.long(), self.modulus).flatten(1).to(self.hidden.weight.dtype)
        return _power(self.hidden(one_hot), self.terms)

    def forward(self, x: Integer[Tensor, "n terms"]) -> Float[Tensor, "n modulus"]:
        outputs: Tensor = self.head(self.features(x))
        return outputs


def polynomial_net(
    modulus: int, terms: int, width: int, *, init_scale: float = 1.0, seed: int, dtype: Dtype = "float64"
) -> PolynomialNet:
    """A `PolynomialNet` of `width` neurons with all weights drawn from N(0, init_scale / p).

    Raises ValueError for fewer than three residues, two terms or one neuron, or a scale that is not positive.
    """
    if modulus < 3 or terms < 2 or width < 1 or not 0 < init_scale < math.inf:
        raise ValueError(
            f"need width >= 1, terms >= 2, modulus >= 3 and init_scale > 0, got {width}, {terms}, {modulus} and "
            f"{init_scale}"
        )
    drawn = np.random.default_rng(seed).standard_normal((width, terms + 1, modulus)) * math.sqrt(init_scale / modulus)
    return _of(torch.from_numpy(drawn), dtype)


def max_margin_net(modulus: int, terms: int, dtype: Dtype = "float64") -> PolynomialNet:
    """The network theta* of the largest L_(2, k+1) margin, of norm 1: 2^(2k-2) (p-1) neurons, cosines of one frequency.

    One neuron for each frequency z = 1..(p-1)/2, each even subset b of the k + 1 factors to be a sine, and each sign
    vector s with s_1 = +1 of the polarisation identity: u_j = beta cos(t_j + 2 pi z a / p) and
    w = beta cos(t_w + 2 pi z c / p) with t_j = -pi/2 b_j + pi [s_j = -1], t_w = pi/2 b_(k+1) + pi [sign = -1].
    Phases add up: sum_j t_j = t_w mod 2 pi (Lemma 4.11; the sign of the output's sine is that of a_(k+1) = -c).
    Raises ValueError for an even modulus or fewer than two terms.
    """
    if modulus < 3 or modulus % 2 == 0 or terms < 2:
        raise ValueError(f"need an odd modulus and at least two terms, got {modulus} and {terms}")
    residues = np.arange(modulus)
    built = []
    for z, b in itertools.product(range(1, modulus // 2 + 1), itertools.product((0, 1), repeat=terms + 1)):
        if sum(b) % 2:
            continue
        for signs in itertools.product((1, -1), repeat=terms - 1):
            s = (1, *signs)
            negative = (sum(b) % 4 == 2) ^ (s.count(-1) % 2 == 1)
            phases = [-math.pi / 2 * b[j] + math.pi * (s[j] < 0) for j in range(terms)]
            phases.append(math.pi / 2 * b[-1] + math.pi * negative)
            built.append(np.cos(np.array(phases)[:, None] + 2 * math.pi * z * residues / modulus))
    neurons = np.stack(built) * math.sqrt(2 / ((terms + 1) * modulus))  # each of unit length
    return _of(torch.from_numpy(neurons) * len(neurons) ** (-1 / (terms + 1)), dtype)


def max_margin_width(modulus: int, terms: int) -> int:
    """Number of neurons of `max_margin_net`: 2^(2k-2) (p-1) (Theorem 4.9)."""
    return int(2 ** (2 * terms - 2) * (modulus - 1))


def _of(neurons: Tensor, dtype: Dtype) -> PolynomialNet:
    hidden, head = neurons[:, :-1].flatten(1), neurons[:, -1].T
    return PolynomialNet(linear_from_weights(hidden, dtype=dtype), linear_from_weights(head, dtype=dtype))


def _power(z: Tensor, exponent: int) -> Tensor:
    """z^exponent by repeated squaring: `pow` takes logarithms beyond the third power."""
    result: Tensor | None = None
    while True:
        if exponent % 2:
            result = z if result is None else result * z
        exponent //= 2
        if not exponent:
            assert result is not None
            return result
        z = z * z
