"""What prediction returns: a mixture over posterior paths, in the user's units.

Every path k gives the last layer's moments at a row, hence a component `p_k(y)`. The mixture is kept: its
mean is the average of means, its variance follows from the law of total variance, its log density is a
log-mean-exp of the components, and the path axis never leaves this module.

Rows go through in blocks of one fixed size, so that another row count compiles nothing and a row's answers
are the same to the last bit whatever rows are beside it.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp, ndtr
from jaxtyping import PRNGKeyArray

from novidgp.local.class_layer import ClassLayer
from novidgp.local.layer import LocalLayer
from novidgp.model.layers import Moments
from novidgp.model.likelihoods import ClassLikelihood, GaussianNoise, Likelihood
from novidgp.numerics.blocks import blocks
from novidgp.numerics.compilation import COMPILER_OPTIONS, precision
from novidgp.numerics.random import normal
from novidgp.numerics.scaling import Standardiser

_jit: Any = functools.partial(jax.jit, compiler_options=COMPILER_OPTIONS)
_BISECTIONS = 48
_QUANTILE_DRAWS = 4_000


class HostMoments(NamedTuple):
    """`Moments` of all rows as NumPy arrays, `(k, n, p)`."""

    mean: np.ndarray
    variance: np.ndarray


@dataclasses.dataclass(frozen=True)
class Predictive:
    """The predictive distribution of some rows.

    Every method works on the same paths, which were propagated once. `moments` are the last layer's, `(k, n,
    p)` in the model's units, and take `8 k n p` bytes in single precision; `target` leads back to the user's
    units. The likelihood's parameters have the path axis too: paths may come from several models.
    """

    likelihood: Likelihood
    moments: HostMoments
    target: Standardiser
    key: PRNGKeyArray
    block_size: int
    own_paths: bool = False
    """Whether every row has paths of its own, as in models with a local variable."""
    columns: np.ndarray | None = None
    """Scaled inputs and hidden features of the rows, `(n, d)`: what a local layer sees."""

    def __len__(self) -> int:
        return self.moments.mean.shape[1]

    @functools.cached_property
    def _total(self) -> tuple[np.ndarray, np.ndarray]:
        mean, variance = self._over_blocks(lambda moments, _: _total_moments(self.likelihood, moments))
        return mean, variance

    def mean(self) -> np.ndarray:
        """`E[y]`, `(n, t)`."""
        return self.target.shift + self.target.scale * self._total[0]

    def std(self) -> np.ndarray:
        """`sqrt(E_k[var_k] + var_k[mean_k])`, `(n, t)`: noise and model uncertainty together."""
        return self.target.scale * np.sqrt(self._total[1])

    def probabilities(self) -> np.ndarray:
        """Class probabilities `(n, classes)`; a Bernoulli likelihood has two."""
        p = np.clip(self._total[0], 0.0, 1.0)
        p = np.concatenate([1.0 - p, p], axis=1) if p.shape[1] == 1 else p
        return p / p.sum(1, keepdims=True)

    def quantile(self, levels: Sequence[float] | np.ndarray) -> np.ndarray:
        """Quantiles of each target's marginal, `(n, q, t)`: exact for Gaussian noise, else from draws."""
        levels, likelihood = np.reshape(levels, -1), self.likelihood

        def block(moments, _):
            wanted = levels.astype(moments.mean.dtype)
            if isinstance(likelihood, GaussianNoise):
                return _mixture_quantiles(likelihood, moments, wanted)
            return _draw_quantiles(likelihood, moments, wanted, self.key)

        return self.target.shift + self.target.scale * self._over_blocks(block)

    def log_prob(self, y: np.ndarray) -> np.ndarray:
        """`log p(y)` of every row, `(n,)`, jointly over its targets `(n, t)`; NaN ones are integrated out."""
        y = np.asarray(y, np.float64).reshape(len(self), -1)
        scaled = self.target.targets(y)
        jacobian = np.sum(np.where(np.isfinite(y), np.log(self.target.scale), 0.0), axis=1)

        def density(moments, rows):
            block = np.full((moments.mean.shape[1], y.shape[1]), np.nan)
            block[: rows.stop - rows.start] = scaled[rows]
            return _log_density(self.likelihood, moments, block.astype(moments.mean.dtype), self.key)

        return self._over_blocks(density) - jacobian

    def sample(self, count: int, *, key: PRNGKeyArray) -> np.ndarray:
        """`count` draws per row, `(count, n, t)`. A draw follows one path through all rows: it is a function.

        With a local variable every row has its own paths.
        """
        path_key, noise_key = jax.random.split(key)

        def draw(moments, rows):
            block_key = jax.random.fold_in(noise_key, rows.start)
            draws = _sample(self.likelihood, moments, count, None if self.own_paths else path_key, block_key)
            return jnp.moveaxis(draws, 0, 1)

        return self.target.shift + self.target.scale * np.moveaxis(self._over_blocks(draw), 0, 1)

    def noise_variance(self) -> np.ndarray:
        """The variance of Gaussian noise in the model's units, `(k, t)`."""
        assert isinstance(self.likelihood, GaussianNoise)
        return np.exp(2.0 * np.asarray(self.likelihood.log_scale))

    def class_draws(self) -> np.ndarray:
        """Class probabilities of every path, `(n, k, classes)`, by one draw of its functions."""
        likelihood = self.likelihood
        assert isinstance(likelihood, ClassLikelihood)
        return self._over_blocks(lambda moments, _: _class_draws(likelihood, moments, self.key))

    def corrected(self, local: LocalLayer | ClassLayer) -> "Predictive":
        """This distribution with a local layer. Its variances have the noise in them; for classes, all paths
        have the corrected probabilities."""
        assert self.columns is not None
        mean, variance = self.moments
        if isinstance(local, ClassLayer):
            assert isinstance(self.likelihood, ClassLikelihood)
            probabilities = local.correct(self.probabilities(), self.columns)
            functions = self.likelihood.functions(probabilities).astype(mean.dtype)
            moments = HostMoments(np.broadcast_to(functions, mean.shape), np.zeros_like(variance))
            return dataclasses.replace(self, moments=moments)
        variance = variance + self.noise_variance()[:, None]
        moments = HostMoments(*local.correct(mean, variance, self.columns))
        silent = jax.tree.map(lambda a: np.full_like(a, -np.inf), self.likelihood)
        return dataclasses.replace(self, likelihood=silent, moments=moments)

    def _over_blocks(self, function: Callable[[Moments, slice], Any]) -> Any:
        """A function of the moments of a block of rows, over all rows; its results have rows first."""
        parts = []
        with precision(self.moments.mean.dtype.name):
            for rows, padded in blocks(len(self), self.block_size):
                block: Any = [m[:, padded] for m in self.moments]
                parts.append(function(Moments(*block), rows))  # sent off, not waited for
            return jax.tree.map(lambda *a: np.concatenate(a, dtype=np.float64)[: len(self)], *parts)


def _moments(likelihood: Likelihood, moments: Moments):
    """Mean and variance of y for every path and row."""
    return jax.vmap(likelihood.moments, in_axes=1, out_axes=1)(*moments)


@_jit
def _total_moments(likelihood: Likelihood, moments: Moments):
    mean, variance = _moments(likelihood, moments)
    return jnp.mean(mean, axis=0), jnp.mean(variance, axis=0) + jnp.var(mean, axis=0)


@_jit
def _class_draws(likelihood: ClassLikelihood, moments: Moments, key):
    def row(mean, variance):
        noise = normal(key, mean.shape, mean.dtype)  # the same for every row: one row needs no other
        return likelihood.probabilities(mean + jnp.sqrt(variance) * noise)

    return jax.vmap(row, in_axes=1)(*moments)


@_jit
def _log_density(likelihood: Likelihood, moments: Moments, y, key):
    def row(mean, variance, target):
        observed = jnp.isfinite(target)
        filled = jnp.where(observed, target, 0.0)
        terms = likelihood.log_prob(filled, mean, variance, key=key)
        return logsumexp(jnp.sum(jnp.where(observed, terms, 0.0), axis=-1)) - jnp.log(len(mean))

    return jax.vmap(row, in_axes=(1, 1, 0))(*moments, y)


@_jit
def _mixture_quantiles(likelihood: GaussianNoise, moments: Moments, levels):
    """Bisection on the mixture's distribution function, `(n, q, t)`."""
    mean, variance = _moments(likelihood, moments)
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


@_jit
def _draw_quantiles(likelihood: Likelihood, moments: Moments, levels, key):
    """Order statistics of draws, `(n, q, t)`: a quantile is always a value that can occur."""
    function_key, noise_key = jax.random.split(key)

    def row(mean, variance):
        per_path = -(-_QUANTILE_DRAWS // len(mean))
        noise = normal(function_key, (per_path, *mean.shape), mean.dtype)
        draws = likelihood.sample(mean + jnp.sqrt(variance) * noise, key=noise_key)
        draws = jnp.sort(draws.reshape(-1, draws.shape[-1]), axis=0)
        rank = jnp.ceil(levels * len(draws)).astype(int) - 1
        return draws[jnp.clip(rank, 0, len(draws) - 1)]

    return jax.lax.map(lambda moments: row(*moments), jax.tree.map(lambda m: jnp.swapaxes(m, 0, 1), moments))


@functools.partial(_jit, static_argnums=2)
def _sample(likelihood: Likelihood, moments: Moments, count: int, path_key, key):
    function_key, noise_key, row_key = jax.random.split(key, 3)
    if path_key is None:
        shape = (count, moments.mean.shape[1])
        path = jax.random.randint(row_key, shape, 0, len(moments.mean))
        mean, variance = (m[path, jnp.arange(shape[1])] for m in moments)
    else:
        path = jax.random.randint(path_key, (count, 1), 0, len(moments.mean))
        mean, variance = moments.mean[path[:, 0]], moments.variance[path[:, 0]]
    f = mean + jnp.sqrt(variance) * normal(function_key, mean.shape, mean.dtype)
    return jax.tree.map(lambda a: a[path], likelihood).sample(f, key=noise_key)
