"""Spectra of symmetric positive semi-definite matrices, and random rotations."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Float, Float64, Real
from torch import Tensor


def eigenvalue_dispersion(K: Real[Tensor, "k k"]) -> Float64[Tensor, ""]:
    """std(eig K) / mean(eig K), population standard deviation, of a PSD matrix: in [0, sqrt(k - 1)].

    0 for a multiple of the identity. The zero matrix gives nan. Quoted for figure 1 of arXiv:2402.05271.
    """
    eigenvalues: Tensor = torch.linalg.eigvalsh(K.double())  # float32 solvers fail on the singular K of dead units
    return eigenvalues.std(correction=0) / eigenvalues.mean()


def participation_ratio(K: Real[Tensor, "k k"]) -> Float[Tensor, ""]:
    """(sum_i lambda_i)^2 / sum_i lambda_i^2 over the eigenvalues of a PSD matrix: in [1, k]; nan if it is zero."""
    return K.trace().square() / K.square().sum()


def effective_rank(K: Real[Tensor, "rows columns"]) -> Float64[Tensor, ""]:
    """exp of the entropy of the singular values normalised to sum 1: in [1, k]; nan for the zero matrix.

    The definition of Roy and Vetterli, "The effective rank" (EUSIPCO 2007). K is any matrix.
    """
    values = torch.linalg.svdvals(K.double())
    shares = values / values.sum()
    entropy: Tensor = torch.special.entr(shares).sum()
    return entropy.exp()


def stable_rank(W: Real[Tensor, "rows columns"], *, squared: bool = True) -> Float64[Tensor, ""]:
    """|W|_F^2 / |W|_2^2 of any matrix: in [1, rank W]; nan for the zero matrix.

    With `squared=False` |W|_F^2 / |W|_2, as arXiv:2303.07527 prints it: that grows with the scale of W.
    """
    values: Tensor = torch.linalg.svdvals(W.double())
    largest = values.max()
    return values.square().sum() / (largest.square() if squared else largest)


def nuclear_norm(F: Float[Tensor, "*batch rows columns"]) -> Float[Tensor, "*batch"]:
    """The sum of the singular values: in [|F|_F, sqrt(rank F) |F|_F], differentiable.

    Its gradient is U V^T for F = U S V^T. Where singular values vanish that is one subgradient of many; with two rows
    or columns these are sums and roots alone, batch and gradient without a decomposition, and the gradient of the zero
    matrix is nan, so that one sees it.
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

    Through the eigenvalues; those that rounding made negative count as 0. Raises ValueError for power <= 0, and for a
    matrix that is not square.
    """
    if power <= 0:
        raise ValueError(f"power must be above 0, got {power}")
    if M.ndim != 2 or M.shape[0] != M.shape[1]:
        raise ValueError(f"a square matrix is needed, got shape {tuple(M.shape)}")
    M = M.double()
    eigenvalues, Q = torch.linalg.eigh((M + M.T) / 2)
    root: Tensor = (Q * eigenvalues.clamp(min=0).pow(power)) @ Q.T
    return root


def haar_frames(
    rows: int, columns: int, draws: int, generator: torch.Generator, *, device: torch.device
) -> Iterator[Float64[Tensor, "rows columns"]]:
    """Random orthonormal frames: the first columns of Haar orthogonal matrices, up to their signs. columns <= rows."""
    for _ in range(draws):
        gaussian = torch.randn(rows, columns, generator=generator, device=generator.device, dtype=torch.float64)
        yield torch.linalg.qr(gaussian.to(device)).Q


def haar_orthogonal(
    k: int, generator: torch.Generator, *, dtype: torch.dtype = torch.float64
) -> Float[Tensor, "{k} {k}"]:
    """An orthogonal matrix from the Haar measure, on the generator's device.

    QR of a Gaussian matrix; the signs of diag R go into Q, without which the law is not Haar (Mezzadri,
    arXiv:math-ph/0609050).
    """
    gaussian = torch.randn(k, k, generator=generator, device=generator.device, dtype=dtype)
    Q, R = torch.linalg.qr(gaussian)
    rotation: Tensor = Q * R.diagonal().sign()
    return rotation


def random_isospectral(K: Float[Tensor, "k k"], generator: torch.Generator) -> Float[Tensor, "k k"]:
    """Q = O diag(eig K) O^T with O Haar: a symmetric matrix with K's eigenvalues and none of its directions."""
    eigenvalues: Tensor = torch.linalg.eigvalsh(K.double())
    O = haar_orthogonal(len(K), generator, dtype=torch.float64).to(K.device)  # noqa: E741
    return ((O * eigenvalues) @ O.T).to(K.dtype)
