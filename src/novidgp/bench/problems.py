"""From a fit's description to arrays: training rows and test rows, targets scaled by the training rows."""

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from novidgp.bench.protocols import split
from novidgp.bench.spec import Fit
from novidgp.datasets import Dataset, load_dataset

DATA_OPTIONS = ("rows", "train_rows", "test_fraction")


class Problem(NamedTuple):
    """Training and test rows. Inputs are raw, images as images; regression targets are standardised by the
    training rows."""

    task: str
    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray
    target_sd: float
    """The standard deviation of the training targets in the units of the file."""

    def flat(self) -> "Problem":
        """The problem with inputs as rows of numbers, for methods that know no images."""
        X, X_test = (np.asarray(x, np.float64).reshape(len(x), -1) for x in (self.X, self.X_test))
        return self._replace(X=X, X_test=X_test)


@lru_cache(maxsize=1)
def _dataset(name: str) -> Dataset:
    return load_dataset(name)


def load_problem(fit: Fit) -> Problem:
    """The rows of a fit. Every method sees the same ones: they depend on data set, protocol and seed only."""
    unknown = set(fit.data) - set(DATA_OPTIONS)
    if unknown:
        raise ValueError(
            f"data={fit.data}: {sorted(unknown)[0]!r} is unknown; use {', '.join(DATA_OPTIONS)}."
        )
    dataset = _dataset(fit.dataset)
    parts = {name: fit.data[name] for name in ("rows", "test_fraction") if name in fit.data}
    chosen = split(dataset, fit.protocol, fit.seed, **parts)
    train = chosen.train
    if fit.data.get("train_rows", len(train)) < len(train):
        generator = np.random.default_rng([fit.seed, 1])
        train = np.sort(generator.choice(train, int(fit.data["train_rows"]), replace=False))
    X, X_test = dataset.X[train], dataset.X[chosen.test]
    if not dataset.info.images:
        X, X_test = np.asarray(X, np.float64), np.asarray(X_test, np.float64)
    y, y_test = dataset.y[train], dataset.y[chosen.test]
    if dataset.info.task == "classification":
        return Problem("classification", X, y, X_test, y_test, 1.0)
    y, y_test = np.asarray(y, np.float64), np.asarray(y_test, np.float64)
    centre, sd = float(y.mean()), float(y.std())
    return Problem("regression", X, (y - centre) / sd, X_test, (y_test - centre) / sd, sd)
