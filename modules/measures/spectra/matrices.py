"""Spectra of matrices, and random rotations."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Float, Float64, Real
from torch import Tensor


def eigenvalue_dispersion(K: Real[Tensor, "k k"]) -> Float64[Tensor, ""]:
    """std(eig K) / mean(eig K) of a PSD matrix, population standard deviation: in [0, sqrt(k - 1)].

    0 for a multiple of the identity; nan for the zero matrix. arXiv:2402.05271 quotes it for figure 1.
    """
    eigenvalues: Tensor = torch.linalg.eigvalsh(K.double())  # float32 solvers fail on the singular K of dead units
    return eigenvalues.std(correction=0) / eigenvalues.mean()


def participation_ratio(K: Real[Tensor, "k k"]) -> Float[Tensor, ""]:
    """(sum_i lambda_i)^2 / sum_i lambda_i^2 over the eigenvalues of a PSD matrix: in [1, k]; nan if it is zero."""
    return K.trace().square() / K.square().sum()


def effective_rank(K: Real[Tensor, "rows columns"]) -> Float64[Tensor, ""]:
    """exp of the entropy of the singular values of any matrix, normalised to sum 1: in [1, k]; nan for the zero matrix.

    The definition of Roy and Vetterli, "The effective rank" (EUSIPCO 2007).
    """
    values = torch.linalg.svdvals(K.double())
    shares = values / values.sum()
    entropy: Tensor = torch.special.entr(shares).sum()
    return entropy.exp()


def stable_rank(W: Real[Tensor, "rows columns"], *, squared: bool = True) -> Float64[Tensor, ""]:
    """|W|_F^2 / |W|_2^2 of any matrix: in [1, rank W]; nan for the zero matrix.

    `squared=False` returns |W|_F^2 / |W|_2, as arXiv:2303.07527 prints it, which grows with the scale of W.
    """
    values: Tensor = torch.linalg.svdvals(W.double())
    largest = values.max()
    return values.square().sum() / (largest.square() if squared else largest)


def nuclear_norm(F: Float[Tensor, "*batch rows columns"]) -> Float[Tensor, "*batch"]:
    """Sum of the singular values: in [|F|_F, sqrt(rank F) |F|_F], differentiable.

    The gradient is U V^T for F = U S V^T, one of many subgradients where singular values vanish. A matrix with two rows
    or columns needs no decomposition, only sums and roots, for a whole batch and its gradient; there the gradient of
    the zero matrix is nan, so that it does not pass unnoticed.
    """
    if min(F.shape[-2:]) == 2:
        narrow = F if F.shape[-1] == 2 else F.mT
        a, b = narrow.unbind(-1)
        twice_area = 2 * ((a * a).sum(-1) * (b * b).sum(-1) - (a * b).sum(-1).square()).clamp(min=0).sqrt()
        return (narrow.square().sum((-2, -1)) + twice_area).sqrt()
    total: Tensor = torch.linalg.svdvals(F).sum(-1)
    return total


def psd_power(M: Real[Tensor, "_k _k"], power: float) -> Float64[Tensor, "k k"]:
    """M^power of a symmetric PSD matrix, power > 0: symmetric, PSD.

    Computed from the eigenvalues; those that are negative by rounding count as 0. Raises ValueError for power <= 0, and
    for a matrix that is not square.
    """
    if power <= 0:
        raise ValueError(f"power must be above 0, got {power}")
    if M.ndim != 2 or M.shape[0] != M.shape[1]:
        raise ValueError(f"M must be a square matrix, got shape {tuple(M.shape)}")
    M = M.double()
    eigenvalues, Q = torch.linalg.eigh((M + M.T) / 2)
    root: Tensor = (Q * eigenvalues.clamp(min=0).pow(power)) @ Q.T
    return root


def haar_frames(
    rows: int, columns: int, draws: int, generator: torch.Generator, *, device: torch.device
) -> Iterator[Float64[Tensor, "rows columns"]]:
    """Yield random orthonormal frames: the first columns of Haar orthogonal matrices, up to signs. columns <= rows."""
    for _ in range(draws):
        gaussian = torch.randn(rows, columns, generator=generator, device=generator.device, dtype=torch.float64)
        yield torch.linalg.qr(gaussian.to(device)).Q


def haar_orthogonal(
    k: int, generator: torch.Generator, *, dtype: torch.dtype = torch.float64
) -> Float[Tensor, "{k} {k}"]:
    """Orthogonal matrix (k, k) drawn from the Haar measure, on the generator's device.

    QR of a Gaussian matrix, with the signs of diag R moved into Q; otherwise the law is not Haar (Mezzadri,
    arXiv:math-ph/0609050).
    """
    gaussian = torch.randn(k, k, generator=generator, device=generator.device, dtype=dtype)
    Q, R = torch.linalg.qr(gaussian)
    rotation: Tensor = Q * R.diagonal().sign()
    return rotation


def random_isospectral(K: Float[Tensor, "k k"], generator: torch.Generator) -> Float[Tensor, "k k"]:
    """Q = O diag(eig K) O^T with O Haar: a symmetric matrix with the eigenvalues of K and random directions."""
    eigenvalues: Tensor = torch.linalg.eigvalsh(K.double())
    O = haar_orthogonal(len(K), generator, dtype=torch.float64).to(K.device)  # noqa: E741
    return ((O * eigenvalues) @ O.T).to(K.dtype)
