"""Generators: coordinates, scores and bounds.

Float64 throughout, so that identities hold to rounding. Statistical tests use fixed seeds and five standard
errors.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import multivariate_normal

from novidgp.numerics.nets import mlp
from novidgp.posteriors.generators import ImplicitGenerator, SmoothGenerator, flatten, unflatten

SHAPES = ((3, 2), (2, 1))
SIZE = 8
NOISE = 3
pytestmark = pytest.mark.usefixtures("x64")
COVARIANCES = pytest.mark.parametrize("full", [True, False], ids=["full", "diagonal"])


def smooth(*, full, network=None):
    rng = np.random.default_rng(0)

    def numbers(scale, *shape):
        return jnp.asarray(scale * rng.standard_normal(shape))

    return SmoothGenerator(
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
def test_outputs_are_a_triangular_map_of_base_coordinates(full):
    generator = smooth(full=full)
    white = rows()
    v = generator.to_outputs(white)
    expected = flatten(tuple(mean[None] for mean in generator.mean)) + white @ dense_factor(generator).T
    np.testing.assert_allclose(flatten(v), expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(generator.to_base(v), white, rtol=1e-12, atol=1e-12)


@COVARIANCES
def test_score_is_the_gradient_of_the_gaussian_log_density(full):
    """Without a network q is N(mu, C C^T), and the score in base coordinates is -w."""
    generator = smooth(full=full)
    factor = dense_factor(generator)
    mean = flatten(tuple(m[None] for m in generator.mean))[0]
    v = unflatten(rows(2), SHAPES)
    expected = jax.vmap(jax.grad(lambda x: multivariate_normal.logpdf(x, mean, factor @ factor.T)))(
        flatten(v)
    )
    actual = flatten(generator.pull_score(-generator.to_base(v)))
    np.testing.assert_allclose(actual, expected, rtol=1e-9, atol=1e-9)


def test_base_coordinates_are_a_displacement_plus_standard_noise():
    """Moments of `w - g` over 20,000 draws: the mean's standard error is 1 / sqrt(n), the covariance's is at
    most sqrt(2 / n). The displacement itself spreads, and `w` with it."""
    count = 20_000
    generator = smooth(full=True, network=net())
    white, shift = generator.sample_base(count, key=jax.random.key(0))
    noise = np.asarray(white - shift)
    np.testing.assert_allclose(noise.mean(0), 0, atol=5 / np.sqrt(count))
    np.testing.assert_allclose(np.cov(noise.T), np.eye(SIZE), atol=5 * np.sqrt(2 / count))
    cross = noise.T @ np.asarray(shift) / count / np.std(shift, axis=0)
    np.testing.assert_allclose(cross, 0, atol=5 / np.sqrt(count))
    assert np.all(np.std(shift, axis=0) > 0.1)


def test_without_a_network_there_is_no_displacement():
    assert not np.any(smooth(full=True).sample_base(2, key=jax.random.key(0))[1])


@pytest.mark.parametrize("kind", ["smooth", "implicit"])
def test_samples_are_the_outputs_of_base_draws_in_the_layers_shapes(kind):
    generator = (
        smooth(full=True, network=net()) if kind == "smooth" else ImplicitGenerator(net(), SHAPES, 2.0)
    )
    draws = generator.sample(4, key=jax.random.key(0))
    assert [w.shape for w in draws] == [(4, *shape) for shape in SHAPES]
    white, _ = generator.sample_base(4, key=jax.random.key(0))
    jax.tree.map(np.testing.assert_array_equal, draws, generator.to_outputs(white))
    np.testing.assert_allclose(generator.to_base(draws), white, rtol=1e-12)


def test_the_implicit_generator_respects_its_bound_and_fills_it():
    wild = ImplicitGenerator(net(scale=100.0), SHAPES, 2.0)
    flat = flatten(wild.sample(200, key=jax.random.key(0)))
    assert np.max(np.abs(flat)) <= 2.0
    assert np.mean(np.abs(flat) > 1.9) > 0.5


def test_the_bound_is_no_bar_to_small_draws():
    """`b tanh(x / b) = x (1 - O(x^2 / b^2))`: with b = 1000 and |x| of order one, 1e-5 is ample."""
    network = net()
    loose = ImplicitGenerator(network, SHAPES, 1000.0)
    key = jax.random.key(0)
    expected = network(jax.random.normal(key, (20, NOISE), jnp.float64))
    np.testing.assert_allclose(loose.sample_base(20, key=key)[0], expected, rtol=1e-5)
