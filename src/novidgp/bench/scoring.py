"""Scores of a fitted method on a problem, the same for ours and for scikit-learn's."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from novidgp.bench.problems import Problem
from novidgp.prediction import metrics

COVERAGE_LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
"""Nominal levels of the central intervals of a calibration curve."""
COVERAGE_ROWS = 5_000
TRAIN_ROWS = 2_000
"""Calibration and training scores use at most so many rows, evenly spaced: enough to two digits."""

Scores = dict[str, Any]


class Regression(NamedTuple):
    """A fitted regression method, as functions of raw inputs."""

    moments: Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]
    """Mean and log density of the targets, both `(n,)`, from inputs and targets."""
    quantiles: Callable[[np.ndarray, list[float]], np.ndarray]
    """`(n, q)` at the given levels."""


class Classification(NamedTuple):
    """A fitted classification method."""

    probabilities: Callable[[np.ndarray], np.ndarray]
    """`(n, classes)`, in the order of `classes`."""
    classes: np.ndarray


def score(method: Regression | Classification, problem: Problem) -> Scores:
    """All scores of a method on the test rows, and the chief ones on training rows."""
    if isinstance(method, Classification):
        return _classification(method, problem)
    return _regression(method, problem)


def thin(count: int, most: int) -> np.ndarray:
    """Row numbers: all of them, or `most` evenly spaced ones."""
    return np.arange(count) if count <= most else np.linspace(0, count - 1, most).astype(int)


def _regression(method: Regression, problem: Problem) -> Scores:
    mean, log_density = method.moments(problem.X_test, problem.y_test)
    rmse, nll = metrics.rmse(problem.y_test, mean), metrics.nll(log_density)
    some = thin(len(problem.X), TRAIN_ROWS)
    train_mean, train_density = method.moments(problem.X[some], problem.y[some])
    some = thin(len(problem.X_test), COVERAGE_ROWS)
    levels = [level for coverage in COVERAGE_LEVELS for level in metrics.interval_levels(coverage)]
    bounds = method.quantiles(problem.X_test[some], levels)
    y = problem.y_test[some]
    coverage = [
        metrics.interval_coverage(y, bounds[:, 2 * i], bounds[:, 2 * i + 1])
        for i in range(len(COVERAGE_LEVELS))
    ]
    return {
        "rmse": rmse,
        "nll": nll,
        "rmse_raw": rmse * problem.target_sd,
        "nll_raw": nll + float(np.log(problem.target_sd)),
        "rmse_train": metrics.rmse(problem.y[thin(len(problem.X), TRAIN_ROWS)], train_mean),
        "nll_train": metrics.nll(train_density),
        "coverage": coverage,
        "coverage90": coverage[COVERAGE_LEVELS.index(0.9)],
    }


def _classification(method: Classification, problem: Problem) -> Scores:
    def chief(X, y, ending):
        probabilities, labels = _all_classes(method, X, y)
        accuracy = metrics.accuracy(labels, probabilities)
        loss = metrics.log_loss(labels, probabilities)
        scores = {f"accuracy{ending}": accuracy, f"error{ending}": 1.0 - accuracy, f"nll{ending}": loss}
        return scores, probabilities, labels

    scores, probabilities, labels = chief(problem.X_test, problem.y_test, "")
    some = thin(len(problem.X), TRAIN_ROWS)
    scores |= chief(problem.X[some], problem.y[some], "_train")[0]
    return scores | {
        "brier": metrics.brier(labels, probabilities),
        "ece": metrics.ece(labels, probabilities),
    }


def _all_classes(method: Classification, X, y) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities with a column for every class of the training or these rows, and column indices."""
    classes = np.union1d(method.classes, y)
    probabilities = np.zeros((len(X), len(classes)))
    probabilities[:, np.searchsorted(classes, method.classes)] = method.probabilities(X)
    return probabilities, np.searchsorted(classes, y)
