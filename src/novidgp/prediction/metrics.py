"""Scores of probabilistic predictions. NumPy only; NaN targets do not count."""

import numpy as np

COVERAGES = (0.5, 0.9, 0.95)


def rmse(y: np.ndarray, mean: np.ndarray) -> float:
    """Root of the mean squared error."""
    return float(np.sqrt(np.nanmean((np.asarray(y, float) - mean) ** 2)))


def nll(log_density: np.ndarray) -> float:
    """Mean negative log density of the rows, in nats."""
    return float(-np.mean(log_density))


def interval_levels(coverage: float) -> tuple[float, float]:
    """Quantile levels of the central interval that should contain the share `coverage` of the targets."""
    return 0.5 * (1.0 - coverage), 0.5 * (1.0 + coverage)


def interval_coverage(y: np.ndarray, lower: np.ndarray, upper: np.ndarray) -> float:
    """Share of the targets within their intervals."""
    y = np.asarray(y, float)
    inside = (y >= lower) & (y <= upper)
    return float(np.mean(inside[np.isfinite(y)]))


def quantile_levels(count: int = 50) -> np.ndarray:
    """The midpoints of `count` equal steps in probability: the levels `crps_from_quantiles` needs."""
    return (np.arange(count) + 0.5) / count


def crps_from_quantiles(y: np.ndarray, quantiles: np.ndarray) -> float:
    """Continuous ranked probability score by the quantile (pinball) form.

    `CRPS = 2 int_0^1 (1[y < F^-1(q)] - q)(F^-1(q) - y) dq` by the midpoint rule: `quantiles` are `(n, q)` or
    `(n, q, t)` at `quantile_levels(q)`.
    """
    quantiles = np.asarray(quantiles, float)
    levels = quantile_levels(quantiles.shape[1])
    if quantiles.ndim == 3:
        levels = levels[:, None]
    error = quantiles - np.asarray(y, float)[:, None]
    loss = 2.0 * np.where(error > 0, 1.0 - levels, -levels) * error
    return float(np.nanmean(loss))


def accuracy(labels: np.ndarray, probabilities: np.ndarray) -> float:
    """Share of the rows whose most probable class is right; `labels` are column indices."""
    return float(np.mean(np.argmax(probabilities, axis=1) == labels))


def label_losses(labels: np.ndarray, probabilities: np.ndarray) -> np.ndarray:
    """Negative log probability of every row's class, `(n,)`; `labels` are column indices."""
    chosen = np.take_along_axis(probabilities, np.asarray(labels, int)[:, None], axis=1)[:, 0]
    return -np.log(np.maximum(chosen, np.finfo(float).tiny))


def log_loss(labels: np.ndarray, probabilities: np.ndarray) -> float:
    """Mean negative log probability of the right class; `labels` are column indices."""
    return float(np.mean(label_losses(labels, probabilities)))


def brier(labels: np.ndarray, probabilities: np.ndarray) -> float:
    """Mean squared distance between the probabilities and the one-hot label, summed over classes (0 to 2)."""
    truth = np.eye(probabilities.shape[1])[np.asarray(labels, int)]
    return float(np.mean(np.sum((probabilities - truth) ** 2, axis=1)))


def ece(labels: np.ndarray, probabilities: np.ndarray, bins: int = 15) -> float:
    """Expected calibration error of the most probable class, over `bins` equal bins of confidence."""
    confidence = probabilities.max(1)
    correct = np.argmax(probabilities, axis=1) == labels
    index = np.clip(np.ceil(confidence * bins).astype(int) - 1, 0, bins - 1)
    weight = np.bincount(index, minlength=bins)
    gap = np.bincount(index, correct - confidence, minlength=bins)
    return float(np.sum(np.abs(gap)) / max(weight.sum(), 1))
