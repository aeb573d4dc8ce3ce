"""What values on several seeds say of a mean: intervals, and how many seeds it takes to decide.

With a number of seeds that was fixed before, the interval is Student's. Where seeds are added until a claim is decided,
one looks after 6, 8, 12, ... seeds, and at every look an interval may miss the mean by bad luck: the allowed error of
5% is shared out among the looks. Seeds of a learning curve are often skewed, which Student's interval takes badly
when they are few, so the interval of a look also covers that of Hall's cubic transformation of t, which corrects for
skewness (P. Hall, On the removal of skewness by transformation, J. R. Statist. Soc. B 54, 1992). `docs/judging.md` says
how often decisions are false, by simulation.
"""

from collections.abc import Sequence
from typing import Any

from featurelab.pipelines.engine.libraries import np

LOOKS = (6, 8, 12, 16, 24, 32, 48, 64)  # numbers of seeds after which a claim may be decided
SHARES = (1, 2, 2, 2, 2, 2, 2, 2)  # in the allowed error; skewness is worst at the first
ERROR = 0.05  # how often an interval, or all of them while seeds are added, may miss the mean
MOST_SEEDS = LOOKS[3]  # to which seeds are added unless told


def t_interval(values: Sequence[float], error: float = ERROR) -> list[float] | None:
    """The two-sided Student t interval of the mean; None for fewer than two values, or one that is not finite."""
    if len(values) < 2 or not np.isfinite(values).all():
        return None
    low, high = student(np.asarray(values), error)
    return [float(low), float(high)]


def look_interval(values: Sequence[float], error: float = ERROR) -> list[float] | None:
    """The interval at the look of as many seeds, or the last one before; None before the first, and as `t_interval`."""
    taken = [look for look in LOOKS if look <= len(values)]
    if not taken or not np.isfinite(values).all():
        return None
    low, high = skewed(np.asarray(values[: taken[-1]]), error * share(taken[-1]))
    return [float(low), float(high)]


def share(look: int) -> float:
    """The part of the allowed error that this look gets; those of all looks sum to 1."""
    return SHARES[LOOKS.index(look)] / sum(SHARES)


def student(values: "np.ndarray", error: float) -> tuple[Any, Any]:
    """Ends of Student's interval of the mean over the last axis of `values` (..., n), n >= 2: each of shape (...)."""
    from scipy.stats import t  # half a second of imports that a listing of experiments should not pay

    n = values.shape[-1]
    centre = values.mean(-1)
    half = t.ppf(1 - error / 2, n - 1) * values.std(-1, ddof=1) / np.sqrt(n)
    return centre - half, centre + half


def skewed(values: "np.ndarray", error: float) -> tuple[Any, Any]:
    """Ends of the interval over the last axis of `values` (..., n), n >= 3, that covers Student's and Hall's."""
    from scipy.stats import t

    n = values.shape[-1]
    centre, spread = values.mean(-1), values.std(-1, ddof=1)
    low, high = student(values, error)
    with np.errstate(divide="ignore", invalid="ignore"):
        third = ((values - centre[..., None]) ** 3).mean(-1) / ((n - 1) / n * spread**2) ** 1.5
        skew = np.sqrt(n * (n - 1)) / (n - 2) * third
        quantile = t.ppf(1 - error / 2, n - 1)
        ends = [
            centre - spread * (3 / skew) * (np.cbrt(1 + skew / np.sqrt(n) * (z - skew / (6 * np.sqrt(n)))) - 1)
            for z in (quantile, -quantile)
        ]
    symmetric = ~np.isfinite(skew) | (np.abs(skew) < 1e-6)  # there the two are the same
    return np.where(symmetric, low, np.fmin(low, ends[0])), np.where(symmetric, high, np.fmax(high, ends[1]))
