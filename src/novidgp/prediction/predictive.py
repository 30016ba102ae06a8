"""What prediction returns: a mixture over posterior paths, in the user's units.

Every path k gives the last layer's moments at a row, hence a component `p_k(y)`. The mixture is kept: its
mean is the average of means, its variance follows from the law of total variance, its log density is a
log-mean-exp of the components, and the sample axis never leaves this module.

All rows see the same path noise (common random numbers): a row's prediction does not depend on which other
rows are asked for, nor on their order. Rows go through in blocks of one fixed size, so that memory is bounded
and another row count compiles nothing new.
"""

import dataclasses
import functools
from collections.abc import Iterator

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp, ndtr

from novidgp.inference.base import Fitted
from novidgp.model.layers import Moments
from novidgp.model.likelihoods import GaussianNoise, Likelihood
from novidgp.numerics.random import normal
from novidgp.numerics.scaling import Standardiser

_LARGEST_BLOCK = 256
_BLOCK_FLOATS = 2**24
_BISECTIONS = 48
_QUANTILE_DRAWS = 4_000


@dataclasses.dataclass(frozen=True)
class Predictive:
    """The predictive distribution of a block of rows.

    `latent` are the last layer's moments `(k, n, p)` in the model's units; `target` leads back to the user's.
    The likelihood's parameters have the path axis too, `(k, t)`: paths may come from several models.
    """

    likelihood: Likelihood
    latent: Moments
    target: Standardiser
    key: jax.Array
    local: bool = False
    """Whether the model has a latent variable, whose draws belong to one row each."""

    @functools.cached_property
    def _total(self) -> tuple[np.ndarray, np.ndarray]:
        mean, variance = _total_moments(self.likelihood, self.latent)
        return np.asarray(mean, np.float64), np.asarray(variance, np.float64)

    def mean(self) -> np.ndarray:
        """`E[y]`, `(n, t)`."""
        return self.target.shift + self.target.scale * self._total[0]

    def std(self) -> np.ndarray:
        """`sqrt(E_k[var_k] + var_k[mean_k])`, `(n, t)`: noise and model uncertainty together."""
        return self.target.scale * np.sqrt(self._total[1])

    def probabilities(self) -> np.ndarray:
        """Class probabilities `(n, classes)`; a Bernoulli likelihood has two."""
        p = self._total[0]
        p = np.clip(p, 0.0, 1.0)
        p = np.concatenate([1.0 - p, p], axis=1) if p.shape[1] == 1 else p
        return p / p.sum(1, keepdims=True)

    def quantile(self, levels: np.ndarray) -> np.ndarray:
        """Quantiles of each target's marginal, `(n, q, t)`: exact for Gaussian noise, else from draws."""
        if isinstance(self.likelihood, GaussianNoise):
            values = _mixture_quantiles(self.likelihood, self.latent, jnp.asarray(levels))
        else:
            values = _draw_quantiles(self.likelihood, self.latent, jnp.asarray(levels), self.key)
        return self.target.shift + self.target.scale * np.asarray(values, np.float64)

    def log_prob(self, y: np.ndarray) -> np.ndarray:
        """`log p(y)` of the block's first rows, jointly over their targets; NaN ones are integrated out."""
        y = np.concatenate([y, np.full((self.latent.mean.shape[1] - len(y), y.shape[1]), np.nan)])
        observed = np.isfinite(y)
        scaled = jnp.asarray(self.target.targets(y), self.latent.mean.dtype)
        jacobian = np.sum(np.where(observed, np.log(self.target.scale), 0.0), axis=1)
        rows = _log_density(self.likelihood, self.latent, scaled, self.key)
        return np.asarray(rows, np.float64) - jacobian

    def sample(self, count: int, *, path_key: jax.Array, key: jax.Array) -> np.ndarray:
        """`count` draws per row, `(count, n, t)`.

        Blocks with the same `path_key` share the draws' paths; with a latent variable each row has its own.
        """
        draws = _sample(self.likelihood, self.latent, count, None if self.local else path_key, key)
        return self.target.shift + self.target.scale * np.asarray(draws, np.float64)


def predictives(
    fitted: Fitted,
    inputs: np.ndarray,
    scaling: tuple[Standardiser, Standardiser],
    num_paths: int,
    *,
    key: jax.Array,
) -> Iterator[tuple[slice, Predictive]]:
    """The predictive of raw `inputs`, block by block, with the rows that each block is for.

    The last block is padded with zeros; `slice` says how many of its rows are real.
    """
    input_scaling, target_scaling = scaling
    fitted = jax.tree.map(lambda leaf: jnp.asarray(leaf) if eqx.is_array_like(leaf) else leaf, fitted)
    dtype = fitted.model.layers[0].inducing.dtype
    size = block_size(fitted, num_paths)
    path_key, draw_key = jax.random.split(key)
    for start in range(0, len(inputs), size):
        rows = slice(start, min(start + size, len(inputs)))
        block = np.zeros((size, inputs.shape[1]), dtype)
        block[: rows.stop - start] = input_scaling.inputs(inputs[rows])
        likelihood, latent = _propagate(fitted, jnp.asarray(block), num_paths, path_key)
        local = fitted.model.latent is not None
        yield rows, Predictive(likelihood, latent, target_scaling, draw_key, local)


