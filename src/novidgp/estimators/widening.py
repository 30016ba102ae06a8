"""Giving a fitted classifier its wide last layer."""

from typing import Any

import numpy as np

from novidgp.checks import check_integer
from novidgp.estimators.images import augmentation_of
from novidgp.model.build import ModelConfig
from novidgp.model.image_layers import LAYER_KINDS
from novidgp.model.likelihoods import LIKELIHOODS
from novidgp.numerics.compilation import precision
from novidgp.numerics.random import Streams
from novidgp.posteriors.prepared import prepare
from novidgp.prediction.metrics import label_losses
from novidgp.training.progress import stage
from novidgp.wide.fitting import Training, fit_wide_layer

_POINTS = 2_000
"""Inducing points that `auto` has, half as many as there are rows at most."""
_LEAST_ROWS = 200
_AUTO_ROWS = 1_000
"""With fewer, too few would be left out to choose by, and nothing is tried."""
_COMPARED = 1_000
"""Rows by which `auto` compares the layer with the one that was trained."""


def check_wide(value: Any) -> None:
    """Refuse anything but `auto`, None and a number of inducing points."""
    if isinstance(value, str):
        if value != "auto":
            raise ValueError(f"wide={value!r} is unknown. Pass 'auto', None or a number of inducing points.")
    else:
        check_integer("wide", value, optional=True)


def wide_points(estimator: Any, config: ModelConfig, num_data: int, *, beside_local: bool) -> int:
    """How many inducing points a wide last layer is to have; zero for none. `auto` is for images, and gives
    way to a local layer that is asked for."""
    value, starts = estimator.wide, int(estimator.starts)
    if value is None:
        return 0
    if value == "auto":
        possible = config.image is not None and not beside_local and _obstacle(config, starts) is None
        return min(_POINTS, num_data // 2) if possible and num_data >= _AUTO_ROWS else 0
    obstacle = _obstacle(config, starts)
    if obstacle is not None:
        raise ValueError(f"wide={value!r} {obstacle}, or pass wide=None.")
    if beside_local:
        raise ValueError(
            f"wide={value!r} and local={estimator.local!r} both stand in for the last layer; use "
            "local='auto', or pass wide=None."
        )
    if num_data < _LEAST_ROWS:
        raise ValueError(f"wide={value!r} needs {_LEAST_ROWS} rows, got {num_data}; pass wide=None.")
    return int(value)


def _obstacle(config: ModelConfig, starts: int) -> str | None:
    """Why there can be no wide layer, with the cure; None if there can."""
    if LIKELIHOODS[config.likelihood].task != "classification":
        return f"is for classes and likelihood={config.likelihood!r} has none; use num_inducing"
    if starts > 1:
        return f"is a single model's and there are starts={starts}; use starts=1"
    if config.kernel_sharing == "separate":
        return "needs one kernel for all classes; use kernel_sharing='auto'"
    if config.latent_dim:
        return f"is for models without latent variables; use latent_dim=0, not {config.latent_dim}"
    return None


def widen(
    estimator: Any, x: np.ndarray, y: np.ndarray, weight: np.ndarray | None, count: int, streams: Streams
) -> None:
    """Give the estimator a wide layer fitted to scaled rows `x` and labels `y` `(n, 1)`.

    Under `auto` it is kept where rows that it has not seen have a smaller log loss by it than by the model as
    trained, which has seen them.
    """
    if estimator.ensemble_ is not None:
        estimator.fit_notes_ += ("No wide last layer: the model is a mixture of snapshots.",)
        return
    labels = y[:, 0].astype(np.int64)
    times = np.ones(len(x), np.float32) if weight is None else weight[:, 0].astype(np.float32)
    training = Training(x, labels, times, augmentation_of(estimator.augment, estimator.image_shape_))
    fitted = estimator._fitted()
    with precision(estimator.config_.dtype), stage("wide last layer", show=estimator.verbose) as tell:
        _, prepared = prepare(fitted, 1, key=streams.key("wide layer's path"))
        wide = fit_wide_layer(
            prepared,
            estimator.model_.likelihood,
            training,
            count,
            streams,
            places_across=_places_across(estimator.config_),
            tell=tell,
        )
    found = f"Wide last layer of {len(wide.layer.weights):,} inducing points"
    judges, losses = wide.judges, wide.losses
    if estimator.wide == "auto":
        judges, losses = judges[:_COMPARED], losses[:_COMPARED]
    loss = np.average(losses, weights=times[judges])
    told = f"log loss {loss:.3f} on {len(judges):,} rows left out"
    if estimator.wide == "auto":
        predictive = estimator._predict(estimator.input_scaling_.original(x[judges]))
        trained = label_losses(labels[judges], predictive.probabilities())
        own = np.average(trained, weights=times[judges])
        told += f", {own:.3f} by the last layer as trained, which has seen them"
        if loss >= own:
            estimator.fit_notes_ += (f"No wide last layer: {told}.",)
            return
    estimator.wide_ = wide.layer
    estimator.fit_notes_ += (f"{found}: {told}.",)


def _places_across(config: ModelConfig) -> int:
    default = LAYER_KINDS["sum"]["places"]
    return 1 if config.layers is None else config.layers[-1].get("places", default)
