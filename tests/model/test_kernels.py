"""Kernels against scikit-learn's, and derivatives that must survive coincident points and far-off data."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern

from novidgp.model.kernels import (
    PROFILES,
    Product,
    Sum,
    kernel_names,
    make_kernel,
    squared_distance,
    stationary,
)
from support.dense import reference

N, M, D, UNITS = 6, 5, 3, 2
LENGTHSCALE = np.array([[0.5, 1.0, 2.0], [1.5, 0.8, 3.0]])
VARIANCE = np.array([0.7, 2.5])
SHAPE = 0.6
DTYPES = ("float32", "float64")
# |dk/dr2| at its largest, by profile; Matern 1/2 has no bound there and is Hoelder 1/2 instead.
SLOPE = {"rbf": 0.5, "rq": 0.5, "matern32": 1.5, "matern52": 5 / 6}


@pytest.fixture(params=DTYPES)
def dtype(request):
    with jax.enable_x64(request.param == "float64"):
        yield request.param


def points(dtype, seed=0):
    """`x` and `z` that share two rows, per unit, already rounded to `dtype`."""
    rng = np.random.default_rng(seed)
    x, z = rng.standard_normal((UNITS, N, D)), rng.standard_normal((UNITS, M, D))
    x[:, :2] = z[:, :2]
    return x.astype(dtype), z.astype(dtype)


@jax.jit
def gram(kernel, x, z):
    return kernel.variance()[:, None, None] * kernel.correlation(x, z)


@jax.jit
def correlate(kernel, x, z):
    return kernel.correlation(x, z)


def make(profile, dtype, variance=VARIANCE, lengthscale=LENGTHSCALE):
    return stationary(profile, jnp.asarray(lengthscale, dtype), jnp.asarray(variance, dtype), shape=SHAPE)


def expected(profile, x, z, unit, lengthscale=LENGTHSCALE):
    scale = lengthscale[unit]
    return reference(profile, SHAPE)(x[unit].astype(float) / scale, z[unit].astype(float) / scale)


def tolerance(profile, dtype, x, z):
    """What rounding of `|x|^2 + |z|^2 - 2 x.z` costs: the sum's terms are at most twice the squared norms,
    each of D + 2 operations and the scaling (relative error 4 eps) rounds, and the profile passes it on."""
    eps = np.finfo(dtype).eps
    largest = max(np.max(np.sum((a / LENGTHSCALE[:, None]) ** 2, -1)) for a in (x, z))
    distance = 4 * (D + 6) * eps * largest
    through = np.sqrt(distance) if profile == "matern12" else SLOPE[profile] * distance
    return through + 8 * eps


@pytest.mark.parametrize("profile", PROFILES)
def test_profiles_agree_with_scikit_learn_with_ard(profile, dtype):
    x, z = points(dtype)
    values = gram(make(profile, dtype), x, z)
    assert values.shape == (UNITS, N, M)
    assert values.dtype == dtype
    tol = tolerance(profile, dtype, x, z)
    for unit in range(UNITS):
        truth = VARIANCE[unit] * expected(profile, x, z, unit)
        np.testing.assert_allclose(values[unit], truth, rtol=0, atol=VARIANCE[unit] * tol)


def test_matern12_away_from_zero_is_as_exact_as_the_others(dtype):
    x, z = points(dtype)
    x[:, :2] += 1.0
    values = correlate(make("matern12", dtype), x, z)
    distance = [expected("rbf", x, z, unit) for unit in range(UNITS)]
    nearest = np.sqrt(-2.0 * np.log(np.max(distance)))
    # sqrt has slope 1 / (2 r): the same error in r2, over the nearest pair's distance.
    tol = tolerance("rbf", dtype, x, z) / nearest
    for unit in range(UNITS):
        np.testing.assert_allclose(values[unit], expected("matern12", x, z, unit), rtol=0, atol=tol)


def test_sum_and_product_agree_with_scikit_learn(dtype):
    x, z = points(dtype)
    other = 1.7 * LENGTHSCALE
    kernel = Sum(
        (
            Product((make("rbf", dtype), make("matern32", dtype, lengthscale=other))),
            make("matern52", dtype, variance=2 * VARIANCE),
        )
    )
    values = gram(kernel, x, z)
    np.testing.assert_allclose(kernel.variance(), VARIANCE**2 + 2 * VARIANCE, rtol=1e-6)
    # Two factors and a sum: the slopes of three profiles, whose tolerances therefore add.
    tol = sum(tolerance(name, dtype, x, z) for name in ("rbf", "matern32", "matern52"))
    for unit in range(UNITS):
        v = VARIANCE[unit]
        truth = ConstantKernel(v) * RBF(LENGTHSCALE[unit]) * ConstantKernel(v) * Matern(other[unit], nu=1.5)
        truth = truth + ConstantKernel(2 * v) * Matern(LENGTHSCALE[unit], nu=2.5)
        limit = (v**2 + 2 * v) * tol
        np.testing.assert_allclose(
            values[unit], truth(x[unit].astype(float), z[unit].astype(float)), rtol=0, atol=limit
        )


def test_expressions_build_what_they_say(x64):
    x, z = points("float64")
    built = make_kernel("rbf*matern32 + matern12", jnp.asarray(LENGTHSCALE), jnp.asarray(VARIANCE))
    assert kernel_names("rbf*matern32 + matern12") == ["rbf", "matern32", "matern12"]
    np.testing.assert_allclose(built.variance(), VARIANCE, rtol=1e-14)  # a sum of two halves
    values = gram(built, x, z)
    for unit in range(UNITS):
        rbf, m32, m12 = (expected(p, x, z, unit) for p in ("rbf", "matern32", "matern12"))
        # Matern 1/2 at the two coincident rows sees sqrt(eps), hence 1e-7.
        np.testing.assert_allclose(values[unit], VARIANCE[unit] * 0.5 * (rbf * m32 + m12), rtol=0, atol=1e-7)


@pytest.mark.parametrize("spec", ["rbf+rq", "rq*matern12"])
def test_correlation_of_a_point_with_itself_is_one(spec, dtype):
    x, _ = points(dtype)
    kernel = make_kernel(spec, jnp.asarray(LENGTHSCALE, dtype), jnp.asarray(VARIANCE, dtype))
    diagonal = jnp.diagonal(correlate(kernel, x, x), axis1=1, axis2=2)
    tol = max(tolerance(name, dtype, x, x) for name in kernel_names(spec))
    np.testing.assert_allclose(diagonal, 1.0, rtol=0, atol=tol)


# --- derivatives ------------------------------------------------------------------------------------


def plain(profile, x, z, lengthscale, shape):
    """The textbook formula over differences: no clip, no custom rule, undefined at zero distance."""
    r2 = jnp.sum(((x[:, :, None] - z[:, None]) / lengthscale[:, None, None]) ** 2, -1)
    r = jnp.sqrt(r2)
    return {
        "rbf": lambda: jnp.exp(-r2 / 2),
        "rq": lambda: (1 + r2 / (2 * shape[:, None, None])) ** -shape[:, None, None],
        "matern12": lambda: jnp.exp(-r),
        "matern32": lambda: (1 + np.sqrt(3) * r) * jnp.exp(-np.sqrt(3) * r),
        "matern52": lambda: (1 + np.sqrt(5) * r + 5 / 3 * r2) * jnp.exp(-np.sqrt(5) * r),
    }[profile]()


def derivatives(correlation, arguments):
    """Gradient and Hessian of a fixed contraction of the Gram matrix, in one flat vector of arguments."""
    flat, unravel = ravel_pytree(arguments)
    weights = np.random.default_rng(1).standard_normal((1, 3, 3))

    def contraction(vector):
        return jnp.sum(weights.astype(vector.dtype) * correlation(*unravel(vector)))

    def gradient(vector):
        return (jax.grad(contraction)(vector),) * 2

    hessian, first = jax.jit(jax.jacfwd(gradient, has_aux=True))(flat)
    return first, hessian


def library(profile):
    def correlation(x, z, lengthscale, shape):
        kernel = stationary(profile, lengthscale, jnp.ones(1, x.dtype))
        if profile == "rq":
            kernel = kernel.__class__(kernel.log_variance, kernel.log_lengthscale, jnp.log(shape), "rq")
        return kernel.correlation(x, z)

    return correlation


def small(dtype, coincident):
    rng = np.random.default_rng(5)
    x, z = rng.standard_normal((1, 3, 2)), rng.standard_normal((1, 3, 2))
    if coincident:
        x = z.copy()
        x[:, 2] += 1e-4  # and one pair that is nearly so
    return tuple(jnp.asarray(a, dtype) for a in (x, z, np.array([[0.7, 1.3]]), np.array([SHAPE])))


@pytest.mark.parametrize("profile", PROFILES)
def test_first_and_second_derivatives_are_those_of_the_formula(profile, x64):
    arguments = small("float64", coincident=False)
    got = derivatives(library(profile), arguments)
    truth = derivatives(lambda *a: plain(profile, *a), arguments)
    # Twelve digits of float64 are left after the cancellation in r2 and two derivatives of sqrt at r > 0.1.
    for ours, theirs in zip(got, truth, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-11)


@pytest.mark.parametrize(("profile", "dtype"), [*((p, "float32") for p in PROFILES), ("matern12", "float64")])
def test_derivatives_to_second_order_are_finite_at_coincident_points(profile, dtype):
    with jax.enable_x64(dtype == "float64"):
        gradient, hessian = derivatives(library(profile), small(dtype, coincident=True))
    assert np.isfinite(gradient).all()
    assert np.isfinite(hessian).all()


@pytest.mark.parametrize("profile", ["rq", "rbf", "matern32", "matern52"])
def test_gradient_in_a_point_vanishes_where_it_meets_its_inducing_point(profile):
    """`k` is at its maximum there. What remains is the rounding of r2 through a bounded slope."""
    dtype = "float32"
    z = jnp.asarray(np.random.default_rng(2).standard_normal((1, 1, D)), dtype)
    kernel = make(profile, dtype, VARIANCE[:1], LENGTHSCALE[:1])
    gradient = jax.jit(jax.grad(lambda x: kernel.correlation(x, z)[0, 0, 0]))(z)
    limit = 2 * SLOPE[profile] * np.max(1 / LENGTHSCALE[0] ** 2) * np.max(np.abs(z))
    np.testing.assert_allclose(gradient, 0.0, atol=8 * np.finfo(dtype).eps * limit)


def test_gradient_in_alpha_agrees_with_finite_differences(x64):
    x, z = points("float64")

    def total(log_shape):
        kernel = make("rq", "float64")
        kernel = kernel.__class__(kernel.log_variance, kernel.log_lengthscale, log_shape, "rq")
        return jnp.sum(kernel.correlation(x, z), axis=(1, 2))

    total, step = jax.jit(total), 1e-5
    for log_shape in (np.log([0.05, 0.6]), np.log([3.0, 200.0])):
        gradient = jax.vjp(total, jnp.asarray(log_shape))[1](jnp.ones(UNITS))[0]
        difference = (total(log_shape + step) - total(log_shape - step)) / (2 * step)
        # The difference is the weaker side: thirty summands, each with an error of alpha eps from
        # the logarithm of 1 + r2 / (2 alpha), over the step; truncation is step^2 = 1e-10 times a
        # third derivative of order one.
        rounding = N * M * (4 + np.exp(log_shape)) * np.finfo(float).eps / step
        assert np.all(np.abs(gradient - difference) < rounding + 1e-9)


def test_rational_quadratic_tends_to_rbf(x64):
    x, z = points("float64")
    kernel = stationary("rq", jnp.asarray(LENGTHSCALE), jnp.asarray(VARIANCE), shape=1e6)
    # k_rq - k_rbf = k r^4 / (8 alpha) + ..., and k r^4 <= 16 exp(-2) < 2.2.
    np.testing.assert_allclose(
        kernel.correlation(x, z), make("rbf", "float64").correlation(x, z), rtol=0, atol=3e-7
    )


# --- far-off data -----------------------------------------------------------------------------------


def test_squared_distances_of_far_off_data_keep_their_digits(dtype):
    """At 1e6 float32 resolves 1/16: on that grid the offset is exact, so nothing may be lost."""
    rng = np.random.default_rng(3)
    x, z = (rng.integers(-32, 33, (n, D)) / 16 for n in (N, M))
    far = squared_distance(jnp.asarray(x + 1e6, dtype), jnp.asarray(z + 1e6, dtype))
    truth = np.sum((x[:, None] - z[None]) ** 2, -1)
    # The centred coordinates are within four of zero: D + 2 terms of at most 16 D round to eps each.
    np.testing.assert_allclose(far, truth, rtol=0, atol=(D + 2) * 32 * D * np.finfo(dtype).eps)


@pytest.mark.parametrize("profile", PROFILES)
def test_kernels_do_not_notice_an_offset_of_a_million(profile, x64):
    x, z = (np.round(a * 1024) / 1024 for a in points("float64", seed=4))
    x[:, :2] += 0.5  # apart: Matern 1/2 would show the square root of the error at zero
    kernel = make(profile, "float64")
    near, far = correlate(kernel, x, z), correlate(kernel, x + 1e6, z + 1e6)
    # Scaling by the lengthscale rounds coordinates of 2e6 to 2e6 eps = 5e-10; times 2 r |dk/dr2| <= 2 and D.
    np.testing.assert_allclose(far, near, rtol=0, atol=5e-9)
