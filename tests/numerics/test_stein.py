"""Stein discrepancies against closed forms, naive loops and the theorems they rest on.

Expectations of quadratic functions of a Gaussian are taken over sigma points, which have its mean and
covariance exactly: those tests are deterministic, in float64, to rounding. Statistical tests use fixed seeds
and allow five standard errors of what they average (6e-7 of all seeds would fail a correct implementation).
"""

import itertools
import textwrap

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from novidgp.numerics import stein
from novidgp.numerics.nets import mlp

LAMBDA = 0.7


def covariance(rng, size):
    """A correlated covariance with eigenvalues of order one."""
    root = rng.standard_normal((size, size)) / np.sqrt(size)
    return root @ root.T + 0.5 * np.eye(size)


class GaussianPair:
    """p and q with different means and correlated covariances, and their Fisher divergence in closed form."""

    def __init__(self, size, seed=0):
        rng = np.random.default_rng(seed)
        self.means = 0.5 * rng.standard_normal((2, size))
        self.covariances = covariance(rng, size), covariance(rng, size)
        self.precisions = tuple(np.linalg.inv(c) for c in self.covariances)
        self.root = np.linalg.cholesky(self.covariances[1])

    def score(self, which):
        """The score of p (0) or q (1)."""
        mean, precision = self.means[which], self.precisions[which]
        return lambda x: -(x - mean) @ precision

    def fisher_divergence(self):
        """`tr(D S_q D) + |P_p (mu_q - mu_p)|^2` with `D = P_q - P_p`."""
        difference = self.precisions[1] - self.precisions[0]
        shift = self.precisions[0] @ (self.means[1] - self.means[0])
        return np.trace(difference @ self.covariances[1] @ difference) + shift @ shift

    def sigma_points(self):
        """`2 d` points with the mean and covariance of q."""
        size = len(self.root)
        offsets = np.sqrt(size) * np.concatenate([self.root.T, -self.root.T])
        return jnp.asarray(self.means[1] + offsets)


def within(values, expected, errors=5.0):
    """Is the mean of independent `values` within so many standard errors of `expected`?"""
    values = np.asarray(values, np.float64)
    error = values.std(axis=0, ddof=1) / np.sqrt(len(values))
    return np.all(np.abs(values.mean(axis=0) - np.asarray(expected)) <= errors * error)


# --- Theorem 2 ----------------------------------------------------------------------------------------


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("size", [1, 5])
def test_optimal_critic_attains_the_fisher_divergence(size):
    pair = GaussianPair(size)
    points = pair.sigma_points()
    critic = stein.optimal_critic(pair.score(0), pair.score(1), LAMBDA)
    values = stein.regularised_stein_discrepancy(pair.score(0), critic, points, LAMBDA, stein.exact_trace)
    expected = pair.fisher_divergence()
    np.testing.assert_allclose(jnp.mean(values), expected / (4 * LAMBDA), rtol=1e-10)
    divergence = stein.fisher_divergence(pair.score(0), pair.score(1), points)
    np.testing.assert_allclose(jnp.mean(divergence), expected, rtol=1e-10)


@pytest.mark.usefixtures("x64")
def test_any_other_linear_critic_falls_short_by_its_squared_distance():
    """`RSD(phi) = FD / (4 lambda) - lambda E|phi - phi*|^2`: phi* is the maximum, and how steep it is."""
    pair = GaussianPair(4)
    points = pair.sigma_points()
    best = stein.optimal_critic(pair.score(0), pair.score(1), LAMBDA)
    matrix = 0.3 * np.random.default_rng(1).standard_normal((4, 4))

    def other(x):
        return best(x) + x @ matrix + 0.1

    values = stein.regularised_stein_discrepancy(pair.score(0), other, points, LAMBDA, stein.exact_trace)
    loss = LAMBDA * jnp.mean(jnp.sum((points @ matrix + 0.1) ** 2, axis=-1))
    np.testing.assert_allclose(jnp.mean(values), pair.fisher_divergence() / (4 * LAMBDA) - loss, rtol=1e-10)


