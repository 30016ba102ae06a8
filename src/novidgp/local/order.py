"""Columns that tell where a row stands in the order of the rows, and whether a model does better without.

Where rows are in the order of time or of groups, a date tells which rows belong together, and a model learns
what was so on that date. Rows to come have other dates, or other relatives on the same one. Which columns
mislead there is judged as rows to come will judge: the last tenth of the rows is predicted from those before,
with all columns, without the one that tells most about the order, without the next one too, and so on, until
two in a row add nothing to the best log density so far. How much a column tells is the correlation of
neighbouring rows in it.

The judge is a linear trend and the local layer's Gaussian process on what it leaves. It takes seconds where a
deep GP takes a minute, and it is what relies on such columns most.
"""

from typing import NamedTuple

import numpy as np

from novidgp.local.judgement import LAST_ROWS, MARGIN, Gains, end_of
from novidgp.local.rows import ConditionedGP, Rows
from novidgp.local.scales import t_log_density
from novidgp.local.training import train

_ALIKE = 0.5
"""Correlation of neighbouring rows from which on a column may tell the order."""
_MOST_COLUMNS = 10
"""So many columns are tried at most."""
_PATIENCE = 2
"""So many columns in a row may gain nothing before the search ends: some mislead only together."""
_TRAINED_ROWS = 4_096
_STEPS = 64
_NEIGHBOURS = 32


class Misleading(NamedTuple):
    """Columns that are better left out, and in words why."""

    columns: tuple[int, ...]
    note: str


def misleading_columns(
    inputs: np.ndarray, targets: np.ndarray, names: list[str], rng: np.random.Generator
) -> Misleading:
    """Which columns of the scaled `inputs` `(n, d)` do harm in predicting the last tenth of the scaled
    `targets` `(n, t)`; the rows are in their order. `names` are those of the columns."""
    seen = np.isfinite(targets).all(axis=1)
    inputs, targets = inputs[seen], targets[seen]
    end = end_of(len(inputs))
    if len(end) == 0:
        return Misleading((), f"All columns kept: {len(inputs)} rows are too few to judge their order by.")
    trained = rng.permutation(int(end[0]))[:_TRAINED_ROWS]
    telling = _telling(inputs)
    left_out: list[int] = []
    best = _end_density(inputs, targets, end, trained)
    gained = 0.0
    for count in range(1, len(telling) + 1):
        without = inputs.copy()
        without[:, telling[:count]] = 0.0
        density = _end_density(without, targets, end, trained)
        gain, error = Gains(density - best, np.ones(len(end))).mean_and_error()
        if gain > max(MARGIN, 2.0 * error):
            left_out = telling[:count]
            best, gained = density, gained + gain
        elif count - len(left_out) == _PATIENCE:
            break
    told = f"in the judgement of the last {LAST_ROWS:.0%} of the rows"
    if not left_out:
        return Misleading((), f"All columns kept: none that tells the order of the rows misleads {told}.")
    called = ", ".join(names[column] for column in left_out)
    return Misleading(
        tuple(left_out),
        f"Left out, {told}: {called}. Without, the log density of a row is {gained:.3f} higher.",
    )


def _telling(inputs: np.ndarray) -> list[int]:
    """Columns in which neighbouring rows are alike, the most alike first; never all columns."""
    before, after = inputs[:-1] - inputs[:-1].mean(axis=0), inputs[1:] - inputs[1:].mean(axis=0)
    size = np.sqrt(np.sum(before**2, axis=0) * np.sum(after**2, axis=0))
    alike = np.sum(before * after, axis=0) / np.where(size > 0, size, 1.0)
    order = np.argsort(-alike, kind="stable")[: min(_MOST_COLUMNS, len(alike) - 1)]
    return [int(column) for column in order if alike[column] > _ALIKE]


def _end_density(inputs: np.ndarray, targets: np.ndarray, end: np.ndarray, trained: np.ndarray) -> np.ndarray:
    """Log density of the rows `end` given those before the first of them, of all targets together. The local
    GP is trained on the rows `trained`."""
    first = int(end[0])
    trend = np.column_stack([np.ones(len(inputs)), inputs])
    weights = np.linalg.lstsq(trend[:first], targets[:first], rcond=None)[0]
    residuals = (targets - trend @ weights).astype(np.float32)
    inputs = inputs.astype(np.float32)
    total = np.zeros(len(end))
    for column in residuals.T:
        variance = np.full(len(inputs), np.var(column[:first]), np.float32)
        rows = Rows(inputs[:first], column[:first], variance[:first], np.ones(first, np.float32))
        known = ConditionedGP(train(rows, rows.residuals, trained, steps=_STEPS), rows)
        found = known.nearest(inputs[end], _NEIGHBOURS)
        mean, spread = known.moments(inputs[end], variance[end], found)
        total += t_log_density(column[end] - mean, spread, known.df)
    return total
