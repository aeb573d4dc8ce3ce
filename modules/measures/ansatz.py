"""The neural feature ansatz: how nearly a layer's weight Gram matrix is its average gradient outer product.

    F = W^T W  (neural feature matrix),    G = W^T K W  (AGOP),    NFA = rho(F, G)

with K the covariance of the layer's tangent features, as `tangent_covariance` returns it (Beaglehole, Mitliagkas,
Agarwala 2024, arXiv:2402.05271). W is (k_out, k_in) and K (k_out, k_out). Everything but `neural_feature_matrix` works
on k_out x k_out matrices, so that layers on whole images cost no more than others: with A = W W^T,

    tr F^2 = tr A^2,    tr F G = tr A K A,    tr G^2 = tr (K A)^2.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .spectra import isospectral


def rho(A: Tensor, B: Tensor) -> Tensor:
    """Matrix cosine tr(A^T B) / (|A|_F |B|_F), not centred: in [-1, 1], and in [0, 1] for two PSD matrices.

    A and B are of one shape, any number of dimensions. A zero matrix gives nan. Raises ValueError if the shapes differ.
    """
    if A.shape != B.shape:
        raise ValueError(f"A and B must have the same shape, got {tuple(A.shape)} and {tuple(B.shape)}")
    return (_unit(A) * _unit(B)).sum().clamp(-1, 1)


def pearson(a: Tensor, b: Tensor) -> Tensor:
    """Pearson correlation rho(a - mean a, b - mean b), means over all entries: in [-1, 1]; nan if a or b is constant.

    Used on diagonals (arXiv:2402.05271, figure 13). Raises ValueError if the shapes differ.
    """
    return rho(_centered(a), _centered(b))


def neural_feature_matrix(W: Tensor) -> Tensor:
    """F = W^T W, (k_in, k_in), PSD. Convolution weights (c_out, c_in, ...) act on patches and are flattened first."""
    W = W.flatten(1)
    return W.T @ W


def nfa(W: Tensor, K: Tensor) -> Tensor:
    """The ansatz's score rho(W^T W, W^T K W): in [0, 1] for PSD K; nan if W or W^T K W is zero.

    Computed in float64: tr (K A)^2 is a sum whose terms may cancel.
    """
    return _cosine(*_traces(_scaled(W.double()), _scaled(K.double())))


def decomposition(W: Tensor, W0: Tensor, K: Tensor, Kbar: Tensor | None = None) -> dict[str, float]:
    """The ansatz split by what has changed since the initial weights W0: Wb = W - W0, Kb = Kbar.

    ========================  ==============================================================
    nfa                       rho(W^T W, W^T K W)
    cnfa                      rho(Wb^T Wb, Wb^T K Wb), with the current K
    double_centered_nfa       rho(Wb^T Wb, Wb^T Kb Wb)
    ptk_centered_nfa          rho(W0^T W0, W0^T Kb W0)
    centered_ratio            tr(Wb^T Wb Wb^T K Wb) / tr(W^T W W^T K W)
    double_centered_ratio     tr(Wb^T Wb Wb^T Kb Wb) / tr(Wb^T Wb Wb^T K Wb)
    ========================  ==============================================================

    The first four are in [0, 1]; the ratios are >= 0 and can exceed 1. What is undefined is absent: at initialisation,
    where Wb = Kb = 0, all but `nfa` and `centered_ratio` (0); without Kbar the three with Kb. Computed in float64.
    (arXiv:2402.05271, section 3 and appendix.)
    """
    W, W0, K = W.double(), W0.double(), K.double()
    whole, centered = _traces(W, K), _traces(W - W0, K)
    values = {"nfa": _cosine(*whole), "cnfa": _cosine(*centered), "centered_ratio": centered[1] / whole[1]}
    if Kbar is not None:
        double_centered = _traces(W - W0, Kbar.double())
        values["double_centered_nfa"] = _cosine(*double_centered)
        values["ptk_centered_nfa"] = _cosine(*_traces(W0, Kbar.double()))
        values["double_centered_ratio"] = double_centered[1] / centered[1]
    return {name: value.item() for name, value in values.items() if value.isfinite()}


def random_kernel_control(W: Tensor, K: Tensor, *, draws: int = 10, generator: torch.Generator) -> Tensor:
    """The null level of the NFA: rho(W^T W, W^T Q W) with Q = O diag(eig K) O^T, O Haar. (draws,), each in [0, 1].

    Q has K's spectrum and none of its directions (arXiv:2402.05271, figure 1).
    """
    return torch.stack([nfa(W, isospectral(K, generator)) for _ in range(draws)])


def diagonals(W: Tensor, K: Tensor) -> tuple[Tensor, Tensor]:
    """The diagonals of F = W^T W and of G = W^T K W, each (k_in,): the importance of every input (figure 13)."""
    return W.square().sum(0), (W * (K @ W)).sum(0)


def _traces(W: Tensor, K: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """tr F^2, tr F G, tr G^2."""
    A = W @ W.T
    KA = K @ A
    return A.square().sum(), (A * KA).sum(), (KA * KA.T).sum()


def _cosine(FF: Tensor, FG: Tensor, GG: Tensor) -> Tensor:
    return (FG / FF.sqrt() / GG.sqrt()).clamp(-1, 1)


def _scaled(A: Tensor) -> Tensor:
    """A with largest entry 1, so that no power of it overflows or vanishes; nan if A is zero."""
    return A / A.abs().amax()


def _unit(A: Tensor) -> Tensor:
    A = _scaled(A)
    return A / torch.linalg.vector_norm(A)


def _centered(a: Tensor) -> Tensor:
    return a - a.mean()
