"""The closed form of the last layer: dense algebra, and a stationary point of the bound. Float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from novidgp.inference import closed_form as conjugate
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
    return build_model(config, x, seed=0), jnp.asarray(h), Batch(jnp.asarray(x), jnp.asarray(y))


def bound(model, h, batch, shift, mean, scale):
    """The terms of the evidence bound that the last layer's Gaussian enters."""
    v = mean + jnp.einsum("pij,kjp->kip", scale, shift)
    moments = model.layers[-1].conditional(h, v, scale)
    data = model.total(
        model.data_term(moments, batch.y, bound="expected_log", key=jax.random.key(0)), NUM_DATA
    )
    prior = -0.5 * jnp.mean(jnp.sum(v * v, axis=(1, 2))) - 0.5 * jnp.sum(scale**2)
    return jnp.mean(data) + prior + jnp.sum(jnp.log(jnp.diagonal(scale, axis1=-2, axis2=-1)))


@pytest.mark.parametrize("targets", [1, 2])
@pytest.mark.parametrize("sharing", ["shared", "separate"])
@pytest.mark.parametrize("layers", [1, 2])
def test_no_gaussian_has_a_higher_bound(targets, sharing, layers):
    model, h, batch = problem(targets, sharing, layers)
    shift = jnp.zeros((K, M, targets))
    _, mean, scale = conjugate.best_response(
        model, conjugate.empty(model), h, shift, batch, NUM_DATA, rate=1.0
    )
    gradients = jax.grad(bound, argnums=(4, 5))(model, h, batch, shift, mean, scale)
    np.testing.assert_allclose(gradients[0], 0.0, atol=1e-9)
    np.testing.assert_allclose(jnp.tril(gradients[1]), 0.0, atol=1e-9)


def test_the_mean_allows_for_displaced_draws():
    model, h, batch = problem()
    shift = jnp.asarray(np.random.default_rng(1).standard_normal((K, M, 1)))
    _, mean, scale = conjugate.best_response(
        model, conjugate.empty(model), h, shift, batch, NUM_DATA, rate=1.0
    )
    gradient = jax.grad(bound, argnums=4)(model, h, batch, shift, mean, scale)
    np.testing.assert_allclose(gradient, 0.0, atol=1e-9)


def test_running_sums_are_averages_of_the_batches():
    model, h, batch = problem()
    other = Batch(batch.x, batch.y[::-1])
    shift = jnp.zeros((K, M, 1))

    def respond(sums, batch, rate):
        return conjugate.best_response(model, sums, h, shift, batch, NUM_DATA, rate)[0]

    first, second = (respond(conjugate.empty(model), b, 1.0) for b in (batch, other))
    both = respond(first, other, 0.3)
    for name in ("precision", "linear"):
        expected = 0.7 * getattr(first, name) + 0.3 * getattr(second, name)
        np.testing.assert_allclose(getattr(both, name), expected, rtol=1e-12)


def test_factor_is_the_cholesky_factor_of_the_inverse():
    root = np.random.default_rng(2).standard_normal((2, M, M))
    precision = root @ np.swapaxes(root, 1, 2)
    scale = conjugate.factor(jnp.asarray(precision))
    np.testing.assert_allclose(scale, np.linalg.cholesky(np.linalg.inv(precision + np.eye(M))), rtol=1e-9)


def test_factor_survives_nearly_noiseless_data_in_float32():
    """Eigenvalues from 1e8 to 1: float32 cannot hold them apart, and the factor must still be finite."""
    directions = np.linalg.qr(np.random.default_rng(3).standard_normal((50, 50)))[0]
    precision = (directions * np.geomspace(1e8, 1e-8, 50)) @ directions.T
    scale = conjugate.factor(jnp.asarray(precision[None], jnp.float32))
    assert np.all(np.isfinite(scale))
    assert np.all(np.diagonal(scale[0]) > 0)
