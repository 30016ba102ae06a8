"""A Gaussian process through nearest rows alone: the local layer of a model that knows nothing."""

from collections.abc import Callable

import jax
import numpy as np

from novidgp.local.choice import Paths, fit_local_layer
from novidgp.local.judgement import LocalSettings
from novidgp.model.likelihoods import GaussianNoise
from novidgp.numerics.scaling import identity, standardiser
from novidgp.numerics.trees import on_device
from novidgp.prediction.predictive import HostMoments, Predictive

_PATHS = 100
"""As many as the estimators have: they carry the scales of the t distribution."""
_BLOCK = 256


def fit_local_gp(X: np.ndarray, y: np.ndarray, *, seed: int) -> Callable[[np.ndarray], Predictive]:
    """The predictive distribution at raw inputs, fitted to standardised targets `y` `(n,)`."""
    scaling = standardiser(X)

    def nothing(X: np.ndarray) -> Paths:
        zeros = np.zeros((_PATHS, len(X), 1), np.float32)
        return Paths(zeros, zeros, np.ones((_PATHS, 1), np.float32), scaling.inputs(X))

    layer, _ = fit_local_layer(
        lambda rows: nothing(X[rows]),
        y[:, None],
        LocalSettings(required=True),
        most_freedom=1.0,
        dtype="float32",
        rng=np.random.default_rng(seed),
    )
    assert layer is not None

    def predictive(X: np.ndarray) -> Predictive:
        mean, variance, noise, columns = nothing(X)
        likelihood = GaussianNoise(on_device(0.5 * np.log(noise[0])))
        likelihood = jax.tree.map(lambda a: np.repeat(a[None], _PATHS, axis=0), likelihood)
        moments, key = HostMoments(mean, variance), jax.random.key(seed)
        return Predictive(likelihood, moments, identity(1), key, _BLOCK, columns=columns).corrected(layer)

    return predictive
