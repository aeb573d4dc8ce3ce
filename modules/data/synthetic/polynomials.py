"""Gaussian inputs with polynomial targets, and the dataset that reverses weight-to-PTK alignment.

All follow Beaglehole, Mitliagkas, Agarwala 2024, arXiv:2402.05271. Inputs, test inputs, rotations and target
matrices are drawn from separate streams of one seed, so the training set does not depend on the size of the test set.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Float64
from torch import Tensor

from featurelab.modules.dtypes import Dtype

from ..core.tensors import Pair, TensorData, stream

Array = np.ndarray


def decaying_covariance(
    dim: int, decay: float, seed: int
) -> tuple[Float64[Array, "{dim} {dim}"], Float64[Array, " {dim}"]]:
    """Eigenvectors Q, Haar distributed, and eigenvalues lambda_k = 1 / (1 + k^decay), k = 1..dim.

    The covariance is Q diag(lambda) Q^T; `decay` 0 gives I/2. No renormalisation (section 4 and figs. 8-10).
    """
    eigenvalues = 1.0 / (1.0 + np.arange(1, dim + 1, dtype=np.float64) ** decay)
    q, r = np.linalg.qr(stream(seed, "rotation").standard_normal((dim, dim)))
    return q * np.sign(np.diag(r)), eigenvalues  # without the signs QR is not Haar distributed


def chain_hessian(dim: int, rank: int) -> Array:
    """M (dim, dim) with grad y(x) = M x, for y(x) = sum_i x_i x_(i+1 mod rank).

    Raises ValueError unless 1 <= rank <= dim.
    """
    if not 1 <= rank <= dim:
        raise ValueError(f"rank must lie between 1 and dim={dim}, got {rank}")
    shift = np.zeros((dim, dim))
    first = np.arange(rank)
    shift[first, (first + 1) % rank] = 1.0
    return shift + shift.T


def _chain(x: Array, rank: int) -> Array:
    first = x[:, :rank]
    total: Array = (first * np.roll(first, -1, axis=1)).sum(1)
    return total


def chain_egop(
    dim: int, rank: int, covariance: Float64[Array, "{dim} {dim}"] | None = None
) -> Float64[Tensor, "{dim} {dim}"]:
    """Expected gradient outer product (dim, dim) of the chain monomial y = sum_(i<rank) x_i x_(i+1 mod rank).

    E[grad y grad y^T] = M C M for x ~ N(0, C), where grad y = M x and C defaults to the identity. In the isotropic case
    with rank >= 3, entry ij counts the coincidences of {i-1, i+1} and {j-1, j+1} mod rank. Labels are not scaled.
    Raises ValueError unless 1 <= rank <= dim.
    """
    m = chain_hessian(dim, rank)
    return torch.from_numpy(m @ m if covariance is None else m @ covariance @ m)


class _GaussianRegression(TensorData):
    """x ~ N(0, C), y = target(x) / std of the training targets; C = I or Q diag(1 / (1 + k^decay)) Q^T."""

    def __init__(
        self,
        target: Callable[[Array], Array],
        n_train: int,
        n_test: int,
        dim: int,
        *,
        decay: float | None,
        seed: int,
        **options: Any,
    ) -> None:
        if decay is None:
            root = None
            self.covariance: Array = np.eye(dim)
        else:
            q, eigenvalues = decaying_covariance(dim, decay, seed)
            root = np.sqrt(eigenvalues)[:, None] * q.T
            self.covariance = q * eigenvalues @ q.T

        def draw(n: int, part: str) -> tuple[Array, Array]:
            z = stream(seed, part).standard_normal((n, dim))
            x = z if root is None else z @ root
            return x, target(x)

        (x, y), (x_test, y_test) = draw(n_train, "train"), draw(n_test, "test")
        self.label_scale = float(y.std())
        if not self.label_scale > 0:
            raise ValueError(
                f"labels of n_train={n_train} samples do not vary, so they cannot be scaled: use more samples"
            )
        super().__init__(_pair(x, y / self.label_scale), _pair(x_test, y_test / self.label_scale), **options)
        self.decay = decay
        self.seed = seed

    def describe(self) -> dict[str, Any]:
        return super().describe() | {"decay": self.decay, "seed": self.seed, "label_scale": self.label_scale}


class ChainMonomials(_GaussianRegression):
    """Chain monomials: x ~ N(0, C) in R^dim, y = sum_(i<rank) x_i x_(i+1 mod rank) / s.

    s is the (population) standard deviation of the training targets, and scales the test targets too; the mean is not
    removed. C = I, or Q diag(1/(1+k^decay)) Q^T with a Haar Q of the same seed. Section 4 of arXiv:2402.05271.

    Attributes: `egop` (dim, dim), in closed form, of the target before scaling; `covariance`; `label_scale` = s.
    Raises ValueError unless 1 <= rank <= dim.
    """

    def __init__(
        self,
        n_train: int,
        n_test: int,
        dim: int,
        rank: int,
        *,
        decay: float | None = None,
        seed: int,
        dtype: Dtype = "float64",
        batch_size: int | None = None,
        order_seed: int = 0,
    ) -> None:
        chain_hessian(dim, rank)  # refuses a rank that does not fit
        super().__init__(
            partial(_chain, rank=rank),
            n_train,
            n_test,
            dim,
            decay=decay,
            seed=seed,
            dtype=dtype,
            batch_size=batch_size,
            order_seed=order_seed,
            name="chain_monomials",
        )
        self.egop = chain_egop(dim, rank, self.covariance)
        self.rank = rank

    def describe(self) -> dict[str, Any]:
        return super().describe() | {"rank": self.rank}


class HighRankPolynomial(_GaussianRegression):
    """x ~ N(0, C) in R^dim, y = |P x|^2 / s with P (dim, dim) standard normal; s and C as in `ChainMonomials`.

    Labels are positive and not centred. Fig. 8 of arXiv:2402.05271.
    Attributes: `egop` = 4 A C A, A = P^T P, of the target before scaling; `covariance`; `label_scale` = s.
    """

    def __init__(
        self,
        n_train: int,
        n_test: int,
        dim: int,
        *,
        decay: float | None = None,
        seed: int,
        dtype: Dtype = "float64",
        batch_size: int | None = None,
        order_seed: int = 0,
    ) -> None:
        projection = stream(seed, "target").standard_normal((dim, dim))
        super().__init__(
            lambda x: ((x @ projection.T) ** 2).sum(1),
            n_train,
            n_test,
            dim,
            decay=decay,
            seed=seed,
            dtype=dtype,
            batch_size=batch_size,
            order_seed=order_seed,
            name="high_rank_polynomial",
        )
        form = projection.T @ projection
        self.egop = torch.from_numpy(4.0 * form @ self.covariance @ form)


class AlignmentReversing(TensorData):
    """The dataset on which weight-to-PTK alignment at initialisation fails (fig. 3, appendix), n samples in R^n.

    With balance g in (0, 1], n1 = round(g n) and n2 = n - n1:

    1. rows of X1 (n1, n) are xi 1 + sqrt(eps1) z, i.e. N(0, 1 1^T + eps1 I), with labels 1;
    2. X1^T X1 = U1 S1 U1^T, singular values descending, and V2 (n2, n2) the left singular vectors of n2 fresh such
       rows;
    3. X2 = V2 S1^-1 U1^T with the leading n2 singular triples, with labels 0;
    4. X = [X1; X2] + eps2 Z, and 1e-5 is added to every label.

    X1^T X1 has rank n1, so for g < 1/2 step 3 inverts singular values that are zero up to rounding. They are clamped
    from below at `s_floor`, in float64: the outcome depends on that floor (a pseudo-inverse makes the phenomenon
    vanish). Raises ValueError where n1 would be 0, g > 1, or the floor is not positive.
    """

    def __init__(
        self,
        n: int,
        balance: float,
        *,
        s_floor: float = 1e-11,
        eps1: float = 0.5,
        eps2: float = 1e-2,
        seed: int,
        batch_size: int | None = None,
        order_seed: int = 0,
    ) -> None:
        n1 = round(balance * n)
        if not 1 <= n1 <= n:
            raise ValueError(
                f"balance must lie in (0, 1] and give at least one of n={n} samples label 1, got {balance}"
            )
        if not s_floor > 0:
            raise ValueError(f"s_floor must be positive, got {s_floor}")
        n2 = n - n1

        def rows(count: int, part: str) -> Array:
            rng = stream(seed, part)
            common = rng.standard_normal((count, 1))
            drawn: Array = common + np.sqrt(eps1) * rng.standard_normal((count, n))
            return drawn

        x1 = rows(n1, "ones")
        _, s1, u1_t = np.linalg.svd(x1.T @ x1)
        v2 = np.linalg.svd(rows(n2, "zeros"), full_matrices=False)[0] if n2 else np.zeros((0, 0))
        x2 = v2 / np.maximum(s1[:n2], s_floor) @ u1_t[:n2]
        x = np.concatenate([x1, x2]) + eps2 * stream(seed, "noise").standard_normal((n, n))
        y = np.concatenate([np.ones(n1), np.zeros(n2)]) + 1e-5
        super().__init__(_pair(x, y), batch_size=batch_size, order_seed=order_seed, name="alignment_reversing")
        self.balance, self.s_floor, self.seed = balance, s_floor, seed
        self.eps1, self.eps2 = eps1, eps2

    def describe(self) -> dict[str, Any]:
        names = ("balance", "s_floor", "eps1", "eps2", "seed")
        return super().describe() | {name: getattr(self, name) for name in names}


def _pair(x: Array, y: Array) -> Pair:
    return torch.from_numpy(x), torch.from_numpy(y)[:, None]
