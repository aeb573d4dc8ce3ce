"""Tangent covariances of bias-free ReLU networks by one explicit backward pass, without autograd.

With h_l = W_l x_l, x_(l+1) = relu(h_l) and outputs f = h_L, the tangent features T_l = df/dh_l of a sample obey

    T_L = I,    T_l = (T_(l+1) W_(l+1)) diag(1[h_l > 0]),    K_l = (1/n) sum T_l^T T_l,    AGOP_l = W_l^T K_l W_l

(AGOP: Beaglehole, Sukenik, Mondelli, Belkin 2024, arXiv:2402.13728, section 3). A network on a trunk, such as the
fully connected head of a convolutional one, is measured on the trunk's features.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from jaxtyping import Float, Real
from torch import Tensor

from .derivatives import TangentCovariance


@torch.no_grad()
def relu_tangent_covariance(
    weights: Sequence[Real[Tensor, "_k_out _k_in"]], inputs: Float[Tensor, "..."], *, chunk: int | None = None
) -> list[TangentCovariance]:
    """W and K of every layer of f(x) = W_L relu(W_(L-1) ... relu(W_1 x)), in order, as `tangent_covariance` has them.

    `weights` are (k_1, k_0), (k_2, k_1), ..., and `inputs` (n, k_0). Each K_l is PSD, in the dtype of the inputs; the
    weights are cast to it. As in torch, the derivative of ReLU at 0 is 0. `chunk` is the number of samples in a pass
    (default: such that tangent features hold some 4 million numbers).

    Raises ValueError without samples or weights, and for shapes that do not fit together.
    """
    shapes = [tuple(inputs.shape[1:]), *(tuple(W.shape) for W in weights)]
    if not weights or inputs.ndim != 2 or not len(inputs):
        raise ValueError(f"weights and inputs (n, d) are needed, got {len(weights)} weights and {tuple(inputs.shape)}")
    for before, after in itertools.pairwise(shapes):
        if len(after) != 2 or after[1] != before[0]:
            raise ValueError(f"weights of shape {after} do not act on the {before[0]} numbers before them")
    W = [weight.detach().to(inputs) for weight in weights]
    outputs = len(W[-1])
    K = [torch.zeros(len(w), len(w)).to(inputs) for w in W]
    if chunk is None:
        chunk = max(1, 2**22 // (outputs * max(len(w) for w in W)))
    for x in inputs.split(chunk):
        active = []
        for w in W[:-1]:
            h = x @ w.T
            active.append((h > 0).to(h))
            x = h.relu_()
        T = torch.eye(outputs).to(x).expand(len(x), outputs, outputs)
        for layer in reversed(range(len(W) - 1)):
            T = (T @ W[layer + 1]) * active[layer][:, None, :]
            rows = T.flatten(0, 1)
            K[layer].addmm_(rows.T, rows)
    K[-1].fill_diagonal_(len(inputs))
    return [TangentCovariance(w, k.div_(len(inputs))) for w, k in zip(W, K, strict=True)]
