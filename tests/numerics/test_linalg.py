"""The inverse Cholesky factor and its derivatives against dense autodiff; the jitter search."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from novidgp.numerics.linalg import (
    add_jitter,
    default_jitter,
    inverse_cholesky,
    single_threaded_lapack,
)

M = 4


def dense(matrix):
    return jnp.linalg.inv(jnp.linalg.cholesky(matrix))


def matrices(theta):
    """Two positive-definite matrices, smooth in three numbers, with condition numbers below 100."""
    rng = np.random.default_rng(0)
    base, *directions = rng.standard_normal((4, 2, M, M))
    root = (
        base + sum(t * d for t, d in zip(theta, directions, strict=True)) + 0.5 * theta[0] * theta[1] * base
    )
    return root @ jnp.swapaxes(root, -1, -2) + jnp.eye(M)


def test_value_is_the_inverse_of_the_factor(x64):
    matrix = matrices(np.array([0.1, -0.2, 0.3]))
    inverse = inverse_cholesky(matrix)
    # Condition number below 100 in float64: 1e-16 * 100 with a decade to spare.
    np.testing.assert_allclose(inverse, np.linalg.inv(np.linalg.cholesky(matrix)), rtol=0, atol=1e-13)
    np.testing.assert_allclose(
        inverse @ matrix @ inverse.swapaxes(-1, -2), np.broadcast_to(np.eye(M), (2, M, M)), atol=1e-12
    )
    assert np.array_equal(inverse, np.tril(inverse))


def test_first_and_second_derivatives_agree_with_dense_autodiff(x64):
    """Gradients in reverse, Hessians forward over reverse: what training and Fisher divergences use."""
    weights = np.random.default_rng(1).standard_normal((2, M, M))
    theta = jnp.array([0.1, -0.2, 0.3])

    def derivatives(inverse):
        def contraction(t):
            return jnp.sum(weights * jnp.sin(inverse(matrices(t))))

        return jax.jit(lambda t: (jax.grad(contraction)(t), jax.hessian(contraction)(t)))(theta)

    # The solves of the dense rule lose two digits per order at this conditioning.
    for ours, theirs in zip(derivatives(inverse_cholesky), derivatives(dense), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-10)


def test_derivatives_agree_in_every_symmetric_direction(x64):
    matrix = matrices(jnp.zeros(3))[0]

    @jax.jit
    def derivatives(direction):
        return tuple(jax.jvp(f, (matrix,), (direction,))[1] for f in (inverse_cholesky, dense))

    for i in range(M):
        for j in range(i + 1):
            direction = np.zeros((M, M))
            direction[i, j] = direction[j, i] = 1.0
            ours, theirs = derivatives(direction)
            np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-12)


# --- jitter -----------------------------------------------------------------------------------------


def with_smallest_eigenvalue(value, dtype):
    """A correlation-like matrix of unit scale whose smallest eigenvalue is `value`."""
    basis, _ = np.linalg.qr(np.random.default_rng(2).standard_normal((M, M)))
    return jnp.asarray(basis @ np.diag([value, 0.5, 1.0, 1.5]) @ basis.T, dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_singular_matrix_becomes_factorisable(dtype):
    with jax.enable_x64(dtype == "float64"):
        singular = jnp.ones((M, M), dtype)  # four coincident inducing points
        jittered, size = add_jitter(singular)
        assert size == default_jitter(dtype)
        inverse = inverse_cholesky(jittered)
        assert np.isfinite(inverse).all()
        product = inverse @ jittered @ inverse.T
        # cond = M / jitter; the residual of a factorisation is cond * eps * M.
        np.testing.assert_allclose(product, np.eye(M), atol=M * M * np.finfo(dtype).eps / float(size))


def test_a_good_matrix_gets_the_default_only(x64):
    matrix = with_smallest_eigenvalue(0.3, "float64")
    jittered, size = add_jitter(matrix)
    assert size == 1e-8
    np.testing.assert_array_equal(jittered, matrix + 1e-8 * np.eye(M))


@pytest.mark.parametrize(("eigenvalue", "size"), [(-3e-8, 1e-7), (-3e-7, 1e-6), (-3e-6, 1e-5), (-3e-5, 1e-4)])
def test_the_diagonal_is_the_smallest_power_that_suffices(eigenvalue, size, x64):
    jittered, found = jax.jit(add_jitter)(with_smallest_eigenvalue(eigenvalue, "float64"))
    np.testing.assert_allclose(found, size, rtol=1e-12)
    assert np.isfinite(np.linalg.cholesky(jittered)).all()


def test_the_search_gives_up_after_four_enlargements(x64):
    assert np.isclose(add_jitter(with_smallest_eigenvalue(-1.0, "float64"))[1], 1e-4)


def test_a_batch_takes_what_its_worst_member_needs(x64):
    good, bad = with_smallest_eigenvalue(0.3, "float64"), with_smallest_eigenvalue(-3e-7, "float64")
    jittered, size = add_jitter(jnp.stack([good, bad]))
    assert np.isclose(size, 1e-6)
    np.testing.assert_array_equal(jittered[0], good + size * np.eye(M))


def test_differentiation_sees_a_constant_diagonal(x64):
    gradient = jax.grad(lambda k: jnp.sum(add_jitter(k)[0]))(with_smallest_eigenvalue(-3e-7, "float64"))
    np.testing.assert_array_equal(gradient, np.ones((M, M)))


def test_lapack_keeps_to_one_thread_until_the_last_has_left():
    """Threads that overlap: the first to enter leaves first, and the number from before comes back."""

    def threads():
        return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}

    first, second = single_threaded_lapack(), single_threaded_lapack()
    with threadpool_limits(2, user_api="blas"):
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        assert threads() == {1}
        second.__exit__(None, None, None)
        assert threads() == {2}
