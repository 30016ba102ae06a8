"""Generators: coordinates, scores, bounds; and the two ways to learn the score of what they draw.

Float64 throughout, so that identities hold to rounding. Statistical tests use fixed seeds and five standard
errors.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import multivariate_normal

from novidgp.numerics import stein
from novidgp.numerics.nets import MLP, mlp
from novidgp.posteriors.generators import Implicit, Smooth, flatten, unflatten

SHAPES = ((3, 2), (2, 1))
SIZE = 8
NOISE = 3
pytestmark = pytest.mark.usefixtures("x64")
COVARIANCES = pytest.mark.parametrize("full", [True, False], ids=["full", "diagonal"])


def smooth(*, full, network=None):
    rng = np.random.default_rng(0)

    def numbers(scale, *shape):
        return jnp.asarray(scale * rng.standard_normal(shape))

    return Smooth(
        tuple(numbers(1.0, *shape) for shape in SHAPES),
        tuple(numbers(0.5, p, m) for m, p in SHAPES),
        tuple(numbers(0.5, p, m, m) for m, p in SHAPES) if full else None,
        network,
    )


def net(outputs=SIZE, *, depth=1, seed=0, scale=1.0):
    return mlp(
        NOISE,
        outputs,
        width=6,
        depth=depth,
        activation="tanh",
        output_scale=scale,
        dtype=jnp.float64,
        key=jax.random.key(seed),
    )


def dense_factor(generator):
    """`C` over flat rows, entry by entry: `V[i, p]` sits at `offset + i * outputs + p`."""
    factor = np.zeros((SIZE, SIZE))
    offset = 0
    for layer, (m, outputs) in enumerate(SHAPES):
        for p in range(outputs):
            block = np.eye(m)
            if generator.lower is not None:
                block += np.tril(generator.lower[layer][p], -1)
            rows = offset + np.arange(m) * outputs + p
            factor[np.ix_(rows, rows)] = np.exp(generator.log_diagonal[layer][p])[:, None] * block
        offset += m * outputs
    return factor


def rows(seed=1, count=5):
    return jnp.asarray(np.random.default_rng(seed).standard_normal((count, SIZE)))


def test_flatten_and_unflatten_are_inverse():
    flat = rows()
    v = unflatten(flat, SHAPES)
    assert [w.shape for w in v] == [(5, 3, 2), (5, 2, 1)]
    np.testing.assert_array_equal(flatten(v), flat)


@COVARIANCES
def test_colour_is_the_triangular_map_and_whiten_its_inverse(full):
    generator = smooth(full=full)
    white = rows()
    v = generator.colour(white)
    expected = flatten(tuple(mean[None] for mean in generator.mean)) + white @ dense_factor(generator).T
    np.testing.assert_allclose(flatten(v), expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(generator.whiten(v), white, rtol=1e-12, atol=1e-12)


@COVARIANCES
def test_score_is_the_gradient_of_the_gaussian_log_density(full):
    """Without a network q is N(mu, C C^T), and the white score is -w."""
    generator = smooth(full=full)
    factor = dense_factor(generator)
    mean = flatten(tuple(m[None] for m in generator.mean))[0]
    v = unflatten(rows(2), SHAPES)
    expected = jax.vmap(jax.grad(lambda x: multivariate_normal.logpdf(x, mean, factor @ factor.T)))(
        flatten(v)
    )
    actual = flatten(generator.score(-generator.whiten(v)))
    np.testing.assert_allclose(actual, expected, rtol=1e-9, atol=1e-9)


def test_a_white_draw_is_its_shift_plus_standard_noise():
    """Moments of `w - g` over 20,000 draws: the mean's standard error is 1 / sqrt(n), the covariance's is at
    most sqrt(2 / n). The shift itself spreads, and `w` with it."""
    count = 20_000
    generator = smooth(full=True, network=net())
    white, shift = generator.white_draw(count, key=jax.random.key(0))
    noise = np.asarray(white - shift)
    np.testing.assert_allclose(noise.mean(0), 0, atol=5 / np.sqrt(count))
    np.testing.assert_allclose(np.cov(noise.T), np.eye(SIZE), atol=5 * np.sqrt(2 / count))
    cross = noise.T @ np.asarray(shift) / count / np.std(shift, axis=0)
    np.testing.assert_allclose(cross, 0, atol=5 / np.sqrt(count))
    assert np.all(np.std(shift, axis=0) > 0.1)


def test_without_a_network_there_is_no_shift():
    assert not np.any(smooth(full=True).white_draw(2, key=jax.random.key(0))[1])


@pytest.mark.parametrize("kind", ["smooth", "implicit"])
def test_samples_are_coloured_white_draws_in_the_layers_shapes(kind):
    generator = smooth(full=True, network=net()) if kind == "smooth" else Implicit(net(), SHAPES, 2.0)
    draws = generator.sample(4, key=jax.random.key(0))
    assert [w.shape for w in draws] == [(4, *shape) for shape in SHAPES]
    white, _ = generator.white_draw(4, key=jax.random.key(0))
    jax.tree.map(np.testing.assert_array_equal, draws, generator.colour(white))
    np.testing.assert_allclose(generator.whiten(draws), white, rtol=1e-12)


def test_the_implicit_generator_respects_its_bound_and_fills_it():
    wild = Implicit(net(scale=100.0), SHAPES, 2.0)
    flat = flatten(wild.sample(200, key=jax.random.key(0)))
    assert np.max(np.abs(flat)) <= 2.0
    assert np.mean(np.abs(flat) > 1.9) > 0.5


def test_the_bound_is_no_bar_to_small_draws():
    """`b tanh(x / b) = x (1 - O(x^2 / b^2))`: with b = 1000 and |x| of order one, 1e-5 is ample."""
    network = net()
    loose = Implicit(network, SHAPES, 1000.0)
    key = jax.random.key(0)
    expected = network(jax.random.normal(key, (20, NOISE), jnp.float64))
    np.testing.assert_allclose(loose.white_draw(20, key=key)[0], expected, rtol=1e-5)


# --- learning the score of q -----------------------------------------------------------------------------


def joint_sigma_points(network):
    """`(w, g)` over points that carry the mean and covariance of `(xi, eps)` exactly."""
    size = SIZE + NOISE
    points = np.sqrt(size) * np.concatenate([np.eye(size), -np.eye(size)])
    shift = network(jnp.asarray(points[:, SIZE:]))
    return jnp.asarray(points[:, :SIZE]) + shift, shift


def linear(weight, bias):
    return MLP((jnp.asarray(weight),), (jnp.asarray(bias),), None, "tanh")


def score_matching_losses(critic, white, shift):
    """What the residual critic may descend: denoising, and twice Hyvarinen's objective."""
    denoising = jnp.mean(jnp.sum((critic(white) - shift) ** 2, axis=-1))
    implicit = stein.implicit_score_matching(lambda w: critic(w) - w, white, stein.exact_trace)
    return denoising, 2.0 * jnp.mean(implicit)


