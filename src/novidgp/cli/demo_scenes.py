"""The three scenes of the demo: a curve, a town of houses, handwritten digits.

Each has a deep GP with its defaults beside what people use there, a few rows for the table, and a picture.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestClassifier
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel
from sklearn.model_selection import train_test_split

import novidgp
from novidgp.bench.baselines import fit_exact_gp
from novidgp.datasets import curve_without_noise, load_dataset, nonstationary_curve, town_houses, town_prices
from novidgp.plots import OURS, PEER, Bands, Map, Sureness, maps, predictive_bands, surest_first
from novidgp.prediction.metrics import log_loss, rmse
from novidgp.prediction.scores import Distribution, regression_scores

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_KERNEL_ROWS = 500
"""Rows that an exact GP learns its kernel from, if there are more: with all it would take minutes."""


@dataclass(frozen=True, eq=False)
class Scene:
    """What a scene shows."""

    model: Any
    """The fitted deep GP."""
    X_test: np.ndarray
    rows: Sequence[tuple[str, ...]]
    """Cells of the table: model, three figures, seconds."""
    figure: "Figure"


def curve(steps: int | None, seed: int) -> Scene:
    """200 noisy points; judged against the function without noise."""
    X, y = nonstationary_curve(200, seed=0)
    X_test, y_test = nonstationary_curve(1000, seed=1)
    truth = curve_without_noise(X_test[:, 0])
    ours, seconds = _timed(lambda: novidgp.DGPRegressor(max_steps=steps, random_state=seed).fit(X, y))
    exact, exact_seconds = _timed(lambda: _exact_gp(X, y, seed))
    found = {"deep GP": (ours.predictive, seconds), "exact GP": (exact, exact_seconds)}
    rows = [
        _regression_row(name, predictive(X_test), y_test, truth, s) for name, (predictive, s) in found.items()
    ]
    line = np.linspace(-1.15, 1.15, 461)
    inside = np.linspace(-1.0, 1.0, 401)
    panels = [
        _bands(name, line, predictive(line[:, None]), color)
        for (name, (predictive, _)), color in zip(found.items(), (OURS, PEER), strict=True)
    ]
    figure = predictive_bands(panels, X[:, 0], y, truth=(inside, curve_without_noise(inside)))
    return Scene(ours, X_test, rows, figure)


def town(steps: int | None, seed: int) -> Scene:
    """4,000 houses in a town whose quarters differ from street to street."""
    X, y = town_houses(4000, seed=0)
    X_test, y_test = town_houses(2000, seed=1)
    truth = town_prices(X_test)
    ours, seconds = _timed(lambda: novidgp.DGPRegressor(max_steps=steps, random_state=seed).fit(X, y))
    stopping: Any = True  # its annotation knows only "auto"
    boosted = HistGradientBoostingRegressor(max_iter=500, early_stopping=stopping, random_state=seed)
    trees, tree_seconds = _timed(lambda: boosted.fit(X, y))
    exact, exact_seconds = _timed(lambda: _exact_gp(X, y, seed))
    rows = [
        _regression_row("deep GP", ours.predictive(X_test), y_test, truth, seconds),
        ("boosted trees", f"{rmse(truth, trees.predict(X_test)):.3f}", "", "", f"{tree_seconds:.1f}"),
        _regression_row("exact GP", exact(X_test), y_test, truth, exact_seconds),
    ]
    side = np.linspace(-1.0, 1.0, 90)
    east, north = np.meshgrid(side, side)
    grid = np.column_stack([east.ravel(), north.ravel(), np.zeros((east.size, 3))])
    surfaces = {
        "price of one house, by where it stands": town_prices(grid),
        "deep GP": ours.predict(grid),
        "boosted trees": trees.predict(grid),
    }
    panels = [Map(name, side, side, values.reshape(east.shape)) for name, values in surfaces.items()]
    return Scene(ours, X_test, rows, maps(panels))


def digits(steps: int | None, seed: int) -> Scene:
    """1,347 handwritten digits to learn from, and 450 to judge by."""
    data = load_dataset("digits")
    images = data.X.reshape(-1, 8, 8)
    train, test = train_test_split(np.arange(len(images)), test_size=450, random_state=0, stratify=data.y)
    X, X_test, y, y_test = images[train], images[test], data.y[train], data.y[test]
    steps = 100 if steps is None else steps
    model = novidgp.DGPClassifier(layers="conv", batch_size=128, max_steps=steps, random_state=seed)
    ours, seconds = _timed(lambda: model.fit(X, y))
    forest, forest_seconds = _timed(
        lambda: RandomForestClassifier(random_state=seed).fit(X.reshape(len(X), -1), y)
    )
    found = {
        "deep GP, convolutional": (ours.predict_proba(X_test), seconds),
        "random forest": (forest.predict_proba(X_test.reshape(len(X_test), -1)), forest_seconds),
    }
    rows = [
        (
            name,
            f"{np.mean(p.argmax(1) == y_test):.1%}",
            f"{log_loss(y_test, p):.3f}",
            *_surest(p, y_test),
            f"{s:.1f}",
        )
        for name, (p, s) in found.items()
    ]
    curves = [
        Sureness(name, probabilities, color)
        for (name, (probabilities, _)), color in zip(found.items(), (OURS, PEER), strict=True)
    ]
    return Scene(ours, X_test, rows, surest_first(curves, y_test, X_test))


def _timed(function: Callable[[], Any]) -> tuple[Any, float]:
    start = time.perf_counter()
    return function(), time.perf_counter() - start


def _exact_gp(X: np.ndarray, y: np.ndarray, seed: int) -> Callable[[np.ndarray], Distribution]:
    """Scikit-learn's exact GP, with a lengthscale for every column."""
    scales: Any = np.ones(X.shape[1])
    kernel = ConstantKernel(1.0, (1e-3, 1e3)) * Matern(scales, (1e-2, 1e2), nu=1.5)
    kernel += WhiteKernel(0.1, (1e-5, 1e1))
    few = np.random.default_rng(seed).permutation(len(X))[:_KERNEL_ROWS]
    return fit_exact_gp(kernel, X, y, seed=seed, kernel_rows=few, normalize_y=True)


def _regression_row(
    name: str, predictive: Distribution, y: np.ndarray, truth: np.ndarray, seconds: float
) -> tuple[str, ...]:
    """Error against the function without noise; density and coverage of noisy targets."""
    scores = regression_scores([predictive], y, coverages=(0.9,))
    error = rmse(truth, predictive.mean()[:, 0])
    return name, f"{error:.3f}", f"{scores['nll']:.3f}", f"{scores['coverage_90']:.0%}", f"{seconds:.1f}"


def _surest(probabilities: np.ndarray, labels: np.ndarray) -> tuple[str]:
    """Errors among the nine tenths of the images that a model is surest of."""
    order = np.argsort(-probabilities.max(axis=1))[: round(0.9 * len(labels))]
    wrong = int(np.sum(probabilities[order].argmax(axis=1) != labels[order]))
    return (f"{wrong} of {len(order)}",)


def _bands(title: str, x: np.ndarray, predictive: Distribution, color: str) -> Bands:
    quantiles = predictive.quantile(np.array([0.05, 0.25, 0.5, 0.75, 0.95]))[..., 0]
    intervals = {0.9: (quantiles[:, 0], quantiles[:, 4]), 0.5: (quantiles[:, 1], quantiles[:, 3])}
    return Bands(title, x, quantiles[:, 2], intervals, color)
