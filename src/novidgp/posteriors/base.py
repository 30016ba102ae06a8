"""A posterior: a distribution over the inducing outputs of all layers that can be sampled.

`paths` is the one way in which prediction uses it: what each path through the model is conditioned on. Most
posteriors sample V. A Gaussian posterior leaves V to be integrated out row by row, which needs fewer paths
for the same accuracy.
"""

import abc
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from novidgp.model.dgp import DGP, Inducing, Scales
from novidgp.model.layers import Moments


class Paths(NamedTuple):
    """What paths through a model are conditioned on."""

    v: Inducing
    """One draw of all layers' inducing outputs for each path, in the model's own coordinates."""
    scales: Scales | None
    """Covariance factors, in whitened coordinates, of a Gaussian around every draw that is to be integrated
    out; None where V is the draw."""
    key: PRNGKeyArray
    """Of the layers' conditional noise."""


class Posterior(eqx.Module):
    """A distribution over the inducing outputs of all layers."""

    @abc.abstractmethod
    def sample(self, count: int, *, key: PRNGKeyArray) -> Inducing:
        """`count` joint draws, on the leading axis of every layer's array."""

    def paths(self, model: DGP, count: int, *, key: PRNGKeyArray) -> Paths:
        """What `count` paths through `model` are conditioned on: draws, unless there is a better way."""
        sample_key, path_key = jax.random.split(key)
        return Paths(self.sample(count, key=sample_key), None, path_key)

    def propagate(self, model: DGP, x: Float[Array, "n d"], num_paths: int, *, key: PRNGKeyArray) -> Moments:
        """`num_paths` paths through `model`: moments of the last layer, `(num_paths, n, p)`."""
        v, scales, path_key = self.paths(model, num_paths, key=key)
        moments = model.propagate(x, v, scales=scales, key=path_key)
        return Moments(*(jnp.broadcast_to(m, (num_paths, *m.shape[1:])) for m in moments))
