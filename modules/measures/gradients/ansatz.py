"""The neural feature ansatz: how well a layer's weight Gram matrix matches its average gradient outer product (AGOP).

    F = W^T W  (neural feature matrix),    G = W^T K W  (AGOP),    NFA = rho(F, G)

with rho the matrix cosine and K the covariance of the layer's tangent features, as `tangent_covariance` returns it
(Beaglehole, Mitliagkas, Agarwala 2024, arXiv:2402.05271). W is (k_out, k_in) and K (k_out, k_out). Everything but
`neural_feature_matrix` works on k_out x k_out matrices, so that layers on whole images cost no more than others: with
A = W W^T,

    tr F^2 = tr A^2,    tr F G = tr A K A,    tr G^2 = tr (K A)^2.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from jaxtyping import Float, Float64, Real
from torch import Tensor

from ..spectra.matrices import haar_frames, psd_power, random_isospectral

Centering = Literal["pearson", "cosine"]


def matrix_cosine(A: Float[Tensor, "*_shape"], B: Float[Tensor, "*_shape"]) -> Float[Tensor, ""]:
    """Matrix cosine rho = tr(A^T B) / (|A|_F |B|_F), without centring: in [-1, 1], and in [0, 1] for two PSD matrices.

    A and B have the same shape, with any number of dimensions; a zero matrix gives nan. Raises ValueError if the shapes
    differ.
    """
    if A.shape != B.shape:
        raise ValueError(f"A and B must have the same shape, got {tuple(A.shape)} and {tuple(B.shape)}")
    return (_unit(A) * _unit(B)).sum().clamp(-1, 1)


def pearson(a: Float[Tensor, "*_shape"], b: Float[Tensor, "*_shape"]) -> Float[Tensor, ""]:
    """Pearson correlation rho(a - mean a, b - mean b), means over all entries: in [-1, 1]; nan if a or b is constant.

    arXiv:2402.05271 applies it to diagonals (figure 13). Raises ValueError if the shapes differ.
    """
    return matrix_cosine(_centered(a), _centered(b))


def neural_feature_matrix(W: Float[Tensor, "k_out _ ..."]) -> Float[Tensor, "k_in k_in"]:
    """F = W^T W, PSD. Convolution weights (c_out, c_in, ...) are first flattened to act on patches."""
    W = W.flatten(1)
    return W.T @ W


def nfa(W: Real[Tensor, "k_out k_in"], K: Real[Tensor, "k_out k_out"]) -> Float64[Tensor, ""]:
    """Score of the ansatz, rho(W^T W, W^T K W): in [0, 1] for PSD K; nan if W or W^T K W is zero.

    Computed in float64, because the terms of tr (K A)^2 may cancel.
    """
    return _cosine(*_traces(_scaled(W.double()), _scaled(K.double())))


def ansatz_decomposition(
    W: Real[Tensor, "k_out k_in"],
    W0: Real[Tensor, "k_out k_in"],
    K: Real[Tensor, "k_out k_out"],
    Kbar: Real[Tensor, "k_out k_out"] | None = None,
) -> dict[str, float]:
    """Scores of the ansatz for the weights and for their change Wb = W - W0 since initialisation, with Kb = Kbar.

    ========================  ==============================================================
    nfa                       rho(W^T W, W^T K W)
    cnfa                      rho(Wb^T Wb, Wb^T K Wb), with the current K
    double_centered_nfa       rho(Wb^T Wb, Wb^T Kb Wb)
    ptk_centered_nfa          rho(W0^T W0, W0^T Kb W0)
    centered_ratio            tr(Wb^T Wb Wb^T K Wb) / tr(W^T W W^T K W)
    double_centered_ratio     tr(Wb^T Wb Wb^T Kb Wb) / tr(Wb^T Wb Wb^T K Wb)
    ========================  ==============================================================

    The first four are in [0, 1]; the ratios are >= 0 and can exceed 1. Undefined scores are left out: at
    initialisation, where Wb = Kb = 0, only `nfa` and `centered_ratio` (0) remain, and without Kbar the three with Kb
    are missing. Computed in float64 (arXiv:2402.05271, section 3 and appendix).
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


def random_kernel_control(
    W: Real[Tensor, "k_out k_in"], K: Real[Tensor, "k_out k_out"], *, draws: int = 10, generator: torch.Generator
) -> Float64[Tensor, " draws"]:
    """Null level of the NFA: rho(W^T W, W^T Q W) with Q = O diag(eig K) O^T, O Haar. (draws,), each in [0, 1].

    Q has the spectrum of K and random directions (arXiv:2402.05271, figure 1).
    """
    return torch.stack([nfa(W, random_isospectral(K, generator)) for _ in range(draws)])


def nfa_pearson(
    nfm: Real[Tensor, "..."],
    agop: Real[Tensor, "..."],
    *,
    power: float = 0.5,
    centering: Centering = "pearson",
    off_diagonal: bool = False,
) -> Float64[Tensor, ""]:
    """Correlation of the entries of F = W^T W with those of G^power, G the AGOP: in [-1, 1]; nan if one is constant.

    This is the ansatz of Beaglehole, Sukenik, Mondelli, Belkin 2024, section 5: the matrix square root of the AGOP,
    each matrix minus its mean entry. `centering="cosine"` does not subtract the means, as `matrix_cosine`. Unrelated
    PSD matrices correlate through their diagonals: `off_diagonal=True` centres and compares only the other entries.
    Compare every score with `nfa_pearson_null`. Computed in float64.

    Raises ValueError for an unknown centering, and for matrices that are not square or differ in shape.
    """
    _square_alike(nfm, agop)
    return _correlation(nfm.double(), psd_power(agop, power), centering, off_diagonal)


