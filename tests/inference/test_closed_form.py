"""The closed form of the last layer: dense algebra, and a stationary point of the bound. Float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from novidgp.inference.closed_form import cholesky_of_inverse, closed_form_gaussian, no_statistics
from novidgp.model.build import ModelConfig, build_model
from novidgp.model.dgp import Batch

pytestmark = pytest.mark.usefixtures("x64")
K, N, M, D = 4, 12, 5, 2
NUM_DATA = 30


def problem(targets=1, sharing="auto", layers=2):
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((N, D)), rng.standard_normal((N, targets))
    y[3, 0] = np.nan
    config = ModelConfig(
        num_layers=layers, num_inducing=M, num_targets=targets, kernel_sharing=sharing, dtype="float64"
    )
    h = rng.standard_normal((K, N, D)) if layers > 1 else x
    return (
        build_model(config, x, key=jax.random.key(0)),
        jnp.asarray(h),
        Batch(jnp.asarray(x), jnp.asarray(y)),
    )


def basis(model, h):
    return model.layers[-1].basis(h).matrix


def bound(model, h, batch, shift, mean, scale):
    """The terms of the evidence bound that the last layer's Gaussian enters."""
    v = mean + jnp.einsum("pij,kjp->kip", scale, shift)
    moments = model.layers[-1].conditional(h, v, scale)
    rows = model.data_term(moments, batch.y, bound="expected_log", key=jax.random.key(0))
    data = model.total(rows, batch, NUM_DATA)
    prior = -0.5 * jnp.mean(jnp.sum(v * v, axis=(1, 2))) - 0.5 * jnp.sum(scale**2)
    return jnp.mean(data) + prior + jnp.sum(jnp.log(jnp.diagonal(scale, axis1=-2, axis2=-1)))


@jax.jit
def slopes(model, h, batch, shift):
    """The gradient of the bound in mean and scale, at the closed form."""
    statistics = no_statistics(model)
    _, *best = closed_form_gaussian(model, statistics, basis(model, h), shift, batch, NUM_DATA, rate=1.0)
    return jax.grad(bound, argnums=(4, 5))(model, h, batch, shift, *best)


@pytest.mark.parametrize("targets", [1, 2])
@pytest.mark.parametrize("sharing", ["shared", "separate"])
@pytest.mark.parametrize("layers", [1, 2])
def test_no_gaussian_has_a_higher_bound(targets, sharing, layers):
    mean, scale = slopes(*problem(targets, sharing, layers), jnp.zeros((K, M, targets)))
    np.testing.assert_allclose(mean, 0.0, atol=1e-9)
    np.testing.assert_allclose(jnp.tril(scale), 0.0, atol=1e-9)


def test_the_mean_allows_for_displaced_draws():
    shift = jnp.asarray(np.random.default_rng(1).standard_normal((K, M, 1)))
    mean, _ = slopes(*problem(), shift)
    np.testing.assert_allclose(mean, 0.0, atol=1e-9)


def test_statistics_are_averages_of_the_batches():
    """The first batches count equally; later ones have the given weight."""
    model, h, batch = problem()
    other = Batch(batch.x, batch.y[::-1])
    shift = jnp.zeros((K, M, 1))

    @jax.jit
    def respond(statistics, batch):
        return closed_form_gaussian(model, statistics, basis(model, h), shift, batch, NUM_DATA, rate=0.3)[0]

    first, second = (respond(no_statistics(model), b) for b in (batch, other))
    for earlier, weight in ((1, 0.5), (2, 1 / 3), (9, 0.3)):
        both = respond(first._replace(batches=jnp.asarray(earlier, jnp.int32)), other)
        assert both.batches == earlier + 1
        for name in ("precision", "linear"):
            expected = (1 - weight) * getattr(first, name) + weight * getattr(second, name)
            np.testing.assert_allclose(getattr(both, name), expected, rtol=1e-12)


def test_a_full_batch_replaces_the_statistics():
    model, h, batch = problem()

    @jax.jit
    def respond(statistics):
        shift = jnp.zeros((K, M, 1))
        return closed_form_gaussian(model, statistics, basis(model, h), shift, batch, N, rate=0.3)[0]

    alone = respond(no_statistics(model))
    other = jax.tree.map(lambda a: a + 5, alone)
    # `old + (new - old)` in float64, with an old value of 5 to 20.
    np.testing.assert_allclose(respond(other).precision, alone.precision, rtol=1e-12, atol=1e-14)


def test_the_factor_is_the_cholesky_factor_of_the_inverse():
    root = np.random.default_rng(2).standard_normal((2, M, M))
    precision = root @ np.swapaxes(root, 1, 2)
    scale = cholesky_of_inverse(jnp.asarray(precision))
    np.testing.assert_allclose(scale, np.linalg.cholesky(np.linalg.inv(precision + np.eye(M))), rtol=1e-9)


def test_the_factor_survives_nearly_noiseless_data_in_float32():
    """Eigenvalues from 1e8 to 1: float32 cannot hold them apart, and the factor must still be finite."""
    directions = np.linalg.qr(np.random.default_rng(3).standard_normal((50, 50)))[0]
    precision = (directions * np.geomspace(1e8, 1e-8, 50)) @ directions.T
    scale = cholesky_of_inverse(jnp.asarray(precision[None], jnp.float32))
    assert np.all(np.isfinite(scale))
    assert np.all(np.diagonal(scale[0]) > 0)