def block_size(fitted: Fitted, num_paths: int) -> int:
    """Rows per block: a power of two for which the widest layer's basis stays near 64 MB."""
    layers = fitted.model.layers
    layers = layers if fitted.model.latent is not None else layers[1:] or layers  # which have paths as inputs
    widest = max(layer.inducing.shape[0] * layer.inducing.shape[1] for layer in layers)
    fits = max(_BLOCK_FLOATS // (num_paths * widest), 8)
    return min(_LARGEST_BLOCK, 2 ** (fits.bit_length() - 1))


@eqx.filter_jit
def _propagate(fitted: Fitted, x, num_paths: int, key) -> tuple[Likelihood, Moments]:
    """Likelihoods and moments of at least `num_paths` paths, an equal share of them through each member."""
    members = fitted.members()
    count = len(jax.tree.leaves(members)[0])
    share = -(-num_paths // count)

    def through(member):
        fitted, key = member

        def row(x_row):
            mean, variance = fitted.posterior.propagate(fitted.model, x_row[None], share, key=key)
            return Moments(mean[:, 0], jnp.broadcast_to(variance, mean.shape)[:, 0])

        return jax.vmap(row, out_axes=1)(x)

    keys = key[None] if count == 1 else jax.random.split(key, count)
    latent = jax.lax.map(through, (members, keys))
    likelihood = jax.tree.map(lambda a: jnp.repeat(a, share, axis=0), members.model.likelihood)
    return likelihood, jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), latent)


def _moments(likelihood: Likelihood, latent: Moments):
    """Mean and variance of y for every path and row."""
    return jax.vmap(likelihood.moments, in_axes=1, out_axes=1)(*latent)


@eqx.filter_jit
def _total_moments(likelihood: Likelihood, latent: Moments):
    mean, variance = _moments(likelihood, latent)
    return jnp.mean(mean, axis=0), jnp.mean(variance, axis=0) + jnp.var(mean, axis=0)


@eqx.filter_jit
def _log_density(likelihood: Likelihood, latent: Moments, y, key):
    def row(mean, variance, target):
        observed = jnp.isfinite(target)
        filled = jnp.where(observed, target, 0.0)
        terms = likelihood.log_prob(filled, mean, variance, key=key)
        return logsumexp(jnp.sum(jnp.where(observed, terms, 0.0), axis=-1)) - jnp.log(len(mean))

    return jax.vmap(row, in_axes=(1, 1, 0))(*latent, y)


@eqx.filter_jit
def _mixture_quantiles(likelihood: GaussianNoise, latent: Moments, levels):
    """Bisection on the mixture's distribution function, `(n, q, t)`."""
    mean, variance = _moments(likelihood, latent)
    scale = jnp.sqrt(variance)
    targets = levels[:, None, None]
    low = jnp.broadcast_to(jnp.min(mean - 12.0 * scale, axis=0), (len(levels), *mean.shape[1:]))
    high = jnp.broadcast_to(jnp.max(mean + 12.0 * scale, axis=0), low.shape)

    def halve(_, bracket):
        low, high = bracket
        middle = 0.5 * (low + high)
        below = jnp.mean(ndtr((middle[:, None] - mean) / scale), axis=1) < targets
        return jnp.where(below, middle, low), jnp.where(below, high, middle)

    low, high = jax.lax.fori_loop(0, _BISECTIONS, halve, (low, high))
    return jnp.swapaxes(0.5 * (low + high), 0, 1)


@eqx.filter_jit
def _draw_quantiles(likelihood: Likelihood, latent: Moments, levels, key):
    """Order statistics of draws, `(n, q, t)`: a quantile is always a value that can occur."""
    latent_key, noise_key = jax.random.split(key)

    def row(mean, variance):
        per_path = -(-_QUANTILE_DRAWS // len(mean))
        noise = normal(latent_key, (per_path, *mean.shape), mean.dtype)
        draws = likelihood.sample(mean + jnp.sqrt(variance) * noise, key=noise_key)
        draws = jnp.sort(draws.reshape(-1, draws.shape[-1]), axis=0)
        rank = jnp.ceil(levels * len(draws)).astype(int) - 1
        return draws[jnp.clip(rank, 0, len(draws) - 1)]

    return jax.lax.map(lambda moments: row(*moments), jax.tree.map(lambda m: jnp.swapaxes(m, 0, 1), latent))


@eqx.filter_jit
def _sample(likelihood: Likelihood, latent: Moments, count: int, path_key, key):
    latent_key, noise_key = jax.random.split(key)
    if path_key is None:
        shape = (count, latent.mean.shape[1])
        path = jax.random.randint(jax.random.fold_in(key, 0), shape, 0, len(latent.mean))
        mean, variance = (m[path, jnp.arange(shape[1])] for m in latent)
    else:
        path = jax.random.randint(path_key, (count, 1), 0, len(latent.mean))
        mean, variance = latent.mean[path[:, 0]], latent.variance[path[:, 0]]
    f = mean + jnp.sqrt(variance) * normal(latent_key, mean.shape, mean.dtype)
    return jax.tree.map(lambda a: a[path], likelihood).sample(f, key=noise_key)
