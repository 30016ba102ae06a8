"""Whether a fitted deep GP gets a local layer, decided on rows that are left out one by one.

The deep GP has seen its training rows, so its residuals there are smaller than its errors elsewhere. For a
Gaussian process the error without row i is `r_i (1 + h_i)`, where the leverage `h_i` is the variance of the
function without the row over that of the noise. The variance with the row stands for it here, scaled down
where the `h_i` add up to more degrees of freedom than the last layer can have spent. Measured on eight sets,
the errors of test rows were within 10 % of these in most. The layer is trained to predict these errors, and
judged on them beside the deep GP alone.

A row of weight w is w equal rows: its noise as a neighbour is divided by w, its leverage multiplied, and its
error counts w times. It is left out as a whole, not one of the w: the others would tell its target.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp

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
from novidgp.local.layer import SPREADS, LocalLayer, LocalTarget, corrected_paths, kept_spread
from novidgp.local.rows import ConditionedGP, Rows
from novidgp.local.scales import fitted_scales
from novidgp.local.training import train
from novidgp.numerics.scaling import standardiser

_ROWS_AT_ONCE = 8_192
_OUTLIER = 5.0


class Paths(NamedTuple):
    """The deep GP at some rows, in the model's units."""

    mean: np.ndarray
    """`(k, n, t)`."""
    variance: np.ndarray
    """Of the function, `(k, n, t)`."""
    noise: np.ndarray
    """Variance of the noise, `(k, t)`."""
    columns: np.ndarray
    """The unscaled inputs of the local layer, `(n, d)`."""


class Outcome(NamedTuple):
    """A local layer or None, and a sentence on each target."""

    layer: LocalLayer | None
    notes: tuple[str, ...]


class _DeepFit(NamedTuple):
    """The deep GP at its training rows, `(n, t)`."""

    residuals: np.ndarray
    variance: np.ndarray
    """Of the target: function and noise."""
    errors: np.ndarray
    """What the residuals would be at rows that were not trained on."""
    columns: np.ndarray
    """The local layer's unscaled inputs, `(n, d)`."""


def fit_local_layer(
    paths: Callable[[np.ndarray], Paths],
    y: np.ndarray,
    settings: LocalSettings,
    *,
    most_freedom: float,
    dtype: str,
    rng: np.random.Generator,
    weight: np.ndarray | None = None,
) -> Outcome:
    """Train a local layer for every target and keep it where it pays.

    `paths` is the deep GP at training rows, given their numbers; `y` `(n, t)` are the targets in the model's
    units, NaN where missing. `most_freedom` bounds the degrees of freedom that the deep GP has spent on its
    training rows, which count as often as their `weight` `(n, 1)` says.
    """
    deep = _deep_fit(paths, y, most_freedom, 1.0 if weight is None else weight)
    features = standardiser(deep.columns, weight)
    times = row_weights(weight, len(y))
    inputs = features.inputs(deep.columns).astype(dtype)
    targets, notes = [], []
    for number in range(y.shape[1]):
        name = "" if y.shape[1] == 1 else f" of target {number}"
        observed = np.flatnonzero(np.isfinite(y[:, number]))
        if settings.too_few(len(observed)):
            targets.append(None)
            notes.append(f"No local layer{name}: {len(observed)} rows are too few.")
            continue
        residuals, variance, errors = (part[observed, number].astype(dtype) for part in deep[:3])
        counted = times[observed]
        factor = (1.0 / counted).astype(dtype)
        rows = Rows(inputs[observed], _without_outliers(residuals), variance, factor)
        trained = trained_rows(len(rows), rng)
        judged = trained[:JUDGED_ROWS]
        conditioned = ConditionedGP(train(rows, errors, trained, steps=settings.steps, weight=counted), rows)
        seen = _of_target(paths(observed[judged]), number)
        weights = counted[judged]
        facts = conditioned, judged, errors[judged], *seen, weights, settings.neighbours
        scales, most_spread, gains = _calibration(*facts)
        last, end = None, end_of(len(rows))
        if len(end):
            seen = _of_target(paths(observed[end]), number)
            facts = conditioned, end, scales, errors[end], *seen, settings.neighbours
            last = _end_gains(*facts, most_spread)
            last = Gains(last, counted[end])
        penalty = conditioned.gp.num_parameters / effective(counted[trained])  # as in Akaike's criterion
        kept, note = judge(Gains(gains, weights), last, penalty, required=settings.required, name=name)
        # Not judged with doubts: those about a judged row's neighbours come from its own target.
        targets.append(LocalTarget(conditioned.with_doubts(), scales, most_spread) if kept else None)
        notes.append(note)
    layer = LocalLayer(features, settings.neighbours, tuple(targets)) if any(targets) else None
    return Outcome(layer, tuple(notes))


