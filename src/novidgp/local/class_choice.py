"""Whether a fitted classifier gets a local layer, decided on rows that are left out one by one.

The deep GP has seen its training rows and is surer of them than of others. Without row i the posterior is the
one with it over the probability of its label, but for a constant. So the paths, weighted by `1 / p(y_i |
path)`, say what the model would have said of row i had it not seen it (Gelfand et al. 1992). No weight is
more than the median times the root of the number of paths: no single path rules a row.

The layer is trained to correct these probabilities by the residuals of other rows, and judged on them beside
the deep GP alone. Weights are as in `local.choice`.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from novidgp.local.class_layer import IMPOSSIBLE, ClassLayer, corrected, label_loss, label_variance
from novidgp.local.judgement import (
    JUDGED_ROWS,
    Gains,
    LocalSettings,
    effective,
    end_of,
    judge,
    row_weights,
    trained_rows,
)
from novidgp.local.rows import ConditionedGP, Rows
from novidgp.local.training import search
from novidgp.numerics.scaling import standardiser

_ROWS_AT_ONCE = 2_048


class ClassPaths(NamedTuple):
    """A deep GP classifier at some rows."""

    probabilities: np.ndarray
    """`(n, c)`."""
    draws: np.ndarray
    """`(n, k, c)`: the probabilities of every path, by one draw of its functions."""
    columns: np.ndarray
    """The unscaled inputs of the local layer, `(n, d)`."""


class Outcome(NamedTuple):
    """A local layer or None, and sentences on it."""

    layer: ClassLayer | None
    notes: tuple[str, ...]


def fit_class_layer(
    paths: Callable[[np.ndarray], ClassPaths],
    labels: np.ndarray,
    settings: LocalSettings,
    *,
    dtype: str,
    rng: np.random.Generator,
    weight: np.ndarray | None = None,
) -> Outcome:
    """Train a local layer and keep it if it pays.

    `paths` is the deep GP at training rows, given their numbers; `labels` `(n,)` are numbers of classes. Rows
    count as often as their `weight` `(n, 1)` says.
    """
    if settings.too_few(len(labels)):
        return Outcome(None, (f"No local layer: {len(labels)} rows are too few.",))
    counted = row_weights(weight, len(labels))
    seen, unseen, columns = _deep_fit(paths, labels, counted)
    features = standardiser(columns, weight)
    inputs, unseen = features.inputs(columns).astype(dtype), unseen.astype(dtype)
    indicators = np.eye(seen.shape[1], dtype=dtype)[labels]
    variance = label_variance(seen).astype(dtype)
    rows = Rows(inputs, indicators - seen.astype(dtype), variance, (1.0 / counted).astype(dtype))
    trained = trained_rows(len(rows), rng)
    typical = float(np.median(variance))
    facts = indicators, unseen
    gp = search(rows, (typical, typical), label_loss, facts, trained, steps=settings.steps, weight=counted)
    conditioned = ConditionedGP(gp, rows)

    def gains(given: ConditionedGP, numbers: np.ndarray, found: np.ndarray) -> Gains:
        better = corrected(given, inputs[numbers], unseen[numbers], found)
        own = np.arange(len(numbers)), labels[numbers]
        alone = np.maximum(unseen[numbers], IMPOSSIBLE)[own]
        return Gains(np.log(better[own].astype(np.float64) / alone), counted[numbers])

    judged, end = trained[:JUDGED_ROWS], end_of(len(rows))
    single = gains(conditioned, judged, conditioned.nearest_others(judged, settings.neighbours))
    last = None
    if len(end):
        before = ConditionedGP(gp, rows.first(int(end[0])))
        last = gains(before, end, before.nearest(inputs[end], settings.neighbours))
    penalty = gp.num_parameters / effective(counted[trained])  # as in Akaike's criterion
    kept, note = judge(single, last, penalty, required=settings.required)
    return Outcome(ClassLayer(features, settings.neighbours, conditioned) if kept else None, (note,))


def _deep_fit(
    paths: Callable[[np.ndarray], ClassPaths], labels: np.ndarray, weight: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Class probabilities of the rows as the deep GP has seen them and had it not seen them, `(n, c)`, and
    the layer's unscaled inputs."""
    parts = []
    for start in range(0, len(labels), _ROWS_AT_ONCE):
        rows = np.arange(start, min(start + _ROWS_AT_ONCE, len(labels)))
        seen, draws, columns = paths(rows)
        parts.append((seen, left_out(draws, labels[rows], weight[rows]), columns))
    seen, unseen, columns = (np.concatenate(part) for part in zip(*parts, strict=True))
    return seen, unseen, columns


def left_out(draws: np.ndarray, labels: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Class probabilities `(n, c)` of training rows with these labels had they not been trained on, by those
    of the paths, `(n, k, c)`, given all rows."""
    own = np.maximum(draws[np.arange(len(labels)), :, labels], np.finfo(np.float32).tiny)
    logs = -weight[:, None] * np.log(own)
    logs -= np.median(logs, axis=1, keepdims=True)
    shares = np.exp(np.minimum(logs, 0.5 * np.log(draws.shape[1])))
    return np.einsum("nk,nkc->nc", shares / shares.sum(axis=1, keepdims=True), draws)
