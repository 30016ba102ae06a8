"""What comes after training, rehearsed while the training steps are compiled.

XLA compiles a program on one core. Meanwhile another thread predicts a few rows with the model as it starts
and gives it a local layer of one step, where the fit is to have one. Both are thrown away; the programs that
they needed are ready when training ends.
"""

import contextlib
import copy
from collections.abc import Callable, Hashable
from typing import Any

import jax
import numpy as np

from novidgp import distributed
from novidgp.local.choice import LocalSettings
from novidgp.model.build import ModelConfig
from novidgp.numerics.compilation import precision
from novidgp.numerics.scaling import Standardiser
from novidgp.posteriors.fitted import Fitted

_ROWS = 256
_REHEARSED: set[Hashable] = set()
"""What need not be rehearsed again in this process."""


def rehearsal(
    estimator: Any,
    config: ModelConfig,
    rows: tuple[np.ndarray, np.ndarray],
    scaling: tuple[Standardiser, Standardiser],
    local: LocalSettings | None,
) -> Callable[[Callable[[], Fitted]], None] | None:
    """For `training.fit(meanwhile=...)`: a function of the starting model. `rows` are inputs in the user's
    units and targets in the model's. Nothing is rehearsed where several processes share a fit."""
    if distributed.several():
        return None
    double = copy.copy(estimator)
    double.config_, (double.input_scaling_, double.target_scaling_) = config, scaling
    double.prediction_seed_, double.local_, double.fit_notes_ = 0, None, ()
    X, y = (part[:_ROWS] for part in rows)

    def perform(start: Callable[[], Fitted]) -> None:
        with precision(config.dtype):
            fitted = jax.tree.map(np.asarray, start())
        shapes = tuple((leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(fitted))
        act = jax.tree.structure(fitted), shapes, double.num_predict_samples, local
        if act in _REHEARSED:
            return
        _REHEARSED.add(act)
        double.model_, double.posterior_, double.ensemble_ = fitted
        with contextlib.suppress(Exception):  # what is wrong will be said when it is done in earnest
            double._predict(X).mean()
            if local is not None:
                double._fit_local(X, y, local._replace(steps=1), np.random.default_rng(0))

    return perform
