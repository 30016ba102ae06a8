"""Whether a fitted deep GP gets a local layer, decided on rows that are left out one by one.

The deep GP has seen its training rows, so its residuals there are smaller than its errors elsewhere. For a
Gaussian process the error without row i is `r_i (1 + h_i)`, where the leverage `h_i` is the variance of the
function without the row over that of the noise. The variance with the row stands for it here, scaled down
where the `h_i` add up to more degrees of freedom than the last layer can have spent. Measured on eight sets,
the errors of test rows were within 10 % of these in most. The layer is trained to predict these errors, and
judged on them beside the deep GP alone.

A row of weight w is w equal rows: its noise as a neighbour is divided by w, its leverage multiplied, and its
error counts w times. It is left out as a whole, not one of the w: the others would tell its target.

Rows in the order of time, or of groups, have near relatives among the rows around them, and rows to come will
not. So the last tenth of the rows is also predicted from the others. If the layer does significantly worse
there than with single rows left out, the order means something, and the last tenth is what counts.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp

from novidgp.local.layer import LocalLayer, LocalTarget, corrected_paths, kept_spread
from novidgp.local.rows import ConditionedGP, Rows
from novidgp.local.scales import fitted_scales
from novidgp.local.training import train
from novidgp.numerics.scaling import standardiser

LEAST_ROWS = 200
"""With fewer observed rows a target has no local layer, unless one is asked for: too few could judge it."""
_LEAST_REQUIRED = 10
_TRAINED_ROWS, _TRAINED_SHARE = (4_096, 8_192), 0.2
_JUDGED_ROWS = 2_048
"""Most rows that are left out in turn, to train the layer (a share of all, within limits) and to judge it.
All rows are neighbours."""
_ROWS_AT_ONCE = 8_192
_OUTLIER = 5.0
MARGIN = 0.01
"""Gain in nats per row below which the simpler model is kept."""
_WEIGHTS = 1e-12, 1e12
"""Rows of less and of more weight are neighbours as if they had this: single precision has no further."""
LAST_ROWS = 0.1
_LEAST_END = 100
_ORDERED = 3.0
"""Share of the rows at the end, and the least number of them, that judge the layer once more; and the
standard errors by which they must differ from single rows, for the order of the rows to mean something."""


class LocalSettings(NamedTuple):
    """Settings of the local layer."""

    required: bool = False
    """Whether it is kept whatever the judgement."""
    neighbours: int = 64
    steps: int = 64
    """Evaluations of the leave-one-out loss in training."""


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
    times = np.ones(len(y)) if weight is None else np.clip(weight[:, 0], *_WEIGHTS)
    inputs = features.inputs(deep.columns).astype(dtype)
    targets, notes = [], []
    for number in range(y.shape[1]):
        name = "" if y.shape[1] == 1 else f" of target {number}"
        observed = np.flatnonzero(np.isfinite(y[:, number]))
        if len(observed) < (_LEAST_REQUIRED if settings.required else LEAST_ROWS):
            targets.append(None)
            notes.append(f"No local layer{name}: {len(observed)} rows are too few.")
            continue
        residuals, variance, errors = (part[observed, number].astype(dtype) for part in deep[:3])
        counted = times[observed]
        factor = (1.0 / counted).astype(dtype)
        rows = Rows(inputs[observed], _without_outliers(residuals), variance, factor)
        most = int(np.clip(_TRAINED_SHARE * len(rows), *_TRAINED_ROWS))
        trained = rng.permutation(len(rows))[:most]
        judged = trained[:_JUDGED_ROWS]
        conditioned = ConditionedGP(train(rows, errors, trained, steps=settings.steps, weight=counted), rows)
        seen = _of_target(paths(observed[judged]), number)
        weights = counted[judged]
        scales, gains = _calibration(conditioned, judged, errors[judged], *seen, weights, settings.neighbours)
        penalty = conditioned.gp.num_parameters / _effective(counted[trained])  # as in Akaike's criterion
        gain, error = mean_and_error(gains - penalty, weights)
        told = f"with each of {len(judged):,} rows left out in turn"
        end = end_of(len(rows))
        if len(end):
            seen = _of_target(paths(observed[end]), number)
            gains = _end_gains(conditioned, end, scales, errors[end], *seen, settings.neighbours)
            last, last_error = mean_and_error(gains - penalty, counted[end])
            if last < gain - _ORDERED * np.hypot(error, last_error):
                gain, error = last, last_error
                told = "the order of the rows means something, and with the last tenth of them left out"
        kept = settings.required or gain > max(MARGIN, 2.0 * error)
        # Not judged with doubts: those about a judged row's neighbours come from its own target.
        targets.append(LocalTarget(conditioned.with_doubts(), scales) if kept else None)
        notes.append(
            f"Local layer{name} {'kept' if kept else 'left out'}: {told}, it adds {gain:.3f} to the log "
            f"density of a row (standard error {error:.3f})."
        )
    layer = LocalLayer(features, settings.neighbours, tuple(targets)) if any(targets) else None
    return Outcome(layer, tuple(notes))


def mean_and_error(values: np.ndarray, weight: np.ndarray) -> tuple[float, float]:
    """The mean of values `(n,)` by their weights, and its standard error."""
    share = weight / np.sum(weight)
    mean = float(share @ values)
    return mean, float(np.sqrt(share @ (values - mean) ** 2 / _effective(share)))


def _effective(weight: np.ndarray) -> float:
    """How many rows of equal weight give a mean as sure as rows of these weights do (Kish)."""
    return float(np.sum(weight) ** 2 / np.sum(weight**2))


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


def end_of(rows: int) -> np.ndarray:
    """Numbers of rows among the last ones, none where there are too few: evenly spaced, in order."""
    count = int(LAST_ROWS * rows)
    if count < _LEAST_END:
        return np.array([], int)
    return np.linspace(rows - count, rows - 1, min(count, _JUDGED_ROWS)).astype(int)


def _end_gains(
    conditioned: ConditionedGP,
    end: np.ndarray,
    scales: np.ndarray,
    errors: np.ndarray,
    mean: np.ndarray,
    variance: np.ndarray,
    neighbours: int,
) -> np.ndarray:
    """The layer's gain in log density over the deep GP at rows at the end, given those before the first."""
    inputs = conditioned.rows.inputs[end]
    before = ConditionedGP(conditioned.gp, conditioned.rows.first(int(end[0])))
    found = before.nearest(inputs, neighbours)
    shift, total = before.moments(inputs, variance.mean(axis=0) + mean.var(axis=0), found)
    truth = mean.mean(axis=0) + errors
    density = _log_density(truth, *corrected_paths(mean, variance, shift, total, scales))
    return density - _log_density(truth, mean, variance)