def test_trained_network_critic_reaches_the_fisher_divergence_within_five_percent():
    """20 dimensions, a network that knows nothing of the optimal form, evaluated on draws it never saw.

    The shortfall is the relative squared error of phi, so five percent needs a critic that is right; the mean
    of 20,000 evaluation draws is good to half a percent, which the test checks before it relies on it.
    """
    size, steps, batch = 20, 1500, 128
    pair = GaussianPair(size)
    mean, root = jnp.asarray(pair.means[1], jnp.float32), jnp.asarray(pair.root, jnp.float32)
    critic = mlp(size, size, width=64, depth=1, activation="silu", dtype=jnp.float32, key=jax.random.key(0))
    optimiser = optax.adam(optax.cosine_decay_schedule(1e-2, steps))

    def draws(count, key):
        return mean + jax.random.normal(key, (count, size)) @ root.T

    def loss(critic, key):
        draw_key, trace_key = jax.random.split(key)

        def trace(field, x):
            return stein.hutchinson_trace(field, x, kind="rademacher", key=trace_key)

        x = draws(batch, draw_key)
        return -jnp.mean(stein.regularised_stein_discrepancy(pair.score(0), critic, x, LAMBDA, trace))

    def step(carry, key):
        critic, state = carry
        updates, state = optimiser.update(jax.grad(loss)(critic, key), state)
        return (optax.apply_updates(critic, updates), state), None

    @jax.jit
    def train_and_evaluate(critic):
        keys = jax.random.split(jax.random.key(1), steps)
        (critic, _), _ = jax.lax.scan(step, (critic, optimiser.init(critic)), keys)
        x = draws(20_000, jax.random.key(2))
        return stein.regularised_stein_discrepancy(pair.score(0), critic, x, LAMBDA, stein.exact_trace)

    values = np.asarray(train_and_evaluate(critic), np.float64)
    expected = pair.fisher_divergence() / (4 * LAMBDA)
    error = values.std() / np.sqrt(len(values))
    assert error < 0.005 * expected
    assert 0.95 * expected < values.mean() < expected + 5 * error


# --- the operator -------------------------------------------------------------------------------------


def mixture_log_density(x):
    """Two correlated modes in the plane: a target with nothing Gaussian about its score."""
    centres = jnp.array([[1.5, 0.0], [-1.5, 0.5]], x.dtype)
    precision = jnp.array([[1.5, 0.5], [0.5, 1.0]], x.dtype)
    offsets = x - centres
    return jax.nn.logsumexp(-0.5 * jnp.sum((offsets @ precision) * offsets, axis=-1))


def mixture_draws(count, key):
    mode_key, noise_key = jax.random.split(key)
    root = jnp.linalg.cholesky(jnp.linalg.inv(jnp.array([[1.5, 0.5], [0.5, 1.0]])))
    centres = jnp.array([[1.5, 0.0], [-1.5, 0.5]])
    noise = jax.random.normal(noise_key, (count, 2)) @ root.T
    return centres[jax.random.bernoulli(mode_key, shape=(count,)).astype(int)] + noise


def small_network(seed=3, size=2):
    return mlp(size, size, width=8, depth=2, activation="tanh", dtype=jnp.float32, key=jax.random.key(seed))


def test_stein_identity_holds_for_the_target_and_only_for_it():
    """`E_p[A_p phi] = 0`: five standard errors around zero for p, at least ten away for a shifted p."""
    score = jax.vmap(jax.grad(mixture_log_density))
    critic = small_network()

    @jax.jit
    def operator(x):
        return stein.langevin_stein(score, critic, x, stein.exact_trace)

    x = mixture_draws(50_000, jax.random.key(0))
    assert within(operator(x), 0.0)
    assert not within(operator(x + 0.3), 0.0, errors=10.0)


def test_exact_trace_is_the_trace_of_the_jacobian():
    field = small_network(size=4)
    x = jax.random.normal(jax.random.key(1), (3, 4))

    @jax.jit
    def both(x):
        jacobians = jax.vmap(jax.jacobian(lambda row: field(row[None])[0]))(x)
        return stein.exact_trace(field, x), jnp.trace(jacobians, axis1=1, axis2=2)

    actual, expected = both(x)
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["gaussian", "rademacher"])
def test_hutchinson_averages_to_the_exact_trace(kind):
    """4,000 independent estimates of two probes each, per row, within five standard errors."""
    field = small_network(size=4)
    x = jax.random.normal(jax.random.key(1), (3, 4))

    @jax.jit
    @jax.vmap
    def estimate(key):
        return stein.hutchinson_trace(field, x, probes=2, kind=kind, key=key)

    estimates = estimate(jax.random.split(jax.random.key(2), 4_000))
    assert within(estimates, stein.exact_trace(field, x))
    assert np.all(np.std(estimates, axis=0) > 0)


