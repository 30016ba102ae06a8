"""One layer with its inducing points at the data, where scikit-learn's exact GP knows the answer."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF

from novidgp.model.dgp import DGP, Batch
from novidgp.model.kernels import stationary
from novidgp.model.layers import GPLayer
from novidgp.model.likelihoods import GaussianNoise
from novidgp.model.means import Zero

LENGTHSCALE, NOISE = 0.8, 0.3


class ExactCase(NamedTuple):
    """The model, its six rows, and nine inputs to predict at. To be made in double precision."""

    model: DGP
    batch: Batch
    test: np.ndarray

    def truth(self, alpha: float = NOISE**2) -> tuple[np.ndarray, np.ndarray]:
        """The exact GP's mean and standard deviation of f; `alpha` is the variance of its noise."""
        gp = GaussianProcessRegressor(RBF(LENGTHSCALE), alpha=alpha, optimizer=None)
        return gp.fit(self.batch.x, self.batch.y[:, 0]).predict(self.test, return_std=True)


def one_layer(x, likelihood) -> DGP:
    kernel = stationary("rbf", jnp.full((1, 1), LENGTHSCALE), jnp.ones(1))
    return DGP((GPLayer(kernel, jnp.asarray(x)[None], Zero(1), 1),), likelihood)


def exact_case() -> ExactCase:
    rng = np.random.default_rng(0)
    x = np.linspace(-2, 2, 6)[:, None]
    y = np.sin(2 * x) + 0.1 * rng.standard_normal(x.shape)
    model = one_layer(x, GaussianNoise(jnp.log(jnp.full(1, NOISE))))
    return ExactCase(model, Batch(jnp.asarray(x), jnp.asarray(y)), np.linspace(-2.5, 2.5, 9)[:, None])


def total_moments(moments) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance of f over all paths, by the law of total variance."""
    mean, variance = (m[..., 0] for m in moments)
    return np.mean(mean, axis=0), np.var(mean, axis=0) + np.mean(variance, axis=0)
