"""From a trained model to its wide last layer.

Hidden layers and kernels are held still, so that the features of all rows, the wide layer's basis, can be
kept, and the posterior of thousands of inducing outputs is a convex problem (`solve.py`). Two numbers are
chosen by the log loss of rows left out: how far the lengthscales are stretched, since few inducing points
make them long, on some of the rows; and the prior variance, on all. A third, which calibrates the posterior's
variances, comes with each of them.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
import scipy.linalg
from jaxtyping import Array, Float, PRNGKeyArray

from novidgp.model.layers import Layer
from novidgp.model.likelihoods import Likelihood
from novidgp.numerics.blocks import over_blocks
from novidgp.numerics.compilation import precision
from novidgp.numerics.linalg import add_jitter, default_jitter
from novidgp.numerics.random import Streams, folded
from novidgp.posteriors.prepared import Prepared, hidden_features
from novidgp.posteriors.wide import WideLayer, WidePoints, correlations, widened
from novidgp.prediction.metrics import label_losses
from novidgp.wide.points import inducing_inputs
from novidgp.wide.solve import Rows, Solution, solve

Transform = Callable[..., Any]
"""Of a batch of rows, by a key: an augmentation."""

_JUDGES = 5_000
_SAMPLE = 8_000
"""Rows that lengthscales are chosen on, beside those that judge."""
_FEW = 1_000
"""Inducing points of that choice."""
_BLOCK = 64
_STRETCH = float(np.log(1.5))
_VARIANCE = float(np.log(4.0))
_CALIBRATIONS = tuple(2.0 ** (0.5 * power) for power in range(-8, 3))
_DOWNHILL = 6
_WORTHWHILE = 1e-3
"""By this share a step has to lower the loss: a large prior variance can be too large without an end."""
_DRAWS = 8
"""Expectations of a softmax are means over eight times as many draws."""


class Training(NamedTuple):
    """What a wide layer is fitted to: scaled rows, labels, and how often each row counts."""

    x: np.ndarray
    labels: np.ndarray
    weight: np.ndarray
    transform: Transform | None = None
    """Where there is one, each row is there twice, as it is and transformed, at half its weight."""

    def take(self, rows: np.ndarray) -> "Training":
        """Some of the rows as they are."""
        return Training(self.x[rows], self.labels[rows], self.weight[rows])


class Wide(NamedTuple):
    """A wide layer, the numbers of the rows that judged it, and the log loss of each of them by a layer that
    had not seen them."""

    layer: WideLayer
    judges: np.ndarray
    losses: np.ndarray


def fit_wide_layer(
    prepared: Prepared,
    likelihood: Likelihood,
    training: Training,
    count: int,
    streams: Streams,
    *,
    places_across: int = 1,
    tell: Callable[[str], None] = lambda text: None,
) -> Wide:
    """The wide layer with about `count` inducing points of the only member of `prepared`. Patches are at so
    many places down and across, where the layer has places. `tell` is told what is going on."""
    rows = streams.numpy("wide rows").permutation(len(training.x))
    judges, others = np.split(rows, [min(_JUDGES, len(rows) // 10)])
    encoder = _Encoder(prepared, streams.key("wide views"))
    sample = encoder.hidden(training.x[others[:_SAMPLE]])
    few = training.take(np.concatenate([judges, others[:_SAMPLE]]))

    def points(number: int) -> WidePoints:
        number = min(number, len(sample))
        found = inducing_inputs(encoder.last, sample, number, places_across, streams.numpy("wide points"))
        inducing, places = (None if part is None else part.astype(encoder.dtype) for part in found)
        assert inducing is not None
        return WidePoints(inducing, places, np.zeros((), encoder.dtype))

    def stretched(points: WidePoints, stretch: float) -> WidePoints:
        return points._replace(log_stretch=np.asarray(stretch, encoder.dtype))

    few_points = points(min(_FEW, count))

    @functools.cache
    def best_variance(stretch: float) -> tuple[float, float]:
        tell(f"lengthscales times {np.exp(stretch):.2g}")
        first = np.arange(len(judges))
        problem = _Problem(encoder, stretched(few_points, stretch), few, first, likelihood)
        trained = float(np.log(np.asarray(encoder.last.kernel.variance())[0]))
        return _descend(problem.loss, trained, 2.0 * _VARIANCE)

    stretch, _ = _descend(lambda stretch: best_variance(stretch)[1], 0.0, _STRETCH)
    tell(f"{count:,} features of {len(training.x):,} rows")
    whole = _Problem(encoder, stretched(points(count), stretch), training, judges, likelihood)

    def loss_at(log_variance: float) -> float:
        tell(f"prior variance {np.exp(log_variance):.2g}")
        return whole.loss(log_variance)

    log_variance, _ = _descend(loss_at, best_variance(stretch)[0], _VARIANCE)
    tell("solving for all rows")
    return Wide(whole.layer(log_variance), judges, whole.judged(log_variance).losses)


class _Encoder:
    """Rows on the path without noise through the hidden layers."""

    def __init__(self, prepared: Prepared, key: PRNGKeyArray):
        self.last: Layer = jax.tree.map(lambda a: a[0], prepared.model.layers[-1])
        self.dtype = prepared.model.dtype.name
        self._prepared, self._key = prepared, key

    def hidden(self, x: np.ndarray) -> np.ndarray:
        """The last layer's inputs."""
        parts = over_blocks(lambda rows: _hidden(self._prepared, x[rows]), len(x), _BLOCK, self.dtype)
        return np.concatenate(parts)[: len(x)]

    def features(
        self,
        points: WidePoints,
        root: np.ndarray,
        x: np.ndarray,
        transform: Transform | None = None,
        *,
        out: np.ndarray,
    ) -> None:
        """The basis of a wide layer at the rows, written to `out`."""

        def fill(rows: Any) -> tuple[()]:
            first = rows.start if isinstance(rows, slice) else int(rows[0])
            key = folded(self._key, first)
            out[rows] = _features(self._prepared, self.last, points, root, x[rows], key, transform)
            return ()

        over_blocks(fill, len(x), _BLOCK, self.dtype)


