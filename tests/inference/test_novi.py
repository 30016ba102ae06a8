"""NOVI: targets whose posterior is known, Algorithm 1 by hand, and every combination of its parts.

`Target` stands in for a DGP where the posterior should be a density of the test's choosing: `novi` asks a
model only for shapes, a dtype and the two terms of its log joint.
"""

import functools
import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from novidgp.inference.base import Fitted
from novidgp.inference.dsvi import elbo
from novidgp.inference.novi import PAPER
from novidgp.inference.novi import novi as novi_with_snapshots
from novidgp.model.build import ModelConfig, build_model
from novidgp.model.dgp import Batch, clip_hyperparameters
from novidgp.numerics.nets import MLP
from novidgp.numerics.random import normal
from novidgp.posteriors.base import GaussianPosterior
from novidgp.posteriors.generators import unflatten
from support.exact_case import exact_case, total_moments

novi = functools.partial(novi_with_snapshots, snapshots=False)

# Programs that run for a few steps only are not worth the optimiser's time.
QUICK = functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})


class Points(eqx.Module):
    """What `novi` reads of a layer: the dtype of its inducing points."""

    inducing: jax.Array


class Target(eqx.Module):
    """A 'posterior' over one layer of `size` inducing outputs with a given log density."""

    log_density: object = eqx.field(static=True)
    size: int = eqx.field(static=True)
    layers: tuple[Points, ...]

    def inducing_shapes(self):
        return ((self.size, 1),)

    def inducing_start(self):
        return (jnp.zeros((self.size, 1), self.layers[0].inducing.dtype),)

    def log_prior(self, v):
        return jnp.zeros(len(v[0]), v[0].dtype)

    def log_likelihood(self, v, batch, num_data, *, num_paths, bound, key):
        return jax.vmap(self.log_density)(v[0][..., 0])


def target(log_density, size):
    return Target(log_density, size, (Points(jnp.zeros((1, size, 1))),))


def run(inference, model, batch, steps, *, key):
    """State and history after `steps` steps, in one compiled scan."""

    def fit(key):
        init_key, step_key = jax.random.split(key)
        state = inference.init(model, batch, key=init_key)
        keys = jax.random.split(step_key, steps)
        return jax.lax.scan(lambda state, key: inference.step(state, batch, key=key), state, keys)

    return jax.jit(fit)(key)


def assert_close(first, second, **tolerance):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, **tolerance), first, second)


# --- targets with a known posterior ---------------------------------------------------------------------

MEAN = np.array([1.0, -1.0, 0.5])
ROOT = np.array([[0.9, 0.0, 0.0], [0.6, 0.5, 0.0], [-0.4, 0.3, 0.6]])
COVARIANCE = ROOT @ ROOT.T  # correlations of 0.77, -0.51 and -0.15
PRECISION = np.linalg.inv(COVARIANCE)


def correlated(x):
    offset = x - jnp.asarray(MEAN, x.dtype)
    return -0.5 * offset @ jnp.asarray(PRECISION, x.dtype) @ offset


@pytest.mark.parametrize("objective", ["kl", "fisher"])
def test_a_gaussian_q_becomes_the_gaussian_posterior(objective):
    """Without the network the score of q is exact, and both gradients vanish draw by draw where q = p: no
    Monte-Carlo error is left at the optimum, and the parameters themselves converge (here to 1e-3)."""
    steps = 3_000
    inference = novi(
        1,
        steps,
        network=False,
        objective=objective,
        gaussian_part="sampled",
        trace="exact",
        mean_rate=0.05,
        lower_rate=0.02,
        model_rate=0.0,
    )
    state, info = run(inference, target(correlated, 3), None, steps, key=jax.random.key(0))
    q = state.generator
    factor = np.exp(q.log_diagonal[0][0])[:, None] * (np.eye(3) + np.tril(q.lower[0][0], -1))
    np.testing.assert_allclose(q.mean[0][:, 0], MEAN, atol=1e-3)
    np.testing.assert_allclose(factor @ factor.T, COVARIANCE, atol=1e-3)
    assert info["fisher_divergence"][-1] < 1e-4 < info["fisher_divergence"][0]


