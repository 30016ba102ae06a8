"""What comes after training, rehearsed while the training steps are compiled.

XLA compiles a program on one core. Meanwhile one thread predicts a row with the model as it starts, and
another fits a local layer of one step to made-up rows, where the fit is to have one. Both are thrown away;
the programs that they needed are ready when training ends.
"""

import contextlib
import copy
from collections.abc import Callable, Hashable
from typing import Any

import jax
import numpy as np

from novidgp import distributed
from novidgp.local.choice import Paths, fit_local_layer
from novidgp.local.class_choice import ClassPaths, fit_class_layer
from novidgp.local.features import MOST_COLUMNS
from novidgp.local.judgement import LEAST_ROWS, LocalSettings
from novidgp.model.build import ModelConfig
from novidgp.model.dgp import DGP
from novidgp.numerics.compilation import precision
from novidgp.numerics.scaling import Standardiser
from novidgp.posteriors.fitted import Fitted
from novidgp.prediction.predictive import Predictive
from novidgp.training.job import Aside

_MADE_UP = 256
_REHEARSED: set[Hashable] = set()
"""What need not be rehearsed again in this process."""


def rehearsal(
    estimator: Any,
    config: ModelConfig,
    model: DGP,
    X: np.ndarray,
    inputs: Standardiser,
    targets: Standardiser,
    local: LocalSettings | None,
) -> tuple[Aside, ...]:
    """For `training.fit(meanwhile=...)`: what a fit of `model` to the rows `X` will be followed by.

    Nothing is rehearsed where several processes share a fit.
    """
    if distributed.several():
        return ()
    double = copy.copy(estimator)
    double.config_, double.input_scaling_, double.target_scaling_ = config, inputs, targets
    double.prediction_seed_, double.local_, double.wide_ = 0, None, None

    classes = config.num_classes

    def prediction(start: Callable[[], Fitted]) -> None:
        with precision(config.dtype):
            fitted = jax.tree.map(np.asarray, start())
        double.model_, double.posterior_, double.ensemble_ = fitted
        shapes = tuple((leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(fitted))
        act = jax.tree.structure(fitted), shapes, double.num_predict_samples, local is None
        _once(act, lambda: _prediction(double._predict(X[:1]), classes if local is not None else None))

    if local is None or (len(X) < LEAST_ROWS and not local.required):
        return (prediction,)
    hidden = 0 if len(model.layers) == 1 else model.layers[-1].inducing.shape[-1]
    width = hidden + (X.shape[1] if X.shape[1] <= MOST_COLUMNS or not hidden else 0)
    settings = local._replace(steps=1, required=True)
    act = width, classes, config.dtype, settings
    return prediction, lambda _: _once(act, lambda: _local_layer(*act))


def _once(act: Hashable, perform: Callable[[], Any]) -> None:
    if act in _REHEARSED:
        return
    _REHEARSED.add(act)
    with contextlib.suppress(Exception):  # what is wrong will be said when it is done in earnest
        perform()


def _prediction(predictive: Predictive, classes: int | None) -> None:
    """The mean, and what a local layer of so many classes asks for."""
    predictive.mean()
    if classes is not None:
        predictive.class_draws()


def _local_layer(width: int, classes: int | None, dtype: str, settings: LocalSettings) -> None:
    """A local layer with so many input columns, for rows of noise."""
    rng = np.random.default_rng(0)
    columns = rng.standard_normal((_MADE_UP, width))
    if classes is not None:
        even = np.full((_MADE_UP, 2, classes), 1.0 / classes)
        labels = np.arange(_MADE_UP) % classes
        fit_class_layer(
            lambda rows: ClassPaths(even[rows, 0], even[rows], columns[rows]),
            labels,
            settings,
            dtype=dtype,
            rng=rng,
        )
        return

    def paths(rows: np.ndarray) -> Paths:
        mean = np.zeros((2, len(rows), 1), dtype)
        return Paths(mean, np.ones_like(mean), np.ones((2, 1), dtype), columns[rows])

    y = rng.standard_normal((_MADE_UP, 1))
    fit_local_layer(paths, y, settings, most_freedom=1.0, dtype=dtype, rng=rng)
