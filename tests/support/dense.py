"""The same quantities by NumPy, SciPy and scikit-learn: dense, slow, one output at a time.

Nothing here calls the library's algebra; it only reads parameters. The one thing taken over is the jitter,
which is part of the model: `K_ZZ = variance * (C + 1e-8 I)` in float64.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from sklearn.gaussian_process.kernels import RBF, Matern, RationalQuadratic

from novidgp.model.kernels import stationary
from novidgp.model.layers import GPLayer
from novidgp.model.means import Linear, Zero
from novidgp.posteriors.gaussian import GaussianPosterior

JITTER = 1e-8


def reference(profile: str, shape: float = 1.0):
    """scikit-learn's kernel of unit variance and lengthscale; ARD by scaling its inputs."""
    if profile.startswith("matern"):
        return Matern(1.0, nu=float(profile[-2]) / 2.0)
    return RationalQuadratic(1.0, shape) if profile == "rq" else RBF(1.0)


class View(NamedTuple):
    """One output of a layer: what the conditional needs, dense."""

    k_zz: np.ndarray
    k_xz: np.ndarray
    variance: float
    mean_z: np.ndarray
    mean_x: np.ndarray


def view(layer: GPLayer, output: int, x: np.ndarray) -> View:
    """The dense matrices of one output."""
    unit = output if layer.inducing.shape[0] > 1 else 0
    z = np.asarray(layer.inducing)[unit]
    scale = np.exp(np.asarray(layer.kernel.log_lengthscale))[unit]
    variance = float(np.exp(np.asarray(layer.kernel.log_variance))[unit])
    kernel = reference(layer.kernel.profile)
    k_zz = variance * (kernel(z / scale) + JITTER * np.eye(len(z)))
    k_xz = variance * kernel(x / scale, z / scale)
    if isinstance(layer.mean, Linear):
        weight, bias = np.asarray(layer.mean.weight)[:, output], np.asarray(layer.mean.bias)[output]
        return View(k_zz, k_xz, variance, z @ weight + bias, x @ weight + bias)
    return View(k_zz, k_xz, variance, np.zeros(len(z)), np.zeros(len(x)))


def make_layer(seed: int, *, inputs=2, outputs=3, points=5, separate=False, linear=True, profile="matern52"):
    """A layer with every parameter different from its neighbours, and well-separated inducing points.

    The points lie on a jittered line, so that `K_ZZ` is far from diagonal but has a condition number
    below 100, and float64 leaves twelve digits of any solve.
    """
    rng = np.random.default_rng(seed)
    units = outputs if separate else 1
    line = np.linspace(-1.2, 1.2, points)[None, :, None]
    z = line * np.sign(rng.standard_normal((units, 1, inputs))) + 0.1 * rng.standard_normal(
        (units, points, inputs)
    )
    mean = Zero(outputs)
    if linear:
        mean = Linear(
            jnp.asarray(rng.standard_normal((inputs, outputs))),
            jnp.asarray(rng.standard_normal(outputs)),
            True,
        )
    kernel = stationary(
        profile,
        jnp.asarray(rng.uniform(0.7, 1.5, (units, inputs))),
        jnp.asarray(rng.uniform(0.5, 2.0, units)),
    )
    return GPLayer(kernel, jnp.asarray(z), mean, outputs)


def lower_factor(rng, outputs: int, points: int, scale: float = 0.5) -> np.ndarray:
    """Cholesky factors with a positive diagonal, `(p, m, m)`."""
    lower = 0.3 * np.tril(rng.standard_normal((outputs, points, points)), -1)
    return scale * (lower + np.eye(points) * rng.uniform(0.5, 1.5, (outputs, 1, points)))


def posterior_from(means, factors):
    """A Gaussian posterior from means `(m, p)` and Cholesky factors `(p, m, m)`, a layer each."""
    diagonals = (np.diagonal(f, axis1=1, axis2=2) for f in factors)
    return GaussianPosterior(
        tuple(jnp.asarray(m) for m in means),
        tuple(jnp.asarray(np.log(d)) for d in diagonals),
        tuple(jnp.asarray(f) for f in factors),
    )
