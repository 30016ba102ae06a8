"""Have the chains mixed? Split R-hat and effective sample size, after Vehtari et al. (2021).

Everything here is NumPy on arrays `(chains, draws, ...)`, element by element. `summary` reads the draws that
a fitted SGHMC estimator keeps: `novidgp.inference.mixing.summary(estimator.posterior_)`.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri
from scipy.stats import rankdata

Values = np.ndarray | np.floating
"""One value per element of a draw; NumPy makes a scalar of it where draws are numbers."""


def rank_normalise(draws: ArrayLike) -> np.ndarray:
    """Normal scores of the ranks over all chains: heavy tails no longer spoil means and variances."""
    draws = np.asarray(draws)
    total = draws.shape[0] * draws.shape[1]
    ranks = rankdata(draws.reshape(total, -1), axis=0).reshape(draws.shape)
    return ndtri((ranks - 0.375) / (total + 0.25))


def split_chains(draws: np.ndarray) -> np.ndarray:
    """Every chain as two, so that a chain that drifts disagrees with itself; a middle draw is left out."""
    half = draws.shape[1] // 2
    return np.concatenate([draws[:, :half], draws[:, -half:]])


def split_rhat(draws: ArrayLike, *, rank: bool = True) -> Values:
    """The root of total over within-chain variance, 1 where all half-chains agree; NaN for a constant."""
    draws = _checked(draws)
    halves = split_chains(rank_normalise(draws) if rank else draws)
    within, total = _variances(halves)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.sqrt(total / within)


def effective_sample_size(draws: ArrayLike, *, rank: bool = True) -> Values:
    """How many independent draws would give the mean as precisely; NaN for a constant.

    Autocorrelations over half-chains, summed in pairs as long as those are positive, and made monotone
    (Geyer's initial sequence).
    """
    draws = _checked(draws)
    halves = split_chains(rank_normalise(draws) if rank else draws)
    chains, length = halves.shape[:2]
    within, total = _variances(halves)
    with np.errstate(divide="ignore", invalid="ignore"):
        correlation = 1.0 - (within - np.mean(_autocovariance(halves), axis=0)) / total
    correlation[0] = np.where(np.isnan(correlation[0]), np.nan, 1.0)
    even = length - length % 2
    pairs = correlation[:even:2] + correlation[1:even:2]
    kept = np.logical_and.accumulate(~(pairs <= 0.0), axis=0)
    pairs = np.minimum.accumulate(np.where(kept, pairs, 0.0), axis=0)
    time = np.maximum(2.0 * np.sum(pairs, axis=0) - 1.0, 1.0 / np.log10(chains * length))
    return chains * length / time


class LayerSummary(NamedTuple):
    """Mixing of one layer's inducing outputs: the worst element and the middle one."""

    rhat_max: float
    rhat_median: float
    ess_min: float
    ess_median: float
    draws: int


def summary(posterior: Any) -> tuple[LayerSummary, ...]:
    """R-hat and effective sample size of every layer of a posterior that keeps chains of draws."""
    if not hasattr(posterior, "draws"):
        raise TypeError(
            f"{type(posterior).__name__} keeps no draws, so there is nothing to diagnose; "
            "fit with inference='sghmc'."
        )
    rows = []
    for draws in posterior.draws:
        rhat, size = split_rhat(draws), effective_sample_size(draws)
        if np.isnan(rhat).all():  # nothing has moved yet
            rhat, size = np.array([np.inf]), np.array([0.0])
        values = np.nanmax(rhat), np.nanmedian(rhat), np.nanmin(size), np.nanmedian(size)
        rows.append(LayerSummary(*map(float, values), draws=draws.shape[0] * draws.shape[1]))
    return tuple(rows)


def _checked(draws: ArrayLike) -> np.ndarray:
    draws = np.asarray(draws, np.float64)
    if draws.ndim < 2 or draws.shape[1] < 4:
        raise ValueError(f"draws of shape {draws.shape} must be (chains, draws, ...) with 4 draws or more.")
    return draws


def _variances(chains: np.ndarray) -> tuple[Values, Values]:
    """Within-chain variance, and the estimate of the total that also sees the spread of chain means."""
    length = chains.shape[1]
    within = np.mean(np.var(chains, axis=1, ddof=1), axis=0)
    between = np.var(np.mean(chains, axis=1), axis=0, ddof=1)
    return within, (length - 1) / length * within + between


def _autocovariance(chains: np.ndarray) -> np.ndarray:
    """At every lag, by the fast Fourier transform; the lag-0 entry is the variance with `ddof=1`."""
    length = chains.shape[1]
    centred = chains - np.mean(chains, axis=1, keepdims=True)
    spectrum = np.fft.rfft(centred, 2 * length, axis=1)
    products = np.fft.irfft(np.abs(spectrum) ** 2, 2 * length, axis=1)[:, :length]
    return products / (length - 1)
