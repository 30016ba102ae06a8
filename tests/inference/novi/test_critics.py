"""The two losses that teach a critic a generator's score have the same gradient and minimiser.

For a linear network and critic both are quadratic in the noise. Sigma points carry its mean and covariance
exactly, so expectations are exact to rounding in float64.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from novidgp.inference.novi.critics import ScoreModel, denoising_loss, hyvarinen_loss
from novidgp.numerics import stein
from novidgp.numerics.nets import MLP
from novidgp.posteriors.generators import AbstractGenerator, Flat, Shapes

SIZE, NOISE = 8, 3
KEY = jax.random.key(0)
pytestmark = pytest.mark.usefixtures("x64")


class SigmaPoints(AbstractGenerator):
    """`w = xi + g`, `g` linear in eps, at points with the mean and covariance of `(xi, eps)`."""

    base: Flat
    shift: Flat
    shapes: Shapes = ((SIZE, 1),)

    def sample_base(self, count, *, key):
        return self.base, self.shift

    def _unused(self, *_, **__):
        raise NotImplementedError

    to_outputs = to_base = pull_score = sample = propagate = _unused


def linear(weight, bias):
    return MLP((jnp.asarray(weight),), (jnp.asarray(bias),), None, "tanh")


def sigma_points(network):
    size = SIZE + NOISE
    points = jnp.asarray(np.sqrt(size) * np.concatenate([np.eye(size), -np.eye(size)]))
    shift = network(points[:, SIZE:])
    return SigmaPoints(points[:, :SIZE] + shift, shift)


def gradients(critic, generator):
    """Of the denoising loss, and of twice Hyvarinen's."""
    trace = stein.make_trace("exact")
    return (
        jax.grad(lambda c: denoising_loss(c, generator, num_samples=1, key=KEY))(critic),
        jax.grad(lambda c: 2.0 * hyvarinen_loss(c, generator, num_samples=1, trace=trace, key=KEY))(critic),
    )


@pytest.mark.parametrize("seed", [0, 1])
def test_both_losses_have_the_same_gradient_at_any_critic(seed):
    """They differ by a constant."""
    rng = np.random.default_rng(seed)
    generator = sigma_points(linear(rng.standard_normal((NOISE, SIZE)), rng.standard_normal(SIZE)))
    critic = ScoreModel(linear(rng.standard_normal((SIZE, SIZE)), rng.standard_normal(SIZE)))
    denoising, implicit = gradients(critic, generator)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9), denoising, implicit)
    assert max(float(jnp.max(jnp.abs(g))) for g in jax.tree.leaves(denoising)) > 1.0


def test_the_score_of_q_is_stationary_for_both_losses():
    """`w ~ N(b, I + W^T W)`, whose score is `-P (w - b)` with the precision P."""
    weight, bias = np.random.default_rng(2).standard_normal((NOISE, SIZE)), np.linspace(-1, 1, SIZE)
    precision = np.linalg.inv(np.eye(SIZE) + weight.T @ weight)
    critic = ScoreModel(linear(np.eye(SIZE) - precision, precision @ bias))
    for gradient in gradients(critic, sigma_points(linear(weight, bias))):
        for leaf in jax.tree.leaves(gradient):
            np.testing.assert_allclose(leaf, 0, atol=1e-9)
