"""Closed forms of deep neural collapse in Deep RFM: linearised layers, optimal kernels, random ReLU features.

With a linearised kernel k(X) = X X^T + lambda_k I and a linearised feature map, which adds lambda_Phi I to the Gram
matrix, a layer maps the Gram matrix A (N, N) of its inputs to

    G = (1/kappa) A (A + lambda_k I)^-1 Y Y^T (A + lambda_k I)^-1 A,    and the next layer has A' = G + lambda_Phi I.

Y (N, K) is one-hot with n samples of each class. Beaglehole, Sukenik, Mondelli, Belkin 2024, arXiv:2402.13728:
theorem 4.3 (the part that is exact), theorem 4.4 and proposition A.1.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor


def linearised_layer(
    A: Float[Tensor, "N N"], targets: Float[Tensor, "N classes"], ridge: float
) -> Float[Tensor, "N classes"]:
    """B = A (A + lambda_k I)^-1 Y for a PSD Gram matrix A: the layer's Gram matrix is B B^T / kappa."""
    identity = torch.eye(len(A), dtype=A.dtype, device=A.device)
    B: Tensor = A @ torch.linalg.solve(A + ridge * identity, targets)
    return B


def lift_spectrum(A: Float[Tensor, "N N"], least: float) -> Float[Tensor, "N N"]:
    """A + (lambda - lambda_min(A))_+ I, lambda = `least`: lifts all eigenvalues to at least `least`."""
    lift: Tensor = (least - torch.linalg.eigvalsh(A)[0]).clamp(min=0.0)
    return A + lift * torch.eye(len(A), dtype=A.dtype, device=A.device)


def kappa_exact(n: int, ridge: float, feature_ridge: float) -> float:
    """((n + lambda_Phi) / (n + lambda_Phi + lambda_k))^2, in (0, 1]: the scale for which G = Y Y^T is a fixed point.

    At the fixed point A = Y Y^T + lambda_Phi I satisfies A^-1 Y Y^T = (n + lambda_Phi)^-1 Y Y^T, n samples of each
    class.
    """
    return ((n + feature_ridge) / (n + feature_ridge + ridge)) ** 2


def kappa_printed(ridge: float, feature_ridge: float) -> float:
    """1 - 2 lambda_k (1 + 1/lambda_Phi), the scale of theorem 4.3 as printed; it may be negative.

    It takes A^-1 Y Y^T to be (1 + 1/lambda_Phi) Y Y^T. Raises ValueError for lambda_Phi = 0.
    """
    if feature_ridge <= 0:
        raise ValueError(f"feature_ridge must be positive for the printed scale, got {feature_ridge}")
    return 1 - 2 * ridge * (1 + 1 / feature_ridge)


def collapse_rate(n: int, ridge: float, feature_ridge: float) -> float:
    """r = lambda_k n / ((lambda_k + lambda_Phi)(lambda_Phi + n)), in [0, 1]: the asymptotic error ratio of a layer.

    Linearise the layer at A = Y Y^T + lambda_Phi I with the exact kappa: |G' - Y Y^T| / |G - Y Y^T| -> r where
    n > lambda_Phi + lambda_k, and NC1 shrinks by r^2. It grows with lambda_k and falls with lambda_Phi; r = 0 for
    lambda_k = 0 (one layer suffices), r = 1 for lambda_Phi = 0 (a linear map: no contraction).
    Raises ValueError where both are 0.
    """
    if ridge == feature_ridge == 0:
        raise ValueError("ridge and feature_ridge must not both be 0: the kernel matrix is singular")
    return ridge * n / ((ridge + feature_ridge) * (feature_ridge + n))


def gram_error(B: Float[Tensor, "N classes"], targets: Float[Tensor, "N classes"], kappa: float) -> Float[Tensor, ""]:
    """|B B^T / kappa - Y Y^T|_2, the spectral norm; kappa may be negative.

    Through the 2K x 2K matrix of the difference in an orthonormal basis of the columns of both.
    """
    _, R = torch.linalg.qr(torch.cat([B, targets], 1))
    K = targets.shape[1]
    left, right = R[:, :K], R[:, K:]
    error: Tensor = torch.linalg.matrix_norm(left @ left.T / kappa - right @ right.T, 2)
    return error


def krr_explained(
    K: Float[Tensor, "*kernels N N"], targets: Float[Tensor, "N classes"], ridge: float
) -> Float[Tensor, "*kernels"]:
    """(1/C) sum_c y_c^T (k + mu I)^-1 k y_c for unit vectors y_c: what ridge regression with the kernel k explains.

    K is PSD with unit diagonal; targets are one-hot, and their columns are normalised here. The value lies in [0, n /
    (n + mu)], n samples of each class, and only k = I_C (x) 1 1^T attains the maximum (theorem 4.4 minimises minus this
    value). Concave in k. Raises ValueError for mu <= 0.
    """
    if not ridge > 0:
        raise ValueError(f"ridge must be positive, got {ridge}")
    unit = targets / torch.linalg.norm(targets, dim=0)
    solved = torch.linalg.solve(K + ridge * torch.eye(len(unit)).to(K), unit.expand(*K.shape[:-2], *unit.shape))
    explained: Tensor = 1 - ridge * (unit * solved).sum((-2, -1)) / unit.shape[1]
    return explained


def relu_feature_kernel(r: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """h(r) = (sqrt(1 - r^2) + r (pi/2 + arcsin r)) / pi, elementwise on [-1, 1]: in [0, 1], convex, h(r) >= r.

    E[relu(W x) . relu(W y)] for unit vectors with x . y = r and W_ij ~ N(0, 2/D): proposition A.1 simplified, without
    its quotient that is 0/0 at |r| = 1. h(-1) = 0, h(0) = 1/pi, h(1) = 1.
    """
    return ((1 - r.square()).clamp(min=0.0).sqrt() + r * (math.pi / 2 + torch.arcsin(r))) / math.pi