def _deep_fit(
    paths: Callable[[np.ndarray], Paths], y: np.ndarray, most_freedom: float, weight: np.ndarray | float
) -> _DeepFit:
    parts = []
    for start in range(0, len(y), _ROWS_AT_ONCE):
        rows = np.arange(start, min(start + _ROWS_AT_ONCE, len(y)))
        mean, variance, noise, columns = paths(rows)
        function = variance.mean(axis=0) + mean.var(axis=0)
        floor = noise.mean(axis=0)
        parts.append((y[rows] - mean.mean(axis=0), function + floor, function / floor, columns))
    residuals, total, leverage, columns = (np.concatenate(part) for part in zip(*parts, strict=True))
    leverage *= weight
    leverage *= most_freedom / np.maximum(np.sum(leverage, axis=0), most_freedom)
    return _DeepFit(residuals, total, residuals * (1.0 + leverage), columns)


def _without_outliers(residuals: np.ndarray) -> np.ndarray:
    """Residuals cut off at five times what 99 of 100 stay below: no single row rules its neighbours."""
    most = _OUTLIER * np.quantile(np.abs(residuals), 0.99)
    return np.clip(residuals, -most, most).astype(residuals.dtype)


def _of_target(paths: Paths, number: int) -> tuple[np.ndarray, np.ndarray]:
    """Means and variances `(k, n)` of one target, noise included."""
    mean, variance, noise = (part[..., number] for part in paths[:3])
    return mean, variance + noise[:, None]


def _end_gains(
    conditioned: ConditionedGP,
    end: np.ndarray,
    scales: np.ndarray,
    errors: np.ndarray,
    mean: np.ndarray,
    variance: np.ndarray,
    neighbours: int,
    most_spread: float,
) -> np.ndarray:
    """The layer's gain in log density over the deep GP at rows at the end, given those before the first."""
    inputs = conditioned.rows.inputs[end]
    before = ConditionedGP(conditioned.gp, conditioned.rows.first(int(end[0])))
    found = before.nearest(inputs, neighbours)
    shift, total = before.moments(inputs, variance.mean(axis=0) + mean.var(axis=0), found)
    truth = mean.mean(axis=0) + errors
    density = _log_density(truth, *corrected_paths(mean, variance, shift, total, scales, most_spread))
    return density - _log_density(truth, mean, variance)


def _calibration(
    conditioned: ConditionedGP,
    judged: np.ndarray,
    errors: np.ndarray,
    mean: np.ndarray,
    variance: np.ndarray,
    weights: np.ndarray,
    neighbours: int,
) -> tuple[np.ndarray, float, np.ndarray]:
    """The scales and the most spread of the paths that suit the judged rows best, each counted by its weight,
    and the layer's gain in log density over the deep GP at each of them, with scales that are fitted to the
    other half of the rows."""
    found = conditioned.nearest_others(judged, neighbours)
    spread = mean.var(axis=0)
    deep_variance = variance.mean(axis=0) + spread
    shift, total = conditioned.moments(conditioned.rows.inputs[judged], deep_variance, found)
    missed, truth = errors - shift, mean.mean(axis=0) + errors
    alone = _log_density(truth, mean, variance)
    halves = slice(0, None, 2), slice(1, None, 2)

    def scales_of(rows: slice, most_spread: float) -> np.ndarray:
        share = kept_spread(spread, total, most_spread) * spread / total
        facts = missed[rows], total[rows], share[rows], deep_variance[rows]
        return fitted_scales(*facts, conditioned.df, weights[rows])

    def gains_of(most_spread: float) -> np.ndarray:
        gains = -alone
        for half, other in (halves, halves[::-1]):
            paths = mean[:, half], variance[:, half], shift[half], total[half]
            corrected = corrected_paths(*paths, scales_of(other, most_spread), most_spread)
            gains[half] += _log_density(truth[half], *corrected)
        return gains

    gains, best = max(((gains_of(most), most) for most in SPREADS), key=lambda pair: weights @ pair[0])
    return scales_of(slice(None), best), best, gains


def _log_density(y: np.ndarray, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """Of targets `(n,)` under mixtures of Gaussians `(k, n)`."""
    terms = -0.5 * ((y - mean) ** 2 / variance + np.log(2.0 * np.pi * variance))
    return logsumexp(terms.astype(np.float64), axis=0) - np.log(len(mean))
