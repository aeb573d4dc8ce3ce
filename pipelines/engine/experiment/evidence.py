"""What values on several seeds say of a mean, a median or a share: intervals, and when one may look at them.

An interval decides a claim once its whole length is on one side of a bound, so an interval that misses the truth too
often decides falsely. `docs/judging.md` says how often, by simulation of these functions.

Where seeds are added until a claim is decided, one looks at it several times, and each look may be wrong by bad luck:
the allowed error of 5% is shared out among the looks that will happen, more to later ones, which see more.

Means: Student's interval takes skewed values badly, above all when they are few. The interval that decides also covers
that of Hall's cubic transformation of t, which corrects for skewness (P. Hall, On the removal of skewness by
transformation, J. R. Statist. Soc. B 54, 1992). Equal values have no width, which says nothing of the seeds that were
not drawn; the interval then allows for as many other seeds as the equal ones do not exclude. Medians and shares have
exact intervals, whatever the distribution.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, get_args

from featurelab.pipelines.engine.libraries import np

About = Literal["mean", "median", "share", "equivalence"]
ABOUT: tuple[About, ...] = get_args(About)
Within = tuple[float, float]
LOOKS = (6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)  # numbers of seeds after which a claim may be decided
ERROR = 0.05  # how often an interval, or one of all looks, may miss the truth
MOST_SEEDS = 16  # to which seeds are added unless told
FEW = LOOKS[0]  # fewer seeds than this do not show whether values are skewed,
OF_FEW = 4  # so there the error is allowed this many times less often
SHOWN = 1.75  # times the skewness that a few values show: they seldom have the long tail among them
EQUAL = 1e-12  # values that differ by a smaller part of their size are equal but for rounding


def looks(most_seeds: int) -> dict[int, float]:
    """The numbers of seeds at which one looks, up to `most_seeds`, each with its share of the allowed error.

    The shares grow with the square of the number of seeds, and their sum is `ERROR`.
    """
    numbers = [*(look for look in LOOKS if look < most_seeds), most_seeds]
    whole = sum(number**2 for number in numbers)
    return {number: ERROR * number**2 / whole for number in numbers}


def allowed(seeds: int) -> float:
    """The allowed error of one look at a number of seeds that was fixed beforehand."""
    return ERROR / OF_FEW if seeds < FEW else ERROR


def interval(about: About, values: Sequence[float], error: float, within: Within) -> list[float] | None:
    """The two-sided interval that decides; None where the values say nothing: too few of them, or not finite."""
    array = np.asarray(values, dtype=float)
    if len(values) < 2 or not np.isfinite(array).all():
        return None
    low, high = ENDS[about](array, error, within)
    return [float(low), float(high)] if np.isfinite(low) or np.isfinite(high) else None


def plain_interval(about: About, values: Sequence[float], within: Within) -> list[float] | None:
    """The usual 95% interval of so many values, for reading: Student's for a mean, the exact one otherwise."""
    array = np.asarray(values, dtype=float)
    if len(values) < 2 or not np.isfinite(array).all():
        return None
    ends = (lambda x, error, inside: _clipped(student(x, error), inside)) if about in MEANS else ENDS[about]
    low, high = ends(array, ERROR, within)
    return [float(low), float(high)] if np.isfinite(low) and np.isfinite(high) else None


def student(values: "np.ndarray", error: float) -> tuple[Any, Any]:
    """Ends of Student's interval of the mean over the last axis of `values` (..., n), n >= 2: each of shape (...)."""
    from scipy.stats import t  # half a second of imports that a listing of experiments should not pay

    n = values.shape[-1]
    centre = values.mean(-1)
    half = t.ppf(1 - error / 2, n - 1) * values.std(-1, ddof=1) / np.sqrt(n)
    return centre - half, centre + half


def skewed(values: "np.ndarray", error: float) -> tuple[Any, Any]:
    """Ends of the interval over the last axis of `values` (..., n) that covers Student's and, for n >= 3, Hall's."""
    from scipy.stats import t

    n = values.shape[-1]
    low, high = student(values, error)
    if n < 3:
        return low, high
    centre, spread = values.mean(-1), values.std(-1, ddof=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        third = ((values - centre[..., None]) ** 3).mean(-1) / ((n - 1) / n * spread**2) ** 1.5
        skew = SHOWN * np.sqrt(n * (n - 1)) / (n - 2) * third
        quantile = t.ppf(1 - error / 2, n - 1)
        ends = [
            centre - spread * (3 / skew) * (np.cbrt(1 + skew / np.sqrt(n) * (z - skew / (6 * np.sqrt(n)))) - 1)
            for z in (quantile, -quantile)
        ]
    symmetric = ~np.isfinite(skew) | (np.abs(skew) < 1e-6)  # there the two are the same
    return np.where(symmetric, low, np.fmin(low, ends[0])), np.where(symmetric, high, np.fmax(high, ends[1]))


def mean_ends(values: "np.ndarray", error: float, within: Within) -> tuple[Any, Any]:
    """Ends of the interval of the mean over the last axis of `values` (..., n), n >= 2, for a quantity within a range.

    If all values are equal, up to a share q of seeds may still give others, where (1 - q)^n = error / 2, and these may
    lie at the end of the range: without such an end the interval has none either.
    """
    low, high = _clipped(skewed(values, error), within)
    value, q = values[..., 0], 1 - (error / 2) ** (1 / values.shape[-1])
    equal = np.ptp(values, axis=-1) <= EQUAL * np.abs(values).max(-1)
    return np.where(equal, value - q * (value - within[0]), low), np.where(equal, value + q * (within[1] - value), high)


def median_ends(values: "np.ndarray", error: float, within: Within) -> tuple[Any, Any]:
    """Ends of the exact interval of the median over the last axis of `values`: two of the values, or the range."""
    from scipy.stats import binom

    n = values.shape[-1]
    end = int(binom.ppf(error / 2, n, 0.5))  # the end is the first, second, ... value; 0 if n is too small for any
    if end == 0:
        return np.full(values.shape[:-1], within[0]), np.full(values.shape[:-1], within[1])
    ordered = np.sort(values, axis=-1)
    return ordered[..., end - 1], ordered[..., n - end]


def share_ends(values: "np.ndarray", error: float, within: Within = (0.0, 1.0)) -> tuple[Any, Any]:
    """Ends of the exact interval (Clopper and Pearson's) of the share of ones among the last axis of `values`."""
    from scipy.stats import beta

    n = values.shape[-1]
    ones = values.sum(-1)
    with np.errstate(invalid="ignore"):
        low = np.where(ones == 0, 0.0, beta.ppf(error / 2, ones, n - ones + 1))
        high = np.where(ones == n, 1.0, beta.ppf(1 - error / 2, ones + 1, n - ones))
    return low, high


def _clipped(ends: tuple[Any, Any], within: Within) -> tuple[Any, Any]:
    return np.clip(ends[0], *within), np.clip(ends[1], *within)


MEANS = ("mean", "equivalence")
ENDS: Mapping[About, Callable[["np.ndarray", float, Within], tuple[Any, Any]]] = {
    "mean": mean_ends,
    "equivalence": mean_ends,
    "median": median_ends,
    "share": share_ends,
}