def nfa_pearson_null(
    nfm: Real[Tensor, "..."],
    agop: Real[Tensor, "..."],
    *,
    draws: int = 3,
    generator: torch.Generator,
    power: float = 0.5,
    centering: Centering = "pearson",
) -> Float64[Tensor, " draws"]:
    """Null level of `nfa_pearson`: its score for F and Q G^power Q^T, Q Haar orthogonal; (draws,), each in [-1, 1].

    The rotated matrix has the spectrum of the AGOP and random directions. For PSD matrices of full rank this level is
    far from 0, whatever their size. Raises ValueError as `nfa_pearson` does.
    """
    _square_alike(nfm, agop)
    root = psd_power(agop, power)
    rotated = [random_isospectral(root, generator) for _ in range(draws)]
    return torch.stack([_correlation(nfm.double(), turned, centering, False) for turned in rotated])


class AgopRoot(NamedTuple):
    """A power of a layer's AGOP G = W^T K W in factors, G^power = V M V^T, without a k_in x k_in matrix.

    With r = min(k_out, k_in), `S` (r,) and `V` (k_in, r) are those of the thin SVD W = U diag(S) V^T, and `M` is (r,
    r). All are float64.
    """

    S: Float64[Tensor, " r"]
    V: Float64[Tensor, "k_in r"]
    M: Float64[Tensor, "r r"]


def agop_root(W: Real[Tensor, "k_out k_in"], K: Real[Tensor, "k_out k_out"], power: float = 0.5) -> AgopRoot:
    """The square root of the AGOP, or another `power` of it, from W and K of `tangent_covariance`."""
    U, S, Vh = torch.linalg.svd(W.double(), full_matrices=False)
    return AgopRoot(S, Vh.T, psd_power((U * S).T @ K.double() @ (U * S), power))


def agop_root_scores(
    root: AgopRoot, *, centering: Centering = "pearson", draws: int = 3, generator: torch.Generator
) -> dict[str, float]:
    """Scores of the ansatz for a layer with the root of its AGOP, as `agop_root` returns it.

    - `nfa_pearson`, `nfa_offdiagonal`: `nfa_pearson` of W^T W and the root, on all and on the off-diagonal entries;
    - `nfa_null`: the mean of `nfa_pearson_null`; `nfa_excess`: `nfa_pearson` minus it.

    The null draws a frame with as many columns as V has; inner products are taken between factors. Raises ValueError
    for an unknown centering.
    """
    values, vectors = torch.linalg.eigh(root.M)
    halves = values.clamp(min=0).sqrt()
    nfm = root.V * root.S  # F = nfm nfm^T
    factor = root.V @ (vectors * halves)  # G^power = factor factor^T
    null = [
        _factor_correlation(nfm, frame * halves, centering)
        for frame in haar_frames(len(root.V), len(root.S), draws, generator, device=root.V.device)
    ]
    score, level = _factor_correlation(nfm, factor, centering), sum(null) / draws
    return {
        "nfa_pearson": score,
        "nfa_offdiagonal": _factor_correlation(nfm, factor, centering, off_diagonal=True),
        "nfa_null": level,
        "nfa_excess": score - level,
    }


def ansatz_diagonals(
    W: Float[Tensor, "k_out k_in"], K: Float[Tensor, "k_out k_out"]
) -> tuple[Float[Tensor, " k_in"], Float[Tensor, " k_in"]]:
    """The diagonals of F = W^T W and of G = W^T K W: the importance of every input (figure 13)."""
    return W.square().sum(0), (W * (K @ W)).sum(0)


def _correlation(A: Tensor, B: Tensor, centering: Centering, off_diagonal: bool) -> Tensor:
    if centering not in ("pearson", "cosine"):
        raise ValueError(f"centering must be 'pearson' or 'cosine', got {centering!r}")
    if off_diagonal:  # the rows of a square matrix without its diagonal, laid end to end
        n = len(A)
        A, B = (M.flatten()[1:].view(n - 1, n + 1)[:, :-1] for M in (A, B))
    return pearson(A, B) if centering == "pearson" else matrix_cosine(A, B)


def _factor_correlation(X: Tensor, Y: Tensor, centering: Centering, *, off_diagonal: bool = False) -> float:
    """`_correlation` of the entries of X X^T and Y Y^T, X and Y (n, r), at the cost of n r^2."""
    if centering not in ("pearson", "cosine"):
        raise ValueError(f"centering must be 'pearson' or 'cosine', got {centering!r}")
    n = len(X)
    diagonals = {id(M): M.square().sum(1) for M in (X, Y)}

    def inner(A: Tensor, B: Tensor) -> Tensor:
        product = (A.T @ B).square().sum()
        return product - (diagonals[id(A)] * diagonals[id(B)]).sum() if off_diagonal else product

    def total(A: Tensor) -> Tensor:
        whole = A.sum(0).square().sum()
        return whole - diagonals[id(A)].sum() if off_diagonal else whole

    FF, FG, GG = inner(X, X), inner(X, Y), inner(Y, Y)
    if centering == "pearson":
        f, g, count = total(X), total(Y), n * (n - 1) if off_diagonal else n * n
        FF, FG, GG = FF - f * f / count, FG - f * g / count, GG - g * g / count
    return _cosine(FF, FG, GG).item()


def _square_alike(A: Tensor, B: Tensor) -> None:
    if A.ndim != 2 or A.shape[0] != A.shape[1] or A.shape != B.shape:
        raise ValueError(f"two square matrices of one size are needed, got {tuple(A.shape)} and {tuple(B.shape)}")


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
    unit: Tensor = A / torch.linalg.vector_norm(A)
    return unit


def _centered(a: Tensor) -> Tensor:
    return a - a.mean()
