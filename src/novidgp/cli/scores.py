"""Scores of a fitted model on labelled rows, as the commands show them."""

from typing import TYPE_CHECKING, Any

import numpy as np

from novidgp.prediction import metrics
from novidgp.tables.errors import TableError

if TYPE_CHECKING:
    from rich.table import Table

Scores = dict[str, float]

_MEANING = {
    "rmse": ("RMSE", "root mean squared error, in the target's units"),
    "nll": ("NLL", "mean negative log density, nats; lower is better"),
    "coverage_50": ("coverage of 50 %", "share of targets inside the interval; ideal 0.500"),
    "coverage_90": ("coverage of 90 %", "ideal 0.900"),
    "coverage_95": ("coverage of 95 %", "ideal 0.950"),
    "crps": ("CRPS", "in the target's units; lower is better"),
    "accuracy": ("accuracy", "share of rows with the right class"),
    "log_loss": ("log loss", "nats; lower is better"),
    "brier": ("Brier", "0 best, 2 worst"),
    "ece": ("ECE", "expected calibration error; 0 best"),
}


def regression_scores(model: Any, X: np.ndarray, y: np.ndarray) -> Scores:
    """RMSE, NLL, coverage of central intervals and CRPS."""
    bounds = [level for coverage in metrics.COVERAGES for level in metrics.interval_levels(coverage)]
    quantiles = model.predict_quantiles(X, np.concatenate([bounds, metrics.quantile_levels()]))
    scores = {
        "rmse": metrics.rmse(y, model.predict(X)),
        "nll": metrics.nll(model.log_density(X, y)),
    }
    for index, coverage in enumerate(metrics.COVERAGES):
        lower, upper = quantiles[:, 2 * index], quantiles[:, 2 * index + 1]
        scores[f"coverage_{100 * coverage:.0f}"] = metrics.interval_coverage(y, lower, upper)
    scores["crps"] = metrics.crps_from_quantiles(y, quantiles[:, len(bounds) :])
    return scores


def classification_scores(model: Any, X: np.ndarray, y: np.ndarray) -> Scores:
    """Accuracy, log loss, Brier score and calibration error."""
    classes = np.asarray(model.classes_)
    unseen = sorted(set(y.tolist()) - set(classes.tolist()), key=str)
    if unseen:
        raise TableError(
            f"the target holds {unseen[0]!r}, which the model never saw; its classes are "
            f"{', '.join(map(repr, classes.tolist()))}"
        )
    labels = np.searchsorted(classes, y)
    probabilities = model.predict_proba(X)
    names = ("accuracy", "log_loss", "brier", "ece")
    return {name: getattr(metrics, name)(labels, probabilities) for name in names}


def scores(model: Any, X: np.ndarray, y: np.ndarray) -> Scores:
    """The scores that fit the model's task."""
    score = classification_scores if hasattr(model, "classes_") else regression_scores
    return score(model, X, y)


def score_table(values: Scores, title: str) -> "Table":
    """A table of scores with the meaning of each."""
    from rich.table import Table

    table = Table("score", title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    table.add_column("value", justify="right")
    table.add_column("", style="dim")
    for name, value in values.items():
        label, meaning = _MEANING[name]
        table.add_row(label, f"{value:.3f}" if abs(value) < 10 else f"{value:.4g}", meaning)
    return table