@pytest.mark.parametrize("seed", [0, 1])
def test_denoising_and_implicit_score_matching_have_the_same_gradient(seed):
    """For a linear network and critic both losses are quadratic in the noise, so sigma points give their
    expectations exactly; they differ by a constant, at any critic."""
    rng = np.random.default_rng(seed)
    white, shift = joint_sigma_points(net(depth=0, seed=seed))
    critic = linear(rng.standard_normal((SIZE, SIZE)), rng.standard_normal(SIZE))
    gradients = jax.jacobian(score_matching_losses)(critic, white, shift)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9), *gradients)
    assert max(float(jnp.max(jnp.abs(g))) for g in jax.tree.leaves(gradients[0])) > 1.0


def test_the_score_of_q_minimises_both_losses():
    """`w ~ N(b, I + W^T W)`: the critic that makes `critic(w) - w` its score is stationary for both."""
    network = net(depth=0, seed=2)
    network = linear(network.weights[0], np.linspace(-1, 1, SIZE))
    precision = np.linalg.inv(np.eye(SIZE) + network.weights[0].T @ network.weights[0])
    critic = linear(np.eye(SIZE) - precision, precision @ network.biases[0])
    white, shift = joint_sigma_points(network)
    for gradient in jax.jacobian(score_matching_losses)(critic, white, shift):
        for leaf in jax.tree.leaves(gradient):
            np.testing.assert_allclose(leaf, 0, atol=1e-9)
