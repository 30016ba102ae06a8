"""What an inference method returns: something that can be sampled.

A posterior is over the inducing outputs of all layers jointly. `propagate` is the one way prediction uses it:
paths through the model, last layer's moments. Most posteriors sample V and condition; a Gaussian one
integrates V out row by row, which needs fewer paths for the same accuracy.
"""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from novidgp.model.dgp import DGP, Inducing
from novidgp.model.layers import Gaussian, Moments
from novidgp.numerics.random import normal


class Posterior(eqx.Module):
    """A distribution over the inducing outputs of all layers."""

    @abc.abstractmethod
    def sample(self, count: int, *, key: PRNGKeyArray) -> Inducing:
        """`count` joint draws, on the leading axis of every layer's array."""

    @abc.abstractmethod
    def propagate(self, model: DGP, x: Float[Array, "n d"], num_paths: int, *, key: PRNGKeyArray) -> Moments:
        """`num_paths` paths through `model`: moments of the last layer, `(num_paths, n, p)`."""


def propagate_samples(posterior: Posterior, model: DGP, x, num_paths: int, *, key: PRNGKeyArray) -> Moments:
    """Sample V, then condition on it: what every posterior without a closed form does."""
    sample_key, path_key = jax.random.split(key)
    return model.propagate(x, posterior.sample(num_paths, key=sample_key), key=path_key)


def gaussian_start(
    model: DGP, hidden_scale: float, final_scale: float
) -> tuple[tuple[Array, ...], tuple[Array, ...], tuple[Array, ...]]:
    """Mean, logarithm of the diagonal and lower triangle of every layer's Gaussian where training starts.

    A small isotropic scale around the mean functions: nearly deterministic.
    """
    mean = model.inducing_start()
    scales = [hidden_scale] * (len(mean) - 1) + [final_scale]
    diagonal = tuple(jnp.full(v.shape[::-1], np.log(s), v.dtype) for v, s in zip(mean, scales, strict=True))
    return mean, diagonal, tuple(jnp.zeros((*d.shape, d.shape[-1]), d.dtype) for d in diagonal)


class GaussianPosterior(Posterior):
    """Independent Gaussians over layers and outputs, with a full covariance within each (SVGP, DSVI).

    In the model's own coordinates: V where it is whitened, U where it is not.
    """

    mean: tuple[Float[Array, "m p"], ...]
    log_diagonal: tuple[Float[Array, "p m"], ...]
    lower: tuple[Float[Array, "p m m"], ...]

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

    def propagate(self, model, x, num_paths, *, key):
        """With V integrated out analytically in every layer."""
        centres = tuple(jnp.broadcast_to(mean, (num_paths, *mean.shape)) for mean in self.mean)
        scales = model.whiten_scales(tuple(q.scale for q in self.factors()))
        moments = model.propagate(x, centres, scales=scales, key=key)
        return Moments(*(jnp.broadcast_to(m, (num_paths, *m.shape[1:])) for m in moments))


class Delta(Posterior):
    """All mass on one point: what maximum likelihood leaves."""

    point: tuple[Float[Array, "m p"], ...]

    def sample(self, count, *, key):
        """The point, `count` times."""
        return tuple(jnp.broadcast_to(v, (count, *v.shape)) for v in self.point)

    def propagate(self, model, x, num_paths, *, key):
        """Paths differ by the layers' conditional noise only."""
        return propagate_samples(self, model, x, num_paths, key=key)


class Empirical(Posterior):
    """Stored draws of parallel chains, `(chains, draws, m, p)` per layer."""

    draws: tuple[Float[Array, "c s m p"], ...]

    def sample(self, count, *, key):
        """Draws in random order: each once before any twice."""
        chains, length = self.draws[0].shape[:2]
        order = jnp.resize(jax.random.permutation(key, chains * length), (count,))
        return tuple(v.reshape(-1, *v.shape[2:])[order] for v in self.draws)

    def propagate(self, model, x, num_paths, *, key):
        """Sample, then condition."""
        return propagate_samples(self, model, x, num_paths, key=key)
