"""How errors are spread beyond what a variance tells: the scales of the paths, fitted to rows left out.

The error of a row is `N(0, v (tau (1 - s) + s))`: `v` is the variance that the local layer states, `s` the
share of it in which the paths' means differ, and `tau` a factor drawn for every row. The law of `tau` is
fitted by expectation maximisation on a grid, with the scales of a t distribution as pseudo-rows; one row in a
hundred has the deep GP's variance. So densities, and the coverage of intervals, are those of rows left out.
"""

import numpy as np
from scipy.special import chdtri
from scipy.stats import t

LEVELS = 100
"""Levels at which the law of the factors is kept."""
WIDE = 0.01
"""Share of the paths that keep the deep GP's variance."""
_GRID = np.exp(np.linspace(np.log(1e-3), np.log(1e2), 60))
_PSEUDO_ROWS = 10.0
_ITERATIONS = 200
_GOLDEN = 0.5 * (np.sqrt(5.0) - 1.0)


def t_scales(df: float, count: int = LEVELS) -> np.ndarray:
    """Variances whose Gaussians mix to a t distribution of variance one: quantiles at `count` levels."""
    return (df - 2.0) / chdtri(df, _levels(count))


def t_log_density(errors: np.ndarray, variance: np.ndarray, df: float) -> np.ndarray:
    """Log density of errors with this variance, under a t distribution."""
    scale = np.sqrt(variance.astype(np.float64) * (df - 2.0) / df)
    return t.logpdf(errors / scale, df) - np.log(scale)


def fitted_scales(
    errors: np.ndarray,
    variance: np.ndarray,
    share: np.ndarray,
    deep_variance: np.ndarray,
    df: float,
    counted: np.ndarray | float = 1.0,
) -> np.ndarray:
    """Quantiles of the factors, smallest first, that suit the `errors` `(n,)` of rows left out, each
    `counted` so often."""
    edges = np.sqrt(_GRID[1:] * _GRID[:-1])
    prior = np.bincount(np.searchsorted(edges, t_scales(df, 1_000)), minlength=len(_GRID)) + 1e-3
    prior /= prior.sum()
    factors = _GRID * (1.0 - share[:, None]) + share[:, None]
    narrow = _log_density(errors[:, None], variance[:, None] * factors)
    wide = _log_density(errors, np.maximum(variance, deep_variance))
    most = np.maximum(narrow.max(axis=1), wide)
    narrow = (1.0 - WIDE) * np.exp(narrow - most[:, None])
    wide = WIDE * np.exp(wide - most)
    weights = prior
    for _ in range(_ITERATIONS):
        weights = weights * (narrow.T @ (counted / (narrow @ weights + wide))) + _PSEUDO_ROWS * prior
        weights /= weights.sum()
    return np.exp(np.interp(_levels(LEVELS), np.cumsum(weights) - 0.5 * weights, np.log(_GRID)))


def path_scales(count: int, scales: np.ndarray) -> np.ndarray:
    """The factors of `count` paths.

    The golden ratio orders them, so that any run of paths, such as those of one start, has all scales.
    """
    ranks = np.argsort(np.argsort((np.arange(count) * _GOLDEN) % 1.0))
    if count == len(scales):
        return scales[ranks]
    return np.exp(np.interp(_levels(count)[ranks], _levels(len(scales)), np.log(scales)))


def _levels(count: int) -> np.ndarray:
    return (np.arange(count) + 0.5) / count


def _log_density(errors: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """Of centred Gaussians, but for a constant, in double precision."""
    variance = variance.astype(np.float64)
    return -0.5 * (errors**2 / variance + np.log(variance))
