"""Latent variables: where they enter the model, what every method makes of them, and what they are for."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from novidgp import DGPClassifier, DGPRegressor, load_model
from novidgp.inference import METHODS
from novidgp.model.build import ModelConfig, build_model
from novidgp.model.dgp import Batch

QUICK = {"num_inducing": 5, "max_steps": 3, "num_predict_samples": 5, "random_state": 0}


def fork(rows, seed):
    """Two branches, both as likely at every x; their distance grows with x. Entropy -0.2 nats far from 0."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2.0, 2.0, rows)
    branch = rng.choice([-1.0, 1.0], rows)
    return x[:, None], branch * (1.0 + 0.4 * x) + 0.1 * rng.standard_normal(rows)


def built(latent_dim, **settings):
    x = np.random.default_rng(0).standard_normal((12, 3))
    config = ModelConfig(num_inducing=5, latent_dim=latent_dim, **settings)
    return build_model(config, x, key=jax.random.key(0)), jnp.asarray(x, jnp.float32)


# --- the model ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("hidden", "kept"), [(None, 3), (4, 2), (1, 1)])
def test_the_first_layer_sees_the_latent_columns_and_passes_them_on(hidden, kept):
    """Those that fit: a hidden layer narrower than the latent variables keeps inputs only."""
    model, _ = built(2, hidden_dim=hidden)
    first = model.layers[0]
    assert first.inducing.shape[-1] == 5
    weight = np.asarray(first.mean.weight)
    assert weight.shape == (5, 5 if hidden is None else hidden)
    assert np.linalg.matrix_rank(weight[:3, :kept]) == kept
    assert not weight[3:, :kept].any()
    np.testing.assert_array_equal(weight[3:, kept:], np.eye(2)[:, : weight.shape[1] - kept])


def test_a_given_latent_variable_is_used_and_a_missing_one_drawn_from_the_prior():
    model, x = built(1, num_layers=1)
    v = tuple(jnp.ones((2000, m, p)) for m, p in model.inducing_shapes())
    key = jax.random.key(1)
    w = jax.random.normal(key, (2000, 12, 1))
    propagate = jax.jit(lambda latent, key: model.propagate(x, v, local_variable=latent, key=key).mean)
    drawn = propagate(None, key)
    given, again = (propagate(w, jax.random.key(seed)) for seed in (2, 3))
    np.testing.assert_array_equal(given, again)
    assert np.all(drawn.std(0) > 1e-3)
    # The same law: means of 2,000 draws within five standard errors.
    error = np.sqrt((drawn.var(0) + given.var(0)) / 2000)
    assert np.all(np.abs(drawn.mean(0) - given.mean(0)) < 5 * error)


@pytest.mark.parametrize("shared_inputs", [True, False])
def test_tied_draws_condition_every_path_of_a_row_on_the_same_inducing_outputs(shared_inputs):
    model, x = built(0, hidden_dim=2)
    layer, rng = model.layers[0], np.random.default_rng(1)
    h = x if shared_inputs else jnp.stack([x, 1.5 * x])
    v = jnp.asarray(rng.standard_normal((2, 5, 2)), jnp.float32)
    scale = jnp.asarray(np.tril(rng.standard_normal((2, 5, 5))), jnp.float32)
    noise = jnp.asarray(rng.standard_normal((2, 12, 5)), jnp.float32)
    moments = jax.jit(type(layer).conditional)(layer, h, v, scale, noise)
    for row in (0, 7):
        drawn = v + jnp.einsum("pij,pj->ip", scale, noise[:, row])
        alone = jax.jit(type(layer).conditional)(layer, h[..., row : row + 1, :], drawn)
        # Sums of five terms of order one in float32, through a 5 x 5 inverse.
        np.testing.assert_allclose(moments.mean[:, row], alone.mean[:, 0], rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(moments.variance[:, row], alone.variance[:, 0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("layers", [1, 2])
def test_every_method_takes_a_latent_variable(method, layers):
    """Traced, not run: shapes, dtypes and the paths of a prediction fit together."""
    model, x = built(2, num_layers=layers)
    batch = Batch(x, x[:, :1])
    inference = METHODS[method]().algorithm(len(x), 10)

    def run(key):
        state = inference.init(model, batch, key=key)
        state, info = inference.step(state, batch, key=key)
        fitted = inference.fitted(state)
        return info, fitted.posterior.propagate(fitted.model, x, 7, key=key)

    info, moments = jax.eval_shape(run, jax.random.key(0))
    assert info["loss"].shape == ()
    assert moments.mean.shape == (7, 12, 1)


# --- the estimators -------------------------------------------------------------------------------


def test_auto_gives_one_latent_variable_to_the_methods_that_propose_it():
    X, y = fork(30, 0)
    for inference, latent_dim, width in (("iwvi", "auto", 2), ("dsvi", "auto", 1), ("iwvi", 0, 1)):
        model = DGPRegressor(inference=inference, latent_dim=latent_dim, num_layers=1, **QUICK).fit(X, y)
        assert model.model_.layers[0].inducing.shape[-1] == width
        assert np.all(np.isfinite(model.predict(X)))


@pytest.mark.parametrize("method", ["iwvi", "iwvi-dreg"])
def test_saved_models_predict_as_they_did(method, tmp_path):
    X, y = fork(30, 0)
    targets = np.column_stack([y, np.where(np.arange(30) % 3, y, np.nan)])
    model = DGPRegressor(inference=method, latent_dim=2, dtype="float64", **QUICK).fit(X, targets)
    model.save(tmp_path / "m.novidgp")
    again = load_model(tmp_path / "m.novidgp")
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    np.testing.assert_array_equal(again.predict(X[3:5]), model.predict(X)[3:5])


def test_classes_take_a_latent_variable():
    X, y = fork(30, 0)
    model = DGPClassifier(inference="iwvi-dreg", **QUICK).fit(X, np.digitize(y, [-1.0, 1.0]))
    np.testing.assert_allclose(model.predict_proba(X).sum(1), 1.0, atol=1e-6)


def test_two_branches_are_learned_where_a_model_without_latent_variable_sees_one():
    X, y = fork(300, 1)
    X_test, y_test = fork(500, 2)
    settings = {"num_layers": 1, "num_inducing": 20, "max_steps": 400, "random_state": 0}
    plain = DGPRegressor(inference="dsvi", **settings).fit(X, y)
    model = DGPRegressor(inference="iwvi", **settings).fit(X, y)
    # One Gaussian must cover both branches: 0.7 nats and more where they are far apart.
    gain = model.log_density(X_test, y_test).mean() - plain.log_density(X_test, y_test).mean()
    assert gain > 0.7

    between = model.log_density(np.array([[1.5]] * 3), np.array([-1.6, 0.0, 1.6]))
    # One Gaussian has 0.5 nats more between the branches than on them. Ten fits (five seeds, 400 and
    # 800 steps) had 1.5 to 4.5 nats less.
    assert min(between[0], between[2]) > between[1] + 1.0
    draws = np.sign(model.sample_y(np.array([[1.4], [1.5]]), 2000))
    # A row's branch is its own: the mean of 2,000 products of independent signs is within 5 / sqrt(2000).
    assert abs(np.mean(draws[0] * draws[1]) - np.mean(draws[0]) * np.mean(draws[1])) < 0.11
    assert np.all(np.abs(draws.mean(1)) < 0.4)