def test_rademacher_probes_are_exact_for_a_diagonal_jacobian_and_gaussian_ones_are_not():
    x = jax.random.normal(jax.random.key(1), (3, 4))
    exact = jnp.sum(3 * x**2, axis=-1)

    def estimate(kind):
        return stein.hutchinson_trace(lambda x: x**3, x, kind=kind, key=jax.random.key(0))

    np.testing.assert_allclose(estimate("rademacher"), exact, rtol=1e-5)
    assert np.max(np.abs(estimate("gaussian") - exact)) > 0.1


def test_probes_average_independent_estimates():
    """The variance of a Gaussian estimate, `2 |J|_F^2 = 8` for the identity in 4-d, falls as 1 / probes.

    The sample variance of 4,000 estimates has a relative error of some 4 %; the tolerance is 20 %.
    """
    x = jnp.zeros((1, 4))

    @jax.jit
    @jax.vmap
    def estimates(key):
        return jnp.stack([stein.hutchinson_trace(jnp.array, x, probes=n, key=key) for n in (1, 8)])

    variances = np.var(estimates(jax.random.split(jax.random.key(0), 4_000)), axis=(0, 2))
    np.testing.assert_allclose(variances, [8, 1], rtol=0.2)


# --- kernel Stein discrepancy -------------------------------------------------------------------------


def naive_ksd(score, x, bandwidth):
    """Every pair by itself, every derivative of the kernel by autodiff."""

    def kernel(a, b):
        return (1 + jnp.sum((a - b) ** 2) / bandwidth**2) ** -0.5

    def stein_kernel(a, b):
        score_a, score_b = score(a[None])[0], score(b[None])[0]
        mixed = jax.jacobian(jax.grad(kernel, 0), 1)(a, b)
        by_a, by_b = jax.grad(kernel, (0, 1))(a, b)
        return score_a @ score_b * kernel(a, b) + score_a @ by_b + score_b @ by_a + jnp.trace(mixed)

    stein_kernel = jax.jit(stein_kernel)
    return np.mean([stein_kernel(a, b) for a, b in itertools.permutations(x, 2)])


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("bandwidth", [0.8, None], ids=["given", "median"])
def test_kernel_stein_discrepancy_is_the_double_loop(bandwidth):
    x = np.random.default_rng(0).standard_normal((6, 2)) + 0.5
    score = jax.vmap(jax.grad(mixture_log_density))
    distances = [np.linalg.norm(a - b) for a, b in itertools.combinations(x, 2)]
    expected = naive_ksd(score, x, bandwidth or np.median(distances))
    actual = stein.kernel_stein_discrepancy(score, jnp.asarray(x), bandwidth)
    np.testing.assert_allclose(actual, expected, rtol=1e-10)


def test_kernel_stein_discrepancy_vanishes_for_the_target_and_only_for_it():
    """A U-statistic is unbiased: over 50 sets of 60 draws it averages to zero within five standard errors for
    p, and is more than ten above zero for a p shifted by 0.5."""
    score = jax.vmap(jax.grad(mixture_log_density))

    @jax.jit
    @jax.vmap
    def discrepancies(key):
        x = mixture_draws(60, key)
        return jnp.stack([stein.kernel_stein_discrepancy(score, x + shift, 1.0) for shift in (0.0, 0.5)])

    matching, shifted = np.asarray(discrepancies(jax.random.split(jax.random.key(0), 50))).T
    assert within(matching, 0.0)
    assert not within(shifted, 0.0, errors=10.0)
    assert shifted.mean() > 0


# --- documentation ------------------------------------------------------------------------------------


def test_the_docstring_example_runs_and_gives_the_stated_value():
    """As written; the mean of its 500 values has a standard error of sqrt(3 / 500)."""
    lines = stein.__doc__.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("    import"))
    block = itertools.takewhile(lambda line: line.startswith("    ") or not line, lines[start:])
    names = {}
    exec(textwrap.dedent("\n".join(block)), names)
    assert names["rsd"].shape == (500,)
    assert abs(float(jnp.mean(names["rsd"])) - 3 / 2) < 5 * np.sqrt(3 / 500)