_hidden = jax.jit(hidden_features)
_correlation = jax.jit(lambda layer: layer.correlation()[0])
_factorisable = jax.jit(add_jitter, static_argnums=1)
_probabilities = jax.jit(lambda likelihood, mean, variance: likelihood.moments(mean, variance)[0])


@functools.partial(jax.jit, static_argnums=6)
def _features(
    prepared: Prepared,
    last: Layer,
    points: WidePoints,
    root: Float[Array, "m m"],
    x: Float[Array, "n d"],
    key: PRNGKeyArray,
    transform: Transform | None,
) -> Float[Array, "n m"]:
    x = x if transform is None else transform(x, key=key)
    return correlations(widened(last, points), hidden_features(prepared, x)) @ root


class _Judged(NamedTuple):
    """A factor of standard deviations, and the losses of the rows that judge with it."""

    calibration: float
    losses: np.ndarray


class _Problem:
    """Features of rows for one set of inducing points, and what they lead to at a prior variance."""

    def __init__(
        self,
        encoder: _Encoder,
        points: WidePoints,
        training: Training,
        judges: np.ndarray,
        likelihood: Likelihood,
    ):
        self._encoder, self._points, self._training = encoder, points, training
        self._likelihood = likelihood
        self._root = _whitening(widened(encoder.last, points))
        views = 1 if training.transform is None else 2
        self._views = np.empty((views, len(training.x), len(self._root)), encoder.dtype)
        self._encode(None)
        rows = Rows(self._views[0], training.labels, training.weight)
        self._judges = rows.take(judges)
        seen = np.ones(len(rows.labels), rows.weight.dtype)
        seen[judges] = 0.0
        self._rows, self._seen = rows, rows._replace(weight=rows.weight * seen)
        self._seen_gram = self._seen.gram()
        self._known: dict[float, _Judged] = {}
        self._last = np.zeros((len(self._root), encoder.last.outputs))

    def loss(self, log_variance: float) -> float:
        """Of the rows that judge, which the solution has not seen, with the best of a few calibrations."""
        return float(np.average(self.judged(log_variance).losses, weights=self._judges.weight))

    def judged(self, log_variance: float) -> "_Judged":
        """The best calibration, a factor of the posterior's standard deviations: the mean curvature knows
        nothing of where the uncertain rows are."""
        if log_variance in self._known:
            return self._known[log_variance]
        mean, factor = self._solve(self._seen, self._seen_gram, log_variance)
        features = (np.exp(0.5 * log_variance) * self._judges.features).astype(self._encoder.dtype)
        f, spread = (features @ part.astype(features.dtype) for part in (mean, factor))
        variance = np.sum(spread**2, axis=1, keepdims=True)
        shape = (_DRAWS, *f.shape)
        found = []
        for calibration in _CALIBRATIONS:
            moments = (np.broadcast_to(part, shape) for part in (f, calibration**2 * variance))
            p = np.asarray(_probabilities(self._likelihood, *moments)).mean(axis=0)
            p = np.concatenate([1.0 - p, p], axis=1) if p.shape[1] == 1 else p
            found.append(_Judged(calibration, label_losses(self._judges.labels, p)))
        best = min(found, key=lambda judged: np.average(judged.losses, weights=self._judges.weight))
        self._known[log_variance] = best
        return best

    def layer(self, log_variance: float) -> WideLayer:
        """The layer that all rows lead to, transformed ones too."""
        rows, transform = self._rows, self._training.transform
        if transform is not None:
            self._encode(transform)
            both = self._views.reshape(-1, len(self._root))
            rows = Rows(both, np.tile(rows.labels, 2), np.tile(0.5 * rows.weight, 2))
        mean, factor = self._solve(rows, rows.gram(), log_variance)
        root = np.exp(0.5 * log_variance) * self._root
        calibrated = self.judged(log_variance).calibration * factor
        weights, spread = ((root @ part).astype(self._encoder.dtype) for part in (mean, calibrated))
        return WideLayer(self._points, weights, spread)

    def _encode(self, transform: Transform | None) -> None:
        """Features of the rows as they are, or transformed: the first view, or the second."""
        root, out = self._root.astype(self._encoder.dtype), self._views[0 if transform is None else 1]
        self._encoder.features(self._points, root, self._training.x, transform, out=out)

    def _solve(self, rows: Rows, gram: np.ndarray, log_variance: float) -> Solution:
        """From where the last solution was."""
        scale = float(np.exp(0.5 * log_variance))
        solution = solve(rows, gram, self._likelihood, self._last / scale, scale=scale)
        self._last = scale * solution.mean
        return solution


def _whitening(layer: Layer) -> np.ndarray:
    """The map from correlations with the inducing outputs to whitened features, in double precision."""
    correlation = np.asarray(_correlation(layer))
    with precision("float64"):
        matrix, _ = _factorisable(correlation.astype(np.float64), default_jitter(correlation.dtype))
    lower = np.linalg.cholesky(matrix)
    return scipy.linalg.solve_triangular(lower, np.eye(len(lower)), lower=True).T


def _descend(loss: Callable[[float], float], start: float, step: float) -> tuple[float, float]:
    """A few steps downhill from `start`, in the direction that helps, until none does: place and loss."""
    best, least = start, loss(start)
    for direction in (step, -step):
        for _ in range(_DOWNHILL):
            found = loss(best + direction)
            if found > (1.0 - _WORTHWHILE) * least:
                break
            best, least = best + direction, found
        if best != start:
            break
    return best, least
