"""The wide last layer: what a prediction needs of it.

It is the trained model's last layer with other inducing points, many of them, and a Gaussian posterior,
behind hidden layers that follow their means: so it was solved for, and noise there would blur it. What its
points leave unexplained of the prior is left out (the deterministic conditional of Seeger et al. 2003): the
layer is a GP with the kernel that the points span, whose posterior is the one that was solved for.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from novidgp.model.conv_layers import PatchSumLayer
from novidgp.model.layers import GPLayer, Layer, Moments

Numbers = Array | np.ndarray


class WidePoints(NamedTuple):
    """What a wide layer has of its own in the place of what was trained."""

    inducing: Float[Numbers, "1 _m d"]
    places: Float[Numbers, "g 2"] | None
    """Where every inducing patch is, for a layer that sums over patches with their places."""
    log_stretch: Float[Numbers, ""]
    """Of the trained kernel's lengthscales."""


class WideLayer(NamedTuple):
    """Posterior moments at h are `c(h) weights` and `|c(h) spread|^2`, `c` the correlations with the inducing
    outputs."""

    points: WidePoints
    weights: Float[Numbers, "m p"]
    spread: Float[Numbers, "m m"]

    def moments(self, last: Layer, h: Float[Array, "n d"]) -> Moments:
        """Moments `(1, n, p)` at the inputs `h` of the layer `last` of a model."""
        cross = correlations(widened(last, self.points), h)
        variance = jnp.sum((cross @ self.spread) ** 2, axis=-1, keepdims=True)
        return Moments((cross @ self.weights)[None], variance[None])


def widened(last: Layer, points: WidePoints) -> Layer:
    """The layer `last` with other inducing points and lengthscales."""
    kernel = jax.tree_util.tree_map_with_path(
        lambda path, leaf: leaf + points.log_stretch if _is_lengthscale(path) else leaf, last.kernel
    )
    layer = eqx.tree_at(lambda layer: (layer.kernel, layer.inducing), last, (kernel, points.inducing))
    if points.places is None:
        return layer
    return eqx.tree_at(lambda layer: layer.places, layer, points.places, is_leaf=lambda part: part is None)


def _is_lengthscale(path: tuple) -> bool:
    """Whether a leaf of a kernel is a lengthscale of the inputs; those of places stay as they are."""
    names = [getattr(part, "name", None) for part in path]
    return names[-1] == "log_lengthscale" and "place" not in names


def correlations(layer: Layer, rows: Float[Array, "n d"]) -> Float[Array, "n m"]:
    """Correlations with the inducing outputs; those of images one at a time, so that the distances of an
    image's patches stay in the processor's cache."""
    if isinstance(layer, PatchSumLayer):
        return jax.lax.map(lambda row: layer.cross(row[None])[0, 0], rows)
    assert isinstance(layer, GPLayer)
    return layer.cross(rows)[0]
