"""The alternation itself, and games of mixed parts that no method offers."""

import itertools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from novidgp.inference import NOVI, NOVIPaper
from novidgp.inference.novi.ascents import fisher_ascent, kl_ascent
from novidgp.inference.novi.critics import ScoreModel, hyvarinen_loss, stein_loss
from novidgp.inference.novi.game import Ascent, Players, game
from novidgp.inference.optim import adam
from novidgp.numerics.nets import NetworkShape, mlp
from novidgp.posteriors.generators import flatten, implicit_generator, smooth_generator
from support.densities import Density, correlated, exact_trace, run_density, score_game
from support.small import ROWS, small_batch, small_model


def test_the_critic_learns_to_the_last_step():
    """Its schedule counts its own updates, `critic_steps` of them a step; it decays with the generator's."""
    steps = 8
    shape = NetworkShape(4, 2, "tanh")
    ascent = partial(kl_ascent, target=Density(correlated, 3))
    inference = score_game(ascent, shape, steps, size=3, critic_steps=5)

    @jax.jit
    def trajectory(key):
        state = inference.init(jnp.zeros(()), None, key=key)

        def step(state, key):
            state, _ = inference.step(state, None, key=key)
            players = state.players
            return state, (players.critic.network.weights[0], players.generator.network.weights[0])

        return jax.lax.scan(step, state, jax.random.split(key, steps))[1]

    for weights in trajectory(jax.random.key(0)):
        moves = np.abs(np.diff(weights, axis=0)).max(axis=(1, 2))
        assert np.all(moves > 0)


def counting_game(critic_steps, *, critic=True, **options):
    """A game whose critic adds 1 to its memory a step and whose others go up by their learning rate."""

    def start(model, *, key):
        return Players(model, jnp.zeros(2), jnp.zeros(3) if critic else None), jnp.zeros(())

    def critic_loss(critic, players, memory, batch, *, key):
        return jnp.sum((critic - 1.0) ** 2), memory + 1

    def ascent(players, memory, batch, *, keys):
        seen = jnp.asarray(0.0) if players.critic is None else players.critic[0]
        info = {"loss": jnp.zeros(()), "critic_seen": seen, "memory_seen": memory}
        return Ascent(jnp.ones(2), jnp.ones(2), players.generator + 10.0, memory, info)

    optimisers = Players(adam(0.1, 100), adam(0.2, 100), adam(0.5, 100))
    return game(start, critic_loss, ascent, lambda memory: optimisers, critic_steps=critic_steps, **options)


def test_a_step_is_the_critics_steps_and_then_one_ascent():
    """Adam's first step is its learning rate. The ascent sees the trained critic and the memory after it, and
    the generator steps from what was solved for; `project` has the last word on the model."""
    inference = counting_game(2, project=lambda model: jnp.minimum(model, 0.05))

    @jax.jit
    def first(key):
        return inference.step(inference.init(jnp.zeros(2), None, key=key), None, key=key)

    state, info = first(jax.random.key(0))
    np.testing.assert_allclose(info["memory_seen"], 2.0)
    np.testing.assert_allclose(state.memory, 2.0)
    assert 0.5 < info["critic_seen"] <= 1.0
    np.testing.assert_allclose(state.players.critic, info["critic_seen"])
    np.testing.assert_allclose(state.players.generator, 10.2, rtol=1e-6)
    np.testing.assert_allclose(state.players.model, 0.05)
    np.testing.assert_allclose(info["generator_gradient_norm"], np.sqrt(2), rtol=1e-6)
    assert "critic_loss" in info


@pytest.mark.parametrize("without", ["critic", "critic steps"])
def test_a_critic_that_is_none_or_has_no_steps_is_not_trained(without):
    inference = counting_game(2, critic=False) if without == "critic" else counting_game(0)

    @jax.jit
    def first(key):
        return inference.step(inference.init(jnp.zeros(2), None, key=key), None, key=key)

    state, info = first(jax.random.key(0))
    assert "critic_loss" not in info
    np.testing.assert_allclose(state.memory, 0.0)
    assert state.players.critic is None or not np.any(state.players.critic)


