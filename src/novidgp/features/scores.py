"""Linear scores of classes, by ridge regression on many activations, and what they are for unseen rows.

A score that was fitted to a row is surer of it than of a new one. Training rows therefore get scores from
regressions without their own fold of the rows; new rows get those of the regression on all.
"""

from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
from jaxtyping import Float

FOLDS = 5
_PENALTIES = (2.5e-4, 1e-3, 4e-3, 1.6e-2)
"""Tried on one fold: squared weights of standardised columns against the mean squared error."""
_ROWS = 2_000


class Scores(NamedTuple):
    """The regression on all rows, `(x - mean) @ weight`, and every row's score by those without its fold."""

    mean: Float[np.ndarray, " q"]
    weight: Float[np.ndarray, "q c"]
    held_out: Float[np.ndarray, "n c"]


def standard_columns(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of the columns of `(n, q)` rows of any float type."""
    total, squares = np.zeros((2, rows.shape[1]))
    for start in range(0, len(rows), _ROWS):
        block = np.asarray(rows[start : start + _ROWS], np.float64)
        total += block.sum(0)
        squares += (block**2).sum(0)
    mean = total / len(rows)
    spread = np.sqrt(np.maximum(squares / len(rows) - mean**2, 0.0)) + 1e-6
    return mean.astype(np.float32), spread.astype(np.float32)


def ridge_scores(rows: np.ndarray, targets: np.ndarray, rng: Any) -> Scores:
    """Scores of `targets` `(n, c)` from activations `(n, q)`, standardised; the penalty with the least
    squared error on the first fold."""
    mean, spread = standard_columns(rows)
    targets = np.asarray(targets, np.float32) - np.mean(targets, axis=0, dtype=np.float32)
    fold = rng.permutation(len(rows)) % FOLDS

    def standard(chosen: np.ndarray) -> np.ndarray:
        return (np.asarray(rows[chosen], np.float32) - mean) / spread

    def products(chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        gram, cross = (
            np.zeros((len(mean),) * 2, np.float32),
            np.zeros((len(mean), targets.shape[1]), np.float32),
        )
        for start in range(0, len(chosen), _ROWS):
            part = chosen[start : start + _ROWS]
            block = standard(part)
            gram += block.T @ block
            cross += block.T @ targets[part]
        return gram, cross

    def weight(gram: np.ndarray, cross: np.ndarray, penalty: float, count: int) -> np.ndarray:
        ridged = gram.copy()
        ridged[np.diag_indices_from(ridged)] += penalty * count
        return scipy.linalg.solve(ridged, cross, assume_a="pos", overwrite_a=True, check_finite=False)

    def scores(chosen: np.ndarray, weight: np.ndarray) -> np.ndarray:
        parts = [standard(chosen[i : i + _ROWS]) @ weight for i in range(0, len(chosen), _ROWS)]
        return np.concatenate(parts)

    gram, cross = products(np.arange(len(rows)))
    held_out = np.empty_like(targets)
    penalty = None
    for index in range(min(FOLDS, len(rows))):
        own = np.flatnonzero(fold == index)
        without, across = products(own)
        np.subtract(gram, without, out=without)
        np.subtract(cross, across, out=across)
        rest = len(rows) - len(own)
        if penalty is None:
            found = {p: scores(own, weight(without, across, p, rest)) for p in _PENALTIES}
            penalty = min(found, key=lambda p: float(np.mean((found[p] - targets[own]) ** 2)))
            held_out[own] = found[penalty]
        else:
            held_out[own] = scores(own, weight(without, across, penalty, rest))
    whole = weight(gram, cross, penalty or _PENALTIES[0], len(rows))
    return Scores(mean, whole / spread[:, None], held_out)
