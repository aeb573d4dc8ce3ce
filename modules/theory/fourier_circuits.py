"""The largest margin of networks that add residues, and what each frequency adds to the margin.

Li, Liang, Shi, Song, Zhou 2024, arXiv:2402.09469, Theorem 4.9 and Lemma C.14.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor


def max_margin(modulus: int, terms: int) -> float:
    """gamma* = 2 k! / ((2k+2)^((k+1)/2) (p-1) p^((k-1)/2)): the largest margin of a `PolynomialNet` of norm 1.

    The norm is `group_norm(neurons, k + 1)`, the margin the least over all p^k tuples; it bounds the mean of g' too
    (Theorem 4.9).
    """
    k, p = terms, modulus
    return 2 * math.factorial(k) / (math.pow(2 * k + 2, (k + 1) / 2) * (p - 1) * math.pow(p, (k - 1) / 2))


def frequency_margins(neurons: Float[Tensor, "width vectors modulus"]) -> Float[Tensor, "width frequencies"]:
    """What each neuron (u_1, ..., u_k, w) adds to the mean of g' over all tuples, by frequency j = 1..(p-1)/2, odd p.

        2 k! / ((p-1) p^k) Re( What(-j) prod_i Uhat_i(j) )

    with unnormalised transforms. The sum over j is the margin of the neuron alone: only a frequency that all k + 1
    vectors have contributes (Lemma C.14). The sum over neurons and frequencies is the margin of the network. Summed
    over neurons alone it is 2 fhat(j, ..., j, -j) / ((p-1) p^k), fhat the transform of f over (a_1, ..., a_k, c).
    """
    k, p = neurons.shape[1] - 1, neurons.shape[2]
    transform = torch.fft.rfft(neurons)[..., 1:]
    product = transform[:, :k].prod(1) * transform[:, k].conj()
    added: Tensor = product.real * (2 * math.factorial(k) / ((p - 1) * p**k))
    return added
