"""IPVI: the discriminator's optimum, the divergence where it is known, and the exact GP."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from novidgp.inference.dsvi import kl_divergence
from novidgp.inference.ipvi import IPVI, Reference, logistic_loss
from novidgp.numerics.nets import MLP
from novidgp.posteriors.gaussian import GaussianPosterior
from support.exact_case import exact_case, total_moments
from support.small import ROWS, small_batch, small_model


@pytest.mark.usefixtures("x64")
def test_the_logistic_loss_is_least_at_the_log_density_ratio():
    """N(1, 1) against N(0, 1): `log q - log r = x - 1/2`. At 20,000 quantiles of each instead of draws, the
    gradient vanishes to the accuracy of the midpoint rule, 1e-4."""
    levels = (np.arange(20_000) + 0.5) / 20_000
    first, second = (jnp.asarray(scipy.stats.norm.ppf(levels) + shift)[:, None] for shift in (1.0, 0.0))

    def gradient(slope, offset):
        linear = MLP((jnp.full((1, 1), slope),), (jnp.full(1, offset),), None, "tanh")
        found = jax.grad(logistic_loss)(linear, first, second)
        return np.array([found.weights[0][0, 0], found.biases[0][0]])

    np.testing.assert_allclose(gradient(1.0, -0.5), 0.0, atol=1e-4)
    assert np.abs(gradient(1.1, -0.5)).max() > 0.01
    assert np.abs(gradient(1.0, -0.4)).max() > 0.01


def test_the_reference_follows_the_moments_of_the_draws():
    """500 steps of rate 0.05: the memory is 40 steps of 64 draws, five standard errors of which are 0.1 of a
    standard deviation in the mean and 14 % in the variance."""
    rng = np.random.default_rng(0)
    reference = Reference(jnp.zeros(3), jnp.ones(3))
    scale = np.array([0.1, 1.0, 5.0])
    for _ in range(500):
        reference = reference.follow(
            jnp.asarray(2.0 + scale * rng.standard_normal((64, 3)), jnp.float32), 0.05
        )
    np.testing.assert_allclose((reference.mean - 2.0) / scale, 0.0, atol=0.1)
    np.testing.assert_allclose(reference.variance / scale**2, 1.0, rtol=0.14)


def shifted_gaussian(generator):
    """The generator with its mean moved and its network at zero: a Gaussian."""
    q = eqx.tree_at(lambda g: g.mean, generator, jax.tree.map(lambda m: m + 0.3, generator.mean))
    return eqx.tree_at(lambda g: g.network, q, jax.tree.map(jnp.zeros_like, q.network))


def divergence_and_kl(method, model, discriminator_of, *, key):
    """The method's mean divergence over 4,000 draws of a Gaussian generator, DSVI's closed form, the
    generator, and the loss of the discriminator, which `discriminator_of` makes from the players."""

    @jax.jit
    def measure(key):
        players, memory = method.start(model, key=key)
        players = players._replace(generator=(q := shifted_gaussian(players.generator)))
        memory = Reference(jnp.zeros_like(memory.mean), jnp.ones_like(memory.variance))
        discriminator = discriminator_of(players)
        base, shift = q.sample_base(4_000, key=key)
        values = method.divergence(model, q, base, shift, discriminator, memory)
        loss, _ = method.discriminator_loss(discriminator, players, memory, None, key=key)
        gaussian = GaussianPosterior(q.mean, q.log_diagonal, q.scales())
        return jnp.mean(values), kl_divergence(model, gaussian), q, loss

    return measure(key)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("whiten", [True, False])
def test_the_divergence_of_a_gaussian_generator_is_its_kl(whiten):
    """Network and discriminator at zero, reference exact: what is left is DSVI's closed form, but for the
    draws' `|w|^2 / 2`, whose mean over 4,000 draws has a standard error of `sqrt(dim / 8,000)`."""
    model = small_model("float64", whiten=whiten)
    method = IPVI(noise_dim=2, width=4, reference_rate=0.0)

    def blind(players):
        return jax.tree.map(jnp.zeros_like, players.critic)

    found, truth, q, loss = divergence_and_kl(method, model, blind, key=jax.random.key(0))
    dim = sum(m * p for m, p in q.shapes)
    np.testing.assert_allclose(found, truth, rtol=0, atol=5 * np.sqrt(dim / 8_000))
    np.testing.assert_allclose(loss, 2 * np.log(2), rtol=1e-12)


