"""Scores of a fitted model on rows with known targets, and the table that shows them."""

from typing import TYPE_CHECKING, Any

import numpy as np

from novidgp.cli.models import predictives
from novidgp.prediction.scores import Scores, classification_scores, regression_scores
from novidgp.tables.errors import TableError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.table import Table

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


def scores(model: Any, X: np.ndarray, y: np.ndarray) -> Scores:
    """The scores that fit the model's task."""
    if not hasattr(model, "classes_"):
        return regression_scores(predictives(model, X), y)
    return classification_scores(*_labels_and_probabilities(model, X, y))


def scores_in_blocks(model: Any, blocks: "Iterable[tuple[np.ndarray, Any]]") -> tuple[int, Scores]:
    """The number of rows and the scores of rows that come in blocks, in bounded memory.

    Of classes the probabilities are kept, because their calibration is no mean over rows.
    """
    if hasattr(model, "classes_"):
        found = [_labels_and_probabilities(model, X, y) for X, y in blocks]
        labels, probabilities = (np.concatenate(part) for part in zip(*found, strict=True))
        return len(labels), classification_scores(labels, probabilities)
    counts, parts = [], []
    for X, y in blocks:
        values = scores(model, X, y)
        counts.append(len(X))
        parts.append(values | {"rmse": values["rmse"] ** 2})
    means = {name: float(np.average([part[name] for part in parts], weights=counts)) for name in parts[0]}
    return sum(counts), means | {"rmse": float(np.sqrt(means["rmse"]))}


def _labels_and_probabilities(model: Any, X: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    classes = np.asarray(model.classes_)
    unseen = sorted(set(y.tolist()) - set(classes.tolist()), key=str)
    if unseen:
        raise TableError(
            f"the target holds {unseen[0]!r}, which the model never saw; its classes are "
            f"{', '.join(map(repr, classes.tolist()))}"
        )
    probabilities = np.concatenate([block.probabilities() for block in predictives(model, X)])
    return np.searchsorted(classes, y), probabilities


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
