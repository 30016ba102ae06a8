"""The validation score of a run: the negative log predictive density of rows held out."""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from novidgp.model.dgp import Batch
from novidgp.numerics.compilation import COMPILER_OPTIONS
from novidgp.posteriors.fitted import Fitted

_PATHS = 20
_BLOCK_ROWS = 256
_BLOCK_FLOATS = 2**25


def scorer(validation: Batch, key: PRNGKeyArray) -> Callable[[Fitted], float]:
    """The negative log predictive density per row, with the same noise every time, so that scores compare."""
    x, y = np.asarray(validation.x), np.asarray(validation.y)
    counted = np.isfinite(y).any(axis=1).astype(y.dtype)[:, None]
    weight = counted if validation.weight is None else counted * np.asarray(validation.weight)
    total = float(weight.sum())

    @functools.cache
    def blocks(rows: int) -> list[Array]:
        padding = -len(x) % rows
        padded = (
            np.concatenate([x, np.repeat(x[:1], padding, axis=0)]),
            np.concatenate([y, np.full((padding, y.shape[1]), np.nan, y.dtype)]),
            np.concatenate([weight, np.zeros((padding, 1), y.dtype)]),
        )
        return [jnp.asarray(a.reshape(-1, rows, a.shape[1])) for a in padded]

    def score(fitted: Fitted) -> float:
        fits = max(_BLOCK_FLOATS // (_PATHS * fitted.model.row_size), 8)
        rows = min(_BLOCK_ROWS, len(x), fits)
        return -float(_log_likelihood(fitted, *blocks(rows), key)) / total

    return score


@functools.partial(jax.jit, compiler_options=COMPILER_OPTIONS)
def _log_likelihood(
    fitted: Fitted,
    x: Float[Array, "b n d"],
    y: Float[Array, "b n t"],
    weight: Float[Array, "b n 1"],
    key: PRNGKeyArray,
) -> Float[Array, ""]:
    """`sum_n w_n log mean_s p(y_n | path s)`, over all members and over blocks of rows."""

    def block(rows):
        x, y, weight, key = rows
        path_key, likelihood_key = jax.random.split(key)

        def member(fitted):
            moments = fitted.posterior.propagate(fitted.model, x, _PATHS, key=path_key)
            return fitted.model.data_term(
                moments, y, bound="log_expected", num_paths=_PATHS, key=likelihood_key
            )

        terms = jax.lax.map(member, fitted.members())
        return jnp.sum(weight[:, 0] * (jax.nn.logsumexp(terms, axis=0) - jnp.log(len(terms))))

    return jnp.sum(jax.lax.map(block, (x, y, weight, jax.random.split(key, len(x)))))
