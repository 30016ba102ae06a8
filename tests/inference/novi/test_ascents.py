"""The ascents on targets whose posterior is known, each with the critic it is meant for."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from novidgp.inference.novi.ascents import fisher_ascent, kl_ascent
from novidgp.inference.novi.critics import ScoreModel, denoising_loss, hyvarinen_loss
from novidgp.inference.novi.game import Keys, Players
from novidgp.inference.novi.targets import DGPTarget
from novidgp.numerics.nets import MLP, NetworkShape
from novidgp.posteriors.generators import smooth_generator
from support.densities import (
    COVARIANCE,
    MEAN,
    NO_MODEL,
    PRECISION,
    Density,
    correlated,
    exact_trace,
    run_density,
    score_game,
)
from support.exact_case import exact_case, total_moments
from support.small import assert_close, run

FISHER = {"regularisation": 1.0, "trace": exact_trace}


def ascent_of(kind, target):
    return (
        partial(kl_ascent, target=target) if kind == "kl" else partial(fisher_ascent, target=target, **FISHER)
    )


@pytest.mark.parametrize("kind", ["kl", "fisher"])
def test_a_gaussian_q_becomes_the_gaussian_posterior(kind):
    """Without the network the score of q is exact, and both gradients vanish draw by draw where q = p: no
    Monte-Carlo error is left at the optimum, and the parameters themselves converge (here to 1e-3)."""
    steps = 3_000
    inference = score_game(ascent_of(kind, Density(correlated, 3)), None, steps, size=3, rates={"mean": 0.05})
    players, info = run_density(inference, steps, key=jax.random.key(0))
    q = players.generator
    factor = np.exp(q.log_diagonal[0][0])[:, None] * (np.eye(3) + np.tril(q.lower[0][0], -1))
    np.testing.assert_allclose(q.mean[0][:, 0], MEAN, atol=1e-3)
    np.testing.assert_allclose(factor @ factor.T, COVARIANCE, atol=1e-3)
    assert info["fisher_divergence"][-1] < 1e-4 < info["fisher_divergence"][0]


@pytest.mark.parametrize(
    ("kind", "loss"), [("kl", "denoising"), ("kl", "hyvarinen"), ("fisher", "denoising")]
)
def test_a_neural_q_becomes_the_gaussian_posterior(kind, loss):
    """With the network on. 20,000 draws leave an error below 0.03 (four standard errors) in any mean or
    covariance of this target; the other 0.03 are for the critic, which is trained on 32 draws a time."""
    steps = 1_000
    losses = {"denoising": denoising_loss, "hyvarinen": partial(hyvarinen_loss, trace=exact_trace)}
    shape = NetworkShape(16, 2, "tanh")
    inference = score_game(
        ascent_of(kind, Density(correlated, 3, 32)), shape, steps, size=3, loss=losses[loss]
    )
    players, _ = run_density(inference, steps, key=jax.random.key(0))
    draws = np.asarray(players.generator.sample(20_000, key=jax.random.key(1))[0][..., 0])
    np.testing.assert_allclose(draws.mean(0), MEAN, atol=0.06)
    np.testing.assert_allclose(np.cov(draws.T), COVARIANCE, atol=0.06)


MODES = np.array([[2.0, 0.0], [-2.0, 0.0]])
MODE_SCALE = 0.5


def bimodal(x):
    offsets = x - jnp.asarray(MODES, x.dtype)
    return jax.nn.logsumexp(-0.5 * jnp.sum(offsets**2, axis=-1) / MODE_SCALE**2)


def mode_shares(shape, seeds=2):
    """The share of draws within three standard deviations of each mode, `(seeds, 2)`."""
    steps = 1_000
    rates = {"mean": 5e-3, "lower": 5e-3, "network": 5e-3, "critic": 1e-2}
    inference = score_game(
        partial(kl_ascent, target=Density(bimodal, 2, 32)),
        shape,
        steps,
        size=2,
        noise_dim=2,
        critic_samples=64,
        initial_std=1.0,
        rates=rates,
    )

    def draws(key):
        players, _ = run_density(inference, steps, key=key)
        return players.generator.sample(2_000, key=jax.random.key(9))[0][..., 0]

    x = jax.vmap(draws)(jax.random.split(jax.random.key(0), seeds))
    distance = np.linalg.norm(x[:, :, None] - MODES, axis=-1)
    return np.mean(distance < 3 * MODE_SCALE, axis=1)


def test_a_network_finds_both_modes_where_a_gaussian_cannot():
    """Modes eight standard deviations apart, two seeds; the true shares are 0.494 each. Reverse KL hardly
    minds their balance, so that 0.15 in each is asked, and 0.85 in both. A Gaussian that has 0.15 in each has
    at most 0.75 in both: the rest lies in the valley."""

    def found(shares):
        return (shares.min(axis=1) > 0.15) & (shares.sum(axis=1) > 0.85)

    assert np.all(found(mode_shares(NetworkShape(32, 2, "tanh"))))
    assert not np.any(found(mode_shares(None)))


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("kind", ["kl", "fisher"])
def test_score_models_and_network_critics_agree_where_they_are_the_same_field(kind):
    """A Gaussian target and linear networks make Theorem 2's `(score_p - r) / (2 lambda)` linear: the same
    phi as a network gives the same discrepancy and moves the generator the same way."""
    scale, regularisation, size = 0.5, 0.8, 3
    rng = np.random.default_rng(3)
    weight, bias = 0.3 * rng.standard_normal((size, size)), 0.3 * rng.standard_normal(size)
    phi_weight = (-PRECISION - (weight - np.eye(size)) / scale**2) / (2 * regularisation)
    phi_bias = (PRECISION @ MEAN - bias / scale) / (2 * regularisation)

    def linear(weight, bias):
        return MLP((jnp.asarray(weight),), (jnp.asarray(bias),), None, "tanh")

    stds = {"initial_hidden_std": scale, "initial_final_std": scale}
    shape = NetworkShape(4, 0, "tanh")
    start = (jnp.zeros((size, 1)),)
    generator = smooth_generator(start, shape, noise_dim=2, **stds, key=jax.random.key(0))
    target, keys = Density(correlated, size), Keys(*jax.random.split(jax.random.key(1), 3))

    @jax.jit
    def direction(critic):
        options = {"regularisation": regularisation}
        if kind == "kl":
            ascent, options = kl_ascent, {} if isinstance(critic, ScoreModel) else options
        else:
            ascent, options = fisher_ascent, options | {"trace": exact_trace}
        players = Players(jnp.asarray(NO_MODEL), generator, critic)
        up = ascent(players, None, None, target=target, keys=keys, **options)
        return up.generator, up.info["fisher_divergence"]

    first = direction(ScoreModel(linear(weight, bias)))
    second = direction(linear(phi_weight, phi_bias))
    assert_close(first, second, rtol=1e-8, atol=1e-12)
    assert abs(first[1]) > 0.1


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("network", [False, True])
def test_joint_draws_of_a_deep_gps_posterior_find_the_exact_gp(network):
    """`kl_ascent` on the target of NOVI itself: one layer with inducing points at the data, and
    scikit-learn's GP with the same kernel and noise. 20,000 paths: the mean's standard error is at most 0.007
    of a posterior standard deviation, the variance's 1 %. Five of those for a Gaussian q, which converges
    exactly (the jitter of 1e-8 is far below); as much again for the neural one's critic."""
    (model, batch, test), steps = (case := exact_case()), 1_000
    target = DGPTarget(len(batch.x), 32, 1, "expected_log")
    shape = NetworkShape(16, 2, "tanh") if network else None
    inference = score_game(partial(kl_ascent, target=target), shape, steps)
    state, _ = run(inference, model, batch, steps, key=jax.random.key(0))
    fitted = inference.fitted(state)
    assert_close(fitted.model, model, rtol=0)
    predict = jax.jit(lambda x, key: fitted.posterior.propagate(model, x, 20_000, key=key))
    mean, variance = total_moments(predict(jnp.asarray(test), jax.random.key(1)))
    exact_mean, exact_std = case.truth()
    slack = 2 if network else 1
    np.testing.assert_array_less(np.abs(mean - exact_mean) / exact_std, slack * 5 / np.sqrt(20_000))
    np.testing.assert_allclose(variance, exact_std**2, rtol=slack * 0.05)