@pytest.mark.parametrize(
    ("objective", "score_matching"), [("kl", "denoising"), ("kl", "implicit"), ("fisher", "denoising")]
)
def test_novi_recovers_a_correlated_gaussian_posterior(objective, score_matching):
    """With the network on. 20,000 draws leave an error below 0.03 (four standard errors) in any mean or
    covariance of this target; the other 0.03 are for the critic, which is trained on 32 draws a time."""
    steps = 1_000
    inference = novi(
        1,
        steps,
        objective=objective,
        gaussian_part="sampled",
        score_matching=score_matching,
        trace="exact",
        num_samples=32,
        noise_dim=4,
        width=16,
        lower_rate=0.02,
        mean_rate=0.02,
        model_rate=0.0,
    )
    state, _ = run(inference, target(correlated, 3), None, steps, key=jax.random.key(0))
    draws = np.asarray(state.generator.sample(20_000, key=jax.random.key(1))[0][..., 0])
    np.testing.assert_allclose(draws.mean(0), MEAN, atol=0.06)
    np.testing.assert_allclose(np.cov(draws.T), COVARIANCE, atol=0.06)


MODES = np.array([[2.0, 0.0], [-2.0, 0.0]])
MODE_SCALE = 0.5


def bimodal(x):
    offsets = x - jnp.asarray(MODES, x.dtype)
    return jax.nn.logsumexp(-0.5 * jnp.sum(offsets**2, axis=-1) / MODE_SCALE**2)


def mode_shares(network, seeds=2):
    """The share of draws within three standard deviations of each mode, `(seeds, 2)`."""
    steps = 1_000
    inference = novi(
        1,
        steps,
        network=network,
        gaussian_part="sampled",
        num_samples=32,
        noise_dim=2,
        width=32,
        mean_rate=5e-3,
        network_rate=5e-3,
        critic_rate=1e-2,
        critic_samples=64,
        final_scale=1.0,
        model_rate=0.0,
    )

    def draws(key):
        state, _ = run(inference, target(bimodal, 2), None, steps, key=key)
        return state.generator.sample(2_000, key=jax.random.key(9))[0][..., 0]

    x = jax.vmap(draws)(jax.random.split(jax.random.key(0), seeds))
    distance = np.linalg.norm(x[:, :, None] - MODES, axis=-1)
    return np.mean(distance < 3 * MODE_SCALE, axis=1)


def test_novi_finds_both_modes_where_a_gaussian_cannot():
    """Modes eight standard deviations apart, two seeds; the true shares are 0.494 each. Reverse KL hardly
    minds their balance, so that 0.15 in each is asked, and 0.85 in both. A Gaussian that has 0.15 in each has
    at most 0.75 in both: the rest lies in the valley."""

    def found(shares):
        return (shares.min(axis=1) > 0.15) & (shares.sum(axis=1) > 0.85)

    assert np.all(found(mode_shares(network=True)))
    assert not np.any(found(mode_shares(network=False)))


# --- Algorithm 1 by hand ------------------------------------------------------------------------------------


def tiny_problem(dtype, **options):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((6, 2))
    y = np.sin(x[:, :1]) + 0.1 * rng.standard_normal((6, 1))
    config = ModelConfig(
        num_layers=2,
        num_inducing=2,
        hidden_dim=1,
        kernel="rbf",
        kernel_sharing="shared",
        dtype=dtype,
        **options,
    )
    return build_model(config, x, seed=0), Batch(jnp.asarray(x, dtype), jnp.asarray(y, dtype))


def step_by_hand(state, model, batch, num_data, *, key):
    """One iteration of the paper's algorithm, from its formulas and constants: five ascents of the critic,
    one descent of the generator, one ascent of the hyper-parameters; the players, and the RSD's terms."""
    shapes = model.inducing_shapes()
    critic, generator = state.critic, state.generator
    critic_key, draw_key, path_key, trace_key = jax.random.split(key, 4)

    def draw(network, key):
        raw = network(normal(key, (10, 200), jnp.float64))
        return generator.bound * jnp.tanh(raw / generator.bound)

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
def test_the_paper_preset_is_algorithm_one_term_by_term():
    """The RSD is the sum of its three terms, and every player moves along its gradient with the right sign.
    The computations share keys and differ in rounding only: 1e-9 in float64, 1e-6 for Adam's quotients."""
    model, batch = tiny_problem("float64", mean="zero")
    num_data, key = 12, jax.random.key(5)
    inference = novi_with_snapshots(num_data, 100, **PAPER)

    @QUICK
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
    assert_close(after.critic, critic, rtol=0, atol=1e-6 * 1e-3)
    assert_close(after.generator.network, network, rtol=0, atol=1e-6 * 1e-3)
    assert_close(after.model, hyper, rtol=0, atol=1e-6 * 2e-2)
    assert not np.allclose(before.critic.weights[0], critic.weights[0], rtol=0, atol=1e-4)
    assert not np.allclose(before.generator.network.weights[0], network.weights[0], rtol=0, atol=1e-4)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("objective", ["kl", "fisher"])