class ExactRatio(eqx.Module):
    """`log q - log p` for `q = N(mean, diag(scale^2))` and `p = N(0, I)`: the optimal discriminator."""

    mean: jax.Array
    scale: jax.Array

    def __call__(self, v):
        white = (v - self.mean) / self.scale
        return jnp.sum(0.5 * (v**2 - white**2) - jnp.log(self.scale), axis=-1, keepdims=True)


@pytest.mark.usefixtures("x64")
def test_against_the_prior_the_optimal_discriminator_gives_the_kl():
    """The paper's contrast: no reference, T alone. The mean of log ratios over 4,000 draws, within five of
    their standard errors (`T` is quadratic: its variance is known) of DSVI's closed form."""
    method = IPVI(contrast="prior", noise_dim=2, width=4)

    def exact(players):
        q = players.generator
        return ExactRatio(q.mean[0][:, 0], jnp.exp(q.log_diagonal[0][0]))

    model = small_model("float64", num_layers=1)
    found, truth, q, loss = divergence_and_kl(method, model, exact, key=jax.random.key(0))
    # With v = mean + scale e: Var[T] = sum_i (mean scale)^2 + (scale^2 - 1)^2 / 2.
    mean, scale = np.asarray(q.mean[0][:, 0]), np.exp(q.log_diagonal[0][0])
    variance = np.sum((mean * scale) ** 2 + 0.5 * (scale**2 - 1) ** 2)
    np.testing.assert_allclose(found, truth, rtol=0, atol=5 * np.sqrt(variance / 4_000))
    assert loss < 0.1  # it tells a narrow q from the prior


def test_against_the_prior_a_step_moves_all_players_and_no_reference():
    """The other contrast, whose steps tests/inference/test_contract.py does not take."""
    model, batch = small_model(num_layers=1), small_batch()
    inference = IPVI(contrast="prior", noise_dim=2, width=4).algorithm(ROWS, 5)

    @jax.jit
    def first(key):
        start = inference.init(model, batch, key=key)
        return start, *inference.step(start, batch, key=key)

    start, after, info = first(jax.random.key(0))
    assert np.isfinite(info["divergence"])
    for before, now in zip(start.players, after.players, strict=True):
        moved = jax.tree.map(lambda a, b: bool(np.any(a != b)), before, now)
        assert any(jax.tree.leaves(moved))
    np.testing.assert_array_equal(after.memory.mean, start.memory.mean)


@pytest.mark.usefixtures("x64")
def test_one_layer_with_inducing_points_at_the_data_is_the_exact_gp():
    """scikit-learn's GP with the same kernel and noise. 20,000 paths: the mean's standard error is at most
    0.007 of a posterior standard deviation, the variance's 1 %; five of those. (Measured with seed 0: 0.007
    and 1.3 %. The paper's contrast, with 5 discriminator steps at 5e-3, is off by 0.34 and 66 % even here.)
    """
    (model, batch, test), steps = (case := exact_case()), 1_000
    inference = IPVI(
        num_samples=32,
        discriminator_samples=64,
        noise_dim=4,
        width=16,
        lower_rate=0.02,
        initial_final_std=0.5,
        model_rate=0.0,
    ).algorithm(len(batch.x), steps)

    @jax.jit
    def fit(key):
        state = inference.init(model, batch, key=key)
        state, _ = jax.lax.scan(
            lambda s, k: inference.step(s, batch, key=k), state, jax.random.split(key, steps)
        )
        fitted = inference.fitted(state)
        return fitted.posterior.propagate(fitted.model, jnp.asarray(test), 20_000, key=key)

    mean, variance = total_moments(fit(jax.random.key(0)))
    exact_mean, exact_std = case.truth()
    np.testing.assert_array_less(np.abs(mean - exact_mean) / exact_std, 5 / np.sqrt(20_000))
    np.testing.assert_allclose(variance, exact_std**2, rtol=0.05)