def _calibration(
    conditioned: ConditionedGP,
    judged: np.ndarray,
    errors: np.ndarray,
    mean: np.ndarray,
    variance: np.ndarray,
    weights: np.ndarray,
    neighbours: int,
) -> tuple[np.ndarray, np.ndarray]:
    """The scales that suit the judged rows best, each counted by its weight, and the layer's gain in log
    density over the deep GP at each of them, with scales that are fitted to the other half of the rows."""
    found = conditioned.nearest_others(judged, neighbours)
    spread = mean.var(axis=0)
    deep_variance = variance.mean(axis=0) + spread
    shift, total = conditioned.moments(conditioned.rows.inputs[judged], deep_variance, found)
    missed, share = errors - shift, kept_spread(spread, total) * spread / total

    def scales_of(rows: slice) -> np.ndarray:
        facts = missed[rows], total[rows], share[rows], deep_variance[rows]
        return fitted_scales(*facts, conditioned.df, weights[rows])

    truth = mean.mean(axis=0) + errors
    gains = -_log_density(truth, mean, variance)
    halves = slice(0, None, 2), slice(1, None, 2)
    for half, other in (halves, halves[::-1]):
        corrected = corrected_paths(
            mean[:, half], variance[:, half], shift[half], total[half], scales_of(other)
        )
        gains[half] += _log_density(truth[half], *corrected)
    return scales_of(slice(None)), gains


def _log_density(y: np.ndarray, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """Of targets `(n,)` under mixtures of Gaussians `(k, n)`."""
    terms = -0.5 * ((y - mean) ** 2 / variance + np.log(2.0 * np.pi * variance))
    return logsumexp(terms.astype(np.float64), axis=0) - np.log(len(mean))
