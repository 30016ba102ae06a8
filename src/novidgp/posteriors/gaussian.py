"""The Gaussian posterior of SVGP and DSVI, and where its training starts."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from novidgp.model.dgp import DGP
from novidgp.model.layers import Gaussian
from novidgp.numerics.random import normal
from novidgp.posteriors.base import Paths, Posterior


def gaussian_start(
    mean: tuple[Float[Array, "_m _p"], ...], hidden_std: float, final_std: float
) -> tuple[
    tuple[Float[Array, "_m _p"], ...], tuple[Float[Array, "_p _m"], ...], tuple[Float[Array, "_p _m _m"], ...]
]:
    """Mean, logarithm of the diagonal and strict lower triangle of every layer's first Gaussian.

    An isotropic Gaussian with a small standard deviation: the layers start nearly deterministic.
    """
    stds = [hidden_std] * (len(mean) - 1) + [final_std]
    diagonal = tuple(jnp.full(v.shape[::-1], np.log(std), v.dtype) for v, std in zip(mean, stds, strict=True))
    return mean, diagonal, tuple(jnp.zeros((*d.shape, d.shape[-1]), d.dtype) for d in diagonal)


class GaussianPosterior(Posterior):
    """Independent Gaussians over layers and outputs, with a full covariance within each (SVGP, DSVI).

    In the model's own coordinates: V where it is whitened, U where it is not.
    """

    mean: tuple[Float[Array, "_m _p"], ...]
    log_diagonal: tuple[Float[Array, "_p _m"], ...]
    lower: tuple[Float[Array, "_p _m _m"], ...]

    def factors(self) -> tuple[Gaussian, ...]:
        """Mean and Cholesky factor of every layer."""
        diagonals = (jnp.exp(d)[..., None] * jnp.eye(d.shape[-1], dtype=d.dtype) for d in self.log_diagonal)
        return tuple(
            Gaussian(mean, jnp.tril(lower, -1) + diagonal)
            for mean, diagonal, lower in zip(self.mean, diagonals, self.lower, strict=True)
        )

    def sample(self, count, *, key):
        """`mean + scale eps` for every layer and output."""
        keys = jax.random.split(key, len(self.mean))
        return tuple(
            q.mean + jnp.einsum("pij,kjp->kip", q.scale, normal(k, (count, *q.mean.shape), q.mean.dtype))
            for q, k in zip(self.factors(), keys, strict=True)
        )

    def paths(self, model, count, *, key):
        """All paths have the mean, and V is integrated out analytically in every layer."""
        centres = tuple(jnp.broadcast_to(mean, (count, *mean.shape)) for mean in self.mean)
        return Paths(centres, model.whiten_scales(tuple(q.scale for q in self.factors())), key)


def kl_divergence(model: DGP, posterior: GaussianPosterior) -> Float[Array, ""]:
    """`KL(q(V) || N(0, I))`. An unwhitened posterior is whitened first, which does not change the KL."""
    total = jnp.zeros((), model.dtype)
    for q in model.whiten_gaussian(posterior.factors()):
        diagonal = jnp.diagonal(q.scale, axis1=-2, axis2=-1)
        total += 0.5 * (jnp.sum(q.scale**2) + jnp.sum(q.mean**2) - q.mean.size) - jnp.sum(jnp.log(diagonal))
    return total