def test_residual_and_network_critics_agree_where_they_are_the_same_field(objective):
    """A Gaussian target and linear networks make Theorem 2's `(score_p - r) / (2 lambda)` linear: the same
    phi as a `network` critic gives the same discrepancy and moves the generator the same way."""
    scale, regularisation, size = 0.5, 0.8, 3
    rng = np.random.default_rng(3)
    weight, bias = 0.3 * rng.standard_normal((size, size)), 0.3 * rng.standard_normal(size)
    phi_weight = (-PRECISION - (weight - np.eye(size)) / scale**2) / (2 * regularisation)
    phi_bias = (PRECISION @ MEAN - bias / scale) / (2 * regularisation)
    critics = {"residual": (weight, bias), "network": (phi_weight, phi_bias)}
    results = []
    for critic, (critic_weight, critic_bias) in critics.items():
        inference = novi(
            1,
            10,
            critic=critic,
            objective=objective,
            gaussian_part="sampled",
            depth=0,
            noise_dim=2,
            critic_rate=0.0,
            critic_steps=1,
            regularisation=regularisation,
            final_scale=scale,
        )
        opponent = MLP((jnp.asarray(critic_weight),), (jnp.asarray(critic_bias),), None, "tanh")

        @QUICK
        def first_step(key, inference=inference, opponent=opponent):
            state = inference.init(target(correlated, size), None, key=key)
            return inference.step(state._replace(critic=opponent), None, key=key)

        after, info = first_step(jax.random.key(0))
        results.append((after.generator, info))
    assert_close(*results, rtol=1e-8, atol=1e-12)
    assert abs(results[0][1]["rsd"]) > 0.1


def test_the_critic_learns_to_the_last_step():
    """Its schedule counts its own updates, `critic_steps` of them a step; it decays with the generator's."""
    steps = 8
    inference = novi(1, steps, gaussian_part="sampled", critic_steps=5, noise_dim=2, width=4)

    @QUICK
    def trajectory(key):
        state = inference.init(target(correlated, 3), None, key=key)

        def step(state, key):
            state, _ = inference.step(state, None, key=key)
            return state, (state.critic.weights[0], state.generator.network.weights[0])

        return jax.lax.scan(step, state, jax.random.split(key, steps))[1]

    for weights in trajectory(jax.random.key(0)):
        moves = np.abs(np.diff(weights, axis=0)).max(axis=(1, 2))
        assert np.all(moves > 0)


def test_hyperparameters_are_clipped_and_nothing_else():
    model, _ = tiny_problem("float32")
    wild = jax.tree.map(lambda leaf: leaf * 0 + 50.0, model)
    clipped = clip_hyperparameters(wild, 1e-2, 1e2)
    np.testing.assert_allclose(clipped.layers[0].kernel.log_lengthscale, np.log(1e2), rtol=1e-6)
    np.testing.assert_allclose(clipped.likelihood.log_scale, np.log(1e2), rtol=1e-6)
    np.testing.assert_array_equal(clipped.layers[0].inducing, 50.0)


# --- the exact GP, and every combination ------------------------------------------------------------------


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(
    ("network", "gaussian_part"),
    [(False, "integrated"), (True, "integrated"), (False, "sampled"), (True, "sampled")],
)
def test_one_layer_with_inducing_points_at_the_data_is_the_exact_gp(network, gaussian_part):
    """scikit-learn's GP with the same kernel and noise. 20,000 paths: the mean's standard error is at most
    0.007 of a posterior standard deviation, the variance's 1 %. Five of those for a Gaussian q, which
    converges exactly (the jitter of 1e-8 is far below); as much again for the neural one's critic."""
    (model, batch, test), steps = (case := exact_case()), 1_000
    inference = novi(
        len(batch.x),
        steps,
        network=network,
        gaussian_part=gaussian_part,
        noise_dim=4,
        width=16,
        num_samples=32,
        lower_rate=0.02,
        mean_rate=0.02,
        model_rate=0.0,
    )
    state, _ = run(inference, model, batch, steps, key=jax.random.key(0))
    fitted = inference.fitted(state)
    assert_close(fitted.model, model, rtol=0)

    @QUICK
    def predict(x, key):
        return fitted.posterior.propagate(fitted.model, x, 20_000, key=key)

    mean, variance = total_moments(predict(jnp.asarray(test), jax.random.key(1)))
    exact_mean, exact_std = case.truth()
    slack = 2 if network else 1
    np.testing.assert_array_less(np.abs(mean - exact_mean) / exact_std, slack * 5 / np.sqrt(20_000))
    np.testing.assert_allclose(variance, exact_std**2, rtol=slack * 0.05)


