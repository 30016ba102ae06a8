"""The sets of scores by which predictions are judged, in the commands, the demo and the benchmarks alike.

Everything here is NumPy. A predictive distribution is asked for each quantity once, so that a model is
evaluated in one pass; it may come in blocks of rows, so that memory is bounded.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from novidgp.prediction import metrics

Scores = dict[str, float]


@runtime_checkable
class Distribution(Protocol):
    """What the scores of a regression need of a predictive distribution of n rows with t targets."""

    def mean(self) -> np.ndarray:
        """`(n, t)`."""
        ...

    def quantile(self, levels: np.ndarray) -> np.ndarray:
        """`(n, q, t)`."""
        ...

    def log_prob(self, y: np.ndarray) -> np.ndarray:
        """`(n,)` of targets `(n, t)`."""
        ...


@dataclass(frozen=True, eq=False)
class Gaussian:
    """One Gaussian per row, for models of other libraries: means and standard deviations `(n,)`."""

    means: np.ndarray
    deviations: np.ndarray

    def mean(self) -> np.ndarray:
        """`(n, 1)`."""
        return self.means[:, None]

    def quantile(self, levels: Sequence[float] | np.ndarray) -> np.ndarray:
        """`(n, q, 1)`."""
        from scipy.stats import norm

        return (self.means[:, None] + self.deviations[:, None] * norm.ppf(levels))[..., None]

    def log_prob(self, y: np.ndarray) -> np.ndarray:
        """`(n,)` of targets `(n, 1)`."""
        from scipy.stats import norm

        return norm.logpdf(y[:, 0], self.means, self.deviations)


def regression_scores(
    blocks: Iterable[Distribution], y: np.ndarray, *, coverages: Sequence[float] = metrics.COVERAGES
) -> Scores:
    """RMSE, NLL, coverage of central intervals (`coverage_90`) and CRPS for targets `(n,)` or `(n, t)`.

    `blocks` are the predictive distributions of consecutive rows.
    """
    y = np.asarray(y, float).reshape(len(y), -1)
    bounds = interval_bounds(coverages)
    levels = np.concatenate([bounds, metrics.quantile_levels()])
    means, densities, quantiles = [], [], []
    start = 0
    for block in blocks:
        means.append(block.mean())
        stop = start + len(means[-1])
        densities.append(block.log_prob(y[start:stop]))
        quantiles.append(block.quantile(levels))
        start = stop
    quantiles = np.concatenate(quantiles)
    scores = point_scores(y, np.concatenate(means), np.concatenate(densities))
    shares = interval_shares(y, quantiles[:, : len(bounds)])
    for coverage, share in zip(coverages, shares, strict=True):
        scores[f"coverage_{100 * coverage:.0f}"] = share
    return scores | {"crps": metrics.crps_from_quantiles(y, quantiles[:, len(bounds) :])}


def point_scores(y: np.ndarray, mean: np.ndarray, log_prob: np.ndarray) -> Scores:
    """RMSE, and the mean negative log density in nats."""
    return {"rmse": metrics.rmse(y, mean), "nll": metrics.nll(log_prob)}


def interval_bounds(coverages: Sequence[float]) -> list[float]:
    """The quantile levels of central intervals: lower and upper bound of each in turn."""
    return [level for coverage in coverages for level in metrics.interval_levels(coverage)]


def interval_shares(y: np.ndarray, bounds: np.ndarray) -> list[float]:
    """The share of targets in each central interval; `bounds` are the quantiles at `interval_bounds`."""
    count = bounds.shape[1] // 2
    return [metrics.interval_coverage(y, bounds[:, 2 * i], bounds[:, 2 * i + 1]) for i in range(count)]


def classification_scores(labels: np.ndarray, probabilities: np.ndarray) -> Scores:
    """Accuracy, log loss, Brier score and calibration error; `labels` are columns of `probabilities`."""
    names = ("accuracy", "log_loss", "brier", "ece")
    return {name: getattr(metrics, name)(labels, probabilities) for name in names}
