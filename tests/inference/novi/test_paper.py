"""The published algorithm against its formulas, written out again."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from novidgp.inference import NOVIPaper, make_method
from novidgp.model.build import ModelConfig, build_model
from novidgp.model.dgp import Batch, clip_hyperparameters
from novidgp.numerics.random import normal
from novidgp.posteriors.generators import unflatten
from support.small import assert_close, small_model


def tiny_problem():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((6, 2))
    y = np.sin(x[:, :1]) + 0.1 * rng.standard_normal((6, 1))
    config = ModelConfig(
        num_inducing=2, hidden_dim=1, kernel="rbf", kernel_sharing="shared", mean="zero", dtype="float64"
    )
    return build_model(config, x, key=jax.random.key(0)), Batch(jnp.asarray(x), jnp.asarray(y))


def step_by_hand(state, model, batch, num_data, *, key):
    """One iteration of the paper's algorithm, from its formulas and constants: five ascents of the critic,
    one descent of the generator, one ascent of the hyper-parameters; the players, and the RSD's terms."""
    shapes = model.inducing_shapes()
    critic, generator = state.players.critic, state.players.generator
    critic_key, draw_key, path_key, trace_key = jax.random.split(key, 4)

    def draw(network, key):
        raw = network(normal(key, (10, 200), jnp.float64))
        return generator.output_limit * jnp.tanh(raw / generator.output_limit)

    def log_joint(flat, model, key):
        return model.log_joint(
            unflatten(flat, shapes), batch, num_data, num_paths=1, bound="log_expected", key=key
        )

    def terms(critic, flat, path_key, trace_key):
        score = jax.grad(lambda f: jnp.sum(log_joint(f, model, path_key)))(flat)
        phi = critic(flat)
        jacobian = jax.vmap(jax.jacobian(lambda row: critic(row[None])[0]))(flat)
        probe = normal(jax.random.split(trace_key, 1)[0], flat.shape, jnp.float64)
        return jnp.stack(
            [
                jnp.mean(jnp.sum(score * phi, axis=-1)),
                jnp.mean(jnp.einsum("ki,kij,kj->k", probe, jacobian, probe)),
                -10.0 * jnp.mean(jnp.sum(phi**2, axis=-1)),
            ]
        )

    def adam(rate, sign, gradient, opt_state, params):
        updates, opt_state = optax.adam(rate, b1=0.9, b2=0.99).update(
            jax.tree.map(lambda g: sign * g, gradient), opt_state
        )
        return optax.apply_updates(params, updates), opt_state

    def train_critic(carry, key):
        sample_key, *keys = jax.random.split(key, 3)
        flat = draw(generator.network, sample_key)
        gradient = jax.grad(lambda critic: jnp.sum(terms(critic, flat, *keys)))(carry[0])
        return adam(1e-3, -1, gradient, carry[1], carry[0]), None

    start = critic, optax.adam(1e-3).init(critic)
    (critic, _), _ = jax.lax.scan(train_critic, start, jax.random.split(critic_key, 5))

    def discrepancy(network):
        parts = terms(critic, draw(network, draw_key), path_key, trace_key)
        return jnp.sum(parts), parts

    gradient, parts = jax.grad(discrepancy, has_aux=True)(generator.network)
    network, _ = adam(1e-3, 1, gradient, optax.adam(1e-3).init(gradient), generator.network)

    flat = draw(generator.network, draw_key)
    gradient = jax.grad(lambda m: jnp.mean(log_joint(flat, m, path_key)))(model)
    model, _ = adam(2e-2, -1, gradient, optax.adam(2e-2).init(gradient), model)
    return critic, network, model, parts


@pytest.mark.usefixtures("x64")
def test_it_is_algorithm_one_term_by_term():
    """The RSD is the sum of its three terms, and every player moves along its gradient with the right sign.
    The computations share keys and differ in rounding only: 1e-9 in float64, 1e-6 for Adam's quotients."""
    model, batch = tiny_problem()
    num_data, key = 12, jax.random.key(5)
    inference = make_method("novi", preset="paper").algorithm(num_data, 100)

    @jax.jit
    def both(key):
        state = inference.init(model, batch, key=jax.random.key(1))
        return (
            inference.step(state, batch, key=key),
            step_by_hand(state, model, batch, num_data, key=key),
            state,
        )

    (after, info), (critic, network, hyper, parts), before = both(key)
    assert np.all(np.abs(parts) > 1e-6)
    np.testing.assert_allclose(info["rsd"], np.sum(parts), rtol=1e-9)
    np.testing.assert_allclose(info["fisher_divergence"], 40.0 * np.sum(parts), rtol=1e-9)
    players = after.players
    assert_close(players.critic, critic, rtol=0, atol=1e-6 * 1e-3)
    assert_close(players.generator.network, network, rtol=0, atol=1e-6 * 1e-3)
    assert_close(players.model, hyper, rtol=0, atol=1e-6 * 2e-2)
    before = before.players
    assert not np.allclose(before.critic.weights[0], critic.weights[0], rtol=0, atol=1e-4)
    assert not np.allclose(before.generator.network.weights[0], network.weights[0], rtol=0, atol=1e-4)


def test_the_preset_is_the_method():
    assert make_method("novi", {"num_paths": 2}, preset="paper") == NOVIPaper(num_paths=2)


def test_hyperparameters_are_clipped_and_nothing_else():
    wild = jax.tree.map(lambda leaf: leaf * 0 + 50.0, small_model(kernel="rbf"))
    clipped = clip_hyperparameters(wild, 1e-2, 1e2)
    np.testing.assert_allclose(clipped.layers[0].kernel.log_lengthscale, np.log(1e2), rtol=1e-6)
    np.testing.assert_allclose(clipped.likelihood.log_scale, np.log(1e2), rtol=1e-6)
    np.testing.assert_array_equal(clipped.layers[0].inducing, 50.0)