@pytest.mark.usefixtures("x64")
def test_minibatches_weigh_the_same_until_there_are_many():
    """The sums behind a solved last layer: the first batch counts whole, the second by half."""
    model, batch, _ = exact_case()
    first, second = (Batch(*(a[part] for a in batch)) for part in (slice(0, 3), slice(3, 6)))
    inference = novi(6, 10, network=False, model_rate=0.0, conjugate_rate=0.1)
    step = jax.jit(inference.step)

    def sums(*batches):
        state = inference.init(model, batch, key=jax.random.key(0))
        for rows in batches:
            state, _ = step(state, rows, key=jax.random.key(1))
        return state.sums

    mean = jax.tree.map(lambda a, b: (a + b) / 2, sums(first), sums(second))
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-9), sums(first, second), mean)


def test_a_deep_model_has_dsvi_s_bound_with_v_drawn_between_the_layers():
    """Three layers, network off: the same mean over keys as with V integrated out in every layer.

    Standard errors of the two means, as estimated from the 2,000 draws, times 4.
    """
    rng = np.random.default_rng(0)
    batch = Batch(*(jnp.asarray(rng.standard_normal(shape), jnp.float32) for shape in ((6, 2), (6, 1))))
    model = build_model(ModelConfig(num_layers=3, num_inducing=4), np.asarray(batch.x), seed=0)
    model = eqx.tree_at(
        lambda m: [layer.kernel.log_variance for layer in m.layers],
        model,
        [jnp.zeros_like(layer.kernel.log_variance) for layer in model.layers],
    )
    inference = novi(6, 1, network=False, last_layer="gradient", num_samples=2, hidden_scale=1.0)
    state = inference.init(model, batch, key=jax.random.key(0))
    q = state.generator
    gaussian = GaussianPosterior(q.mean, q.log_diagonal, q.lower)

    def drawn(key):
        return -6 * inference.step(state, batch, key=key)[1]["loss"]

    def integrated(key):
        return elbo(Fitted(model, gaussian), batch, 6, 2, key=key)[0]

    means, errors = [], []
    for estimate, seed in ((drawn, 1), (integrated, 2)):
        values = jax.jit(functools.partial(jax.lax.map, estimate))(
            jax.random.split(jax.random.key(seed), 2000)
        )
        means.append(np.mean(values))
        errors.append(np.std(values) / np.sqrt(len(values)))
    assert abs(means[0] - means[1]) < 4 * np.hypot(*errors), (means, errors)


@pytest.mark.parametrize(
    ("generator", "critic", "objective"),
    list(itertools.product(["smooth", "implicit"], ["residual", "network"], ["kl", "fisher"])),
)
def test_every_combination_runs_and_depends_on_its_seed_alone(generator, critic, objective):
    model, batch = tiny_problem("float32")
    inference = novi(
        6,
        3,
        generator=generator,
        critic=critic,
        objective=objective,
        critic_steps=1,
        num_samples=3,
        noise_dim=4,
        width=4,
        depth=1,
    )

    @QUICK
    def fit(key):
        state = inference.init(model, batch, key=key)
        keys = jax.random.split(key, 3)
        return state, *jax.lax.scan(lambda s, k: inference.step(s, batch, key=k), state, keys)

    start, state, info = fit(jax.random.key(0))
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves((state, info)))
    moved = jax.tree.map(lambda a, b: bool(np.any(a != b)), start, state)
    assert any(jax.tree.leaves(moved.generator))
    assert any(jax.tree.leaves(moved.critic))
    assert any(jax.tree.leaves(moved.model))
    jax.tree.map(np.testing.assert_array_equal, fit(jax.random.key(0))[1], state)
    assert np.any(fit(jax.random.key(1))[2]["loss"] != info["loss"])
