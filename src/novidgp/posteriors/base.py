"""A posterior: a distribution over the inducing outputs of all layers that can be sampled.

`propagate` is the one way in which prediction uses it: paths through the model, and the last layer's moments.
Most posteriors sample V and condition on it. A Gaussian posterior integrates V out row by row, which needs
fewer paths for the same accuracy.
"""

import abc

import equinox as eqx
import jax
from jaxtyping import Array, Float, PRNGKeyArray

from novidgp.model.dgp import DGP, Inducing
from novidgp.model.layers import Moments


class Posterior(eqx.Module):
    """A distribution over the inducing outputs of all layers."""

    @abc.abstractmethod
    def sample(self, count: int, *, key: PRNGKeyArray) -> Inducing:
        """`count` joint draws, on the leading axis of every layer's array."""

    @abc.abstractmethod
    def propagate(self, model: DGP, x: Float[Array, "n d"], num_paths: int, *, key: PRNGKeyArray) -> Moments:
        """`num_paths` paths through `model`: moments of the last layer, `(num_paths, n, p)`."""


def propagate_samples(
    posterior: Posterior, model: DGP, x: Float[Array, "n d"], num_paths: int, *, key: PRNGKeyArray
) -> Moments:
    """Sample V, then condition on it: what every posterior without a closed form does."""
    sample_key, path_key = jax.random.split(key)
    return model.propagate(x, posterior.sample(num_paths, key=sample_key), key=path_key)
