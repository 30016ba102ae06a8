"""A Gaussian process seen through a few rows: mean and variance at a row given its neighbours.

All programs of this room run within `precision("float64")`, with arrays of single precision where the
model has it. The neighbours' systems are solved by LAPACK one after another, like all factorisations of this
library (`numerics.linalg`). Measured on one core: 6 and 19 microseconds for 32 and 64 neighbours, against 83
and 760 for elimination steps that are vectorised over the rows.

No derivative enters the solves. With `a = K^-1 r` and `b = K^-1 k` held fixed,

    mean = k a + b r - b K a,        variance = k_** - 2 k b + b K b

have the values of the conditional moments and their derivatives, and an error of the solves enters them only
as a product of two errors.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_solve
from jaxtyping import Array, Float


class Neighbourhoods(NamedTuple):
    """The `k` neighbours of each of n rows."""

    offsets: Float[Array, "n k d"]
    """Their inputs minus those of the row."""
    residuals: Float[Array, "n k *c"]
    """One number, or one for every class."""
    deep_variance: Float[Array, "n k"]
    """The deep GP's predictive variance there."""
    noise_factor: Float[Array, "n k"]
    """Factor of the noise variance there."""


def squared_distances(
    offsets: Float[Array, "n k d"],
) -> tuple[Float[Array, "n k"], Float[Array, "n k k"]]:
    """Of the neighbours from their row, and of the neighbours from one another.

    Products cost a tenth of differences. They are in double precision: neighbours that are close to one
    another and far from their row would cancel to a matrix that is no covariance.
    """
    double = offsets.astype(jnp.float64)
    own = jnp.sum(double * double, axis=-1)
    products = jnp.einsum("nkd,nld->nkl", double, double)
    mutual = own[:, :, None] + own[:, None, :] - 2.0 * products
    apart = 1.0 - jnp.eye(own.shape[1], dtype=own.dtype)
    return own.astype(offsets.dtype), (jnp.maximum(mutual, 0.0) * apart).astype(offsets.dtype)


def condition(
    covariance: Float[Array, "n k k"],
    cross: Float[Array, "n k"],
    prior: Float[Array, ""],
    residuals: Float[Array, "n k *c"],
) -> tuple[Float[Array, "n *c"], Float[Array, " n"]]:
    """Mean and variance of the function at every row, given its neighbours' noisy residuals: one function,
    or several with one covariance, which is factorised once."""
    columns = residuals.reshape(*cross.shape, -1)
    right = jnp.concatenate([columns, cross[..., None]], axis=-1)
    solved = jax.lax.stop_gradient(_solve(covariance, right))
    a, b = solved[..., :-1], solved[..., -1]
    products = jnp.einsum("nkl,nl->nk", covariance, b)
    terms = cross[..., None] * a + b[..., None] * columns - products[..., None] * a
    mean = jnp.sum(terms, axis=1)
    variance = prior - jnp.sum(2.0 * cross * b - products * b, axis=-1)
    return mean.reshape(residuals.shape[:1] + residuals.shape[2:]), variance


def _solve(covariance, right):
    """`K^-1 r` for every column of the right sides `(n, k, c)`."""

    def one(system):
        matrix, right = system
        return cho_solve((jnp.linalg.cholesky(matrix), True), right)

    return jax.lax.map(one, jax.lax.stop_gradient((covariance, right)))