@pytest.mark.parametrize("method", [NOVI, NOVIPaper])
def test_critic_steps_are_scanned(method):
    """The text of a step does not grow with their number."""
    model, batch, key = small_model(), small_batch(), jax.random.key(0)

    def length(critic_steps):
        inference = method(critic_steps=critic_steps).algorithm(ROWS, 10)
        state = jax.eval_shape(lambda key: inference.init(model, batch, key=key), key)
        step = jax.jit(lambda state, key: inference.step(state, batch, key=key))
        return len(step.lower(state, key).as_text().splitlines())

    assert length(7) == length(9)


class Shifted(Density):
    """A density whose mode the 'model' moves."""

    def log_joint(self, v, model, batch, *, key):
        values = jax.vmap(self.log_density)(v[0][..., 0] - model)
        return values, values


def mixed_game(generator_kind, critic_kind, ascent_kind, steps):
    """Any generator with any critic under any ascent."""
    target = Shifted(correlated, 3, 5)
    shape = NetworkShape(4, 1, "tanh")

    def start(model, *, key):
        if generator_kind == "smooth":
            stds = {"initial_hidden_std": 0.1, "initial_final_std": 0.1}
            generator = smooth_generator((jnp.zeros((3, 1)),), shape, noise_dim=4, **stds, key=key)
        else:
            limit = {"output_limit": 10.0, "dtype": jnp.float32}
            generator = implicit_generator(((3, 1),), shape, noise_dim=4, **limit, key=key)
        net = mlp(3, 3, **shape._asdict(), output_scale=0.01, dtype=jnp.float32, key=key)
        return Players(model, generator, ScoreModel(net) if critic_kind == "score" else net), None

    stein_options = {"target": target, "regularisation": 1.0, "trace": exact_trace}

    def critic_loss(critic, players, memory, batch, *, key):
        if critic_kind == "score":
            loss = hyvarinen_loss(critic, players.generator, num_samples=3, trace=exact_trace, key=key)
            return loss, memory
        return stein_loss(critic, players, batch, **stein_options, key=key), memory

    if ascent_kind == "fisher":
        ascent = partial(fisher_ascent, **stein_options)
    else:
        ascent = partial(kl_ascent, target=target, regularisation=None if critic_kind == "score" else 1.0)
    optimisers = Players(*(adam(0.01, steps) for _ in range(3)))
    return game(start, critic_loss, ascent, lambda memory: optimisers, critic_steps=1)


@pytest.mark.parametrize(
    ("generator", "critic", "ascent"),
    list(itertools.product(["smooth", "implicit"], ["score", "network"], ["kl", "fisher"])),
)
def test_every_combination_runs_and_depends_on_its_seed_alone(generator, critic, ascent):
    inference = mixed_game(generator, critic, ascent, 3)

    @jax.jit
    def fit(key):
        state = inference.init(jnp.zeros(3), None, key=key)
        keys = jax.random.split(key, 3)
        return state, *jax.lax.scan(lambda s, k: inference.step(s, None, key=k), state, keys)

    start, state, info = fit(jax.random.key(0))
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves((state, info)))
    moved = jax.tree.map(lambda a, b: bool(np.any(a != b)), start.players, state.players)
    for player in moved:
        assert any(jax.tree.leaves(player))
    jax.tree.map(np.testing.assert_array_equal, fit(jax.random.key(0))[1], state)
    assert np.any(fit(jax.random.key(1))[2]["loss"] != info["loss"])


def test_draws_of_a_density_have_one_layer_per_shape():
    """The stand-in target of these tests keeps to the interface of the real one."""
    target = Density(correlated, 3)
    inference = score_game(partial(kl_ascent, target=target), None, 1, size=3)
    players, info = run_density(inference, 1, key=jax.random.key(0))
    assert players.generator.shapes == target.shapes(None)
    assert flatten(players.generator.sample(4, key=jax.random.key(0))).shape == (4, 3)
    assert np.isfinite(info["loss"]).all()
