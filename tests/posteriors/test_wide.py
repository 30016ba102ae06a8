"""Moments of a wide layer against the layer it widens, with the same inducing points, in float64."""

import jax.numpy as jnp
import numpy as np
import pytest

from novidgp.posteriors.wide import WideLayer, WidePoints, widened
from support.dense import make_layer

pytestmark = pytest.mark.usefixtures("x64")


def test_with_the_same_points_it_is_the_layer_without_what_they_leave_unexplained():
    rng = np.random.default_rng(0)
    layer, h = make_layer(0), jnp.asarray(rng.standard_normal((5, 2)))
    points, outputs = layer.num_inducing, layer.outputs
    v, scale = rng.standard_normal((points, outputs)), np.tril(rng.standard_normal((points, points)))
    root = np.sqrt(layer.kernel.variance()[0]) * np.asarray(layer.root()[0]).T
    wide = WideLayer(WidePoints(layer.inducing, None, jnp.zeros(())), root @ v, root @ scale)
    mean, variance = wide.moments(layer, h)
    expected = layer.conditional(h, jnp.asarray(v)[None], jnp.broadcast_to(scale, (outputs, points, points)))
    left = layer.conditional(h, jnp.asarray(v)[None])
    np.testing.assert_allclose(mean + layer.mean(h), expected.mean, atol=1e-10)
    of_points = expected.variance - left.variance
    np.testing.assert_allclose(jnp.broadcast_to(variance, of_points.shape), of_points, atol=1e-10)


def test_lengthscales_are_stretched():
    """Twice the lengthscales, and twice as far from everything: the same correlations."""
    layer, h = make_layer(0), jnp.asarray(np.random.default_rng(1).standard_normal((4, 2)))
    longer = widened(layer, WidePoints(2.0 * layer.inducing, None, jnp.log(jnp.asarray(2.0))))
    np.testing.assert_allclose(longer.cross(2.0 * h), layer.cross(h), atol=1e-10)
