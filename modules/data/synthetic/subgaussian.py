"""Two non-centred sub-Gaussian classes, unseen classes at chosen means, and rotations near the identity.

All follow "Emergence of Alignment and Local Elasticity in Two-Layer Neural Networks" (anonymous authors, under review),
sections 2 and 5 and appendices B and K. Directions, training inputs, test inputs, unseen samples and rotations are
drawn from separate streams of one seed, in float64 on the CPU.
"""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Float64
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri
from torch import Tensor

from featurelab.modules.dtypes import Dtype

from ..core.tensors import TensorData, stream

Array = NDArray[np.float64]
Distribution = Literal["ball", "truncated", "sphere"]
Projection = Literal["orthogonal", "literal"]

# mean and variance of a standard normal variable truncated to [1, inf): the inverse Mills ratio h, and 1 + h - h^2
TRUNCATED_MEAN = float(np.exp(-0.5) / np.sqrt(2 * np.pi) / ndtr(-1.0))
TRUNCATED_VARIANCE = 1 + TRUNCATED_MEAN - TRUNCATED_MEAN**2
GROWTH = {"constant": 0.0, "sqrt_dim": 0.5, "dim": 1.0}


def class_mean_length(mean_norm: float, growth: str, dim: int) -> float:
    """|v| = mean_norm * dim^p, with p = 0, 1/2, 1 for the growth "constant", "sqrt_dim", "dim".

    The paper sets |v| = 5 r^2 and does not define r; mean_norm = 5 and the three growths are its possible readings.
    Raises ValueError for an unknown growth.
    """
    if growth not in GROWTH:
        raise ValueError(f"growth must be one of {', '.join(GROWTH)}, got {growth!r}")
    length: float = mean_norm * dim ** GROWTH[growth]
    return length


