"""Critics: what their losses are minimal at. Float64, so that identities hold to rounding."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from novidgp.inference.novi.critics import (
    ScoreModel,
    base_score,
    denoising_loss,
    hyvarinen_loss,
    own_score,
    stein_loss,
)
from novidgp.inference.novi.game import Players
from novidgp.numerics.nets import MLP
from novidgp.posteriors.generators import SmoothGenerator, flatten
from support.densities import COVARIANCE, MEAN, PRECISION, Density, correlated, exact_trace

pytestmark = pytest.mark.usefixtures("x64")
SIZE, NOISE = 8, 3


class SigmaPoints(SmoothGenerator):
    """A generator of `w = xi + g(eps)` whose 'draws' carry the mean and covariance of `(xi, eps)` exactly.

    With a linear g, losses that are quadratic in the noise then have their expectations as values."""

    def __init__(self, network):
        super().__init__((jnp.zeros((SIZE, 1)),), (jnp.zeros((1, SIZE)),), None, network)

    def sample_base(self, count, *, key):
        size = SIZE + NOISE
        points = np.sqrt(size) * np.concatenate([np.eye(size), -np.eye(size)])
        shift = self.network(jnp.asarray(points[:, SIZE:]))
        return jnp.asarray(points[:, :SIZE]) + shift, shift


def linear(weight, bias):
    return MLP((jnp.asarray(weight),), (jnp.asarray(bias),), None, "tanh")


def losses(critic, generator):
    """Denoising, and twice Hyvarinen's objective."""
    options = {"num_samples": 1, "key": jax.random.key(0)}
    hyvarinen = hyvarinen_loss(critic, generator, trace=exact_trace, **options)
    return denoising_loss(critic, generator, **options), 2.0 * hyvarinen


@pytest.mark.parametrize("seed", [0, 1])
def test_denoising_and_hyvarinen_have_the_same_gradient(seed):
    """They differ by a constant, at any critic."""
    rng = np.random.default_rng(seed)
    generator = SigmaPoints(linear(rng.standard_normal((NOISE, SIZE)), rng.standard_normal(SIZE)))
    critic = ScoreModel(linear(rng.standard_normal((SIZE, SIZE)), rng.standard_normal(SIZE)))
    first, second = jax.jit(jax.jacobian(losses))(critic, generator)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9), first, second)
    assert max(float(jnp.max(jnp.abs(g))) for g in jax.tree.leaves(first)) > 1.0


def test_the_score_of_q_minimises_both_losses():
    """`w ~ N(b, I + W^T W)`: the critic that is its score is stationary for both, and another is not."""
    weight = 0.5 * np.random.default_rng(2).standard_normal((NOISE, SIZE))
    bias = np.linspace(-1, 1, SIZE)
    generator = SigmaPoints(linear(weight, bias))
    precision = np.linalg.inv(np.eye(SIZE) + weight.T @ weight)
    gradients = jax.jit(jax.jacobian(losses))
    best = ScoreModel(linear(np.eye(SIZE) - precision, precision @ bias))
    for gradient in gradients(best, generator):
        for leaf in jax.tree.leaves(gradient):
            np.testing.assert_allclose(leaf, 0, atol=1e-9)
    worse = ScoreModel(linear(np.eye(SIZE) - 1.1 * precision, precision @ bias))
    for gradient in gradients(worse, generator):
        assert max(float(jnp.max(jnp.abs(leaf))) for leaf in jax.tree.leaves(gradient)) > 0.01


def gaussian(mean, factor):
    """The generator of one layer that is `N(mean, factor factor^T)`."""
    diagonal = np.diagonal(factor)
    return SmoothGenerator(
        (jnp.asarray(mean)[:, None],),
        (jnp.log(jnp.asarray(diagonal))[None],),
        (jnp.asarray(factor / diagonal[:, None])[None],),
        None,
    )


def test_without_a_critic_the_score_is_that_of_the_gaussian():
    base = jnp.asarray(np.random.default_rng(0).standard_normal((5, 3)))
    np.testing.assert_array_equal(base_score(None, base), -base)
    generator = gaussian(MEAN, np.linalg.cholesky(COVARIANCE))
    v = jnp.asarray(np.random.default_rng(1).standard_normal((5, 3)))
    np.testing.assert_allclose(own_score(None, generator, v), -(v - MEAN) @ PRECISION, rtol=1e-9)


@pytest.mark.parametrize("factor", [0.7, 1.0, 1.3])
def test_the_stein_loss_is_least_at_theorem_2s_critic(factor):
    """For q = N(0, s^2 I), `score_p - score_q = P mean - (P - I / s^2) x` is linear in x, and so is the best
    critic phi, at which the discrepancy is `FD / (4 lambda)`; at `f phi` it is `2 f - f^2` of that.

    Here `FD = |P mean|^2 + s^2 |P - I / s^2|^2`. The mean over 20,000 draws is within five standard errors,
    from the spread of the same terms over as many draws in NumPy."""
    scale, regularisation, count = 0.5, 0.8, 20_000
    pull, excess = PRECISION @ MEAN, np.eye(3) / scale**2 - PRECISION
    weight, bias = (factor * part / (2 * regularisation) for part in (excess, pull))
    players = Players(None, gaussian(np.zeros(3), scale * np.eye(3)), None)

    @jax.jit
    def loss(critic):
        return stein_loss(
            critic,
            players,
            None,
            target=Density(correlated, 3, count),
            regularisation=regularisation,
            trace=exact_trace,
            key=jax.random.key(0),
        )

    x = scale * np.random.default_rng(0).standard_normal((count, 3))
    phi = x @ weight + bias
    terms = np.sum((pull - x @ PRECISION) * phi - regularisation * phi**2, axis=1)
    error = np.std(terms) / np.sqrt(count)
    divergence = np.sum(pull**2) + scale**2 * np.sum(excess**2)
    best = divergence / (4 * regularisation)
    assert 10 * error < 0.09 * best  # the other critics are 0.09 of it away
    np.testing.assert_allclose(loss(linear(weight, bias)), -(2 * factor - factor**2) * best, atol=5 * error)


def test_flat_rows_and_layers_agree():
    """`own_score` works on flat rows: as the generator's own sample has them."""
    generator = gaussian(MEAN, np.linalg.cholesky(COVARIANCE))
    v = generator.sample(4, key=jax.random.key(0))
    base, _ = generator.sample_base(4, key=jax.random.key(0))
    np.testing.assert_allclose(
        own_score(None, generator, flatten(v)), flatten(generator.pull_score(-base)), rtol=1e-9
    )
