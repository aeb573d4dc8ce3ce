"""The centred ansatz at the start of training, determined by the data and the tangent kernel at initialisation.

Under gradient flow from W0 the first derivatives of Wb^T Wb and Wb^T K Wb (Wb = W - W0) vanish at time 0, and the
second are 2 Wdot^T Wdot and 2 Wdot^T K Wdot. With residuals l = diag(dL/df) and layer inputs X,

    Wdot = -J^T l X,    Wdot^T Wdot = X^T l PTK l X,    Wdot^T K Wdot = X^T l PTK^2 l X      (K = J^T J, PTK = J J^T)

(Beaglehole, Mitliagkas, Agarwala 2024, arXiv:2402.05271, proposition 6). The C-NFA starts at rho of the last two, with
rho the matrix cosine.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import torch
from jaxtyping import Float, Float64, Real
from torch import Tensor

from featurelab.modules.measures.gradients.ansatz import matrix_cosine, nfa


def derivative_correlation(
    J: Float[Tensor, "n outputs k_out"] | Float[Tensor, "n k_out"],
    X: Float[Tensor, "n k_in"],
    residual: Float[Tensor, "_n _outputs"] | Float[Tensor, " _n"],
) -> Float64[Tensor, ""]:
    """rho(Wdot^T Wdot, Wdot^T K Wdot): the C-NFA of a layer as training begins, in [0, 1].

    J are the layer's tangent features, X its inputs, and `residual` the derivatives of the loss by the outputs; with
    one output J and residual may omit that axis. For a squared loss the residual is f - y up to a factor, which does
    not matter; figures 3 and 8 use y instead. Works with k_out x k_out matrices; PTK^2 is never formed. A zero residual
    gives nan. Raises ValueError if the shapes do not fit.
    """
    J = J[:, None] if J.ndim == 2 else J
    residual = residual[:, None] if residual.ndim == 1 else residual
    if J.ndim != 3 or X.ndim != 2 or residual.shape != J.shape[:2] or len(X) != len(J):
        raise ValueError(
            "J (n, outputs, k_out), X (n, k_in) and residual (n, outputs) do not fit: "
            f"{tuple(J.shape)}, {tuple(X.shape)}, {tuple(residual.shape)}"
        )
    Wdot = -(J * residual[:, :, None]).sum(1).T @ X
    rows = J.flatten(0, 1)
    return nfa(Wdot, rows.T @ rows)


def mean_ptk_correlation(
    mean_ptk: Float[Tensor, "n n"], X: Float[Tensor, "n k_in"], residual: Float[Tensor, " n"]
) -> Float[Tensor, ""]:
    """rho(X^T l P l X, X^T l P^2 l X) with P a PTK averaged over networks: the prediction of figure 8, in [0, 1].

    mean_ptk is symmetric. For the PTK of a single network with one output it equals `derivative_correlation`.
    """
    lX = residual[:, None] * X
    PlX = mean_ptk @ lX
    return matrix_cosine(lX.T @ PlX, PlX.T @ PlX)


def quadratic_correlation(
    X: Real[Tensor, "n dim"], y: Real[Tensor, "n ..."], R: Real[Tensor, "dim dim"]
) -> Float64[Tensor, ""]:
    """Derivative correlation of the quadratic network f = a^T (W x)^2, from R = W^T diag(a^2) W alone, in [0, 1].

    rho(M R M, M R B R M) with M = X^T diag(y) X, B = X^T X, y (n,) (arXiv:2402.05271, figure 3).
    """
    M, B = _label_and_data_moments(X, y)
    R = R.to(M) / R.to(M).trace()
    MR = M @ R
    return matrix_cosine(MR @ M, MR @ B @ MR.T)


def free_probability_prediction(
    X: Real[Tensor, "n dim"], y: Real[Tensor, " n"], r: Sequence[float] | Real[Tensor, " moments"]
) -> Float64[Tensor, ""]:
    """Limit of `quadratic_correlation` when R is free of the data, from the moments r_m = t[R^m], m = 1..4, alone.

    With A = (X^T diag(y) X)^2, B = X^T X, t[.] = tr(.) / d and bars for A - t[A] I, B - t[B] I:

        N  = t[A]^2 t[B] r3 + 2 t[A] r2 r1 t[Ab Bb] + t[B] r1 r2 t[Ab^2] + r1^3 t[Ab^2 Bb]
        D1 = t[A^2] r1^2 + t[A]^2 (r2 - r1^2)
        D2 = r1^4 t[(Ab Bb)^2] + 2 r1^2 (r2 - r1^2) t[Ab Bb]^2 + 2 r1^2 r2 (t[B] t[Ab^2 Bb] + t[A] t[Ab Bb^2])
             + 4 t[A] t[B] r3 r1 t[Ab Bb] + t[A]^2 t[B]^2 r4 + t[A]^2 t[Bb^2] r2^2 + t[B]^2 t[Ab^2] r2^2

    and the prediction is N / sqrt(D1 D2) (arXiv:2402.05271, appendix, with misprints corrected: traces normalised
    throughout, tr(R^3) for tr(R)^3 in eq. 18, and t[B]^2 t[Ab^2] for the last term of eq. 27). Computed in float64;
    scales of X, y and R do not matter. Raises ValueError unless r has four entries.
    """
    if len(r) != 4:
        raise ValueError(f"r must be the four moments t[R], t[R^2], t[R^3], t[R^4], got {len(r)}")
    r1 = float(r[0])
    r2, r3, r4 = (float(r[m - 1]) / r1**m for m in (2, 3, 4))
    M, B = _label_and_data_moments(X, y)
    A = M @ M
    eye = torch.eye(len(A), dtype=A.dtype, device=A.device)
    # with t[A] = t[B] = r_1 = 1 the factors of t[A], t[B] and r_1 above are all 1
    A = A / (A.trace() / len(A)) - eye
    B = B / (B.trace() / len(B)) - eye

    def t(left: Tensor, right: Tensor) -> Tensor:
        return (left * right.T).sum() / len(left)

    AB = A @ B
    tAA, tAB, tBB = t(A, A), t(A, B), t(B, B)
    tAAB, tABB, tABAB = t(A, AB), t(AB, B), t(AB, AB)
    numerator = r3 + 2 * r2 * tAB + r2 * tAA + tAAB
    d1 = tAA + r2
    d2 = tABAB + 2 * (r2 - 1) * tAB**2 + 2 * r2 * (tAAB + tABB) + 4 * r3 * tAB + r4 + (tBB + tAA) * r2**2
    return numerator / (d1 * d2).sqrt()


def r_moments(R: Real[Tensor, "dim dim"], order: int = 4) -> Float64[Tensor, " order"]:
    """The normalised moments t[R^m] = tr(R^m) / d of a symmetric matrix, m = 1..order."""
    eigenvalues = torch.linalg.eigvalsh(R.double())
    return torch.stack([eigenvalues.pow(m).mean() for m in range(1, order + 1)])


def limit_r_moments(c: float, order: int = 4) -> Float64[Tensor, " order"]:
    """The limits of t[R^m], m = 1..order, of R = W^T diag(a^2) W as d and k grow with d / k = c.

    For a_i ~ N(0, 1), W_ij ~ N(0, 1/k), R is free compound Poisson with free cumulants kappa_m = c^(m-1) (2m-1)!!;
    moments follow from m_n = sum_s kappa_s sum over i_1 + ... + i_s = n - s of m_(i_1) ... m_(i_s). At c = 1: 1, 4,
    25, 202. Raises ValueError unless c > 0.
    """
    if not c > 0:
        raise ValueError(f"c = d / k must be positive, got {c}")
    moments = [1.0]
    for n in range(1, order + 1):
        power, total = [1.0] + [0.0] * n, 0.0  # coefficients of (sum_i m_i z^i)^s, up to z^(n-1)
        known = moments + [0.0] * (n + 1 - len(moments))
        for s in range(1, n + 1):
            power = [sum(power[j] * known[i - j] for j in range(i + 1)) for i in range(n + 1)]
            total += c ** (s - 1) * prod(range(1, 2 * s, 2)) * power[n - s]
        moments.append(total)
    return torch.tensor(moments[1:], dtype=torch.float64)


def _label_and_data_moments(X: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """M = X^T diag(y) X and B = X^T X in float64, each divided by its Frobenius norm, which rho does not see."""
    X, y = X.double(), y.double()
    if X.ndim != 2 or y.shape != X.shape[:1]:
        raise ValueError(f"X must be (n, d) and y (n,), got {tuple(X.shape)} and {tuple(y.shape)}")
    X = X / X.abs().amax()
    M, B = X.T @ (y[:, None] * X), X.T @ X
    return M / torch.linalg.matrix_norm(M), B / torch.linalg.matrix_norm(B)
