"""Factorisations of kernel matrices that survive float32 and stay cheap to differentiate.

Every Gaussian conditional in the library is a product with the *inverse Cholesky factor*
``R = chol(K)^-1``: one tall GEMM per layer instead of a batched triangular solve.
"""

import functools
import math
import threading
from contextlib import AbstractContextManager

import jax
import jax.numpy as jnp
from jax.typing import DTypeLike
from jaxtyping import Array, Float
from threadpoolctl import ThreadpoolController

_JITTER = {"float32": 1e-5, "float64": 1e-8}
_MAX_ATTEMPTS = 5


class _SingleThread:
    """LAPACK on one thread, as long as any thread of Python is in the context."""

    def __init__(self) -> None:
        self._lock, self._inside, self._limit = threading.Lock(), 0, None

    def __enter__(self) -> None:
        with self._lock:
            self._inside += 1
            if self._inside == 1:
                self._limit = _libraries().limit(limits=1, user_api="blas")

    def __exit__(self, *exception: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0 and self._limit is not None:
                self._limit.restore_original_limits()


_SINGLE_THREAD = _SingleThread()


def single_threaded_lapack() -> AbstractContextManager[None]:
    """A context in which LAPACK keeps to one thread.

    XLA hands small factorisations to LAPACK from its own thread pool; a second pool that spins for the same
    cores makes a 100 x 100 triangular solve take milliseconds instead of microseconds.
    """
    return _SINGLE_THREAD


@functools.cache
def _libraries() -> ThreadpoolController:
    """The process's thread pools; looking for them takes milliseconds."""
    return ThreadpoolController()


def default_jitter(dtype: DTypeLike) -> float:
    """The diagonal that a correlation matrix of this dtype needs."""
    return _JITTER[jnp.dtype(dtype).name]


def _one_by_one(function, *matrices: Float[Array, "*b m _k"]) -> Float[Array, "*b m _k"]:
    """A LAPACK routine over the leading axes, one matrix at a time.

    jaxlib splits a batched LAPACK call over XLA's thread pool and waits for the parts on a thread of that
    same pool: two such calls at once, and a machine with two cores stands still for ever.
    """
    batch = matrices[0].shape[:-2]
    if math.prod(batch) == 1:
        result = function(*(matrix.reshape(matrix.shape[-2:]) for matrix in matrices))
    else:
        rows = tuple(matrix.reshape(-1, *matrix.shape[-2:]) for matrix in matrices)
        result = jax.lax.map(lambda row: function(*row), rows)
    return result.reshape(*batch, *result.shape[-2:])


def solve_unit_lower(
    lower: Float[Array, "*b m m"], right: Float[Array, "*b m k"], *, transpose: bool
) -> Float[Array, "*b m k"]:
    """`(I + T)^-1 right`, or with the transpose, where `T` is the strict lower triangle of `lower`."""

    def solve(matrix, columns):
        return jax.scipy.linalg.solve_triangular(
            matrix, columns, trans=int(transpose), lower=True, unit_diagonal=True
        )

    return _one_by_one(solve, lower, right)


def _tril_half(matrix: Float[Array, "*b m m"]) -> Float[Array, "*b m m"]:
    """The lower triangle with the diagonal halved: the `Phi` of Cholesky differentiation."""
    lower = jnp.tril(matrix)
    eye = jnp.eye(matrix.shape[-1], dtype=matrix.dtype)
    return lower - 0.5 * lower * eye


@jax.custom_jvp
def inverse_cholesky(matrix: Float[Array, "*b m m"]) -> Float[Array, "*b m m"]:
    """`R = L^-1` with `matrix = L L^T`.

    Differentiation needs no triangular solve: `dR = -Phi(R dK R^T) R`, where `Phi` keeps the lower
    triangle and halves the diagonal. Its transpose, which JAX derives, is three small GEMMs.
    """

    def invert(matrix):
        eye = jnp.eye(matrix.shape[-1], dtype=matrix.dtype)
        return jax.scipy.linalg.solve_triangular(jnp.linalg.cholesky(matrix), eye, lower=True)

    return _one_by_one(invert, matrix)


@inverse_cholesky.defjvp
def _inverse_cholesky_jvp(primals, tangents):
    (matrix,), (tangent,) = primals, tangents
    inverse = inverse_cholesky(matrix)
    inner = inverse @ tangent @ jnp.swapaxes(inverse, -1, -2)
    return inverse, -_tril_half(inner) @ inverse


def add_jitter(
    matrix: Float[Array, "*b m m"], jitter: float | None = None
) -> tuple[Float[Array, "*b m m"], Float[Array, ""]]:
    """A correlation matrix with the smallest diagonal that makes it factorisable, and that diagonal.

    Starts at the dtype's default and multiplies by ten, at most four times, in a loop that no
    gradient enters; differentiation then sees one constant.
    """
    start = default_jitter(matrix.dtype) if jitter is None else jitter
    sizes = jnp.asarray([start * 10.0**attempt for attempt in range(_MAX_ATTEMPTS)], matrix.dtype)
    eye = jnp.eye(matrix.shape[-1], dtype=matrix.dtype)
    fixed = jax.lax.stop_gradient(matrix)

    def keep_trying(carry):
        attempt, failed = carry
        return failed & (attempt < _MAX_ATTEMPTS - 1)

    def enlarge(carry):
        attempt = carry[0] + 1
        factor = _one_by_one(jnp.linalg.cholesky, fixed + sizes[attempt] * eye)
        return attempt, ~jnp.all(jnp.isfinite(factor))

    attempt, _ = jax.lax.while_loop(keep_trying, enlarge, (-1, True))
    size = sizes[attempt]
    return matrix + size * eye, size
