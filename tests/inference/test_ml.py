"""Maximum likelihood: what it converges to, and what it leaves out."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from novidgp.inference import Fitted, MaximumLikelihood, with_frozen_model
from novidgp.model.build import ModelConfig, build_model
from novidgp.model.dgp import Batch
from support.exact_case import exact_case


@pytest.mark.usefixtures("x64")
def test_with_inducing_points_at_the_data_it_interpolates():
    """Without a prior on V nothing keeps the function from the targets, whatever the noise: the limit is the
    exact GP *without* noise, `K_xX K^-1 y` and its conditional variance, not the GP's posterior. Adam to its
    cosine end on a quadratic whose condition number is 60 leaves less than 1e-3."""
    (model, batch, test), steps = (case := exact_case()), 1_500
    inference = with_frozen_model(MaximumLikelihood().algorithm(len(batch.x), steps))

    @jax.jit
    def fit(key):
        state = inference.init(model, batch, key=key)
        keys = jax.random.split(key, steps)
        state, _ = jax.lax.scan(lambda state, key: inference.step(state, batch, key=key), state, keys)
        fitted = inference.fitted(state)
        return fitted.posterior.propagate(fitted.model, jnp.asarray(test), 3, key=key)

    mean, variance = fit(jax.random.key(0))
    exact_mean, exact_std = case.truth(alpha=1e-8)
    assert mean.shape == (3, len(test), 1)
    np.testing.assert_array_equal(mean[0], mean[2])  # one layer, one point: no path noise
    np.testing.assert_allclose(mean[0, :, 0], exact_mean, rtol=0, atol=1e-3)
    np.testing.assert_allclose(variance[0, :, 0], exact_std**2, rtol=0, atol=1e-6)


@pytest.mark.usefixtures("x64")
def test_the_loss_is_the_log_of_the_mean_over_paths_and_nothing_else():
    rng = np.random.default_rng(1)
    x = rng.standard_normal((8, 2))
    model = build_model(ModelConfig(num_inducing=3, dtype="float64"), x, key=jax.random.key(0))
    batch = Batch(jnp.asarray(x[:4]), jnp.asarray(x[:4, :1]))
    inference, key = MaximumLikelihood(num_paths=5).algorithm(8, 10), jax.random.key(3)

    @jax.jit
    def losses(key):
        """The method's, and that of the formula."""
        start = inference.init(model, batch, key=key)
        point = jax.tree.map(lambda v: v + 0.5, start.fitted.posterior)
        _, info = inference.step(start._replace(fitted=Fitted(model, point)), batch, key=key)
        path_key, likelihood_key = jax.random.split(key)
        v = tuple(jnp.broadcast_to(p, (5, *p.shape)) for p in point.point)
        moments = model.propagate(batch.x, v, key=path_key)
        density = jnp.exp(model.likelihood.log_prob(batch.y, *moments, key=likelihood_key)[..., 0])
        return info["loss"], -jnp.mean(jnp.log(jnp.mean(density, axis=0)))

    np.testing.assert_allclose(*losses(key), rtol=1e-10)