class SubGaussianClasses(TensorData):
    """Two classes of non-centred sub-Gaussian inputs (dim,): n//2 samples of the class +1, then the others of class -1.

    - "ball" (Data 1): uniform in the ball of radius sqrt(dim), shifted by +v and -v.
    - "truncated" (Data 2): coordinates are standard normal truncated to [1, inf), and to (-inf, -1].
    - "sphere" (Data 3): uniform on the sphere of radius sqrt(dim), shifted by +v and -v.

    v = length * u, u uniform on the unit sphere; for "truncated" it is (1, ..., 1), only the axis of unseen classes.
    Targets (n, 2) are the signs of the two heads, y and -y. The test set is an independent copy of n_test samples.
    Attributes: `axis` (dim,) = v / |v| and `length` = |v|. Raises ValueError for an unknown distribution or a size < 2.
    """

    def __init__(
        self,
        n_train: int,
        dim: int,
        distribution: Distribution,
        *,
        length: float = 5.0,
        n_test: int = 0,
        seed: int,
        dtype: Dtype = "float64",
    ) -> None:
        if distribution not in ("ball", "truncated", "sphere"):
            raise ValueError(f"distribution must be 'ball', 'truncated' or 'sphere', got {distribution!r}")
        if n_train < 2 or dim < 2:
            raise ValueError(f"n_train and dim must be at least 2, got n_train={n_train}, dim={dim}")
        u, self.length = _axis(dim, distribution, length, seed)
        self.axis = torch.from_numpy(u)

        def draw(n: int, part: str) -> tuple[Tensor, Tensor]:
            signs = np.where(np.arange(n) < n // 2, 1.0, -1.0)
            x = _one_sided(n, dim, distribution, seed, part) * signs[:, None]
            if distribution != "truncated":
                x = x + self.length * signs[:, None] * u
            return torch.from_numpy(x), torch.from_numpy(np.stack([signs, -signs], 1))

        super().__init__(draw(n_train, "train"), draw(n_test, "test"), dtype=dtype, name=f"sub_gaussian_{distribution}")
        self.seed, self.distribution = seed, distribution

    def describe(self) -> dict[str, Any]:
        return super().describe() | {"seed": self.seed, "distribution": self.distribution, "length": self.length}


class SubGaussianRegression(TensorData):
    """The regression variant (appendix B): x of one class of `SubGaussianClasses`, y = tanh(theta^T x) + noise * eps.

    theta = (u + w) / sqrt(2), with w a unit vector orthogonal to the axis u, so that y depends on the direction of the
    mean and on another one; eps ~ N(0, 1). Targets are (n, 1). Attributes and errors as in `SubGaussianClasses`, with
    `theta`; ValueError also for negative noise.
    """

    def __init__(
        self,
        n_train: int,
        dim: int,
        distribution: Distribution,
        *,
        length: float = 1.0,
        noise: float = 0.1,
        n_test: int = 0,
        seed: int,
        dtype: Dtype = "float64",
    ) -> None:
        if noise < 0:
            raise ValueError(f"noise must not be negative, got {noise}")
        both = SubGaussianClasses(2, dim, distribution, length=length, seed=seed)
        self.axis, self.length = both.axis, both.length
        u = self.axis.numpy()
        w = stream(seed, "target").standard_normal(dim)
        w -= (w @ u) * u
        theta = (u + w / np.linalg.norm(w)) / np.sqrt(2)
        self.theta = torch.from_numpy(theta)

        def draw(n: int, part: str) -> tuple[Tensor, Tensor]:
            x = _one_sided(n, dim, distribution, seed, part)
            if distribution != "truncated":
                x = x + self.length * u
            y = np.tanh(x @ theta) + noise * stream(seed, f"{part} noise").standard_normal(n)
            return torch.from_numpy(x), torch.from_numpy(y)[:, None]

        super().__init__(
            draw(n_train, "train"), draw(n_test, "test"), dtype=dtype, name=f"sub_gaussian_regression_{distribution}"
        )
        self.seed, self.distribution, self.noise = seed, distribution, noise

    def describe(self) -> dict[str, Any]:
        more = {"distribution": self.distribution, "length": self.length, "noise": self.noise}
        return super().describe() | {"seed": self.seed} | more


def gaussian_samples(count: int, dim: int, seed: int, name: str = "unseen") -> Float64[Tensor, "{count} {dim}"]:
    """Standard normal samples (count, dim), the z of an unseen class, from the stream `name` of `seed`."""
    return torch.from_numpy(stream(seed, name).standard_normal((count, dim)))


def mean_shrinkage(lengths: Float[Tensor, "*shape"], projection: Projection = "orthogonal") -> Float[Tensor, "*shape"]:
    """q of means of these lengths: the share of z's component along its mean that `unseen_class` removes.

    1 for "orthogonal": (z^T u) u = (z^T nu) nu / |nu|^2, the projection off the axis of the mean. 1 / |nu|^2 for
    "literal", the printed (z^T nu) nu / |nu|^4, which is a projection only if |nu| = 1. Raises ValueError for an
    unknown projection, or a literal one at |nu| = 0.
    """
    if projection == "orthogonal":
        return torch.ones_like(lengths)
    if projection != "literal":
        raise ValueError(f"projection must be 'orthogonal' or 'literal', got {projection!r}")
    if (lengths == 0).any():
        raise ValueError("the literal projection divides by the length of the mean, which is 0")
    return lengths.square().reciprocal()


def unseen_class(
    z: Float[Tensor, "m dim"],
    axis: Float[Tensor, " dim"],
    length: float | Float[Tensor, ""],
    projection: Projection = "orthogonal",
) -> Float[Tensor, "m dim"]:
    """Samples x = z - q (z^T u) u + length * u of the unseen class with mean nu = length * u, u the unit `axis`.

    z is standard normal, q = `mean_shrinkage`. So x ~ N(nu, I + (q^2 - 2q) u u^T), and with the orthogonal
    projection x^T u = length exactly. The length may be negative, and 0 with the orthogonal projection. Section 5.
    Raises ValueError as `mean_shrinkage` does.
    """
    r = torch.as_tensor(length, dtype=z.dtype, device=z.device)
    return z + (r - mean_shrinkage(r, projection) * (z @ axis))[:, None] * axis


def random_rotation(
    dim: int, eps: float, *, seed: int, index: int = 0, fix_signs: bool = True
) -> Float64[Tensor, "{dim} {dim}"]:
    """A rotation (dim, dim) by QR of I + eps M with M standard normal (appendix K.4).

    LAPACK's R may have negative diagonal entries (for small eps it does), so that Q is near -I: `fix_signs` multiplies
    the columns of Q by the signs of the diagonal of R; without it Q is as printed. If the determinant is then -1, the
    first column changes its sign. Raises ValueError for a negative eps.
    """
    q, tau, signs = _householder(dim, eps, seed, index)
    full: Tensor = torch.linalg.householder_product(q, tau)
    return full * _column_signs(tau, signs, fix_signs)


def rotated_axes(
    axis: Float[Tensor, " dim"], eps: Sequence[float], *, seed: int, fix_signs: bool = True
) -> Float64[Tensor, "rotations dim"]:
    """R_k axis for the rotations `random_rotation(dim, eps[k], seed=seed, index=k)`, without forming them."""
    vectors = []
    for index, strength in enumerate(eps):
        q, tau, signs = _householder(len(axis), strength, seed, index)
        v = axis.to("cpu", torch.float64) * _column_signs(tau, signs, fix_signs)
        vectors.append(torch.ormqr(q, tau, v[:, None])[:, 0])
    return torch.stack(vectors)


def _axis(dim: int, distribution: str, length: float, seed: int) -> tuple[Array, float]:
    if distribution == "truncated":
        return np.full(dim, dim**-0.5), dim**0.5
    u = stream(seed, "axis").standard_normal(dim)
    return u / np.linalg.norm(u), float(length)


def _one_sided(n: int, dim: int, distribution: str, seed: int, part: str) -> Array:
    """Samples of the class +1 before the shift; every distribution has streams of its own."""
    part = f"{distribution} {part}"
    if distribution == "truncated":
        tail = ndtr(-1.0) * (1 - stream(seed, part).random((n, dim)))  # in (0, P(z > 1)]
        return np.maximum(-ndtri(tail), 1.0)
    z = stream(seed, part).standard_normal((n, dim))
    z *= np.sqrt(dim) / np.linalg.norm(z, axis=1, keepdims=True)
    return z * stream(seed, f"{part} radius").random((n, 1)) ** (1 / dim) if distribution == "ball" else z


def _householder(dim: int, eps: float, seed: int, index: int) -> tuple[Tensor, Tensor, Tensor]:
    """Reflectors of the QR decomposition of I + eps M, their factors, and the signs of R's diagonal."""
    if eps < 0:
        raise ValueError(f"eps must not be negative, got {eps}")
    noise = torch.from_numpy(stream(seed, f"rotation {index}").standard_normal((dim, dim)))
    reflectors, tau = torch.geqrf(torch.eye(dim, dtype=torch.float64) + eps * noise)
    diagonal = reflectors.diagonal()
    return reflectors, tau, torch.where(diagonal < 0, -1.0, 1.0).double()


def _column_signs(tau: Tensor, signs: Tensor, fix_signs: bool) -> Tensor:
    """The signs that the columns of Q get: R's diagonal if wanted, and the first one so that the determinant is 1."""
    columns = signs.clone() if fix_signs else torch.ones_like(signs)
    determinant = columns.prod() * (-1.0) ** int((tau != 0).sum())  # each reflection has determinant -1
    columns[0] *= determinant
    return columns
