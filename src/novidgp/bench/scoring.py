"""Scores of a fitted method on a problem, the same for our methods and for those of other libraries."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from novidgp.bench.certainty import certainty
from novidgp.bench.problems import Problem
from novidgp.prediction.scores import (
    Distribution,
    classification_scores,
    interval_bounds,
    interval_shares,
    point_scores,
)

COVERAGE_LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
"""Nominal levels of the central intervals of a calibration curve."""
COVERAGE_ROWS = 5_000
TRAIN_ROWS = 2_000
"""Calibration and training scores use at most this many rows, evenly spaced: enough for two digits."""

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


def from_predictive(predictive: Callable[[np.ndarray], Distribution]) -> Regression:
    """A regression method from a function that gives the predictive distribution at raw inputs."""

    def moments(X, y):
        found = predictive(X)
        return found.mean()[:, 0], found.log_prob(y[:, None])

    def quantiles(X, levels):
        return predictive(X).quantile(np.asarray(levels))[..., 0]

    return Regression(moments, quantiles)


def score(method: Regression | Classification, problem: Problem) -> Scores:
    """All scores of a method on the test rows, and the main ones on training rows."""
    if isinstance(method, Classification):
        return _classification(method, problem)
    return _regression(method, problem)


def thin(count: int, most: int) -> np.ndarray:
    """Row numbers: all of them, or `most` evenly spaced ones."""
    return np.arange(count) if count <= most else np.linspace(0, count - 1, most).astype(int)


def _regression(method: Regression, problem: Problem) -> Scores:
    def main(X, y):
        return point_scores(y, *method.moments(X, y))

    test = main(problem.X_test, problem.y_test)
    some = thin(len(problem.X), TRAIN_ROWS)
    train = main(problem.X[some], problem.y[some])
    some = thin(len(problem.X_test), COVERAGE_ROWS)
    bounds = method.quantiles(problem.X_test[some], interval_bounds(COVERAGE_LEVELS))
    coverage = interval_shares(problem.y_test[some], bounds)
    return test | {
        "rmse_raw": test["rmse"] * problem.target_sd,
        "nll_raw": test["nll"] + float(np.log(problem.target_sd)),
        "rmse_train": train["rmse"],
        "nll_train": train["nll"],
        "coverage": coverage,
        "coverage90": coverage[COVERAGE_LEVELS.index(0.9)],
    }


def _classification(method: Classification, problem: Problem) -> Scores:
    def main(labels, probabilities):
        scores = classification_scores(labels, probabilities)
        return {"accuracy": scores["accuracy"], "error": 1.0 - scores["accuracy"]} | scores

    found = _all_classes(method, problem.X_test, problem.y_test)
    test = main(*found)
    some = thin(len(problem.X), TRAIN_ROWS)
    train = main(*_all_classes(method, problem.X[some], problem.y[some]))
    names = {"accuracy": "accuracy", "error": "error", "log_loss": "nll"}
    scores = {ours: test[name] for name, ours in names.items()}
    scores |= {f"{ours}_train": train[name] for name, ours in names.items()}
    return scores | {"brier": test["brier"], "ece": test["ece"]} | certainty(*found, problem.X_test)


def _all_classes(method: Classification, X, y) -> tuple[np.ndarray, np.ndarray]:
    """Labels as column indices, and probabilities with a column for every class in training or in `y`."""
    classes = np.union1d(method.classes, y)
    probabilities = np.zeros((len(X), len(classes)))
    probabilities[:, np.searchsorted(classes, method.classes)] = method.probabilities(X)
    return np.searchsorted(classes, y), probabilities
