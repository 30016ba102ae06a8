"""The fits of the demo: two built-in examples, each with a deep GP and with scikit-learn's exact GP."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.gaussian_process.kernels import ConstantKernel, RationalQuadratic, WhiteKernel

import novidgp
from novidgp.bench.baselines import fit_exact_gp
from novidgp.datasets import load_dataset, nonstationary_curve
from novidgp.plots import OURS, PEER, Bands, predictive_bands
from novidgp.prediction.scores import Distribution, regression_scores

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.table import Table

EXACT = "exact GP"


@dataclass(frozen=True, eq=False)
class Example:
    """Training and test rows, and the settings of the deep GP."""

    name: str
    about: str
    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray
    settings: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Pair:
    """A deep GP and an exact GP on the same rows, with the seconds of each fit."""

    ours: novidgp.DGPRegressor
    exact: Callable[[np.ndarray], Distribution]
    seconds: tuple[float, float]


def examples(steps: int) -> list[Example]:
    """A curve that no single lengthscale fits, and a table of patients."""
    X, y = nonstationary_curve(200, seed=0)
    X_test, y_test = nonstationary_curve(1000, seed=1)
    curve = Example(
        "curve",
        "200 noisy points; smooth, then a jump, then ever faster waves",
        X,
        y,
        X_test,
        y_test,
        {"num_layers": 2, "num_inducing": 50, "hidden_dim": 2, "max_steps": steps},
    )
    diabetes = load_dataset("diabetes")
    order = np.random.default_rng(0).permutation(len(diabetes))
    test, train = order[:88], order[88:]
    patients = Example(
        "diabetes",
        f"{len(train)} patients, 10 measurements; {len(test)} held out",
        diabetes.X[train],
        diabetes.y[train],
        diabetes.X[test],
        diabetes.y[test],
        {"num_layers": 2, "num_inducing": 30, "hidden_dim": 3, "max_steps": max(2 * steps // 3, 1)},
    )
    return [curve, patients]


def fit_both(example: Example, seed: int) -> Pair:
    """Fit the deep GP, then the exact one."""
    start = time.perf_counter()
    ours = novidgp.DGPRegressor(random_state=seed, **example.settings).fit(example.X, example.y)
    middle = time.perf_counter()
    kernel = ConstantKernel(1.0, (1e-3, 1e3)) * RationalQuadratic(1.0, 1.0, (1e-3, 1e3), (1e-3, 1e5))
    kernel += WhiteKernel(0.1, (1e-5, 1e1))
    exact = fit_exact_gp(kernel, example.X, example.y, seed=seed, normalize_y=True)
    return Pair(ours, exact, (middle - start, time.perf_counter() - middle))


def empty_table() -> "Table":
    """A table with headings and no rows."""
    from rich.table import Table

    table = Table("data", "model", title="on rows held out", title_justify="left")
    for heading in ("RMSE", "NLL", "in 50 %", "in 90 %", "seconds"):
        table.add_column(heading, justify="right")
    return table


def add_rows(table: "Table", example: Example, pair: Pair) -> None:
    """Add one row for each of the two models."""
    models = {
        f"deep GP, {example.settings['num_layers']} layers": pair.ours.predictive(example.X_test),
        EXACT: pair.exact(example.X_test),
    }
    for index, (model, predictive) in enumerate(models.items()):
        scores = regression_scores([predictive], example.y_test, coverages=(0.5, 0.9))
        table.add_row(
            example.name if index == 0 else "",
            model,
            f"{scores['rmse']:.4g}",
            f"{scores['nll']:.3f}",
            f"{scores['coverage_50']:.0%}",
            f"{scores['coverage_90']:.0%}",
            f"{pair.seconds[index]:.1f}",
            end_section=index == 1,
        )


def bands_figure(example: Example, pair: Pair) -> "Figure":
    """Both predictive distributions along the curve and a little beyond its ends."""
    x = np.linspace(-1.15, 1.15, 461)
    panels = [
        _bands("deep GP, 2 layers", x, pair.ours.predictive(x[:, None]), OURS),
        _bands(f"{EXACT} (scikit-learn)", x, pair.exact(x[:, None]), PEER),
    ]
    return predictive_bands(panels, example.X[:, 0], example.y)


def _bands(title: str, x: np.ndarray, predictive: Distribution, color: str) -> Bands:
    quantiles = predictive.quantile(np.array([0.05, 0.25, 0.5, 0.75, 0.95]))[..., 0]
    intervals = {0.9: (quantiles[:, 0], quantiles[:, 4]), 0.5: (quantiles[:, 1], quantiles[:, 3])}
    return Bands(title, x, quantiles[:, 2], intervals, color)
