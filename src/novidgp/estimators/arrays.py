"""Fits to rows in memory."""

from collections.abc import Iterable
from typing import Any

import jax
import numpy as np

from novidgp.estimators import images
from novidgp.estimators.checks import check_local, seed_of
from novidgp.estimators.fitting import budget_of, keep, limited, training_options
from novidgp.estimators.rehearsal import rehearsal
from novidgp.estimators.warm import LastFit, last_fit
from novidgp.estimators.widening import wide_points, widen
from novidgp.inference import Method
from novidgp.inference.continued import Continued
from novidgp.local.order import misleading_columns
from novidgp.model.build import ModelConfig, starting_models
from novidgp.model.dgp import Batch
from novidgp.numerics.compilation import precision, use_compilation_cache
from novidgp.numerics.forks import refuse_fork
from novidgp.numerics.random import Streams, seed_key
from novidgp.numerics.scaling import Standardiser, channel_standardiser, identity, standardiser
from novidgp.numerics.trees import on_device
from novidgp.training.batches import hold_out, pad_rows
from novidgp.training.loop import Callback, fit


def fit_arrays(
    estimator: Any,
    X: np.ndarray,
    y: np.ndarray,
    method: Method,
    config: ModelConfig,
    *,
    weight: np.ndarray | None,
    scale_targets: bool,
    callbacks: Iterable[Callback],
    chunk: int,
) -> None:
    """Train an estimator on arrays: scale, build, train, keep the result, and give it its wide and local
    layers. `y` is `(n, t)` and `weight` `(n, 1)`, above zero."""
    refuse_fork()
    kind: dict[str, Any] = {"likelihood": config.likelihood, "latent": config.latent_dim > 0}
    local = None if config.layers is not None else check_local(estimator.local, **kind)
    wide = wide_points(estimator, config, len(X), beside_local=local is not None and local.required)
    use_compilation_cache()
    seed = seed_of(estimator.random_state)
    streams = Streams(seed_key(seed))
    held_out = None
    if estimator.validation_fraction is not None:
        kept, held = hold_out(len(X), float(estimator.validation_fraction), streams.numpy("held-out rows"))
        held_out = _rows(held, X, y, weight)
        X, y, weight = _rows(kept, X, y, weight)
    image, notes = config.image, []
    last = last_fit(estimator, method, config, X)
    if isinstance(last, LastFit):
        config, inputs, targets = last.config, last.inputs, last.targets
    else:
        config = limited(estimator, config, len(X))
        inputs = standardiser(X, weight) if image is None else channel_standardiser(X, image[2], weight)
        targets = standardiser(y, weight) if scale_targets else identity(y.shape[1])
        if estimator.order is not None:
            inputs, found = _without_misleading(estimator, X, y, inputs, targets, weight, streams)
            notes.append(found)
    scaled = inputs.inputs_as(X, np.float64 if image is None else config.dtype), targets.targets(y)
    rows = pad_rows(*(scaled if weight is None else (*scaled, weight)))
    starts = int(estimator.starts)

    def batch(*columns):
        return Batch(*(on_device(part, config.dtype) for part in columns))

    with precision(config.dtype):
        validation = None
        if held_out is not None:
            held_X, held_y, held_weight = held_out
            held_rows = inputs.inputs(held_X), targets.targets(held_y)
            validation = batch(*held_rows, *([] if held_weight is None else [held_weight]))
        if isinstance(last, LastFit):
            start, model, trained = jax.device_put(last.start), estimator.model_, Continued(method)
        else:
            times = None if weight is None else weight[:, 0]
            start = model = starting_models(
                config, scaled[0], key=streams.key("model"), starts=starts, row_weight=times
            )
            trained = method
        budget = budget_of(estimator, method, model, len(X), warm=isinstance(last, LastFit))
        result = fit(
            start,
            images.augmented(trained, estimator.augment, image),
            batch(*rows),
            key=streams.key("training"),
            steps=budget.steps,
            batch_size=None if len(X) <= budget.batch_size else budget.batch_size,
            num_data=len(X),
            validation=validation,
            patience=None if validation is None else estimator.patience,
            plateau=estimator.patience if validation is None else None,
            meanwhile=rehearsal(estimator, config, model, X, inputs, targets, local),
            **training_options(estimator, callbacks, chunk),
        )
    keep(estimator, result, method, config, budget, seed, len(X), inputs, targets)
    if isinstance(last, str):
        notes.append(last)
    estimator.fit_notes_ += tuple(notes)
    if wide and result.status != "interrupted":
        widen(estimator, scaled[0], scaled[1], weight, wide, streams)
    if local is not None and estimator.wide_ is None and result.status != "interrupted":
        estimator._fit_local(X, scaled[1], weight, local, streams.numpy("local layer"))


def _without_misleading(
    estimator: Any,
    X: np.ndarray,
    y: np.ndarray,
    inputs: Standardiser,
    targets: Standardiser,
    weight: np.ndarray | None,
    streams: Streams,
) -> tuple[Standardiser, str]:
    """A scaling that hides the columns that mislead at the end of rows in order, and a sentence on them."""
    refused = {"sample_weight": weight, "images": estimator.image_shape_}
    for name, value in refused.items():
        if value is not None:
            raise ValueError(f"order={estimator.order!r} knows no {name}; use order=None.")
    names = list(getattr(estimator, "feature_names_in_", (f"column {i}" for i in range(X.shape[1]))))
    rng = streams.numpy("order of the rows")
    columns, note = misleading_columns(inputs.inputs(X), targets.targets(y), names, rng)
    return inputs.without(columns), note


def _rows(index: np.ndarray, *arrays: np.ndarray | None) -> tuple[Any, ...]:
    """The same rows of several arrays, some of which may not be there."""
    return tuple(None if array is None else array[index] for array in arrays)
